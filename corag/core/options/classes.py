"""One way to configure everything: frozen dataclasses whose values are checked as they are made.

``CoRAGConfig(preset="small_model", top_k=3)`` in Python, a YAML file, the command line and a sweep's cell all
end in the constructor of the same class (:class:`Options`), so they give the same object or the same
sentence: other names are honoured, the preset's values applied, types and bounds checked by pydantic. Text is
read as the option's type, so ``"3"`` and ``3`` are one value.

What is to be known of a single field stands at it: bounds and a :class:`corag.core.options.names.Mark` in its
annotation, under it the sentence that help shows.
"""

from __future__ import annotations

import re
import typing
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import yaml

from corag.core.errors import ConfigError, nearest
from corag.core.options.names import (
    choices_of,
    is_list,
    kinds_of,
    meaning,
    options_of,
    resolve_alias,
    sections_of,
    split_list,
)
from corag.core.options.shared_values import is_withheld
from corag.core.options.yaml_files import parse_scalars, parse_yaml

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Config = TypeVar("Config")
_NOTHING: Mapping[str, Any] = {}


class _OptionsType(type):
    """Prepares the arguments of every class of options before its ``__init__`` runs."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        names = [each.name for each in fields(cast("Any", cls))]
        positional = dict(zip(names, args, strict=False))
        if len(args) > len(names) or positional.keys() & values.keys():
            raise TypeError(f"{cls.__name__}() got too many arguments, or one of them twice")
        section = cast("type[Options]", cls).SECTION
        return _make(cls, positional | values, f"{section}." if section else "")


class Options(metaclass=_OptionsType):
    """Base of all classes of options, which are frozen dataclasses.

    Raises :class:`ConfigError` for an unknown name, a value of another type or out of bounds, or an unknown
    preset. ``section``: the name under which commands have these options, with which messages begin.
    """

    SECTION: ClassVar[str] = ""
    ALIASES: ClassVar[Mapping[str, str]] = _NOTHING
    """Other names of options, of this class or of its sections."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = _NOTHING
    """Values of other options by the value of the option ``preset``."""

    def __init_subclass__(cls, section: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.SECTION = section or cls.SECTION

    @classmethod
    def extend(cls, stated_values: Mapping[str, Any]) -> type[Self]:
        """Return this class with the sections that it still lacks for these values."""
        return cls


def _make(config: Any, stated_values: Mapping[str, Any], prefix: str) -> Any:
    """Make an object of a class of options: names resolved, preset applied, values checked.

    Args:
        config: the class.
        stated_values: by name, which may be dotted. A section is an object or a mapping, and may be missing.
        prefix: of the section that ``config`` is, for messages.

    Raises:
        ConfigError: naming the option, what was given and what was expected.
    """
    values: dict[str, Any] = {}
    of_sections: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in full_names(config, stated_values.items(), prefix).items():
        section, _, option = name.partition(".")
        if option:
            of_sections[section][option] = value
        else:
            values[name] = value
    values = {**config.PRESETS.get(str(values.get("preset")), _NOTHING), **values}
    values = {name: _check(config, name, value, prefix) for name, value in values.items()}
    for section, changes in of_sections.items():
        # The section's defaults may be others here than those of its class.
        base = values.get(section) or config.__dataclass_fields__[section].default_factory()
        values[section] = _with_changes(base, changes, f"{prefix}{section}.")
    required_names = [each.name for each in fields(config) if each.default is each.default_factory is MISSING]
    if missing := [f"{prefix}{name}" for name in required_names if name not in values]:
        raise ConfigError(f"these options are missing: {', '.join(missing)}.")
    return type.__call__(config, **values)


def full_names(config: Any, pairs: Iterable[tuple[str, Any]], prefix: str = "") -> dict[str, Any]:
    """Return values by the full, dotted names of their options; of several for an option the last counts.

    A section that is a mapping is taken apart. One that is an object stays whole: an option of its by its own
    name says more, in any order.

    Args:
        config: the class of options.
        pairs: (name, value) as typed.
        prefix: of the section that ``config`` is, for messages.

    Raises:
        ConfigError: for a name that is no option's, with the one that was probably meant.
    """
    sections, options = {section for section, _ in sections_of(config)}, dict(options_of(config))
    values: dict[str, Any] = {}
    for typed_name, value in flatten(pairs, sections):
        is_section = isinstance(value, Options) and f"{typed_name}." in sections
        name = typed_name if is_section else resolve_alias(typed_name, config)
        if not is_section and name not in options:
            raise ConfigError(f"unknown option '{prefix}{typed_name}': {meaning(typed_name, config, prefix)}")
        values[name] = value
    return values


def flatten(pairs: Iterable[tuple[Any, Any]], sections: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of options that may be nested.

    ``sections``: the prefixes, dot included, that are no options.

    >>> list(flatten({"corag": {"chains": 4}, "corag.task": "x"}.items(), {"corag."}))
    [('corag.chains', 4), ('corag.task', 'x')]
    """
    for name, value in pairs:
        if f"{name}." not in sections:
            yield str(name), value
        elif isinstance(value, Mapping):
            yield from flatten(((f"{name}.{option}", each) for option, each in value.items()), sections)
        elif value is not None:  # that of a section of a file of which every line is commented out
            yield str(name), value


def _check(config: Any, name: str, value: Any, prefix: str) -> Any:
    """Return a value as its option's type. Raises :class:`ConfigError` if it is none."""
    kind = kinds_of(config)[name]
    if is_dataclass(kind):
        section = cast("type[Any]", kind)
        if not isinstance(value, section):
            given, wanted = type(value).__name__, section.__name__
            raise ConfigError(f"section '{prefix}{name}' is a {given}: write {wanted}(...).")
        return value
    from pydantic import ValidationError

    if is_withheld(value):
        raise ConfigError(
            f"option '{prefix}{name}' had a value where this was made that was not shared: give your own."
        )
    try:
        return _adapter(config, name).validate_python(_prepare_value(kind, value))
    except ValidationError as error:
        # Of a wrong number pydantic says, too, whether it was text.
        faults = (re.split(", (?:unable|got) ", each["msg"])[0] for each in error.errors())
        expected = " or ".join(dict.fromkeys(fault.replace("Input ", "it ") for fault in faults))
        choices = choices_of(name, config)
        hint = nearest(str(value), [*map(str, choices)], otherwise="") if choices else ""
        raise ConfigError(
            f"option '{prefix}{name}' is '{value}', but {expected}{f': {hint}' if hint else '.'}"
        ) from None


@lru_cache(maxsize=2048)
def _adapter(config: Any, name: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kinds_of(config, include_extras=True)[name])


def _prepare_value(kind: Any, value: Any) -> Any:
    """Return what pydantic is to check: text of lists and mappings taken apart, an empty one as None.

    YAML's null is the empty text.
    """
    value = "" if value is None else value
    is_mapping = typing.get_origin(kind) is dict
    if isinstance(value, str) and (is_mapping or is_list(kind)):
        if value[:1] in ("[", "{"):
            with suppress(yaml.YAMLError):  # what is none stays a text, which pydantic refuses
                value = parse_yaml(value)
        else:
            value = split_list(value) if is_list(kind) else value or {}
    elif value in ("", "null") and type(None) in typing.get_args(kind):
        return None
    return parse_scalars(value) if is_mapping else value


def change_options(base: Config, changes: Mapping[str, Any]) -> Config:
    """Return a configuration with some options changed, as if they had been stated after all others.

    A changed preset brings its values with it. Raises :class:`ConfigError` for what its class refuses.
    """
    return cast("Config", _with_changes(base, changes, config=cast("Any", base).extend(changes)))


def _with_changes(base: Any, changes: Mapping[str, Any], prefix: str = "", config: Any = None) -> Any:
    """Return a copy of ``base``, as ``config`` if that is another class, with some values changed."""
    config = config or type(base)
    values = {each.name: getattr(base, each.name) for each in fields(base)}
    changes = full_names(config, changes.items(), prefix)
    if "preset" in changes:
        # What the preset before brought along goes with it; what was stated beside it stays.
        default = type(base)()
        for name, value in config.PRESETS.get(base.preset, _NOTHING).items():
            if values[name] == value:
                values[name] = getattr(default, name)
        values |= config.PRESETS.get(str(changes["preset"]), _NOTHING)
    return _make(config, values | changes, prefix)
