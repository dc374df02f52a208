"""A method on the toy question, with the model's replies given."""

from __future__ import annotations

from corag.core.tools import SearchStep, Tools
from corag.core.types import TokenUsage
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import QUESTION, WORLD


async def replay(method, config, replies, retriever=None, budget=0, generator=None):
    """Return the answer, the generator with what it was asked, and the tools with their ledger."""
    generator = generator or ScriptedGenerator(replies)
    tools = Tools(QUESTION, generator, retriever or WordRetriever(WORLD), budget=budget)
    answer = await method(QUESTION, tools, config)
    check_ledger(tools)
    return answer, generator, tools


def check_ledger(tools):
    """Each role's line in the ledger is the sum of that role's steps."""
    steps = [step for step in tools.steps if not isinstance(step, SearchStep)]
    roles = {step.role for step in steps}
    assert tools.ledger == {
        role: sum((step.usage for step in steps if step.role == role), TokenUsage()) for role in roles
    }
