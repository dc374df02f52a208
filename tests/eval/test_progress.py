"""How far a run is: what a terminal and a log are shown, and when the time left is told."""

import asyncio
import io
import re
import sys
import time

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


class Terminal(io.StringIO):
    def isatty(self):
        return True


def rows(count, **changes):
    usage = {"reader": TokenUsage(1, 10, 5, 15)}
    return [Row(Question(str(n), "Who?"), Answer("x"), (), usage, 0.0, **changes) for n in range(count)]


def run(file, monkeypatch, count, **given):
    monkeypatch.setattr("sys.stderr", file)
    with RunProgress("[ircot]", **given) as shown:
        for row in rows(count):
            shown.advance(row)
    return file.getvalue()


def test_a_log_gets_a_line_at_the_first_question_and_at_the_end(monkeypatch):
    *_, last = lines = run(io.StringIO(), monkeypatch, 5, total=9, answered_count=4).splitlines()
    assert len(lines) == 2 and lines[0].startswith("[ircot]: 5/9 questions, ")
    assert re.fullmatch(r"\[ircot\]: 9/9 questions, [\d.]+ questions/s, [\d,]+ computed tokens/s", last)


@pytest.mark.parametrize(
    ("in_flight", "finished", "told"), [(1, 10, False), (1, 11, True), (16, 16, False), (16, 17, True)]
)
def test_the_time_left_is_not_told_by_the_quickest_questions(monkeypatch, in_flight, finished, told):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    lines = run(
        io.StringIO(), monkeypatch, finished, total=90, answered_count=5, in_flight=in_flight
    ).splitlines()
    assert (" left" in lines[-1]) is told


def test_the_time_left_leaves_out_what_comes_before_the_first_answer(monkeypatch):
    """An engine compiles for a minute at its first call, once."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    times = iter([1000.0, *(1060.0 + n // 4 for n in range(400))])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    shown = RunProgress("[ircot]", total=1011)
    file = io.StringIO()
    shown._console.file = file
    for row in rows(11):
        shown.advance(row)
    minutes, seconds = re.search(r"(\d+):(\d+) left", file.getvalue()).groups()
    assert int(minutes) * 60 + int(seconds) < 1500, "1,000 questions at about one a second"


async def test_calls_are_told_before_the_first_question_is_finished(monkeypatch):
    """Six questions at once may take seven minutes each."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    work = Work()

    async def task(question, generator, retriever):
        for _ in range(3):
            await generator.generate(REQUEST)
        await asyncio.sleep(0.1)
        return rows(1)[0]

    executor = LocalExecutor(ScriptedGenerator(lambda request: "yes"), None)
    answer = executor.bind(task, work)
    with RunProgress("[corag]", total=2, in_flight=2, work=work) as shown:
        for row in await asyncio.gather(answer(Question("1", "a")), answer(Question("2", "b"))):
            shown.advance(row)
    early = [line for line in file.getvalue().splitlines() if "0/2 questions" in line]
    assert early and re.fullmatch(
        r"\[corag\]: 0/2 questions, 6 calls, \d+ computed tokens, [\d,]+ computed tokens/s", early[-1]
    )


def test_failures_and_other_parts_are_counted(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    with RunProgress("sample", total=2) as shown:
        for row in rows(2, error="it failed"):
            shown.advance(row)
    assert re.search(r"questions/s, .* computed tokens/s, 2 failed$", file.getvalue().splitlines()[-1])


def test_nothing_to_do_is_one_line_without_rates(monkeypatch):
    assert run(io.StringIO(), monkeypatch, 0, total=3, answered_count=3) == "[ircot]: 3/3 questions\n"


def test_a_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = run(Terminal(), monkeypatch, 14, total=16, answered_count=1)
    assert "━" in shown and "[ircot]" in shown and "15/16 questions" in shown and " left" in shown


def test_a_narrow_terminal_is_told_everything(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    shown = " ".join(run(Terminal(), monkeypatch, 14, total=16, answered_count=1).split())
    assert "━" in shown and "15/16 questions" in shown and " left" in shown and "…" not in shown


def test_what_is_printed_beside_a_bar_goes_where_it_would_without(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr("sys.stdout", io.StringIO())
    with RunProgress("own", total=1):
        print("found")
    assert sys.stdout.getvalue() == "found\n"


def test_of_two_runs_at_once_the_terminal_shows_one_bar_after_the_other(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("eval.experiment.progress._BAR_SECONDS", 0.02)
    first, second = RunProgress("first", total=1), RunProgress("second", total=1)
    with first:
        second.__enter__()
        first.advance(*rows(1))
        time.sleep(0.1)
    before = screen.getvalue()
    time.sleep(0.3)
    second.advance(*rows(1))
    second.__exit__(None, None, None)
    assert "first" in before and "second" not in before
    assert "second" in screen.getvalue() and "1/1" in screen.getvalue()
