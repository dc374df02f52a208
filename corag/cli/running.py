"""Running one command: parsing its options, printing its figures, and errors as sentences."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import get_type_hints

from corag.cli.commands import COMMANDS, load_command
from corag.cli.result import CommandResult
from corag.core.errors import BackendError, ConfigError, CoragError, nearest
from corag.core.language.text import printable
from corag.core.options.command_line import parse
from corag.core.system.files import FULL
from corag.core.system.machine import limit_threads
from eval.experiment.opening import last_words


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Parse the arguments of one command and run it."""
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}': {nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    limit_threads()  # before torch, which reads it when it is imported
    module = load_command(name)
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


def report_error(error: Exception) -> int | None:
    """Print an error that is a sentence, and return the exit status; None for a defect of ours."""
    if isinstance(error, CoragError):
        print(f"corag: {printable(str(error))}", file=sys.stderr)
        if isinstance(error, BackendError):
            print(last_words(), file=sys.stderr, end="")
            return 1
        return 2
    if isinstance(error, BrokenPipeError):
        _discard_stdout()
        return 1
    if isinstance(error, OSError):
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
