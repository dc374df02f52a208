"""Engines and indexes are opened quietly: what other libraries print goes to a log, a person sees one line.

vLLM, transformers, tqdm and Java write to standard output and error by Python's logging, by file descriptor,
and from processes of their own. So both the streams and the descriptors under them are turned to the log
while something opens. Whatever bound itself to them meanwhile keeps writing there: loggers their stream, the
engine's processes the descriptors that they inherited. What this process prints afterwards is seen again.

The log is shown when an engine fails: its last lines, and where it is.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from core.errors import BackendError, CoragError
from core.protocols import Generator, Retriever
from generation.cached import REPLIES_KEPT
from generation.config import ModelConfig
from generation.open import open_generator
from retrieval.config import RetrieverConfig
from retrieval.open import open_retriever

ENGINE_LOG = ".engine.log"  # hidden, as a run's lock is: the folder's other files are what a glob finds
_LAST_LINES = 12
_LATE_S = 5.0  # what takes longer is told where nothing spins
_OUTPUT, _ERROR = 1, 2  # the descriptors, by their numbers in every process


async def open_model_quietly(config: ModelConfig, capacity: int = REPLIES_KEPT) -> Generator:
    """Open a model as :func:`generation.open.open_generator` does; what is printed goes to the log."""
    where = ", ".join(config.urls) or config.backend
    name = f"model {config.name}{f' with adapter {config.adapter}' if config.adapter else ''} ({where})"
    with quiet(f"opening {name}", f"{name} is open") as say:
        generator = await open_generator(config, capacity)
        for line in getattr(generator, "about", ()):
            say(f"corag: {line}")
        return generator


async def open_index_quietly(config: RetrieverConfig, *, part_alone: bool = False) -> Retriever:
    """Open an index as :func:`retrieval.open.open_retriever` does; what is printed goes to the log."""
    name = f"index {', '.join([*config.index, *config.url])}"
    with quiet(f"opening {name}", f"{name} is open"):
        return await open_retriever(config, part_alone=part_alone)


@contextmanager
def quiet(what: str, done: str = "") -> Iterator[Callable[[str], None]]:
    """Send what is printed to the log, and show ``what`` takes so long, with a spinner, in a terminal.

    Yields a function that shows a line all the same. At the end comes the line ``done``, with the seconds, if
    there is one. An error that nobody foresaw, and one of an engine, carry the log's last lines as a note.
    """
    started = time.monotonic()
    with _chatter.turned_aside() as lines, lines.shown(what):
        try:
            yield lines.say
        except Exception as error:
            if (isinstance(error, BackendError) or not isinstance(error, CoragError)) and (
                told := last_words()
            ):
                error.add_note(told)
            raise
        if done:  # said here, where it is seen even if something else is still opening
            lines.say(f"corag: {done} ({time.monotonic() - started:.1f} s)")


def log_to(path: Path) -> None:
    """Say where this process's log is to be; without, it is a temporary file, removed at the end."""
    _chatter.wanted, _chatter.log = path, None  # what wrote to an earlier one keeps it: it is never closed


def last_words() -> str:
    """Return the last lines of this process's log and where it is, "" if there is nothing in it."""
    return _chatter.last_words()


class _Lines:
    """What a person sees while things open: in a terminal a line each, with a spinner and seconds."""

    def __init__(self, terminal: TextIO) -> None:
        """``terminal``: writes to where ``sys.stderr`` wrote."""
        self.terminal = terminal
        self._console = Console(file=terminal, highlight=False)
        self._spinning: Progress | None = None
        if terminal.isatty() and not self._console.is_dumb_terminal:
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
            # It would put its own in place of the streams that have just been turned to the log.
            self._spinning = Progress(
                *columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._spinning.start()

    @contextmanager
    def shown(self, what: str) -> Iterator[None]:
        """Show a line for the length of a block; where there is no spinner, only if it takes its time."""
        if self._spinning is None:
            late = threading.Timer(_LATE_S, self.say, [f"corag: {what} ..."])
            late.daemon = True
            late.start()
            try:
                yield
            finally:
                late.cancel()
            return
        task = self._spinning.add_task(what, total=None)
        try:
            yield
        finally:
            self._spinning.remove_task(task)

    def say(self, line: str) -> None:
        """Print a line, above those with a spinner."""
        if self._spinning:
            self._console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, file=self.terminal, flush=True)

    def end(self) -> None:
        """Take the lines away."""
        if self._spinning:
            self._spinning.stop()


@dataclass
class _Aside:
    """What was turned to the log, as it was before.

    Attributes:
        streams: ``sys.stdout`` and ``sys.stderr``.
        descriptors: copies of theirs.
        lines: what is shown meanwhile.
    """

    streams: tuple[TextIO, TextIO]
    descriptors: dict[int, int]
    lines: _Lines


@dataclass
class _Chatter:
    """The log of this process. Several things may open at the same time: the last one turns output back."""

    wanted: Path | None = None
    path: Path | None = None
    begun: int = 0
    log: TextIO | None = None
    aside: _Aside | None = None
    open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> TextIO:
        """Open the file that is wanted, or a temporary one if none is, or it cannot be written."""
        log = None
        if self.wanted is not None:
            with suppress(OSError):  # the run itself will say what is wrong with the folder
                self.wanted.parent.mkdir(parents=True, exist_ok=True)
                log = _writer(_LogFile(self.wanted, "a"))
        if log is None:
            descriptor, name = tempfile.mkstemp(prefix="corag-", suffix=".log")
            atexit.register(self._remove, Path(name))
            log = _writer(_LogFile(descriptor, "a"))
            self.path = Path(name)
        else:
            self.path = self.wanted
        self.log, self.begun = log, os.fstat(log.fileno()).st_size
        return log

    @contextmanager
    def turned_aside(self) -> Iterator[_Lines]:
        """Turn output to the log; yields what is seen all the same."""
        with self.lock:
            if not self.open:
                self.aside = self._turn(self.log or self.begin())
            self.open += 1
        assert self.aside is not None
        try:
            yield self.aside.lines
        finally:
            with self.lock:
                self.open -= 1
                if not self.open:
                    self._turn_back(self.aside)

    def _turn(self, log: TextIO) -> _Aside:
        streams = sys.stdout, sys.stderr
        _flush()
        copies = {number: os.dup(number) for number in (_OUTPUT, _ERROR)}
        for number in copies:
            os.dup2(log.fileno(), number)
        # A notebook, or a test, has streams that write elsewhere: they still do.
        own = _descriptor(sys.stderr) != _ERROR
        terminal = sys.stderr if own else os.fdopen(os.dup(copies[_ERROR]), "w", buffering=1)
        sys.stdout = sys.stderr = log
        return _Aside(streams, copies, _Lines(terminal))

    def _turn_back(self, aside: _Aside) -> None:
        aside.lines.end()
        _flush()
        for number, copy in aside.descriptors.items():
            os.dup2(copy, number)
            os.close(copy)
        if aside.lines.terminal is not aside.streams[1]:
            aside.lines.terminal.close()
        sys.stdout, sys.stderr = aside.streams

    def last_words(self) -> str:
        """Return the last lines that this process logged, and keep the log."""
        if self.path is None or not self.path.is_file():
            return ""
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            lines.seek(self.begun)
            last = deque((line.rstrip() for line in lines if line.strip()), _LAST_LINES)
        if not last:
            return ""
        atexit.unregister(self._remove)
        return "\n".join([f"The last lines of {self.path}:", *(f"  | {line}" for line in last)])

    @staticmethod
    def _remove(path: Path) -> None:
        with suppress(OSError):
            path.unlink()


_chatter = _Chatter()


class _LogFile(io.FileIO):
    """A file that takes what a full disk does not: a library that logs a line must not fail of it."""

    def write(self, content: Any) -> int:
        """Write, if there is space; tell how much was taken, which is all of it."""
        with suppress(OSError):
            super().write(content)
        return len(content)


def _writer(file: _LogFile) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors="replace", line_buffering=True)


def _flush() -> None:
    """Empty every buffer: ours, and those of libraries in C, which else would be written out later."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ctypes.CDLL(None).fflush(None)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook's or a test's
        return None
