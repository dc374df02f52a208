"""The command line and the YAML files of a command become its options.

Of several values for an option the later wins: defaults, values that another option implies, the preset's,
those of YAML files, those of the command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar, cast

import yaml

from corag.core.errors import ConfigError
from corag.core.hub_files import fetch_folder, is_hub_name
from corag.core.option_names import is_list, meaning, options_of, resolve_alias, split_list
from corag.core.options import Options, full_names, implied_values, names_in
from corag.core.yaml_files import as_yaml, load_yaml, plain

Config = TypeVar("Config")
Arguments = list[tuple[str, str]]


def parse(
    config: type[Config],
    argv: Sequence[str],
    prog: str,
    summary: str,
    positional: str = "",
    flags: Mapping[str, str] = MappingProxyType({}),
) -> Config:
    """Build a configuration from a command line.

    Args:
        config: the class of the options.
        argv: the command line, without the program's name.
        prog: the program's name, for its help.
        summary: what it does, in a line.
        positional: the option that a leading bare argument sets; of two, with a space between them, the
            second takes the rest.
        flags: what the program takes off the command line itself, for its help: what each does, by name.

    Raises:
        ConfigError: naming the option, what was given and what was expected.
        SystemExit: after --help and --print_config.
    """
    options = cast("type[Options]", config)
    choices = list(_values_stated_for(options.CHOICE, argv)) if options.CHOICE else []
    options = options.extend(names_in(choices))
    config = cast("type[Config]", options)
    line = _read_argv(argv, positional, config)
    if line.help_on is not None:
        from corag.core.help import help_text  # which the other starts of a command do without

        left_out = options.left_out_sections(names_in([each for each in choices if each][-1:]))
        text = help_text(config, prog, summary, positional, line.help_on, left_out, flags)
        print(text, flush=True)  # noqa: T201 - flushed while a full disk can still be reported
        raise SystemExit(0)
    in_files = [pair for file in line.files for pair in _read_yaml(file, config)]
    stated_values = full_names(config, in_files + line.pairs)
    configuration: Any = config(**{**implied_values(config, stated_values), **stated_values})
    if line.print_config:
        print(yaml.safe_dump(plain(asdict(configuration)), sort_keys=False), end="", flush=True)  # noqa: T201
        raise SystemExit(0)
    return cast("Config", configuration)


def _values_stated_for(option: str, argv: Sequence[str]) -> Iterator[Any]:
    """Yield what a command line and its YAML files state for one option, whatever else they hold."""
    # Ahead of all parsing, since it decides which options there are. The command line comes last, and wins.
    values: list[Any] = []
    for argument, following in pairwise([*argv, ""]):
        name, equals, value = argument.removeprefix("--").partition("=")
        value = value if equals else following
        if (
            not argument.startswith("--")
            or name not in (option, "config")
            or not value
            or value.startswith("--")
        ):
            continue
        if name == option:
            values.append(value)
        elif isinstance(data := _load_file(value), dict):
            yield data.get(option)
    yield from values


@dataclass
class _CommandLine:
    """A command line, taken apart.

    Attributes:
        pairs: options with their values.
        files: of --config.
        print_config: whether the configuration is only to be printed.
        help_on: what help is requested on, "" for the short one; None for none.
    """

    pairs: Arguments
    files: list[str]
    print_config: bool = False
    help_on: str | None = None


def _read_argv(argv: Sequence[str], positional: str, config: type[Any]) -> _CommandLine:
    """Take a command line apart. Raises :class:`ConfigError` for one that cannot be read."""
    line, types = _CommandLine([], []), dict(options_of(config))
    arguments = list(argv)
    *first_names, last_name = positional.split() or [""]
    for positional_name in first_names:
        if arguments and not arguments[0].startswith("-"):
            line.pairs.append((positional_name, arguments.pop(0)))
    bare: list[str] = []
    takes_many = bool(first_names) or is_list(types.get(last_name))
    while last_name and arguments and not arguments[0].startswith("-") and (not bare or takes_many):
        bare.append(arguments.pop(0))
    positional_names = {name for name, _ in line.pairs}
    if bare:  # the words of a query need no quotation marks
        line.pairs.append((last_name, _list_text(bare) if is_list(types[last_name]) else " ".join(bare)))
        positional_names.add(last_name)
    while arguments:
        argument = arguments.pop(0)
        name, equals, value = argument.removeprefix("--").partition("=")
        if argument == "-h" or name == "help":
            line.help_on = value or (
                arguments.pop(0) if arguments and not arguments[0].startswith("-") else ""
            )
            continue
        if argument.startswith("--") and name.replace("-", "_") == "print_config":
            line.print_config = value != "false"
            continue
        if not argument.startswith("--"):
            if line.pairs and is_list(types.get(line.pairs[-1][0])):
                name, value = line.pairs[-1]
                raise ConfigError(
                    f"unexpected argument '{argument}': separate several by commas: "
                    f"--{name} {value},{argument}."
                )
            many = "" if takes_many else "one "
            names = " and ".join(positional.split())
            expected_form = f"{many}{names} first, then options" if positional else "options"
            raise ConfigError(
                f"unexpected argument '{argument}': expected {expected_form}, such as name=value."
            )
        option = resolve_alias(name, config)
        if option in positional_names:
            earlier_value = dict(line.pairs)[option]
            raise ConfigError(
                f"{option} is given twice, as '{earlier_value}' and by '--{name}': leave one of them out."
            )
        if not equals:
            if arguments and not arguments[0].startswith("--"):
                value = arguments.pop(0)
            elif types.get(option) is bool:
                value = "true"
            else:
                if option not in types and name != "config":
                    raise ConfigError(f"unknown option '{name}': {meaning(name, config)}")
                raise ConfigError(f"option '{name}' has no value: write --{name} VALUE.")
        if name == "config":
            line.files.append(value)
        else:
            line.pairs.append((name, value))
    return line


def _list_text(words: Sequence[str]) -> str:
    """Return one text of a list's items; with commas in them as YAML."""
    items = [item for word in words for item in split_list(word)]
    return as_yaml(items) if any("," in item for item in items) else ",".join(words)


def _load_file(file: str) -> Any:
    """Read a file of options; of a shared run (hub:OWNER/NAME) those that it was made with."""
    if is_hub_name(file):
        return load_yaml(str(fetch_folder(file, "dataset") / "config.yaml"))
    return load_yaml(os.path.expanduser(file))


def _read_yaml(file: str, config: type[Any]) -> Arguments:
    """Return the options of a YAML file, values written as YAML again."""
    data = _load_file(file)
    if not isinstance(data, dict):
        raise ConfigError(f"'{file}' must hold 'option: value' lines, but it holds a {type(data).__name__}.")
    try:
        stated_values = full_names(config, data.items())
    except ConfigError as error:
        raise ConfigError(f"'{file}' has the {error.args[0]}") from None
    # A structure under an option of text, such as the cells of a sweep, is passed on in its order.
    types = dict(options_of(config))
    return [
        (name, value if isinstance(value, str) else as_yaml(value, in_order=types.get(name) is str))
        for name, value in stated_values.items()
    ]
