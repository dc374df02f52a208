"""Repeating every cell of a sweep over values of some options: models, demonstrations, indexes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from corag.core.errors import ConfigError
from corag.core.options import flatten

_SHORT_FORM = re.compile(r"([\w.]+)=(.*)", re.DOTALL)
_EXAMPLE = (
    "write 'model=NAME,NAME', or YAML of options, each with a list of values, such as "
    "'{model: [NAME, {name: NAME, adapter: FOLDER}]}'"
)


class Repetition(NamedTuple):
    """What one repetition of a cell changes, in full names or others, and what to call it."""

    name: str
    changes: Mapping[str, Any]


def parse_short(over: str) -> dict[str, list[str]] | None:
    """Read 'OPTION=VALUE,VALUE'; None if the text has another form.

    >>> parse_short("model=default,google/flan-t5-xl"), parse_short("{model: [a, b]}")
    ({'model': ['default', 'google/flan-t5-xl']}, None)
    """
    match = _SHORT_FORM.fullmatch(over.strip())
    if match is None:
        return None
    return {match[1]: [value.strip() for value in match[2].split(",") if value.strip()]}


def combine(source: str, data: Any, sections: Collection[str], shorten: Any) -> list[Repetition]:
    """Return the combinations of some options' values, the last option changing fastest.

    Args:
        source: where they are written, for messages.
        data: values by option. Of a section it may be a mapping, as a model with its adapter.
        sections: prefixes, dot included, that are no options.
        shorten: writes a value as it stands in names.

    Raises:
        ConfigError: for what is no options with lists of values.
    """
    if not data or not isinstance(data, Mapping):
        raise ConfigError(f"{source} must say what each cell is repeated over: {_EXAMPLE}.")
    axes = []
    for option, values in data.items():
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"{source} has no list of values for {option}: {_EXAMPLE}.")
        axes.append(_axis(str(option), values, sections, shorten))
    return [
        Repetition(
            " ".join(each.name for each in combination),
            {option: value for each in combination for option, value in each.changes.items()},
        )
        for combination in itertools.product(*axes)
    ]


def _axis(option: str, values: Sequence[Any], sections: Collection[str], shorten: Any) -> list[Repetition]:
    names = _names_of_paths(values, shorten)

    def name(value: Any) -> str:
        return str(names.get(value) or shorten(value)) if isinstance(value, str) else str(shorten(value))

    return [_one(option, value, sections, name) for value in values]


def _names_of_paths(values: Sequence[Any], shorten: Any) -> dict[Any, str]:
    """Return by path, of paths too long for a name, the parts in which they differ; {} of others.

    >>> _names_of_paths(["sets/a/x.txt", "sets/b/x.txt"], lambda path: path[-4:])
    {'sets/a/x.txt': 'a', 'sets/b/x.txt': 'b'}
    """
    if len(values) < 2 or not all(isinstance(each, str) and "/" in each for each in values):
        return {}
    if all(shorten(each) == each for each in values):
        return {}
    parts = [each.split("/") for each in values]
    while all(each[1:] for each in parts) and len({each[0] for each in parts}) == 1:
        parts = [each[1:] for each in parts]
    while all(each[1:] for each in parts) and len({each[-1] for each in parts}) == 1:
        parts = [each[:-1] for each in parts]
    return dict(zip(values, map("/".join, parts), strict=True))


def _one(option: str, value: Any, sections: Collection[str], shorten: Any) -> Repetition:
    changes = dict(flatten([(option, value)], sections))
    parts = [
        f"{option if name in (option, f'{option}.name') else name.removeprefix(f'{option}.')}={shorten(each)}"
        for name, each in changes.items()
    ]
    return Repetition(" ".join(parts), changes)
