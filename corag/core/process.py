"""What a process has once: its clock, and its handler of memory faults."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

_OFFSET = time.time() - time.perf_counter()
_SIGACTION_BYTES = 256  # more than ``struct sigaction`` takes on any platform (152 on Linux x86-64)


def unix_time(moment: float | None = None) -> float:
    """Return the seconds since 1970 of a moment of ``time.perf_counter``, by default now.

    Times compare exactly within a process, between processes as far as their clocks agree.
    The system's clock is read once per process, so setting it while a run goes on moves nothing.
    """
    return _OFFSET + (time.perf_counter() if moment is None else moment)


@contextmanager
def keep_fault_handler() -> Iterator[None]:
    """Put the handler of SIGSEGV back as it was, whatever libraries that are loaded inside do to it.

    Java provokes memory faults on purpose (null checks, safepoints) and handles them. Some native libraries
    replace its handler by one that ends the process (xgrammar, which vLLM loads, and Ray, when it starts and
    when it ends): a search with Lucene afterwards would sooner or later die with it.
    """
    import ctypes

    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    # sigaction itself: Python's signal module sees only handlers that were set through it.
    library.sigaction(int(signal.SIGSEGV), None, action)
    try:
        yield
    finally:
        library.sigaction(int(signal.SIGSEGV), action, None)
