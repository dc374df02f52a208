"""What a process has once: its clock, its handlers of memory faults, and what it ends with."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_OFFSET = time.time() - time.perf_counter()
_LIBC = ctypes.CDLL(None)
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # those that Java handles
_SIGACTION_BYTES = 256  # more than ``struct sigaction`` takes on any platform (152 on Linux x86-64)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
OWNER = "CORAG_OWNER"
_WATCHER_NAME = "watching the owner"


def unix_time(moment: float | None = None) -> float:
    """Return the seconds since 1970 of a moment of ``time.perf_counter``, by default now.

    Times compare exactly within a process, between processes as far as their clocks agree.
    The system's clock is read once per process, so setting it while a run goes on moves nothing.
    """
    return _OFFSET + (time.perf_counter() if moment is None else moment)


def fault_handlers() -> Mapping[signal.Signals, bytes]:
    """Return what the system calls at a memory fault and the like, by signal: each a ``struct sigaction``.

    Java provokes such faults on purpose (null checks, safepoints, divisions) and handles them. Some native
    libraries replace its handlers by ones that end the process: xgrammar, which vLLM loads, which TRL loads;
    and Ray, when it starts and when it ends. Without Java's, Lucene sooner or later ends the process, too.
    """
    handlers = {}
    for number in _FAULTS:
        action = ctypes.create_string_buffer(_SIGACTION_BYTES)
        # sigaction itself: Python's signal module sees only handlers that were set through it.
        _LIBC.sigaction(number, None, action)
        handlers[number] = action.raw
    return handlers


def set_fault_handlers(handlers: Mapping[signal.Signals, bytes]) -> None:
    """Put back handlers that :func:`fault_handlers` returned; takes a few microseconds."""
    for number, action in handlers.items():
        _LIBC.sigaction(number, action, None)


@contextmanager
def keep_fault_handlers() -> Iterator[None]:
    """Put the handlers of faults back as they were, whatever libraries that are loaded inside do to them."""
    handlers = fault_handlers()
    try:
        yield
    finally:
        set_fault_handlers(handlers)


def mark_processes() -> None:
    """Mark the processes that this one starts from now on as its own, to end with it.

    Engines and trainings are processes of their own. When the process that started them is killed they would
    go on, for minutes or for good, and keep the cores or the GPU busy. So each watches the process that owns
    it (:func:`end_with_owner`). Children inherit the environment: that is how they learn which one.
    """
    os.environ[OWNER] = str(os.getpid())


def end_with_owner() -> None:
    """End this process when its owner ends, however it does.

    No other process is ever signalled: a parent may have adopted this one (systemd, slurmstepd). Does nothing
    without an owner, as in a server that a user started.
    """
    owner = int(os.environ.get(OWNER, "0"))
    # In the owner itself there is nothing to watch, and without pidfd (outside Linux) no way to.
    if not owner or owner == os.getpid() or not hasattr(os, "pidfd_open"):
        return
    # A forked process begins again: threads are not inherited.
    if any(thread.name == _WATCHER_NAME for thread in threading.enumerate()):
        return
    try:
        # A file descriptor that becomes readable once the process has ended. Unlike a number that is looked
        # at now and then it cannot mean another process that got the same number.
        descriptor = os.pidfd_open(owner)
    except ProcessLookupError:  # it was killed while this process started
        _end()
        return
    except OSError:  # a system that forbids it
        return
    threading.Thread(target=_end_after, args=(descriptor,), name=_WATCHER_NAME, daemon=True).start()


def _end_after(descriptor: int) -> None:
    select.select([descriptor], [], [])
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # nothing is left to save


def kill_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Return a function that lets the process that calls it get a signal when its parent ends.

    To be called in that process, or as ``preexec_fn`` while it is started. The system sends the signal
    (prctl(2), PR_SET_PDEATHSIG), whatever the process is at. ``parent``: a process whose parent is another by
    the time of the call is an orphan, and killed at once. Outside Linux nothing happens.
    """

    def end_with_parent() -> None:
        if sys.platform == "linux":
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(number))
            if os.getppid() != parent:
                _end()

    return end_with_parent
