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
import re
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from corag.core.callers import for_caller
from corag.core.errors import BackendError, CoragError
from corag.core.installation import cpu_build_note
from corag.core.own_objects import is_user_object
from corag.core.pace import in_thread
from corag.core.protocols import Generator, Retriever
from corag.core.runs.folder import writable_folder
from corag.core.text import printable
from corag.generation.cached import REPLIES_KEPT
from corag.generation.config import ModelConfig
from corag.generation.open import open_generator
from retrieval.config import RetrieverConfig
from retrieval.open import open_retriever, search_device_note

ENGINE_LOG = ".engine.log"  # hidden, as a run's lock is: the folder's other files are what a glob finds
# What Java writes whenever it starts with the module that makes Lucene faster: beside a failure it would look
# like the cause.
_ALWAYS_LOGGED = re.compile("WARNING: Using incubator modules")
_LAST_LINES = 12
_printed_lines: set[str] = set()  # what models have said of themselves
_LATE_S = 5.0  # what takes longer is printed where there is no spinner
_AGAIN_S = 30.0  # and then again this often, with the last line of the log
_LOG_CHARS = 100  # of that line
_OUTPUT, _ERROR = 1, 2  # the descriptors, by their numbers in every process


async def open_model_quietly(config: ModelConfig, capacity: int = REPLIES_KEPT) -> Generator:
    """Open a model as :func:`corag.generation.open.open_generator` does; what is printed goes to the log."""
    where = ", ".join(config.urls) or config.backend
    name = f"model {config.name}{f' with adapter {config.adapter}' if config.adapter else ''} ({where})"
    is_user_model = config.backend == "python"  # open at once, and perhaps for each question anew
    with quiet(f"opening {name}", "" if is_user_model else f"{name} is open") as print_line:
        is_gpu_engine = config.backend in ("vllm", "transformers") and not config.device.startswith("cpu")
        # Before hours go by on the CPU.
        if is_gpu_engine and (note := cpu_build_note()) and note not in _printed_lines:
            _printed_lines.add(note)
            print_line(f"corag: {note}")
        generator = await open_generator(config, capacity)
        for line in getattr(generator, "about", ()):
            if not (is_user_model and line in _printed_lines):
                _printed_lines.add(line)
                print_line(f"corag: {line}")
        return generator


async def open_index_quietly(config: RetrieverConfig, *, part_alone: bool = False) -> Retriever:
    """Open an index as :func:`retrieval.open.open_retriever` does; what is printed goes to the log."""
    name = f"index {', '.join([*config.index, *config.url])}"
    is_user_index = bool(config.index) and all(map(is_user_object, config.index))
    with quiet(f"opening {name}", "" if is_user_index else f"{name} is open") as print_line:
        if note := search_device_note(config):
            print_line(f"corag: {note}")
        return await open_retriever(config, part_alone=part_alone)


@contextmanager
def quiet(what: str, message: str = "") -> Iterator[Callable[[str], None]]:
    """Send what is printed to the log, and show ``what`` takes so long, with a spinner, in a terminal.

    Yields a function that prints a line all the same. At the end the line ``message`` is printed, with the
    seconds, if there is one. An error that nobody foresaw, and one of an engine, carry the log's last lines
    as a note.
    """
    start = time.monotonic()
    with _output_log.redirect() as lines, lines.show(what):
        try:
            yield lines.print
        except Exception as error:
            # Our other errors are sentences about what was given: a library's output adds nothing to them.
            if (isinstance(error, BackendError) or not isinstance(error, CoragError)) and (
                note := last_words()
            ):
                error.add_note(note)
            raise
        if message:  # printed here, where it is seen even if something else is still opening
            lines.print(f"corag: {message} ({time.monotonic() - start:.1f} s)")


def log_to(path: Path) -> None:
    """Set where this process's log is written; without, it is a temporary file, removed at the end."""
    # What wrote to an earlier log keeps it: it is never closed.
    _output_log.target, _output_log.log = path, None


def prepare_output(folder: Path) -> None:
    """Make the folder of a command's runs, and send this process's log to a file in it.

    Raises :class:`DataError` if nothing can be written there.
    """
    writable_folder(folder)
    log_to(folder / ENGINE_LOG)


def last_words() -> str:
    """Return the last lines of this process's log and where it is, "" if there is nothing in it."""
    return _output_log.last_words()


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
    def show(self, what: str) -> Iterator[None]:
        """Show a line for the length of a block; where there is no spinner, only if it takes its time.

        Every half minute it says what the log does: engines load, compile and measure for minutes.
        """
        task = self._spinning.add_task(what, total=None) if self._spinning else None
        try:
            with in_thread(partial(self._print_progress, what, task)):
                yield
        finally:
            if self._spinning and task is not None:
                self._spinning.remove_task(task)

    def _print_progress(self, what: str, task: TaskID | None, end_event: threading.Event) -> None:
        """Say now and then that something still opens, until it does not."""
        start = time.monotonic()
        if task is None:
            if end_event.wait(_LATE_S):
                return
            self.print(f"corag: {what} ...")
        while not end_event.wait(_AGAIN_S):
            last = _output_log.last_line()
            doing = f"; last in the log: {last}" if last else ""
            if self._spinning and task is not None:
                self._spinning.update(task, description=f"{what}{doing}")
            else:
                self.print(f"corag: still {what} ({time.monotonic() - start:.0f} s){doing}")

    def print(self, line: str) -> None:
        """Print a line, above those with a spinner."""
        line = for_caller(line)
        if self._spinning:
            self._console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, file=self.terminal, flush=True)

    def end(self) -> None:
        """Take the lines away."""
        if self._spinning:
            self._spinning.stop()


@dataclass
class _Redirection:
    """What was redirected to the log, as it was before.

    Attributes:
        streams: ``sys.stdout`` and ``sys.stderr``.
        descriptors: copies of theirs.
        lines: what a person sees meanwhile.
    """

    streams: tuple[TextIO, TextIO]
    descriptors: dict[int, int]
    lines: _Lines


@dataclass
class _OutputLog:
    """The log of this process. Several things may open at the same time: the last one restores the streams.

    Attributes:
        target: the file to write, None for a temporary one.
        path: the file that is written.
        start: its size when this process opened it: an earlier start may have written there.
        log: the open file.
        redirection: what was redirected, while something opens.
        depth: how many things are opening.
        lock: guards the last two.
    """

    target: Path | None = None
    path: Path | None = None
    start: int = 0
    log: TextIO | None = None
    redirection: _Redirection | None = None
    depth: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> TextIO:
        """Open the target, or a temporary file if there is none or it cannot be written."""
        log = None
        if self.target is not None:
            with suppress(OSError):  # the run itself will say what is wrong with the folder
                self.target.parent.mkdir(parents=True, exist_ok=True)
                log = _writer(_LogFile(self.target, "a"))
        if log is None:
            descriptor, name = tempfile.mkstemp(prefix="corag-", suffix=".log")
            atexit.register(self._remove, Path(name))
            log = _writer(_LogFile(descriptor, "a"))
            self.path = Path(name)
        else:
            self.path = self.target
        self.log, self.start = log, os.fstat(log.fileno()).st_size
        return log

    @contextmanager
    def redirect(self) -> Iterator[_Lines]:
        """Redirect output to the log for a block, and yield the lines that are seen all the same."""
        with self.lock:
            if not self.depth:
                self.redirection = self._redirect_to(self.log or self.open())
            self.depth += 1
        assert self.redirection is not None
        try:
            yield self.redirection.lines
        finally:
            with self.lock:
                self.depth -= 1
                if not self.depth:
                    self._restore(self.redirection)

    def _redirect_to(self, log: TextIO) -> _Redirection:
        streams = sys.stdout, sys.stderr
        _flush()
        copies = {number: os.dup(number) for number in (_OUTPUT, _ERROR)}
        for number in copies:
            os.dup2(log.fileno(), number)
        # A notebook, or a test, has streams that write elsewhere: they still do.
        writes_elsewhere = _descriptor(sys.stderr) != _ERROR
        terminal = sys.stderr if writes_elsewhere else os.fdopen(os.dup(copies[_ERROR]), "w", buffering=1)
        sys.stdout = sys.stderr = log
        return _Redirection(streams, copies, _Lines(terminal))

    def _restore(self, redirection: _Redirection) -> None:
        redirection.lines.end()
        _flush()
        for number, copy in redirection.descriptors.items():
            os.dup2(copy, number)
            os.close(copy)
        if redirection.lines.terminal is not redirection.streams[1]:
            redirection.lines.terminal.close()
        sys.stdout, sys.stderr = redirection.streams

    def last_line(self) -> str:
        """Return the last line that this process logged, of bars what they showed last; "" for none."""
        last = self._last_lines(1)
        line = printable(last[0].rpartition("\r")[2].strip()) if last else ""
        return line if len(line) <= _LOG_CHARS else f"{line[:_LOG_CHARS]} ..."

    def _last_lines(self, most: int) -> deque[str]:
        """Return the last lines of the log that are not blank, and not what Java always prints."""
        if self.path is None or not self.path.is_file():
            return deque()
        with self.path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            lines.seek(self.start)
            message_lines = (
                line.rstrip() for line in lines if line.strip() and not _ALWAYS_LOGGED.search(line)
            )
            return deque(message_lines, most)

    def last_words(self) -> str:
        """Return the last lines that this process logged, and keep the log."""
        last = self._last_lines(_LAST_LINES)
        if not last:
            return ""
        atexit.unregister(self._remove)
        return "\n".join([f"The last lines of {self.path}:", *(f"  | {line}" for line in last)])

    @staticmethod
    def _remove(path: Path) -> None:
        with suppress(OSError):
            path.unlink()


_output_log = _OutputLog()


class _LogFile(io.FileIO):
    """A file that takes what a full disk does not: a library that logs a line must not fail of it."""

    def write(self, content: Any) -> int:
        """Write, if there is space; return the whole length even if there is not."""
        with suppress(OSError):
            super().write(content)
        return len(content)


def _writer(file: _LogFile) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors="replace", line_buffering=True)


def _flush() -> None:
    """Flush every buffer: ours, and those of libraries in C, which else would be written out later."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ctypes.CDLL(None).fflush(None)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook's or a test's
        return None
