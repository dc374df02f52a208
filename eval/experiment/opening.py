"""Engines and indexes are opened quietly: what other libraries print goes to a log, a person sees one line.

vLLM, tqdm and Java write by Python's logging, by file descriptor, and from processes of their own. So while
something opens, both streams and the descriptors under them are the log. Whatever bound itself to them
meanwhile keeps writing there: loggers, and the engine's processes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

from corag.core.errors import BackendError, CoragError
from corag.core.own_objects import is_user_object
from corag.core.protocols import Generator
from corag.core.runs.folder import writable_folder
from corag.core.system.files import cache_folder
from corag.core.system.installation import cpu_build_note
from corag.generation.cached import REPLIES_KEPT
from corag.generation.config import ModelConfig
from corag.generation.open import open_generator
from retrieval.config import RetrieverConfig
from retrieval.search.folders import search_device_note
from retrieval.search.pipeline import open_retriever
from retrieval.search.stage import SearchStage

ENGINE_LOG = ".engine.log"  # hidden, as a run's lock is: the folder's other files are what a glob finds
# What Java writes whenever it starts with the module that makes Lucene faster: beside a failure it would look
# like the cause.
_ALWAYS_LOGGED = "WARNING: Using incubator modules"
_LAST_LINES = 12
_LONGEST_LOG = 10_000_000  # bytes; a longer one begins anew
_LATE_S = 5.0  # what takes longer is announced
_printed_lines: set[str] = set()  # notes of models that were printed


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
        for line in generator.about:
            if not (is_user_model and line in _printed_lines):
                _printed_lines.add(line)
                print_line(f"corag: {line}")
        return generator


async def open_index_quietly(config: RetrieverConfig, *, part_alone: bool = False) -> SearchStage:
    """Open an index as :func:`open_retriever` does; what is printed goes to the log."""
    name = f"index {', '.join([*config.index, *config.url])}"
    is_user_index = bool(config.index) and all(map(is_user_object, config.index))
    with quiet(f"opening {name}", "" if is_user_index else f"{name} is open") as print_line:
        if note := search_device_note(config):
            print_line(f"corag: {note}")
        return await open_retriever(config, part_alone=part_alone)


@contextmanager
def quiet(what: str, message: str = "") -> Iterator[Callable[[str], None]]:
    """Send what is printed to the log, and say ``what`` takes so long, if it takes long.

    Yields a function that prints a line all the same. At the end the line ``message`` is printed, with the
    seconds, if there is one. An error that nothing foresaw, and one of an engine, carry the log's last lines
    as a note.
    """
    start = time.monotonic()
    with _output.to_log() as print_line:
        notice = threading.Timer(_LATE_S, print_line, [f"corag: {what} ..."])
        notice.start()
        try:
            yield print_line
        except Exception as error:
            # Our other errors are sentences about what was given: a library's output adds nothing to them.
            is_mistake = isinstance(error, CoragError) and not isinstance(error, BackendError)
            if not is_mistake and (note := last_words()):
                error.add_note(note)
            raise
        finally:
            notice.cancel()
        if message:  # printed here, where it is seen even if something else is still opening
            print_line(f"corag: {message} ({time.monotonic() - start:.1f} s)")


def log_to(path: Path) -> None:
    """Set where this process's log is written; without, it is "opening.log" in the cache."""
    _output.path, _output.log = path, None  # what wrote to an earlier log keeps it: it is never closed


def prepare_output(folder: Path) -> None:
    """Make the folder of a command's runs, and send this process's log to a file in it.

    Raises :class:`DataError` if nothing can be written there.
    """
    writable_folder(folder)
    log_to(folder / ENGINE_LOG)


def last_words() -> str:
    """Return the last lines of this process's log and where it is, "" if there is nothing in it."""
    return _output.last_words()


class _Output:
    """This process's standard output and error, which are the log as long as anything opens."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.log: TextIO | None = None
        self._start = 0  # the log's size when this process opened it: an earlier start may have written there
        self._opening = 0  # how many things open at this moment
        self._lock = threading.Lock()  # guards the count, and what is below
        self._restore = ExitStack()
        self._seen: TextIO = sys.stderr

    @contextmanager
    def to_log(self) -> Iterator[Callable[[str], None]]:
        """Send output to the log for a block, and yield what prints a line that a person sees."""
        with self._lock:
            if not self._opening:
                self._redirect()
            self._opening += 1
        try:
            yield self._print_line
        finally:
            with self._lock:
                self._opening -= 1
                if not self._opening:
                    self._restore.close()

    def _redirect(self) -> None:
        log = self.log = self.log or self._open_log()
        restore, seen = self._restore, sys.stderr
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number in (1, 2):
            copy = os.dup(number)
            restore.callback(os.close, copy)
            restore.callback(os.dup2, copy, number)
            os.dup2(log.fileno(), number)
        if seen is sys.__stderr__:  # a notebook, or a test, has one that writes elsewhere
            seen = restore.enter_context(os.fdopen(os.dup(copy), "w", buffering=1))
        restore.enter_context(redirect_stdout(log))
        restore.enter_context(redirect_stderr(log))
        self._seen = seen

    def _print_line(self, line: str) -> None:
        self._seen.write(f"{line}\n")
        self._seen.flush()

    def _open_log(self) -> TextIO:
        self.path = self.path or cache_folder() / "opening.log"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            log = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:  # the run itself will say what is wrong with the folder
            log = os.open(os.devnull, os.O_WRONLY)
        if (length := os.fstat(log).st_size) > _LONGEST_LOG:
            os.ftruncate(log, length := 0)
        self._start = length
        return os.fdopen(log, "a", buffering=1, encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        """Return the last lines that this process logged, but for blank ones and what Java always prints."""
        if self.path is None or not self.path.is_file():
            return ""
        with self.path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            lines.seek(self._start)
            shown = (line.rstrip() for line in lines if line.strip() and _ALWAYS_LOGGED not in line)
            last = deque(shown, _LAST_LINES)
        return "\n".join(
            [f"The last lines of {self.path}:", *(f"  | {line}" for line in last)] if last else []
        )


_output = _Output()
