"""How far a run is: what is printed, and when the time left is part of it."""

import re

import pytest

from corag.core.runs.rows import Row
from corag.core.types import Answer, Question, TokenUsage
from eval.experiment import progress
from eval.experiment.progress import RunProgress


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


def test_failures_and_other_parts_are_counted(capsys):
    (last,) = lines_of(capsys, 2, rows(2, error="it failed"), total=2, status=lambda: "2/2 workers")
    assert re.search(r"questions/s, .* computed tokens/s, 2 failed, 2/2 workers$", last)
