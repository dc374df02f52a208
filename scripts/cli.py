"""The ``corag`` command. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_type_hints

from core.errors import BackendError, ConfigError, CoragError, nearest


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command.

    Attributes:
        module: where its ``main`` is. The class that annotates main's parameter holds the options; what it
            returns is an exit status, or one with figures for ``--json``.
        positional: the option that a bare argument sets.
    """

    module: str
    summary: str
    positional: str = ""


COMMANDS = {
    "quickstart": Command("scripts.commands.quickstart", "make a small world and answer its first questions"),
    "run": Command("scripts.commands.run", "answer a dataset with one or more methods and print the table"),
    "sweep": Command(
        "scripts.commands.sweep", "answer a dataset with many settings over one engine and print one table"
    ),
    "ask": Command("scripts.commands.ask", "answer a question, or one after another at a prompt", "question"),
    "join": Command(
        "scripts.commands.join", "join the shards of a run (--shard) and print its table", "runs"
    ),
    "sample": Command(
        "scripts.commands.sample", "sample chains for training and keep the best of each question"
    ),
    "rows": Command("scripts.commands.rows", "turn sampled chains into training rows", "chains"),
    "pairs": Command(
        "scripts.commands.pairs",
        "turn sampled chains into pairs of sub-queries, chosen and rejected",
        "chains",
    ),
    "train": Command("scripts.commands.train", "fine-tune on training rows: training/sft.py, from anywhere"),
    "rounds": Command(
        "scripts.commands.rounds", "sample, make rows, fine-tune and decode, once or several times"
    ),
    "merge": Command("scripts.commands.merge", "fold a LoRA adapter into its base model", "adapter"),
    "table": Command(
        "scripts.commands.table", "print finished runs on the same questions as one table", "runs"
    ),
    "ledger": Command(
        "scripts.commands.ledger", "say where the tokens and seconds of finished runs went", "runs"
    ),
    "compare": Command(
        "scripts.commands.compare", "test two runs against each other on the same questions", "runs"
    ),
    "ceiling": Command(
        "scripts.commands.ceiling",
        "say what the best choice among the candidates of runs would score",
        "runs",
    ),
    "judge": Command(
        "scripts.commands.judge", "let a language model say which answers of finished runs are right", "runs"
    ),
    "export": Command(
        "scripts.commands.export", "write a run as a prediction file, TREC run or dataset of traces", "run"
    ),
    "report": Command(
        "scripts.commands.report",
        "turn finished runs into one HTML file: table, tests, plots, traces",
        "runs",
    ),
    "index": Command("scripts.commands.index", "build an index over documents or a corpus", "corpus"),
    "units": Command("scripts.commands.units", "group a corpus into long units for longrag", "corpus"),
    "serve": Command("scripts.commands.serve", "serve an index over HTTP", "index"),
    "serve answers": Command(
        "scripts.commands.serve_answers",
        "serve answers over HTTP: to OpenAI's clients, to agents (MCP), and as a page",
    ),
    "mcp": Command("scripts.commands.mcp", "serve answers to one agent over standard input and output (MCP)"),
    "world": Command(
        "scripts.commands.world",
        "write the embedded fictional world: corpus, questions, demonstrations",
        "out",
    ),
    "methods": Command(
        "scripts.commands.methods", "list the methods, or one method's options and presets", "name"
    ),
    "datasets": Command(
        "scripts.commands.datasets", "list the datasets with their scorers and task descriptions", "name"
    ),
    "bench": Command(
        "scripts.commands.bench",
        "measure scoring, retrieval, runner, decode, sweep, sample, sft, startup, workers, scale or service",
        "name",
    ),
    "doctor": Command(
        "scripts.commands.doctor",
        "say what this machine has and what is missing, or whether an index is as it was built",
        "index",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    0: done; 1: begun, but not all of it done: questions failed, more than ``max_failed``, or the engine,
    index or server behind them did; 2: what was asked for cannot be; 130: interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if threading.current_thread() is threading.main_thread():
        # So that engines are closed as at any other end.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(usage())
            status = 0
        else:
            status = run_command(*named(words))
        sys.stdout.flush()
        return status
    except CoragError as error:
        from core.text import printable

        print(f"corag: {printable(str(error))}", file=sys.stderr)
        if isinstance(error, BackendError):
            from eval.experiment.opening import last_words

            print(last_words(), file=sys.stderr, end="")
            return 1
        return 2
    except KeyboardInterrupt:
        print(
            "corag: interrupted. What a run or an index build had finished is kept: the same command goes "
            "on from there.",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        _print_no_more()
        return 1
    except OSError as error:
        from core.files import FULL

        if error.errno not in FULL:
            raise
        # Files that we write say so themselves; this is what is printed, where it goes to a file.
        print(
            f"corag: cannot write {error.filename or 'what is printed'}: {error.strerror}. Free some space, "
            "then give the same command again.",
            file=sys.stderr,
        )
        _print_no_more()
        return 2


def _print_no_more() -> None:
    """Send what is left to print nowhere: Python empties its buffer at the end, and would fail again."""
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
            "'corag COMMAND --help' lists a command's options; --json makes figures its last line.",
        ]
    )


def named(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command that a command line names, by one word or two, and its arguments.

    >>> named(["serve", "answers", "--port", "1"]), named(["serve", "my_index"])
    (('serve answers', ['--port', '1']), ('serve', ['my_index']))
    """
    longer = " ".join(words[:2])
    return (longer, words[2:]) if longer in COMMANDS else (words[0], words[1:])


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Parse the arguments of one command and run it."""
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}': {nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    module = importlib.import_module(command.module)
    from core.options import parse  # jsonargparse takes a third of a second to import
    from scripts.ended import Ended

    *_, options, returned = get_type_hints(module.main).values()
    words = [word for word in arguments if word != "--json"]
    wanted = len(words) < len(arguments)
    if wanted and returned is not Ended:
        raise ConfigError(f"'corag {name}' has nothing to say in JSON: leave out --json.")
    flags = {"json": "print a line of JSON at the end, for programs."} if returned is Ended else {}
    config = parse(options, words, f"corag {name}", command.summary, command.positional, flags)
    ended = module.main(config)
    if not isinstance(ended, Ended):
        return int(ended)
    for record in ended.records if wanted else ():
        print(json.dumps(record))
    for line in ended.failures.lines(ended.max_failed, ended.advice):
        print(line, file=sys.stderr)
    return ended.exit_status


if __name__ == "__main__":
    sys.exit(main())
