"""One way to configure every command: dataclasses, filled from presets, YAML files, the command line.

Of several values for an option the later wins.

A dataclass may carry ``ALIASES`` (other names for its options), ``PRESETS`` (values for the other options, by
the value of its option ``preset``), ``IMPLIED`` (by option and value, values for other options of the
command, as far as it has them, that presets and whatever is stated override), and ``ENVIRONMENT`` (options
that cannot change a result). One that carries ``EXTENDED_BY``, the name of an option, gets further options by
what is stated for that one: its class method ``extended`` is given the values and returns the dataclass to
fill instead. jsonargparse checks the types; names are checked here, so that a misspelt one is answered with
the nearest.
"""

from __future__ import annotations

import re
import typing
from argparse import ArgumentError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser  # type: ignore[attr-defined]

from core.errors import ConfigError, nearest

Config = TypeVar("Config")
Arguments = list[tuple[str, str]]
_NOTHING: Mapping[str, Any] = {}


def parse(config: type[Config], argv: Sequence[str], prog: str, summary: str, positional: str = "") -> Config:
    """Build a configuration. ``positional`` names the option that a leading bare argument sets.

    Raises :class:`ConfigError` naming the option, what was given and what was expected; exits after --help
    and --print_config.
    """
    config = _extended(config, _stated_for(getattr(config, "EXTENDED_BY", ""), argv))
    flags, given, files = _read_argv(argv, positional, dict(options_of(config)))
    stated = [pair for file in files for pair in _read_yaml(file, config)] + given
    implied = _implied_values(config, stated)
    # With --help or --print_config the parser has to know every section.
    sections = [] if flags else _untouched(config, [*implied, *stated])
    untouched = {
        each.name: each.default_factory() for each in sections if each.default_factory is not MISSING
    }
    return _build(config, implied, stated, prog, summary, flags, untouched)


def changed(base: Config, changes: Mapping[str, Any]) -> Config:
    """Return a configuration with some options changed, as if they had been stated after all others.

    A changed preset brings its values with it. Raises :class:`ConfigError` as :func:`parse` does.
    """
    config = _extended(type(base), [changes.get(getattr(base, "EXTENDED_BY", ""))])
    flat = flatten(changes, {prefix for prefix, _ in sections_of(config)})
    stated = [(name, value if isinstance(value, str) else _as_yaml(value)) for name, value in flat]
    untouched = {each.name: getattr(base, each.name) for each in _untouched(type(base), stated)}
    before = [pair for pair in _values_of(base) if pair[0].partition(".")[0] not in untouched]
    return _build(config, before, stated, "", "", untouched=untouched)


def _untouched(config: type[Any], stated: Arguments) -> list[Field[Any]]:
    """Return the sections of which nothing was stated."""
    kinds = _hints(cast("Any", config))
    touched = {renamed(name, config).partition(".")[0] for name, _ in stated}
    return [each for each in fields(config) if is_dataclass(kinds[each.name]) and each.name not in touched]


def _extended(config: type[Config], stated: Iterable[Any]) -> type[Config]:
    """Return the dataclass, with the options that the values stated for its ``EXTENDED_BY`` bring."""
    if not hasattr(config, "EXTENDED_BY"):
        return config
    lists = (value.strip("[]").split(",") if isinstance(value, str) else value or () for value in stated)
    names = [str(name).strip(" '\"") for items in lists for name in items]
    return cast("type[Config]", cast("Any", config).extended(names))


def _stated_for(option: str, argv: Sequence[str]) -> Iterator[Any]:
    """Yield what a command line and its YAML files state for one option, whatever else they hold."""
    # Ahead of all parsing, since it decides which options there are.
    for word, following in pairwise([*argv, ""]):
        name, equals, value = word.removeprefix("--").partition("=")
        value = value if equals else following
        if not word.startswith("--") or name not in (option, "config") or not value or value.startswith("--"):
            continue
        if name == option:
            yield value
        elif isinstance(data := load_yaml(value), dict):
            yield data.get(option)


def _build(
    config: type[Config],
    before: Arguments,
    stated: Arguments,
    prog: str,
    summary: str,
    flags: Sequence[str] = (),
    untouched: Mapping[str, Any] = _NOTHING,
) -> Config:
    """Build a configuration from values, then from the presets that were stated, then from all else that was.

    ``untouched``: sections to take as they are. Most of the time goes into describing options to the parser,
    so it is spared them.
    """
    known = dict(options_of(config))
    stated = [(renamed(name, config), value) for name, value in stated]
    for name, _ in stated:
        if name not in known:
            raise ConfigError(f"unknown option '--{name}': {nearest(name, known)}")
    # The parser takes the last of several values, so order is precedence.
    everything = [*before, *_preset_values(config, stated), *stated]
    arguments = [
        f"--{name}={_as_list(value) if _is_list(known[name]) else value}" for name, value in everything
    ]
    parser = ArgumentParser(prog=prog, description=summary, exit_on_error=False)
    parser.add_argument(
        "--config", action=ActionConfigFile, help="YAML file of options; may be repeated, later files win"
    )
    parser.add_class_arguments(config, None, skip=set(untouched))
    try:
        built = parser.instantiate(parser.parse_args([*arguments, *flags]))
    except ArgumentError as error:
        raise ConfigError(_plain_message(str(error))) from None
    parsed = {
        field.name: built[field.name]
        for field in fields(cast("type[Any]", config))
        if field.name not in untouched
    }
    return config(**parsed, **untouched)


def _values_of(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every option of a configuration as (dotted name, value)."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from _values_of(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value if isinstance(value, str) else _as_yaml(value)


def identity_of(config: Any) -> dict[str, Any]:
    """Return the options that results depend on, nested as ``asdict`` nests them: what identifies a result.

    Those in ``ENVIRONMENT``, also of sections, stand there with their defaults, whatever they are. So an
    option that joins ``ENVIRONMENT`` changes no identity that was noted while it had its default.
    """
    environment: Sequence[str] = getattr(config, "ENVIRONMENT", ())
    values = {
        each.name: each.default if each.name in environment else getattr(config, each.name)
        for each in fields(config)
    }
    return {name: identity_of(value) if is_dataclass(value) else value for name, value in values.items()}


def _as_yaml(value: Any, *, in_order: bool = False) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=10**9, sort_keys=not in_order)
    return text.strip().removesuffix("\n...")


@lru_cache(maxsize=256)
def _hints(config: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields, which take a while to make out."""
    return typing.get_type_hints(config)


def options_of(config: type[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, type) of every option of a nested dataclass."""
    hints = _hints(cast("Any", config))  # mypy does not take a class for hashable
    for field in fields(config):
        kind = hints[field.name]
        if is_dataclass(kind):
            yield from options_of(cast("type[Any]", kind), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, kind


def sections_of(config: type[Any], prefix: str = "") -> Iterator[tuple[str, type[Any]]]:
    """Yield (dotted prefix, dataclass) of a dataclass and of every dataclass nested in it."""
    yield prefix, config
    hints = _hints(cast("Any", config))  # mypy does not take a class for hashable
    for field in fields(config):
        if is_dataclass(hints[field.name]):
            yield from sections_of(hints[field.name], f"{prefix}{field.name}.")


def _read_argv(
    argv: Sequence[str], positional: str, known: Mapping[str, Any]
) -> tuple[list[str], Arguments, list[str]]:
    """Split a command line into jsonargparse's own flags, (name, value) pairs, and the files of --config."""
    flags: list[str] = []
    pairs: Arguments = []
    files: list[str] = []
    words = list(argv)
    bare: list[str] = []
    while positional and words and not words[0].startswith("-") and (not bare or _is_list(known[positional])):
        bare.append(words.pop(0))
    if bare:
        pairs.append((positional, ",".join(bare)))
    while words:
        word = words.pop(0)
        if word in ("-h", "--help") or word.startswith("--print_config"):
            flags.append(word)
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            expected = f"one {positional} first, then options" if positional else "options"
            raise ConfigError(f"unexpected argument '{word}': expected {expected}, such as --name value.")
        if not equals:
            if words and not words[0].startswith("--"):
                value = words.pop(0)
            elif known.get(name) is bool:
                value = "true"
            else:
                hint = "" if name in known else f" Besides, it is unknown: {nearest(name, known)}"
                raise ConfigError(f"option '--{name}' has no value: write --{name} VALUE.{hint}")
        if name == "config":
            files.append(value)
        else:
            pairs.append((name, value))
    return flags, pairs, files


def _read_yaml(file: str, config: type[Any]) -> Arguments:
    """Flatten a YAML file into (dotted name, value) pairs, values written as YAML again."""
    data = load_yaml(file)
    if not isinstance(data, dict):
        raise ConfigError(f"'{file}' must hold 'option: value' lines, but it holds a {type(data).__name__}.")
    known = dict(options_of(config))
    pairs = []  # as text, like those of the command line, so that one parser checks both
    for name, value in flatten(data, {prefix for prefix, _ in sections_of(config)}):
        if (option := renamed(name, config)) not in known:
            raise ConfigError(f"'{file}' has the unknown option '{name}': {nearest(name, known)}")
        # What is written out under an option of text, such as the cells of a sweep, is handed on as text in
        # its own order.
        pairs.append(
            (name, value if isinstance(value, str) else _as_yaml(value, in_order=known[option] is str))
        )
    return pairs


class TextLoader(yaml.BaseLoader):
    """Reads all values as text, and refuses a name that is given twice: YAML would quietly take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping.

        Raises :class:`yaml.constructor.ConstructorError` for a name that is given twice.
        """
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' is given twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def load_yaml(file: str, option: str = "config") -> Any:
    """Read a YAML file with all values as text, {} if it is empty.

    Raises :class:`ConfigError` saying what is wrong with it.
    """
    path = Path(file)
    if not path.is_file():
        kind = "configuration file" if option == "config" else f"file of {option}"
        raise ConfigError(f"there is no {kind} '{file}': check --{option}.")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=TextLoader) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"'{file}' is not valid YAML: {' '.join(str(error).split())}") from None


def flatten(data: Mapping[Any, Any], sections: set[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of options that may be nested.

    ``sections``: the prefixes, dot included, that are no options.

    >>> list(flatten({"corag": {"chains": 4}, "corag.task": "x"}, {"corag."}))
    [('corag.chains', 4), ('corag.task', 'x')]
    """
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and f"{name}." in sections:
            yield from flatten(value, sections, f"{name}.")
        else:
            yield name, value


def renamed(name: str, config: type[Any]) -> str:
    """Return an option's full name, which it has if it is not one of the ``ALIASES``."""
    for prefix, section in sections_of(config):
        aliases: Mapping[str, str] = getattr(section, "ALIASES", {})
        if name.startswith(prefix) and name.removeprefix(prefix) in aliases:
            return prefix + aliases[name.removeprefix(prefix)]
    return name


def _implied_values(config: type[Any], stated: Arguments) -> Arguments:
    """Return what the stated values of some options say of other options that the command has."""
    chosen, known = {renamed(name, config): value for name, value in stated}, dict(options_of(config))
    values: Arguments = []
    for prefix, section in sections_of(config):
        implied: Mapping[str, Mapping[str, Mapping[str, str]]] = getattr(section, "IMPLIED", {})
        for option, by_value in implied.items():
            for name, value in by_value.get(chosen.get(f"{prefix}{option}", ""), _NOTHING).items():
                if f"{prefix}{name}" in known:
                    values.append((f"{prefix}{name}", value))
    return values


def _preset_values(config: type[Any], stated: Arguments) -> Arguments:
    """Return what the chosen presets say, to be overridden by everything that was stated."""
    chosen = dict(stated)
    values: Arguments = []
    for prefix, section in sections_of(config):
        presets: Mapping[str, Mapping[str, object]] = getattr(section, "PRESETS", {})
        preset = presets.get(chosen.get(f"{prefix}preset", ""), {})
        values.extend((prefix + option, str(value)) for option, value in preset.items())
    return values


def _is_list(kind: Any) -> bool:
    return typing.get_origin(kind) in (list, tuple)


def _as_list(value: str) -> str:
    """Write "a,b" as "[a, b]", so that lists need no brackets on the command line."""
    if value.startswith("["):
        return value
    return yaml.safe_dump([item for item in value.split(",") if item], default_flow_style=True).strip()


def _plain_message(message: str) -> str:
    """Say what jsonargparse says, without its Python types."""
    found = re.search(r'Parser key "(?P<name>[^"]+)":\s*(?P<rest>.*)', message, re.DOTALL)
    if found is None:
        return message
    rest = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", found["rest"])
    rest = " ".join(re.sub(r"typing\.Literal(\[.*?\])", r"one of \1", rest).split())
    return f"option '--{found['name']}': {rest}"
