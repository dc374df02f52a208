"""The command line and the YAML files of a command become its options.

Of several values for an option the later wins: defaults, the preset's, those of YAML files, those of the
command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any, TypeVar, cast

import yaml

from corag.core.errors import ConfigError
from corag.core.options.classes import Options, full_names
from corag.core.options.names import is_list, options_of, resolve_alias, split_list
from corag.core.options.yaml_files import as_yaml, load_yaml, plain
from corag.core.web.hub_files import fetch_folder, is_hub_name

Config = TypeVar("Config")
_PRINT = ("print_config", "print-config")


def parse(config: type[Config], argv: Sequence[str], prog: str, summary: str, positional: str = "") -> Config:
    """Build a configuration from a command line.

    Args:
        config: the class of the options.
        argv: the command line, without the program's name.
        prog: the program's name, for its help.
        summary: what it does, in a line.
        positional: the options that leading bare arguments set, the last of them with all that are left.

    Raises:
        ConfigError: naming the option, what was given and what was expected.
        SystemExit: after --help and --print_config.
    """
    bare_words = list(takewhile(lambda word: not word.startswith("-"), argv))
    arguments = list(_read_arguments(argv[len(bare_words) :], positional))
    files = {value or "": _load_file(value or "") for name, value in arguments if name == "config"}
    stated = {name: value for data in files.values() for name, value in data.items()} | dict(arguments)
    options = cast("type[Options]", config).extend(stated)
    if topics := [value or "" for name, value in arguments if name in ("help", "-h")]:
        from corag.core.options.help import help_text  # which the other starts of a command do without

        text = help_text(options, prog, summary, positional, topics[-1])
        print(text, flush=True)  # noqa: T201 - flushed while a full disk can still be reported
        raise SystemExit(0)
    values: dict[str, Any] = {}
    for file, data in files.items():
        values |= _read_file(file, data, options)
    values |= _read_bare_words(bare_words, positional, options) | _read_options(arguments, options)
    configuration: Any = options(**values)
    if stated.keys() & set(_PRINT):
        print(yaml.safe_dump(plain(asdict(configuration)), sort_keys=False), end="", flush=True)  # noqa: T201
        raise SystemExit(0)
    return cast("Config", configuration)


def _read_arguments(words: Sequence[str], positional: str) -> Iterator[tuple[str, str | None]]:
    """Yield (name as typed, value) of a command line's options, None where no value is given."""
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("--") and word != "-h":
            first = f"{' and '.join(positional.split())} first, then " if positional else ""
            raise ConfigError(f"unexpected argument '{word}': expected {first}options, such as name=value.")
        name, equals, value = word.removeprefix("--").partition("=")
        takes_next = not equals and remaining and not remaining[0].startswith("--")
        yield name, remaining.pop(0) if takes_next else value if equals else None


def _read_bare_words(words: Sequence[str], positional: str, options: type[Options]) -> dict[str, Any]:
    """Return what the words before all options set."""
    if not words:
        return {}
    if not positional:
        raise ConfigError(f"unexpected argument '{words[0]}': expected options, such as name=value.")
    *first, last = positional.split()
    values: dict[str, Any] = dict(zip(first, words, strict=False))
    if rest := words[len(first) :]:  # the words of a question need no quotation marks
        takes_list = is_list(dict(options_of(options))[last])
        values[last] = [item for word in rest for item in split_list(word)] if takes_list else " ".join(rest)
    return values


def _read_options(arguments: Sequence[tuple[str, str | None]], options: type[Options]) -> dict[str, Any]:
    """Return the values of options by their full names."""
    kinds, pairs = dict(options_of(options)), []
    for name, value in arguments:
        if name in ("config", *_PRINT):
            continue
        # Of a name without a value that is no option's at all, the nearest name says more.
        if value is None and kinds.get(resolve_alias(name, options), bool) is not bool:
            raise ConfigError(f"option '{name}' has no value: write --{name} VALUE.")
        pairs.append((name, "true" if value is None else value))
    return full_names(options, pairs)


def _load_file(file: str) -> dict[str, Any]:
    """Read a file of options; of a shared run (hub:OWNER/NAME) those that it was made with."""
    path = fetch_folder(file, "dataset") / "config.yaml" if is_hub_name(file) else os.path.expanduser(file)
    data = load_yaml(str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"'{file}' must hold 'option: value' lines, but it holds a {type(data).__name__}.")
    return data


def _read_file(file: str, data: dict[str, Any], options: type[Options]) -> dict[str, Any]:
    """Return the values of a file's options by their full names."""
    kinds = dict(options_of(options))
    try:
        values = full_names(options, data.items())
    except ConfigError as error:
        raise ConfigError(f"'{file}' has the {error}") from None
    # A structure under an option of text, such as the cells of a sweep, is passed on as YAML.
    return {
        name: as_yaml(value) if kinds[name] is str and isinstance(value, list | dict) else value
        for name, value in values.items()
    }
