"""The ``corag`` command. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import get_type_hints

from corag.core.errors import BackendError, ConfigError, CoragError, nearest

_AGAIN_S, _END_S = 3.0, 8.0  # after SIGTERM; a training that is told to end has 5 before it is killed
_WHAT_IS_KEPT = "What a run or an index build had finished is kept: the same command goes on from there."


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command; :func:`load_command` says where it is.

    Attributes:
        positional: the option that a bare argument sets; of two, the second takes the rest.
    """

    summary: str
    positional: str = ""


COMMANDS = {
    "quickstart": Command("build a small demo corpus and answer its first questions"),
    "run": Command("run one or more methods on a dataset and print the results"),
    "sweep": Command("run many settings on a dataset with one engine and print one table"),
    "ask": Command("answer a question; without one, interactively", "question"),
    "sample": Command("sample chains for training and keep the best one per question"),
    "rows": Command("convert sampled chains to training rows", "chains"),
    "pairs": Command(
        "make training pairs for retrievers: queries with positives and hard negatives", "chains"
    ),
    "train": Command("fine-tune on training rows (training/sft.py)"),
    "train encoder": Command("train the query encoder of later hops on retriever pairs"),
    "train reranker": Command("train a re-ranker (cross-encoder) on retriever pairs"),
    "rounds": Command("sample, make rows, fine-tune and decode, in one or several rounds"),
    "merge": Command("merge a LoRA adapter into its base model", "adapter"),
    "table": Command("compare finished runs on the same questions in one table; join shards", "runs"),
    "show": Command("show a question of a run, of sampled chains or of training rows", "folder id"),
    "judge": Command("grade answers of finished runs with a language model", "runs"),
    "export": Command("write a run's answers as CSV, prediction file, TREC run or dataset", "run"),
    "push": Command("share an adapter, model, chains or run on the Hugging Face hub", "folder name"),
    "report": Command("write an HTML report of finished runs: table, tests, plots, traces", "runs"),
    "index": Command("build an index of documents or a corpus", "corpus"),
    "search": Command("search an index and show the passages", "index query"),
    "units": Command("group a corpus into long retrieval units for longrag", "corpus"),
    "serve": Command("serve an index over HTTP", "index"),
    "serve answers": Command("serve answers over HTTP: OpenAI-compatible API, MCP, web page"),
    "world": Command("write the bundled fictional dataset: corpus, questions, demonstrations", "out"),
    "list": Command("list methods and datasets, or one's options, presets, scorer", "name"),
    "bench": Command(
        "measure scoring, retrieval, search, runner, decode, sweep, sample, sft, startup, scale, ...", "name"
    ),
    "setup": Command("fetch what pip does not bring: Lucene, the small model, the encoder"),
    "doctor": Command(
        "say what this machine has and what is missing, or whether an index is as it was built", "index"
    ),
}


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
            status = run_command(*split_command(arguments))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as interrupt:
        return termination.report(str(interrupt))
    except Exception as error:
        # Schedulers signal all processes of a job: an engine that ends as well fails whatever waits for it.
        if termination.is_requested:
            return termination.report()
        error_status = _report_error(error)
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


def _report_error(error: Exception) -> int | None:
    """Print an error that is a sentence, and return the exit status; None for a defect of ours."""
    if isinstance(error, CoragError):
        from corag.core.text import printable

        print(f"corag: {printable(str(error))}", file=sys.stderr)
        if isinstance(error, BackendError):
            from eval.experiment.opening import last_words

            print(last_words(), file=sys.stderr, end="")
            return 1
        return 2
    if isinstance(error, BrokenPipeError):
        _discard_stdout()
        return 1
    if isinstance(error, ModuleNotFoundError):
        # What is asked for before work starts never comes here; a library's own late import may.
        from corag.core.installation import EXTRAS, describe_missing

        module = (error.name or "").partition(".")[0]
        if not any(module in modules for modules in EXTRAS.values()):
            return None
        print(f"corag: {describe_missing('this command', [module])}", file=sys.stderr)
        return 2
    if isinstance(error, OSError):
        from corag.core.files import FULL

        if error.errno not in FULL:
            return None
        # Files that we write raise sentences of their own; this is stdout where it is redirected to a file.
        print(
            f"corag: cannot write {error.filename or 'what is printed'}: {error.strerror}. Free some space, "
            "then give the same command again.",
            file=sys.stderr,
        )
        _discard_stdout()
        return 2
    return None


def _discard_stdout() -> None:
    """Redirect stdout to the null device."""
    # Python flushes stdout once more when it ends, and would fail a second time with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def usage() -> str:
    """Return the overview that ``corag --help`` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "corag: retrieval-augmented question answering in many steps with local models",
            "",
            "usage: corag COMMAND [--config FILE.yaml] [--option value ...]",
            "",
            *lines,
            "",
            "'corag COMMAND --help' lists a command's options; --json prints figures as JSON at the end.",
        ]
    )


def split_command(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Split a command line into the command, of one word or two, and its arguments.

    >>> split_command(["serve", "answers", "--port", "1"]), split_command(["serve", "my_index"])
    (('serve answers', ['--port', '1']), ('serve', ['my_index']))
    """
    longer = " ".join(arguments[:2])
    if longer in COMMANDS:
        return longer, arguments[2:]
    return arguments[0], arguments[1:]


def load_command(name: str) -> ModuleType:
    """Import the module of a command.

    The class that annotates the parameter of its ``main`` holds the options; what ``main`` returns is an exit
    status, or one with figures for ``--json``.
    """
    return importlib.import_module(f"corag.cli.commands.{name.replace(' ', '_')}")


def version_line() -> str:
    """Return name and version of the installed distribution, and Python's."""
    from importlib.metadata import version

    return f"corag {version('corag')} (Python {sys.version.split()[0]})"


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Parse the arguments of one command and run it."""
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}': {nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    from corag.core.machine import limit_threads

    limit_threads()  # before torch, which reads it when it is imported
    module = load_command(name)
    from corag.cli.result import CommandResult
    from corag.core.command_line import parse  # pydantic is not needed for the overview

    *_, options, return_type = get_type_hints(module.main).values()
    remaining = [argument for argument in arguments if argument != "--json"]
    print_json = len(remaining) < len(arguments)
    if print_json and return_type is not CommandResult:
        raise ConfigError(f"'corag {name}' prints no figures, so it has no JSON either: leave out --json.")
    config = parse(options, remaining, f"corag {name}", command.summary, command.positional)
    result = module.main(config)
    if not isinstance(result, CommandResult):
        return int(result)
    for record in result.records if print_json else ():
        print(json.dumps(record))
    for line in result.failures.lines(result.max_failed, result.advice):
        print(line, file=sys.stderr)
    return result.exit_status
