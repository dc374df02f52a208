"""What options are called: their full names, other spellings, and what a misspelt one probably means.

Apart from :mod:`corag.core.options`, since the help of a command is written from the same names.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from enum import Enum, auto
from functools import lru_cache
from typing import Annotated, Any, Literal, cast

_ALIKE = 0.6  # difflib's own measure of "close": a letter or two wrong in names of this length
_ALIKE_AMONG_ALL = 0.7  # where all sections count: among hundreds of names some look alike by chance
_MOST_OPTIONS = 5


class Mark(Enum):
    """What a field's annotation says about its option: ``threads: Annotated[int, Mark.ENVIRONMENT] = 0``."""

    OFTEN = auto()
    """Needed often: it is in the short help of commands that have its section."""
    ENVIRONMENT = auto()
    """How fast, or in what memory: it cannot change a result, so it does not identify one."""
    PLACE = auto()
    """Where a file lies: a result is identified by the digest of its content instead."""
    PRIVATE = auto()
    """An address, a key, or where one stands: what is shared leaves it out, as it does a PLACE."""
    NAME = auto()
    """A name that others know, or a file, folder or address: what is shared has the former only."""
    PUBLIC = auto()
    """Shared as it is, although its help speaks of files or servers: its values are neither."""


class AtHome:
    """Of the type of a path: "~" at its beginning means the home folder, also where no shell has seen it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Expand it once the value has been checked."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(os.path.expanduser, handler(source))


LocalPath = Annotated[str, Mark.PLACE, AtHome()]
NameOrPath = Annotated[str, Mark.NAME, AtHome()]


def split_list(text: str) -> list[str]:
    """Return the items of a list that is written with commas; a file or folder with a comma is one."""
    if os.path.exists(os.path.expanduser(text)):
        return [text]
    return [item.strip() for item in text.split(",") if item.strip()]


def marks_of(kind: Any) -> frozenset[Mark]:
    """Return the marks of an option's type, also those of the items of a list."""
    parts = typing.get_args(kind)
    direct_marks = [part for part in parts if isinstance(part, Mark)]
    return frozenset(direct_marks).union(*map(marks_of, parts))


def marked_options(config: type[Any], *marks: Mark) -> frozenset[str]:
    """Return the names of a dataclass's options that have one of these marks."""
    kinds = kinds_of(cast("Any", config), include_extras=True)  # mypy does not take a class for hashable
    return frozenset(name for name, kind in kinds.items() if marks_of(kind) & {*marks})


@lru_cache(maxsize=512)
def kinds_of(config: Any, *, include_extras: bool = False) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name; ``include_extras``: with bounds and marks."""
    names = {each.name for each in fields(config)}
    hints = typing.get_type_hints(config, include_extras=include_extras)  # slow, hence the cache
    return {name: kind for name, kind in hints.items() if name in names}


FREE_MAPPING = dict[str, Any]
"""The type of an option that passes a mapping of any values on to a library."""

_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}


def is_list(kind: Any) -> bool:
    """Whether an option of this type takes several values."""
    return typing.get_origin(kind) in (list, tuple)


def describe_type(kind: Any) -> str:
    """Describe the values that an option of this type takes, for a message.

    >>> describe_type(float | None), describe_type(list[str]), describe_type(Literal["paper", "zero_shot"])
    ('a number or null', 'a list, each text', 'one of paper, zero_shot')
    >>> from annotated_types import Ge, Le
    >>> describe_type(typing.Annotated[int, Ge(1)]), describe_type(typing.Annotated[float, Ge(0), Le(1)])
    ('a whole number of at least 1', 'a number from 0 to 1')
    """
    if typing.get_origin(kind) is typing.Annotated:
        base, *bounds = typing.get_args(kind)
        return describe_type(base) + _describe_bounds(bounds)
    parts = typing.get_args(kind)
    if kind == FREE_MAPPING:
        return "a mapping such as '{name: value, name: value}'"
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if typing.get_origin(kind) is dict:
        return f"a mapping of {describe_type(parts[0])} to {describe_type(parts[1])}"
    if is_list(kind):
        return f"a list, each {describe_type(parts[0])}"
    return " or ".join(map(describe_type, parts)) if parts else _TYPES.get(kind, str(kind))


def _describe_bounds(bounds: Iterable[Any]) -> str:
    limits = {
        name: getattr(each, name)
        for each in bounds
        for name in ("ge", "gt", "le", "lt")
        if hasattr(each, name)
    }
    match limits:
        case {"ge": low, "le": high}:
            return f" from {low} to {high}"
        case {"gt": low, "lt": high}:
            return f" above {low} and below {high}"
    phrases = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    return "".join(f" {phrases[name]} {limit}" for name, limit in limits.items())


def options_of(config: type[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, type) of every option of a nested dataclass."""
    kinds = kinds_of(cast("Any", config))  # mypy does not take a class for hashable
    for field in fields(config):
        kind = kinds[field.name]
        if is_dataclass(kind):
            yield from options_of(cast("type[Any]", kind), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, kind


def sections_of(config: type[Any], prefix: str = "") -> Iterator[tuple[str, type[Any]]]:
    """Yield (dotted prefix, dataclass) of a dataclass and of every dataclass nested in it."""
    yield prefix, config
    kinds = kinds_of(cast("Any", config))  # mypy does not take a class for hashable
    for field in fields(config):
        if is_dataclass(kinds[field.name]):
            yield from sections_of(kinds[field.name], f"{prefix}{field.name}.")


def owners_of(config: type[Any]) -> dict[str, str]:
    """Return, by the full name of each option that a section's ``BELONGS_TO`` names, the one it goes with."""
    return {
        f"{prefix}{name}": f"{prefix}{owner}"
        for prefix, section in sections_of(config)
        for name, owner in getattr(section, "BELONGS_TO", {}).items()
    }


def resolve_alias(name: str, config: type[Any]) -> str:
    """Return an option's full name, which it has if it is not one of the ``ALIASES``.

    A hyphen is as good as an underscore.
    """
    name = name.replace("-", "_")
    for prefix, section in sections_of(config):
        aliases: Mapping[str, str] = getattr(section, "ALIASES", {})
        if name.startswith(prefix) and name.removeprefix(prefix) in aliases:
            return prefix + aliases[name.removeprefix(prefix)]
    return name


def respell(name: str, value: Any, config: type[Any]) -> Any:
    """Return the value that is meant for an option of this full name.

    It may be one of its section's ``VALUE_ALIASES``, or a choice written with hyphens.
    """
    if not isinstance(value, str):
        return value
    prefix, _, option = name.rpartition(".")
    section = dict(sections_of(config)).get(f"{prefix}." if prefix else "")
    others: Mapping[str, Mapping[str, str]] = getattr(section, "VALUE_ALIASES", {})
    plain = value.replace("-", "_")
    choices = choices_of(option, section) if section is not None else ()
    if value in choices:
        return value
    return others.get(option, {}).get(plain, plain if plain in choices else value)


def choices_of(option: str, section: type[Any]) -> tuple[Any, ...]:
    """Return the values that an option may have, if they can be listed."""
    kind = kinds_of(cast("Any", section)).get(option)
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def meaning(name: str, config: type[Any], left_out: Collection[str] = ()) -> str:
    """Say what a name that is no option was probably meant to be, as the second half of a sentence.

    A name that begins with a section is looked for in that section alone. ``left_out``: sections that are not
    chosen, which are named only if nothing else has an option of this name.
    """
    name = name.replace("-", "_")
    sections = dict(sections_of(config))
    pointer = _pointer(name, sections, left_out)
    if pointer is not None:
        return pointer
    if f"{name}." in sections:
        first = _direct_options(sections[f"{name}."])[0]
        return f"it is a section: write one of its options, such as '{name}.{first}'."
    section_name, dot, last = name.rpartition(".")
    if dot and f"{section_name}." not in sections:
        near = _closest_name(section_name, [prefix.removesuffix(".") for prefix in sections if prefix])
        if near is None:
            return f"there is no section '{section_name}': {_help(config)} lists them."
        section_name = near
    if dot:
        return _hint_in_section(f"{section_name}.", last, sections[f"{section_name}."])
    return _hint_anywhere(name, config, sections, left_out)


def _pointer(name: str, sections: Mapping[str, type[Any]], left_out: Collection[str]) -> str | None:
    """Return what another toolkit's name is here: that of the section it is typed in comes first."""
    pointers = {
        f"{prefix}{other}": _with_prefix(text, prefix, section)
        for prefix, section in sections.items()
        for other, text in getattr(section, "POINTERS", {}).items()
    }
    _, dot, last = name.rpartition(".")
    prefixes = [""] if dot else [prefix for prefix in sections if prefix.split(".")[0] not in left_out]
    # A newcomer types a flat config's name in the section of the method: its answer is the command's.
    names = [name, last, *(f"{prefix}{name}" for prefix in prefixes)]
    return next((pointers[each] for each in names if each in pointers), None)


def _with_prefix(text: str, prefix: str, section: type[Any]) -> str:
    """Return a pointer with the section's own options by their full names, as its command has them."""
    names = "|".join(each.name for each in fields(section))
    return re.sub(rf"--({names})\b(?!\.)", rf"--{prefix}\1", text) if prefix else text


def _hint_in_section(prefix: str, name: str, section: type[Any]) -> str:
    """Say which option of a section was meant, or what options it has."""
    near = _closest_name(name, _spellings(section))
    if near is not None:
        return f"did you mean '{prefix}{_spellings(section)[near]}'?"
    return f"'{prefix.removesuffix('.')}' has {', '.join(_direct_options(section))}."


def _hint_anywhere(
    name: str, config: type[Any], sections: Mapping[str, type[Any]], left_out: Collection[str]
) -> str:
    """Say which option a name without a section means: of the command itself, or of a section of its."""
    visible_sections = {
        prefix: section
        for prefix, section in sections.items()
        if prefix and prefix.split(".")[0] not in left_out
    }
    for candidates in (visible_sections, sections):
        having = [prefix for prefix, section in candidates.items() if prefix and name in _spellings(section)]
        if having:
            return _one_of(f"{prefix}{_spellings(sections[prefix])[name]}" for prefix in having)
    spellings = dict(_spellings(config))
    for prefix, section in visible_sections.items():
        for spelling, option in _spellings(section).items():
            spellings.setdefault(spelling, f"{prefix}{option}")
    section_names = [prefix.removesuffix(".") for prefix in sections if prefix]
    near = _closest_name(
        name, {**spellings, **{section: section for section in section_names}}, _ALIKE_AMONG_ALL
    )
    near = near or _closest_name(name, _spellings(config))
    if near in section_names and near not in spellings:
        return f"did you mean the section '{near}'?"
    if near is None:
        return f"{_help(config)} lists the options."
    # The short name that was nearly typed is told, not the long one that it stands for.
    short = near in _spellings(config) and near not in section_names
    return f"did you mean '{near if short else spellings[near]}'?"


def _help(config: type[Any]) -> str:
    from corag.core.callers import help_on  # which knows the names, above this

    return help_on(config)


def _direct_options(section: type[Any]) -> list[str]:
    """Return the options of a section itself."""
    return [
        each.name for each in fields(section) if not is_dataclass(kinds_of(cast("Any", section))[each.name])
    ]


def _spellings(section: type[Any]) -> dict[str, str]:
    """Return what may be typed for the options of a section, with the option that each means."""
    return {name: name for name in _direct_options(section)} | dict(getattr(section, "ALIASES", {}))


def _closest_name(query: str, candidates: Iterable[str], cutoff: float = _ALIKE) -> str | None:
    """Return the name that is spelt most alike, or else the first that has the typed one as a word."""
    names = list(candidates)
    alike = get_close_matches(query, names, n=1, cutoff=cutoff)
    return next((name for name in [*alike, *names] if name in alike or f"_{query}_" in f"_{name}_"), None)


def _one_of(names: Iterable[str]) -> str:
    return f"did you mean {' or '.join(repr(name) for name in list(names)[:_MOST_OPTIONS])}?"
