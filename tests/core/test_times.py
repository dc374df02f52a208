"""When steps and questions began, and to which start of a run they belong."""

import asyncio
import time
from operator import attrgetter
from pathlib import Path

import pytest

from corag.core.gather import gather
from corag.core.prompting.prompt import Prompt
from corag.core.runner import answer_question
from corag.core.runs.folder import RunFolder, read_attempts
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Tools
from corag.core.types import Answer, Question
from tests.fakes import ScriptedGenerator, WordRetriever

QUESTION = Question("q", "Who?")


async def two_branches(question: Question, tools: Tools) -> Answer:
    """Search, then generate and score at the same time, in branches, then generate again."""

    async def short(branch: Tools) -> None:
        await branch.generate(Prompt.of_text("a"), role="short", max_tokens=1)

    async def scored(branch: Tools) -> None:
        await branch.score(Prompt.of_text("a"), "b", role="scored")

    await tools.search("Who", k=1)
    first, second = tools.branch(2)
    await gather([short(first), scored(second)])
    await tools.generate(Prompt.of_text("b"), role="last", max_tokens=1)
    return Answer("x")


async def test_steps_say_when_they_began_on_one_clock(tmp_path: Path) -> None:
    generator = ScriptedGenerator(lambda request: "x", lambda request: asyncio.sleep(0.02))
    before = time.time()
    for _ in range(2):
        with RunFolder(tmp_path, {}, {}) as run:
            run.append(
                await answer_question(QUESTION, two_branches, Tools(QUESTION, generator, WordRetriever([])))
            )
    first, second = read_attempts(tmp_path)
    for row in (first, second):
        search, short, scored, last = sorted(row.steps, key=attrgetter("started"))
        assert (
            isinstance(search, SearchStep)
            and isinstance(scored, ScoreStep)
            and isinstance(last, GenerateStep)
        )
        assert last.role == "last"
        assert 0 <= search.started < short.started <= scored.started < short.started + short.seconds
        assert last.started >= max(step.started + step.seconds for step in (short, scored))
        assert last.started + last.seconds <= row.seconds + 0.001
        assert row.begun >= row.opened
    assert second.opened > first.begun + first.seconds, "each start is told apart"
    assert first.opened == pytest.approx(before, abs=5), "seconds since 1970"
