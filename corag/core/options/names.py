"""What options are called: their full names, other spellings, and what a misspelt one probably means.

Apart from :mod:`corag.core.options.classes`, since the help of a command is written from the same names.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Annotated, Any, Literal, cast

from corag.core.errors import nearest


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
    return frozenset(part for part in parts if isinstance(part, Mark)).union(*map(marks_of, parts))


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


def is_list(kind: Any) -> bool:
    """Whether an option of this type takes several values."""
    return typing.get_origin(kind) in (list, tuple)


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


def resolve_alias(name: str, config: type[Any]) -> str:
    """Return an option's full name, which it has if it is not one of the ``ALIASES``.

    A hyphen is as good as an underscore.
    """
    name = name.replace("-", "_")
    for prefix, section in sections_of(config):
        if name.startswith(prefix) and name.removeprefix(prefix) in section.ALIASES:
            return f"{prefix}{section.ALIASES[name.removeprefix(prefix)]}"
    return name


def choices_of(option: str, section: type[Any]) -> tuple[Any, ...]:
    """Return the values that an option, or an item of a list, may have, if they can be listed."""
    kind = kinds_of(cast("Any", section)).get(option)
    kind = typing.get_args(kind)[0] if is_list(kind) else kind
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def meaning(name: str, config: type[Any], prefix: str = "") -> str:
    """Say what a name that is no option was probably meant to be, as the second half of a sentence.

    A name that begins with a section is looked for in that section alone. ``prefix``: of the section that
    ``config`` is.
    """
    name = name.replace("-", "_")
    sections = dict(sections_of(config))
    if kind := sections.get(f"{name}."):
        return f"it is a section: write one of its options, such as '{prefix}{name}.{fields(kind)[0].name}'."
    section, dot, last = name.rpartition(".")
    if section + dot not in sections:
        return nearest(section, [each.removesuffix(".") for each in sections if each], prefix=prefix)
    kind, path = sections[section + dot], prefix + section + dot
    names = [name for name, _ in options_of(kind)]
    for inner, options in sections_of(kind):
        names += [inner.removesuffix(".")] * bool(inner) + [f"{inner}{alias}" for alias in options.ALIASES]
    own = [each for each in names if "." not in each]
    cutoff = 0.6 if path else 0.7  # among hundreds of names some look alike by chance
    if hint := nearest(last, own, prefix=path, otherwise="", cutoff=cutoff):
        return hint
    listed = ", ".join(name for name, _ in options_of(kind) if "." not in name)
    rest = f"'{path.removesuffix('.')}' has {listed}." if path else "--help lists the options."
    return nearest(last, names, prefix=path, otherwise=rest, cutoff=cutoff)
