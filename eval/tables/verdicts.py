"""What a table says in a sentence: which run is the best, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from corag.core.errors import in_a_row
from eval.scoring.rows import measure_title
from eval.statistics.comparisons import LEVEL, Leading
from eval.statistics.intervals import Interval, Spread
from eval.tables.columns import percent

_MAX_RUNS = 3  # runs that are named one by one


def verdict(
    values: Mapping[str, Mapping[str, Interval | Spread | None]],
    leaders: Mapping[str, Leading],
    recall_at: int,
) -> str:
    """Return which run is the best and how sure that is; "" for one run, or without gold answers.

    By F1; without it by EM, or else the first measure that there is. ``values``: by run and measure;
    ``leaders``: of these runs.
    """
    leading = leaders.get("f1") or leaders.get("em") or next(iter(leaders.values()), None)
    if len(values) < 2 or not leading:
        return ""
    title = measure_title(leading.measure, recall_at)
    value = values[leading.best[0]][leading.measure]
    # Beside what all runs are measured on a run may have questions of its own, which its figure is of too.
    is_of_all = value is not None and math.isclose(value.mean, leading.mean, abs_tol=1e-9)
    top = percent(value) if is_of_all else f"{100 * leading.mean:.1f}"
    on = f"on {count_questions(*leading.sizes)}"
    if not (leading.worse or leading.even or leading.untested):
        return f"All {len(leading.best)} runs tie in {title}: {top} {on}."
    # Of several that tie, one is the baseline of the tests.
    against = f" against {leading.best[0]}" if len(leading.best) > 1 else ""
    rule = f"Holm's rule over {_count_text(leading.tests, 'test')}, level {LEVEL:g}"
    how = f"{on} (paired sign-flip tests{against}, {rule})."
    first = f"{_list(leading.best)} {'has' if len(leading.best) == 1 else 'have'} the highest {title}, {top}"
    others = leading.even or leading.untested
    if leading.worse and not others:
        which = "the other run" if len(leading.worse) == 1 else f"all {len(leading.worse)} others"
        sentence = f"{first}, significantly above {which} {how}"
    elif leading.worse:
        even = f" but not above {_list(leading.even)}" if leading.even else ""
        sentence = f"{first}, significantly above {_list(leading.worse)}{even} {how}"
    elif leading.even:
        sentence = f"{first}, but no difference in {title} is significant {how} {_power(leading)}"
    else:
        sentence = f"{first}."
    return " ".join(filter(None, [sentence, _untested_note(leading)]))


def _power(leading: Leading) -> str:
    """Return how large a difference would have to be."""
    least = leading.detectable
    if least is None:
        return "Too few questions differ to detect a difference."
    if least > 1:
        return "There are too few questions to detect a difference."
    points = _count_text(round(100 * least), "point") if least >= 0.005 else "below 1 point"
    return f"The minimum detectable difference (MDE) is {points} (80% power)."


def _untested_note(leading: Leading) -> str:
    if not leading.untested:
        return ""
    return f"Half of the questions failed, so not tested: {_list(leading.untested)}."


def count_questions(fewest: int, most: int) -> str:
    """Write how many questions something is of.

    >>> count_questions(1, 1), count_questions(4, 6)
    ('1 question', '4 to 6 questions')
    """
    return (
        f"{fewest:,} to {_count_text(most, 'question')}" if fewest < most else _count_text(most, "question")
    )


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _list(names: Sequence[str]) -> str:
    """Write some names, of many the first.

    >>> _list(["a"]), _list(["a", "b"]), _list(list("abcdef"))
    ('a', 'a and b', 'a, b, c and 3 others')
    """
    many = len(names) > _MAX_RUNS + 1
    return in_a_row([*names[:_MAX_RUNS], f"{len(names) - _MAX_RUNS} others"] if many else names)
