"""vLLM's processes: they end with their owner, and must not start a script again.

Apart from the engine, since the process that computes loads it (through :mod:`corag.generation.forced`) and
not the engine.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.system.process import end_with_owner


class OwnerWatch(str):
    """A string in an engine's configuration, which vLLM passes to the processes that it starts.

    Where it arrives, that process begins to watch its owner: before anything else of ours runs there. An
    engine whose owner is killed before the two have connected would wait five minutes for it.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a call that starts the watch, for unpickling."""
        return _watch, (str(self),)


def _watch(argument: str) -> OwnerWatch:
    end_with_owner()
    return OwnerWatch(argument)


def spare_children_interrupts() -> None:
    """Keep Ctrl-C from the processes that this thread starts from now on.

    A terminal, and a notebook that interrupts a cell, send SIGINT to a whole group of processes. In Python it
    shall end the question at work; an engine that got it too would end. The calling thread gets
    none any more either, so it must not be the main one.
    """
    # What a thread blocks, its processes inherit. The tracker is a process of multiprocessing's own, which
    # unblocks SIGINT when it is started, as it is with the first other one.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def refuse_unguarded_main() -> None:
    """Refuse a script that an engine's processes would run once more, each of them.

    vLLM spawns its processes, and a spawned one imports the main module again. What stands below ``if
    __name__ == "__main__":`` is spared; a script without that line would begin anew in each.

    Raises:
        ConfigError: in such a script, in a process that is being spawned from one, and in a script that
            Python reads from standard input.
    """
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    is_guarded = file != "<stdin>"
    with suppress(OSError, UnicodeDecodeError):  # no file, as at a prompt
        is_guarded &= Path(file).name == "__main__.py" or "__main__" in Path(file).read_text(encoding="utf-8")
    if not is_guarded or getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            "vLLM starts processes that import your script again: put it into a file, and what opens a model "
            'below the line \'if __name__ == "__main__":\', or open it with backend="transformers".'
        )
