"""Times that can be compared: within a process exactly, between processes as far as their clocks agree."""

from __future__ import annotations

import time

_OFFSET = time.time() - time.perf_counter()


def unix_time(moment: float | None = None) -> float:
    """Return the seconds since 1970 of a moment of ``time.perf_counter``, by default now.

    The system's clock is read once per process, so setting it while a run goes on moves nothing.
    """
    return _OFFSET + (time.perf_counter() if moment is None else moment)
