"""How far a run is: what a terminal and a log are shown, and when the time left is told."""

import io
import re
import sys

import pytest

from corag.core.runs.rows import Row
from corag.core.types import Answer, Question, TokenUsage
from eval.experiment import progress
from eval.experiment.progress import Rate, RunProgress


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
    *_, last = lines = run(io.StringIO(), monkeypatch, 5, total=9, answered=4).splitlines()
    assert len(lines) == 2 and lines[0].startswith("[ircot]: 5/9 questions, ")
    assert re.fullmatch(r"\[ircot\]: 9/9 questions, [\d.]+ questions/s, [\d,]+ computed tokens/s", last)


@pytest.mark.parametrize(("finished", "told"), [(1, False), (2, False), (3, True)])
def test_the_time_left_is_not_told_by_the_quickest_questions(monkeypatch, finished, told):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    lines = run(io.StringIO(), monkeypatch, finished, total=10, answered=5).splitlines()
    assert (" left" in lines[-1]) is told


def test_failures_and_other_parts_are_counted(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    with RunProgress("sample", total=2, rate=Rate("chains", lambda row: 8)) as shown:
        for row in rows(2, error="it failed"):
            shown.advance(row)
    assert re.search(r" chains/s, .* computed tokens/s, 2 failed$", file.getvalue().splitlines()[-1])


def test_nothing_to_do_is_one_line_without_rates(monkeypatch):
    assert run(io.StringIO(), monkeypatch, 0, total=3, answered=3) == "[ircot]: 3/3 questions\n"


def test_a_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = run(Terminal(), monkeypatch, 4, total=6, answered=1)
    assert "━" in shown and "[ircot]" in shown and "5/6 questions" in shown and " left" in shown


def test_a_narrow_terminal_is_told_everything(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    shown = " ".join(run(Terminal(), monkeypatch, 4, total=6, answered=1).split())
    assert "━" in shown and "5/6 questions" in shown and " left" in shown and "…" not in shown


def test_what_is_printed_beside_a_bar_goes_where_it_would_without(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr("sys.stdout", io.StringIO())
    with RunProgress("own", total=1):
        print("found")
    assert sys.stdout.getvalue() == "found\n"
