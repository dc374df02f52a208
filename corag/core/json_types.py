"""Values as JSON holds them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def to_json_types(value: Any) -> Any:
    """Return a value as it is read back from a JSON file: lists for tuples, texts for paths and keys.

    >>> to_json_types({"layers": ("a", "b"), 3: None})
    {'layers': ['a', 'b'], '3': None}
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(name): to_json_types(each) for name, each in value.items()}
    return [to_json_types(each) for each in value] if isinstance(value, list | tuple) else value
