"""The ``corag`` command: help, and how one ends. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType

from corag.cli.commands import split_command, usage

_AGAIN_S, _END_S = 3.0, 8.0  # after SIGTERM; a training that is told to end has 5 before it is killed
_WHAT_IS_KEPT = "What a run or an index build had finished is kept: the same command goes on from there."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    0: everything was done; 1: some of it was not: more questions than ``max_failed`` failed, or the engine,
    index or server did; 2: the request is invalid and nothing was done; 130: interrupted (Ctrl-C); 143: told
    to end (SIGTERM, as by a cluster's scheduler).
    """
    status = _main(list(sys.argv[1:] if argv is None else argv))
    if argv is None and status == 128 + signal.SIGTERM:
        # A thread that computes in torch aborts Python's end, which it outlives (status 134).
        atexit._run_exitfuncs()
        os._exit(status)
    return status


def _main(arguments: list[str]) -> int:
    """Run a command, as :func:`main` does."""
    termination = _Termination()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, termination.interrupt)
    try:
        status = 0
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(usage())
        elif arguments[0] in ("-V", "--version", "version"):
            print(version_line())
        else:
            from corag.cli.running import run_command  # pydantic is not needed for the overview

            status = run_command(*split_command(arguments))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as interrupt:
        return termination.report(str(interrupt))
    except Exception as error:
        # Schedulers signal all processes of a job: an engine that ends as well fails whatever waits for it.
        if termination.is_requested:
            return termination.report()
        from corag.cli.running import report_error

        error_status = report_error(error)
        if error_status is None:
            raise
        return error_status


class _Termination:
    """Makes SIGTERM end a command as Ctrl-C does, within seconds.

    The default handler would end Python at once: engines would go on running in processes of their own.

    Attributes:
        is_requested: whether the signal has come.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._is_reported = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: do what Ctrl-C does at this moment."""
        if not self.is_requested:
            self.is_requested = True
            threading.Thread(target=self._insist, name="ending", daemon=True).start()
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:  # a shell's background jobs ignore Ctrl-C
            raise KeyboardInterrupt

    def _insist(self) -> None:
        """Interrupt once more what does not end, and at last end without cleaning up."""
        # asyncio only notes a first Ctrl-C, for when the program awaits something. An engine that opens does
        # not for a minute. What awaits is cleaning up, and is let be.
        time.sleep(_AGAIN_S)
        at_work = sys._current_frames().get(threading.main_thread().ident or 0)
        if at_work and at_work.f_code.co_filename != selectors.__file__ and not self._is_reported:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_S - _AGAIN_S)
        if not self._is_reported:
            self.report()
        os._exit(128 + signal.SIGTERM)  # our engines watch this process, and end with it

    def report(self, note: str = "") -> int:
        """Say that the command was interrupted, and what it leaves (``note``); return its exit status."""
        self._is_reported = True
        how = "told to end (SIGTERM)" if self.is_requested else "interrupted"
        ending = f": {note}" if note else f". {_WHAT_IS_KEPT}"
        print(f"corag: {how}{ending}", file=sys.stderr, flush=True)
        return 128 + (signal.SIGTERM if self.is_requested else signal.SIGINT)


def version_line() -> str:
    """Return name and version of the installed distribution, and Python's."""
    from importlib.metadata import version

    return f"corag {version('corag')} (Python {sys.version.split()[0]})"
