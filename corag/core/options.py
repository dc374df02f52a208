"""One way to configure everything: frozen dataclasses whose values are checked as they are made.

``CoRAGConfig(preset="small_model", top_k=3)`` in Python, a YAML file, the command line and a sweep's cell all
end in the constructor of the same class (:class:`Options`), so they give the same object or the same
sentence: other names are honoured, the preset's values applied, types and bounds checked by pydantic. Text is
read as the option's type, so ``"3"`` and ``3`` are one value.

What is to be known of a single field stands at it: bounds and a :class:`corag.core.option_names.Mark` in its
annotation, under it the sentence that help shows.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import yaml

from corag.core.errors import ConfigError, nearest
from corag.core.option_names import (
    FREE_MAPPING,
    choices_of,
    is_list,
    kinds_of,
    meaning,
    options_of,
    resolve_alias,
    sections_of,
    split_list,
)
from corag.core.shared_values import withheld_name
from corag.core.yaml_files import free_mapping, parse_yaml

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
    CHOICE: ClassVar[str] = ""
    """The option whose values choose among the sections, "" if there is no choice."""

    def __init_subclass__(cls, section: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.SECTION = section or cls.SECTION

    @classmethod
    def implied_values(cls, stated_values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values, by dotted names, that the stated values of some options imply for others."""
        return _NOTHING

    @classmethod
    def extend(cls, names: Sequence[str]) -> type[Options]:
        """Return this class with the sections that are not in it yet for these values of the choice."""
        return cls

    @classmethod
    def left_out_sections(cls, names: Sequence[str]) -> Collection[str]:
        """Return the sections that these values of the choice leave out: the short help passes them over."""
        return frozenset()


def _make(config: Any, stated_values: Mapping[str, Any], prefix: str) -> Any:
    """Make an object of a class of options: names resolved, preset applied, values checked.

    Args:
        config: the class.
        stated_values: by name, which may be dotted. A section is an object or a mapping, and may be missing.
        prefix: of the section that ``config`` is, for messages.

    Raises:
        ConfigError: naming the option, what was given and what was expected.
    """
    values = _by_section(full_names(config, stated_values.items(), prefix), prefix)
    values = {**_preset(config, values, prefix), **values}
    required_names = [each.name for each in fields(config) if each.default is each.default_factory is MISSING]
    if missing := [f"{prefix}{name}" for name in required_names if name not in values]:
        raise ConfigError(f"these options are missing: {', '.join(missing)}.")
    return type.__call__(
        config, **{name: _check(config, name, value, prefix) for name, value in values.items()}
    )


def full_names(config: Any, pairs: Iterable[tuple[str, Any]], prefix: str = "") -> dict[str, Any]:
    """Return values by the full, dotted names of their options; of several for an option the last counts.

    A section that is a mapping is taken apart. One that is an object stays whole, and comes first: an option
    of its by its own name says more.

    Args:
        config: the class of options.
        pairs: (name, value) as typed.
        prefix: of the section that ``config`` is, for messages.

    Raises:
        ConfigError: for a name that is no option's, with the one that was probably meant.
    """
    sections = {section for section, _ in sections_of(config)}
    options = dict(options_of(config))
    whole: dict[str, Any] = {}
    single: dict[str, Any] = {}
    for typed_name, value in flatten(pairs, sections):
        name = resolve_alias(typed_name, config)
        is_option_of_this_name = isinstance(value, str) or name != typed_name
        if f"{typed_name}." in sections and (isinstance(value, Options) or not is_option_of_this_name):
            whole[typed_name] = value
        elif name in options:
            single.pop(name, None)
            single[name] = value
        else:
            raise ConfigError(f"unknown option '{prefix}{typed_name}': {meaning(typed_name, config, prefix)}")
    return whole | single


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
        elif value != "":  # that of a section of a file of which every line is commented out
            yield str(name), value


def _by_section(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Group dotted names: {'seed': 1, 'corag.chains': 4} becomes {'seed': 1, 'corag': {'chains': 4}}."""
    groups: dict[str, Any] = {}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, option = name.partition(".")
        if option:
            changes.setdefault(section, {})[option] = value
        else:
            groups[name] = value
    for section, options in changes.items():
        whole = groups.get(section)
        if isinstance(whole, Options):
            groups[section] = _with_changes(whole, options, f"{prefix}{section}.")
        else:
            groups[section] = options
    return groups


def _preset(config: Any, values: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    """Return the values of the stated preset. An unknown one is refused with the other values."""
    if "preset" not in values:
        return _NOTHING
    return cast("type[Options]", config).PRESETS.get(
        _check(config, "preset", values["preset"], prefix), _NOTHING
    )


def _check(config: Any, name: str, value: Any, prefix: str) -> Any:
    """Return a value as its option's type. Raises :class:`ConfigError` if it is none."""
    kind = kinds_of(config)[name]
    if isinstance(kind, type) and is_dataclass(kind):
        return _check_section(config, name, value, f"{prefix}{name}")
    from pydantic import ValidationError

    if withheld := withheld_name(value):
        raise ConfigError(
            f"option '{prefix}{name}' was '{withheld}' on the machine where this was made, which was not "
            "shared: give your own."
        )
    choices = choices_of(name, config)
    try:
        return _adapter(config, name).validate_python(_prepare_value(kind, value, choices))
    except ValidationError as error:
        # Of a wrong number pydantic says, too, whether it was text.
        faults = (re.split(", (?:unable|got) ", each["msg"])[0] for each in error.errors())
        expected = " or ".join(dict.fromkeys(fault.replace("Input ", "it ") for fault in faults))
        hint = nearest(str(value), [*map(str, choices)], otherwise="") if choices else ""
        raise ConfigError(
            f"option '{prefix}{name}' is '{value}', but {expected}{f': {hint}' if hint else '.'}"
        ) from None


def _check_section(config: Any, name: str, value: Any, full_name: str) -> Any:
    """Return a section: an instance as it is, or the default one with the values of a mapping."""
    kind = kinds_of(config)[name]
    if isinstance(value, Mapping):
        default = next(each.default_factory for each in fields(config) if each.name == name)
        # The section's defaults may be others here than those of its class.
        return _with_changes(kind() if default is MISSING else default(), value, f"{full_name}.")
    if not isinstance(value, kind):
        raise ConfigError(
            f"section '{full_name}': expected a {kind.__name__}, but got a {type(value).__name__}: write "
            f"{kind.__name__}(...)."
        )
    return value


@lru_cache(maxsize=2048)
def _adapter(config: Any, name: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kinds_of(config, include_extras=True)[name])


def _prepare_value(kind: Any, value: Any, choices: Sequence[Any]) -> Any:
    """Return what pydantic is to check: text of lists split, "null" as None, which is "" for a text.

    True is no number, and a choice may be written with hyphens.
    """
    # pydantic would take True for 1, and "1" for true; the second is what a shell means.
    if isinstance(value, bool) and kind in (int, float):
        return repr(value)
    if value is None and kind is str:
        return ""
    if kind == FREE_MAPPING:
        return free_mapping(value)
    if not isinstance(value, str):
        return value
    if value not in choices and (plain := value.replace("-", "_")) in choices:
        return plain
    if is_list(kind) or typing.get_origin(kind) is dict:
        try:
            # As text, like all values of a file: an item "1" of a list of texts is no number.
            structure = parse_yaml(value) if value[:1] in ("[", "{") else None
        except yaml.YAMLError:  # "[Retrieval],[No Retrieval]" are two items
            structure = None
        if structure is not None or not is_list(kind):
            return value if structure is None else structure
        return split_list(value)
    if type(None) in typing.get_args(kind) and value.strip() in ("", "null", "None", "~"):
        return None
    return value


def change_options(base: Config, changes: Mapping[str, Any]) -> Config:
    """Return a configuration with some options changed, as if they had been stated after all others.

    A changed preset brings its values with it, and what is implied goes where an option has its default.
    Raises :class:`ConfigError` for what its class refuses.
    """
    options = cast("type[Options]", type(base))
    config = options.extend(names_in([changes.get(options.CHOICE)]))
    stated_values = full_names(config, changes.items())
    implied_changes = {
        name: value
        for name, value in implied_values(config, stated_values).items()
        if _has_default(base, name)
    }
    return cast("Config", _with_changes(base, {**implied_changes, **stated_values}, config=config))


def _with_changes(base: Any, changes: Mapping[str, Any], prefix: str = "", config: Any = None) -> Any:
    """Return a copy of ``base``, as ``config`` if that is another class, with some values changed."""
    config = config or type(base)
    values = {each.name: getattr(base, each.name) for each in fields(base)}
    changes = _by_section(full_names(config, changes.items(), prefix), prefix)
    if "preset" in changes:
        # What the preset before brought along goes with it; what was stated beside it stays.
        before = _preset(config, values, prefix)
        default = type(base)()
        values |= {
            name: getattr(default, name)
            for name, value in before.items()
            if values[name] == _check(config, name, value, prefix)
        }
    values |= _preset(config, changes, prefix)
    for name, value in changes.items():
        section = values.get(name)
        is_part = isinstance(value, Mapping) and isinstance(section, Options)
        values[name] = _with_changes(section, value, f"{prefix}{name}.") if is_part else value
    return _make(config, values, prefix)


def _has_default(base: Any, option: str) -> bool:
    """Whether an option, by its dotted name, has the default of its class."""
    *sections, last = option.split(".")
    for section in sections:
        base = getattr(base, section, None)
    defaults = {each.name: each.default for each in fields(base)} if is_dataclass(base) else {}
    return last in defaults and getattr(base, last) == defaults[last]


def names_in(values: Iterable[Any]) -> list[str]:
    """Return the names in the values that were stated for a list, as text or as lists."""
    lists = (value.strip("[]").split(",") if isinstance(value, str) else value or () for value in values)
    return [str(name).strip(" '\"") for items in lists for name in items]


def implied_values(config: type[Any], stated_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the stated values of some options imply for other options that the command has."""
    options = dict(options_of(config))
    return {
        f"{prefix}{name}": value
        for prefix, section in sections_of(config)
        for name, value in section.implied_values(
            {
                option.removeprefix(prefix): each
                for option, each in stated_values.items()
                if option.startswith(prefix)
            }
        ).items()
        if f"{prefix}{name}" in options
    }
