"""How far a run is: what is printed, and when the time left is part of it."""

import asyncio
import re

import pytest

from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.protocols import GenerateRequest, Sampling
from corag.core.runs.rows import Row
from corag.core.types import Answer, Question, TokenUsage
from eval.experiment import progress
from eval.experiment.executor import LocalExecutor
from eval.experiment.progress import RunProgress, Work
from tests.fakes import ScriptedGenerator

REQUEST = GenerateRequest(Prompt((Message("user", (Segment("Hello"),)),)), Sampling(1))


def rows(count, **changes):
    usage = {"reader": TokenUsage(1, 10, 5, 15)}
    return [Row(Question(str(n), "Who?"), Answer("x"), (), usage, 0.0, **changes) for n in range(count)]


def lines_of(capsys, count, rows_=None, **given):
    """The lines that are printed while some rows come."""
    shown = RunProgress("[ircot]", **given)
    with shown.shown():
        for row in rows_ or rows(count):
            shown.advance(row)
    return capsys.readouterr().err.splitlines()


def test_a_run_ends_with_a_line_of_what_was_done(capsys):
    (last,) = lines_of(capsys, 5, total=9, answered_count=4)
    assert re.fullmatch(r"\[ircot\]: 9/9 questions, [\d.]+ questions/s, [\d,]+ computed tokens/s", last)


@pytest.mark.parametrize(
    ("in_flight", "finished", "told"), [(1, 10, False), (1, 11, True), (16, 16, False), (16, 17, True)]
)
def test_the_time_left_is_not_told_by_the_quickest_questions(capsys, in_flight, finished, told):
    (last,) = lines_of(capsys, finished, total=90, answered_count=5, in_flight=in_flight)
    assert (" left" in last) is told


def test_the_time_left_leaves_out_what_comes_before_the_first_answer(monkeypatch):
    """An engine compiles for a minute at its first call, once."""
    times = iter([1000.0, *(1060.0 + n for n in range(400))])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    shown = RunProgress("[ircot]", total=1011)
    for row in rows(11):
        shown.advance(row)
    minutes, seconds = re.search(r"(\d+):(\d+) left", shown.line()).groups()
    assert int(minutes) * 60 + int(seconds) < 1500, "1,000 questions at about one a second"


async def test_calls_are_told_before_the_first_question_is_finished(monkeypatch, capsys):
    """Six questions at once may take seven minutes each."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.02)
    work = Work()

    async def task(question, generator, retriever):
        for _ in range(3):
            await generator.generate(REQUEST)
        await asyncio.sleep(0.1)
        return rows(1)[0]

    executor = LocalExecutor(ScriptedGenerator(lambda request: "yes"), None)
    answer = executor.bind(task, work)
    shown = RunProgress("[corag]", total=2, in_flight=2, work=work)
    with shown.shown():
        for row in await asyncio.gather(answer(Question("1", "a")), answer(Question("2", "b"))):
            shown.advance(row)
    early = [line for line in capsys.readouterr().err.splitlines() if "0/2 questions" in line]
    assert early and re.fullmatch(
        r"\[corag\]: 0/2 questions, 6 calls, \d+ computed tokens, [\d,]+ computed tokens/s", early[-1]
    )


def test_failures_and_other_parts_are_counted(capsys):
    (last,) = lines_of(capsys, 2, rows(2, error="it failed"), total=2, status=lambda: "2/2 workers")
    assert re.search(r"questions/s, .* computed tokens/s, 2 failed, 2/2 workers$", last)


def test_nothing_to_do_is_one_line_without_rates(capsys):
    assert lines_of(capsys, 0, total=3, answered_count=3) == ["[ircot]: 3/3 questions"]
