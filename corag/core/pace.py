"""How fast some work goes and how long the rest of it takes: the end of every line of progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def clock(seconds: float) -> str:
    """Write a time as hours, minutes and seconds.

    >>> clock(3725.4), clock(59)
    ('1:02:05', '0:59')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def pace(count: float, seconds: float, total: float = 0) -> str:
    """Write how many things are done in a second and, where their number is known, the time that is left.

    >>> pace(12_000, 60), pace(12, 60, 24)
    ('200/s', '0.20/s, 1:00 left')
    """
    rate = count / max(seconds, 1e-6)
    rate_text = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2f}/s"
    return f"{rate_text}{_time_left(count, rate, total)}"


def _time_left(count: float, rate: float, total: float) -> str:
    # Less than a hundredth says nothing about the rest.
    return f", {clock((total - count) / rate)} left" if total > count >= max(0.01 * total, 1) else ""


@contextmanager
def reporting(line: Callable[[float], str], report: Callable[[str], None], every: float) -> Iterator[None]:
    """Report a line every so many seconds for the length of a block, from another thread.

    ``line``: makes it, from the seconds since the beginning; of an empty one nothing is reported.
    """
    began, stop = time.monotonic(), threading.Event()

    def report_lines() -> None:
        while not stop.wait(every):
            if text := line(time.monotonic() - began):
                report(text)

    thread = threading.Thread(target=report_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
