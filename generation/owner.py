"""A killed run must not leave its engine behind.

vLLM's engine and worker are processes of their own. When the process that opened them is killed they go on,
for minutes or for good, and keep the cores or the GPU busy. So the worker, where our plug-in lives, watches
the process that owns it.
"""

from __future__ import annotations

import os
import select
import signal
import threading

OWNER = "CORAG_ENGINE_OWNER"


def own_engines() -> None:
    """Say that the engines which this process starts are its own."""
    os.environ[OWNER] = str(os.getpid())


def end_with_owner() -> None:
    """End this worker and the engine that started it when their owner ends, however it does.

    Without an owner do nothing.
    """
    owner = int(os.environ.get(OWNER, "0"))
    if not owner or owner == os.getpid() or not hasattr(os, "pidfd_open"):
        return
    try:
        ended = os.pidfd_open(owner)  # readable once the process has ended
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
    for process in (engine, os.getpid()):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
