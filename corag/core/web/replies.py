"""What stands in the JSON of a server's reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

Value = TypeVar("Value")


class MalformedReplyError(Exception):
    """A reply with status 200 that is not what was asked for."""


def value_at(reply: object, *path: str | int, kind: type[Value]) -> Value:
    """Return what stands at a place in a reply, such as "choices", 0, "text".

    Raises :class:`MalformedReplyError` if nothing does, or something of another ``kind``. Whole numbers are
    floats too.

    >>> value_at({"choices": [{"text": "yes"}]}, "choices", 0, "text", kind=str)
    'yes'
    """
    value: Any = reply
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise MalformedReplyError(f"a reply without {_location(path)}") from None
    if kind is float and type(value) is int:
        return cast("Value", float(value))
    # A bool is an int to Python, but not to JSON.
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        name = "null" if value is None else type(value).__name__
        raise MalformedReplyError(f"a reply whose {_location(path)} is {name}, not {kind.__name__}")
    return value


def list_at(
    reply: object, *path: str | int, kind: type[Value], length: int | None = None
) -> tuple[Value, ...]:
    """Return a list at a place in a reply, whose elements are all of one kind.

    Raises :class:`MalformedReplyError` if it is none, or has another ``length``.
    """
    values = value_at(reply, *path, kind=list)
    if length is not None and len(values) != length:
        raise MalformedReplyError(
            f"a reply whose {_location(path)} has {len(values)} entries instead of {length}"
        )
    return tuple(value_at(reply, *path, i, kind=kind) for i in range(len(values)))


def _location(path: Sequence[str | int]) -> str:
    return (
        "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".") or "body"
    )
