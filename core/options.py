"""One way to configure every command: dataclasses, filled from presets, YAML files, the command line.

Of several values for an option the later wins.

A dataclass may carry ``ALIASES`` (other names for its options), ``VALUE_ALIASES`` (other names for an
option's values), ``POINTERS`` (names that others give to something that is not quite an option here, and what
to use instead), ``PRESETS`` (values for the other options, by the value of its option ``preset``),
``IMPLIED`` (by option and value, values for other options of the command, as far as it has them, that presets
and whatever is stated override), ``ENVIRONMENT`` (options that cannot change a result), and ``OFTEN`` (the
options that a short help shows).

One that carries ``EXTENDED_BY``, the name of an option, has sections to choose from by that option. Its class
method ``extended`` is given the values that were stated and returns the dataclass to fill instead, which may
have further sections; ``unchosen`` returns the names of the sections that they leave out.

jsonargparse checks the types; names are checked here, so that a misspelt one is answered with the nearest of
the section that it was typed for.
"""

from __future__ import annotations

import re
import typing
from argparse import ArgumentError
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser  # type: ignore[attr-defined]

from core.errors import ConfigError, reason
from core.files import read_text
from core.option_names import kinds_of, meaning, options_of, renamed, respelt, sections_of

Config = TypeVar("Config")
Arguments = list[tuple[str, str]]
_NOTHING: Mapping[str, Any] = {}


def parse(
    config: type[Config],
    argv: Sequence[str],
    prog: str,
    summary: str,
    positional: str = "",
    flags: Mapping[str, str] = _NOTHING,
) -> Config:
    """Build a configuration from a command line.

    Args:
        config: the dataclass of the options.
        argv: the command line, without the program's name.
        prog: the program's name, for its help.
        summary: what it does, in a line.
        positional: the option that a leading bare argument sets.
        flags: what the program takes off the command line itself, for its help: what each does, by name.

    Raises:
        ConfigError: naming the option, what was given and what was expected.
        SystemExit: after --help and --print_config.
    """
    chosen = list(_stated_for(getattr(config, "EXTENDED_BY", ""), argv))
    config = _extended(config, chosen)
    left_out = _unchosen(config, chosen)
    read = _read_argv(argv, positional, config, left_out)
    if read.help_on is not None:
        from core.help import help_text  # which the other starts of a command do without

        said = help_text(config, prog, summary, positional, read.help_on, left_out, flags)
        print(said, flush=True)  # noqa: T201 - flushed while a full disk can still be told
        raise SystemExit(0)
    stated = [pair for file in read.files for pair in _read_yaml(file, config, left_out)] + read.pairs
    implied = _implied_values(config, stated)
    # With --print_config the parser has to know every section.
    sections = [] if read.flags else _untouched(config, [*implied, *stated])
    untouched = {
        each.name: each.default_factory() for each in sections if each.default_factory is not MISSING
    }
    return _build(config, implied, stated, left_out, prog, read.flags, untouched)


def changed(base: Config, changes: Mapping[str, Any]) -> Config:
    """Return a configuration with some options changed, as if they had been stated after all others.

    A changed preset brings its values with it, and what is implied goes where an option has its default.
    None for an option of text is "". Raises :class:`ConfigError` as :func:`parse` does.
    """
    config = _extended(type(base), [changes.get(getattr(base, "EXTENDED_BY", ""))])
    flat = flatten(changes, {prefix for prefix, _ in sections_of(config)})
    known = dict(options_of(config))
    flat = (
        (name, "" if value is None and known.get(renamed(name, config)) is str else value)
        for name, value in flat
    )
    stated = [(name, value if isinstance(value, str) else _as_yaml(value)) for name, value in flat]
    implied = [pair for pair in _implied_values(config, stated) if _has_default(base, pair[0])]
    untouched = {each.name: getattr(base, each.name) for each in _untouched(type(base), [*implied, *stated])}
    before = [pair for pair in _values_of(base) if pair[0].partition(".")[0] not in untouched]
    before += implied
    left_out = _unchosen(config, [changes.get(getattr(base, "EXTENDED_BY", ""))])
    return _build(config, before, stated, left_out, untouched=untouched)


def _has_default(base: Any, option: str) -> bool:
    """Whether an option, by its dotted name, has the value that its dataclass gives it."""
    *sections, last = option.split(".")
    for section in sections:
        base = getattr(base, section, None)
    given = {each.name: each.default for each in fields(base)} if is_dataclass(base) else {}
    return last in given and getattr(base, last) == given[last]


def _untouched(config: type[Any], stated: Arguments) -> list[Field[Any]]:
    """Return the sections of which nothing was stated."""
    kinds = kinds_of(cast("Any", config))
    touched = {renamed(name, config).partition(".")[0] for name, _ in stated}
    return [each for each in fields(config) if is_dataclass(kinds[each.name]) and each.name not in touched]


def _extended(config: type[Config], stated: Iterable[Any]) -> type[Config]:
    """Return the dataclass, with the options that the values stated for its ``EXTENDED_BY`` bring."""
    if not hasattr(config, "EXTENDED_BY"):
        return config
    return cast("type[Config]", cast("Any", config).extended(_names_in(stated)))


def _unchosen(config: type[Any], stated: Iterable[Any]) -> frozenset[str]:
    """Return the sections that the last of the values stated for its ``EXTENDED_BY`` leaves out."""
    if not hasattr(config, "EXTENDED_BY"):
        return frozenset()
    last = [value for value in stated if value][-1:]
    return frozenset(cast("Any", config).unchosen(_names_in(last)))


def _names_in(stated: Iterable[Any]) -> list[str]:
    lists = (value.strip("[]").split(",") if isinstance(value, str) else value or () for value in stated)
    return [str(name).strip(" '\"") for items in lists for name in items]


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
    left_out: Collection[str] = (),
    prog: str = "",
    flags: Sequence[str] = (),
    untouched: Mapping[str, Any] = _NOTHING,
) -> Config:
    """Build a configuration from values, then from the presets that were stated, then from all else that was.

    ``untouched``: sections to take as they are. Most of the time goes into describing options to the parser,
    so it is spared them.
    """
    known = dict(options_of(config))
    for name, _ in stated:
        if renamed(name, config) not in known:
            raise ConfigError(f"unknown option '--{name}': {meaning(name, config, left_out)}")
    stated = [(renamed(name, config), value) for name, value in stated]
    stated = [(name, respelt(name, value, config)) for name, value in stated]
    # The parser takes the last of several values, so order is precedence.
    everything = [*before, *_preset_values(config, stated), *stated]
    arguments = [
        f"--{name}={_as_list(value) if _is_list(known[name]) else value}" for name, value in everything
    ]
    parser = parser_of(config, prog, untouched)
    try:
        built = parser.instantiate(parser.parse_args([*arguments, *flags]))
    except ArgumentError as error:
        raise ConfigError(_plain_message(str(error), known, dict(everything))) from None
    parsed = {
        field.name: built[field.name]
        for field in fields(cast("type[Any]", config))
        if field.name not in untouched
    }
    return config(**parsed, **untouched)


def parser_of(config: type[Any], prog: str = "", skip: Iterable[str] = ()) -> ArgumentParser:
    """Return jsonargparse's parser of a dataclass, without the sections to skip."""
    parser = ArgumentParser(prog=prog, exit_on_error=False)
    parser.add_argument("--config", action=ActionConfigFile)  # with it comes --print_config
    parser.add_class_arguments(config, None, skip=set(skip))
    return parser


def _values_of(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every option of a configuration as (dotted name, value)."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from _values_of(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value if isinstance(value, str) else _as_yaml(value)


def identity_of(config: Any, *, whole: bool = False) -> dict[str, Any]:
    """Return the options that results depend on, nested as ``asdict`` nests them: what identifies a result.

    Those in ``ENVIRONMENT``, also of sections, stand there with their defaults, whatever they are. So an
    option that joins ``ENVIRONMENT`` changes no identity that was noted while it had its default. One whose
    default was another once stands there with that, as its field's metadata say under "noted". Those in
    ``LATER``, which joined after runs had been made, are left out while they have their default, unless
    ``whole``.
    """
    environment: Sequence[str] = getattr(config, "ENVIRONMENT", ())
    later: Sequence[str] = () if whole else getattr(config, "LATER", ())
    values = {
        each.name: (
            each.metadata.get("noted", each.default)
            if each.name in environment
            else getattr(config, each.name)
        )
        for each in fields(config)
        if each.name not in later or getattr(config, each.name) != each.default
    }
    return {
        name: identity_of(value, whole=whole) if is_dataclass(value) else value
        for name, value in values.items()
    }


def chosen_options(config: Any) -> dict[str, Any]:
    """Return, nested, what of :func:`identity_of` differs from the defaults, or from those of its preset.

    So an option that is added, and a default or preset that changes, leave it as it was.
    """
    presets: Mapping[str, Mapping[str, object]] = getattr(config, "PRESETS", {})
    preset = presets.get(getattr(config, "preset", ""), {})
    found: dict[str, Any] = {}
    default: object
    for each in fields(config):
        if each.name in getattr(config, "ENVIRONMENT", ()):
            continue
        value, default = getattr(config, each.name), each.default
        if is_dataclass(value):
            value, default = chosen_options(value), {}
        elif each.name in preset:
            default = preset[each.name]
        elif each.default_factory is not MISSING:
            default = each.default_factory()
        if value != default and str(value) != str(default):  # presets may write numbers as text
            found[each.name] = value
    return found


def _as_yaml(value: Any, *, in_order: bool = False) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=10**9, sort_keys=not in_order)
    return text.strip().removesuffix("\n...")


@dataclass
class _Read:
    """A command line, taken apart.

    Attributes:
        pairs: options with their values.
        files: of --config.
        flags: jsonargparse's own.
        help_on: what help is wanted on, "" for the short one; None for none.
    """

    pairs: Arguments
    files: list[str]
    flags: list[str]
    help_on: str | None = None


def _read_argv(argv: Sequence[str], positional: str, config: type[Any], left_out: Collection[str]) -> _Read:
    """Take a command line apart. Raises :class:`ConfigError` for one that cannot be read."""
    read, known = _Read([], [], []), dict(options_of(config))
    words = list(argv)
    bare: list[str] = []
    while positional and words and not words[0].startswith("-") and (not bare or _is_list(known[positional])):
        bare.append(words.pop(0))
    if bare:
        read.pairs.append((positional, ",".join(bare)))
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word == "-h" or name == "help":
            read.help_on = value or (words.pop(0) if words and not words[0].startswith("-") else "")
            continue
        if word.startswith("--print_config"):
            read.flags.append(word)
            continue
        if not word.startswith("--"):
            expected = f"one {positional} first, then options" if positional else "options"
            raise ConfigError(f"unexpected argument '{word}': expected {expected}, such as --name value.")
        option = renamed(name, config)
        if not equals:
            if words and not words[0].startswith("--"):
                value = words.pop(0)
            elif known.get(option) is bool:
                value = "true"
            else:
                hint = (
                    "" if option in known else f" Besides, it is unknown: {meaning(name, config, left_out)}"
                )
                raise ConfigError(f"option '--{name}' has no value: write --{name} VALUE.{hint}")
        if name == "config":
            read.files.append(value)
        else:
            read.pairs.append((name, value))
    return read


def _read_yaml(file: str, config: type[Any], left_out: Collection[str]) -> Arguments:
    """Flatten a YAML file into (dotted name, value) pairs, values written as YAML again."""
    data = load_yaml(file)
    if not isinstance(data, dict):
        raise ConfigError(f"'{file}' must hold 'option: value' lines, but it holds a {type(data).__name__}.")
    known = dict(options_of(config))
    pairs = []  # as text, like those of the command line, so that one parser checks both
    for name, value in flatten(data, {prefix for prefix, _ in sections_of(config)}):
        if (option := renamed(name, config)) not in known:
            raise ConfigError(f"'{file}' has the unknown option '{name}': {meaning(name, config, left_out)}")
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
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a name must be a word, but it is a list or has names itself", key.start_mark
                )
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
        return yaml.load(read_text(path), Loader=TextLoader) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"'{file}' is not valid YAML{yaml_mistake(error)}.") from None
    except RecursionError:
        raise ConfigError(f"'{file}' is not valid YAML: it is nested too deep.") from None


def yaml_mistake(error: yaml.YAMLError) -> str:
    """Return what is wrong with YAML, and where, as the end of a sentence."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:  # what is no text at all has no lines
        return f": {reason(error)}"
    return f", line {mark.line + 1}, column {mark.column + 1}: {problem}"


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


def _plain_message(message: str, known: Mapping[str, Any], given: Mapping[str, str]) -> str:
    """Say what jsonargparse says, without its Python types; ``given``: the value of each option, as text."""
    if missing := re.search(r"arguments are required: (.*)", message):
        names = ", ".join(f"--{name}" for name in missing[1].split(", "))
        return f"these options are missing: {names}."
    found = re.search(r'Parser key "(?P<name>[^"]+)":\s*(?P<rest>.*)', message, re.DOTALL)
    if found is None:
        return message
    name, rest = found["name"], found["rest"]
    if name in known and name in given and re.match("Expected a |Does not validate ", rest):
        return f"option '--{name}': expected {_in_words(known[name])}, but got '{given[name]}'."
    rest = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", rest)
    rest = " ".join(re.sub(r"typing\.Literal(\[.*?\])", r"one of \1", rest).split())
    return f"option '--{name}': {rest}"


_IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}


def _in_words(kind: Any) -> str:
    """Say what values an option of this type takes.

    >>> _in_words(float | None), _in_words(list[str]), _in_words(typing.Literal["paper", "zero_shot"])
    ('a number or null', 'a list, each text', 'one of paper, zero_shot')
    """
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(map(str, parts))}"
    if _is_list(kind):
        return f"a list, each {_in_words(parts[0])}"
    return " or ".join(map(_in_words, parts)) if parts else _IN_WORDS.get(kind, str(kind))
