"""What memory faults do in a process with Java in it."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGACTION_BYTES = 256  # more than ``struct sigaction`` takes on any platform (152 on Linux x86-64)


@contextmanager
def keep_fault_handler() -> Iterator[None]:
    """Put the handler of SIGSEGV back as it was, whatever libraries that are loaded inside do to it.

    Java provokes memory faults on purpose (null checks, safepoints) and handles them. Some native libraries
    replace its handler by one that ends the process (xgrammar, which vLLM loads, and Ray, when it starts and
    when it ends): a search with Lucene afterwards would sooner or later die with it.
    """
    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    # sigaction itself: Python's signal module sees only handlers that were set through it.
    library.sigaction(int(signal.SIGSEGV), None, action)
    try:
        yield
    finally:
        library.sigaction(int(signal.SIGSEGV), action, None)
