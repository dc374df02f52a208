"""What identifies a result: the options that it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from corag.core.option_names import Mark, marked_options

DETERMINISTIC = ":deterministic"
"""Part of the fingerprint of a model whose replies do not depend on what else is in flight."""


def identity_of(config: Any) -> dict[str, Any]:
    """Return the options that results depend on, nested as ``asdict`` nests them: what identifies a result.

    Those of the environment, also of sections, are there with their defaults, whatever their values.
    """
    environment = marked_options(type(config), Mark.ENVIRONMENT)
    values = {
        each.name: each.default if each.name in environment else getattr(config, each.name)
        for each in fields(config)
    }
    return {name: identity_of(value) if is_dataclass(value) else value for name, value in values.items()}


def chosen_options(config: Any) -> dict[str, Any]:
    """Return, nested, what of :func:`identity_of` differs from the defaults, or from those of its preset.

    So an option that is added, and a default or preset that changes, leave it as it was.
    """
    presets: Mapping[str, Mapping[str, object]] = getattr(config, "PRESETS", {})
    preset = presets.get(getattr(config, "preset", ""), {})
    environment = marked_options(type(config), Mark.ENVIRONMENT)
    choices: dict[str, Any] = {}
    default: object
    for each in fields(config):
        if each.name in environment:
            continue
        value, default = getattr(config, each.name), each.default
        if is_dataclass(value):
            value, default = chosen_options(value), {}
        elif each.name in preset:
            default = preset[each.name]
        elif each.default_factory is not MISSING:
            default = each.default_factory()
        if value != default and str(value) != str(default):  # presets may write numbers as text
            choices[each.name] = value
    return choices
