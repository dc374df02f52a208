"""Living with vLLM's processes and libraries: they end with the run, and leave Java's memory faults to Java.

Apart from the engine, since the worker process loads it (through :mod:`generation.forced`) and not the
engine.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OWNER = "CORAG_ENGINE_OWNER"
_SIGACTION_BYTES = 256  # more than ``struct sigaction`` takes on any platform (152 on Linux x86-64)


def own_engines() -> None:
    """Say that the engines which this process starts are its own.

    vLLM's engine and worker are processes of their own. When the process that opened them is killed they go
    on, for minutes or for good, and keep the cores or the GPU busy. So the worker, where our plug-in lives,
    watches the process that owns it. Children inherit the environment: that is how it learns which one.
    """
    os.environ[OWNER] = str(os.getpid())


def end_with_owner() -> None:
    """End this worker and the engine that started it when their owner ends, however it does.

    Does nothing without an owner, as in a server that a user started.
    """
    owner = int(os.environ.get(OWNER, "0"))
    # In the owner itself there is nothing to watch, and without pidfd (outside Linux) no way to.
    if not owner or owner == os.getpid() or not hasattr(os, "pidfd_open"):
        return
    try:
        # A file descriptor that becomes readable once the process has ended. Unlike a number that is looked
        # at now and then it cannot mean another process that got the same number.
        ended = os.pidfd_open(owner)
    except ProcessLookupError:  # it was killed while the engine started
        _end(os.getppid())
        return
    except OSError:
        return
    threading.Thread(target=_end_after, args=(ended, os.getppid()), name="owner", daemon=True).start()


def _end_after(ended: int, engine: int) -> None:
    select.select([ended], [], [])
    _end(engine)


def _end(engine: int) -> None:
    # The engine first, which would report a worker's death as its own failure. SIGKILL: nothing is left to
    # save.
    for process in (engine, os.getpid()):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


@contextmanager
def keep_fault_handler() -> Iterator[None]:
    """Put the handler of SIGSEGV back as it was, whatever libraries that are loaded inside do to it.

    Java provokes memory faults on purpose (null checks, safepoints) and handles them. vLLM loads xgrammar,
    whose native library replaces the handler by one that ends the process: a search with Lucene afterwards
    would sooner or later die with "Segfault encountered".
    """
    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    # sigaction itself: Python's signal module sees only handlers that were set through it.
    library.sigaction(int(signal.SIGSEGV), None, action)
    try:
        yield
    finally:
        library.sigaction(int(signal.SIGSEGV), action, None)
