"""List the methods with their options' defaults and presets."""

from __future__ import annotations

from dataclasses import dataclass, fields

from scripts.methods import METHODS, MethodOptions


@dataclass(frozen=True)
class Config:
    """'corag methods' has no options."""


def main(config: Config) -> int:
    """Print one block per method."""
    options = MethodOptions()
    for name, entry in METHODS.items():
        section = options.of(name)
        print(f"{name}: {entry.summary}")
        print("  " + ", ".join(f"{field.name}={getattr(section, field.name)!r}" for field in fields(section)))
        for preset, values in getattr(section, "PRESETS", {}).items():
            print(
                f"  preset {preset}: "
                + (", ".join(f"{key}={value!r}" for key, value in values.items()) or "the defaults")
            )
    return 0
