"""Keep Lucene alive beside vLLM: a Java in this process needs the handler of memory faults that it
installed.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGACTION_BYTES = 256
"""More than ``struct sigaction`` takes on any platform (152 bytes on Linux x86-64)."""


@contextmanager
def keep_fault_handler() -> Iterator[None]:
    """Put the handler of SIGSEGV back as it was, whatever libraries that are loaded inside do to it.

    Java provokes memory faults on purpose (null checks, safepoints) and handles them. vLLM loads xgrammar,
    whose native library replaces the handler by one that ends the process: a search afterwards would sooner
    or later die with "Segfault encountered".
    """
    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    library.sigaction(int(signal.SIGSEGV), None, action)
    try:
        yield
    finally:
        library.sigaction(int(signal.SIGSEGV), action, None)
