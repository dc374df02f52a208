"""A method on the toy question, with the model's replies given."""

from __future__ import annotations

from core.tools import Tools
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import QUESTION, WORLD


async def replay(method, config, replies, retriever=None, budget=0, generator=None):
    """Return the answer, the generator with what it was asked, and the tools with their ledger."""
    generator = generator or ScriptedGenerator(replies)
    tools = Tools(QUESTION, generator, retriever or WordRetriever(WORLD), budget=budget)
    return await method(QUESTION, tools, config), generator, tools
