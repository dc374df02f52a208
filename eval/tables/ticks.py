"""Round ticks of a log axis of tokens, for the pictures of sweeps, tables and reports."""

from __future__ import annotations

import math
from collections.abc import Sequence

_MOST_TICKS = 9


def tick_places(tokens: Sequence[float]) -> list[float]:
    """Return round ticks, the first below and the last above all points, with a little room.

    Of points that spend nothing the first tick is the place, so it is below all others.

    >>> tick_places([600, 9000])
    [500.0, 1000.0, 2000.0, 5000.0, 10000.0]
    >>> tick_places([0, 1100, 1900])
    [500.0, 1000.0, 2000.0]
    >>> tick_places([30, 90_000])
    [10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0, 30000.0, 100000.0]
    """
    spending = [each for each in tokens if each] or [100.0]
    least, most = min(spending) / (1.05 if all(tokens) else 1.5), max(spending) * 1.05
    powers = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    for leads in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{lead}e{power}") for power in powers for lead in leads]
        first = max(number for number, tick in enumerate(ticks) if tick <= least)
        last = min(number for number, tick in enumerate(ticks) if tick >= most)
        if last - first < _MOST_TICKS:
            break
    return ticks[first : last + 1]


def tick_label(tokens: float) -> str:
    """Write a tick.

    >>> tick_label(500.0), tick_label(50.0), tick_label(200000.0)
    ('500', '50', '200k')
    """
    return f"{tokens / 1000:g}k" if tokens >= 1000 else f"{tokens:g}"
