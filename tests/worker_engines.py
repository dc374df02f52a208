"""Scripted models that Ray's workers can open: light, so that a worker starts as fast as Ray lets it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from corag.core.protocols import GenerateRequest, ScoreRequest
from tests.fakes import ScriptedGenerator


def reply(request: GenerateRequest) -> str:
    """Think twice of what the story is about, then answer with the question's own number."""
    text = request.prompt.text
    number = text.split("?")[0].split()[-1]
    if text.startswith("READ"):
        return f"A{number}"
    if "Velden" not in text.rpartition("\n")[2]:
        return "The author is Mara Velden."
    return f"She was born in Tarn Hollow. So the answer is: A{number}."


async def open_scripted(
    pause: float = 0.0, deadly: str = "", deaths: Path | None = None
) -> ScriptedGenerator:
    """Open a model that takes ``pause`` seconds for each reply.

    Its process ends when it is asked about what is ``deadly``, and leaves a line in the file ``deaths``.
    """

    async def wait(request: GenerateRequest | ScoreRequest) -> None:
        if deadly and deadly in request.prompt.text:
            if deaths is not None:
                with deaths.open("a") as noted:
                    noted.write(f"{os.getpid()}\n")
            os._exit(1)
        await asyncio.sleep(pause)

    return ScriptedGenerator(reply, wait)
