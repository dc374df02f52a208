"""YAML as the project reads and writes it: all values are texts, which become what their options are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from corag.core.errors import ConfigError, reason
from corag.core.files import read_text


class TextLoader(yaml.BaseLoader):
    """Reads all values as text, and refuses a name that is given twice: YAML would quietly take the last."""

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        """Return the text of a value, "" for YAML's null."""
        null = node.style is None and node.value in ("null", "Null", "NULL", "~")
        return "" if null else str(super().construct_scalar(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping.

        Raises :class:`yaml.constructor.ConstructorError` for a name that is given twice.
        """
        names = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a name must be a word, but it is a list or has names itself", key.start_mark
                )
            if key.value in names:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' is given twice", key.start_mark
                )
            names.add(str(key.value))
        return super().construct_mapping(node, deep)


class _AsWritten(TextLoader):
    """Leaves null as its text, too."""

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        return str(yaml.BaseLoader.construct_scalar(self, node))


def parse_yaml(text: str) -> Any:
    """Parse YAML with all values as text. Raises :class:`yaml.YAMLError`."""
    return yaml.load(text, Loader=TextLoader)


def free_mapping(value: Any) -> Any:
    """Return a mapping that a library is to get: texts that spell a number, truth or null become those.

    ``value``: a mapping, or YAML of one. What is no mapping comes back as it is.

    >>> free_mapping("{a: 8192, b: 0.5, c: {d: true}, e: fp8, f: [1e-5, null]}")
    {'a': 8192, 'b': 0.5, 'c': {'d': True}, 'e': 'fp8', 'f': [1e-05, None]}
    """
    if isinstance(value, str):
        try:
            value = yaml.load(value, Loader=_AsWritten) if value.strip() else {}
        except yaml.YAMLError:
            return value
    return _parse_scalars(value) if isinstance(value, Mapping) else value


def _parse_scalars(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _parse_scalars(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_parse_scalars(each) for each in value]
    if not isinstance(value, str):
        return value
    if value in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[value]
    for number in (int, float):
        try:
            return number(value) if any(map(str.isdecimal, value)) and "_" not in value else value
        except ValueError:
            pass
    return value


def load_yaml(file: str, option: str = "config") -> Any:
    """Read a YAML file with all values as text, {} if it is empty.

    Raises :class:`ConfigError` saying what is wrong with it.
    """
    path = Path(file)
    if not path.is_file():
        kind = "configuration file" if option == "config" else f"file of {option}"
        raise ConfigError(f"there is no {kind} '{file}': check '{option}'.")
    try:
        return parse_yaml(read_text(path)) or {}
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


def as_yaml(value: Any, *, in_order: bool = False) -> str:
    """Write a value as YAML on one line."""
    text: str = yaml.safe_dump(plain(value), default_flow_style=True, width=10**9, sort_keys=not in_order)
    return text.strip().removesuffix("\n...")


def plain(value: Any) -> Any:
    """Return a value with lists in place of tuples, which YAML would mark."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
