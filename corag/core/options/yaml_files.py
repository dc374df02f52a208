"""YAML as the project reads and writes it: all values are texts, which become what their options are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from corag.core.errors import ConfigError, reason
from corag.core.system.files import read_text


class TextLoader(yaml.BaseLoader):
    """Reads all values as text, and refuses a name that is given twice: YAML would quietly take the last."""

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        """Return the text of a value, None for YAML's null."""
        null = node.style is None and node.value in ("", "null", "Null", "NULL", "~")
        return None if null else super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping.

        Raises :class:`yaml.constructor.ConstructorError` for a name that is given twice.
        """
        names = [str(key.value) for key, _ in node.value]
        for number, (key, _) in enumerate(node.value):
            if names[number] in names[:number]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' is given twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Parse YAML with all values as text. Raises :class:`yaml.YAMLError`."""
    return yaml.load(text, Loader=TextLoader)


def parse_scalars(value: Any) -> Any:
    """Return a structure for a library: texts that are JSON, as numbers and truth values are, become that.

    >>> parse_scalars(parse_yaml("{a: 8192, b: 0.5, c: {d: true}, e: fp8, f: [1e-5, null]}"))
    {'a': 8192, 'b': 0.5, 'c': {'d': True}, 'e': 'fp8', 'f': [1e-05, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): parse_scalars(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [parse_scalars(each) for each in value]
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
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
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f": {reason(error)}"  # what is no text at all has no lines
    mark = error.problem_mark
    return f", line {mark.line + 1}, column {mark.column + 1}: {error.problem}"


def as_yaml(value: Any) -> str:
    """Write a value as YAML on one line."""
    text: str = yaml.safe_dump(plain(value), default_flow_style=True, width=10**9, sort_keys=False)
    return text.strip().removesuffix("\n...")


def plain(value: Any) -> Any:
    """Return a value with lists in place of tuples, which YAML would mark."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
