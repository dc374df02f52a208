"""Data inside a page: JSON, gzipped and in base64, so that nothing in it can end a script element, decoded
when it is looked at.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

CHUNK_BYTES = 200_000  # of JSON: unpacked in a few milliseconds, and large enough to compress well


def pack(data: bytes) -> str:
    """Compress and write in base64; equal data give equal text."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


def element(name: str, packed: str) -> str:
    """Return the script element that holds a block; browsers do not run its type."""
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>\n'


class Passages:
    """Every passage that a report names, numbered from 0 in order of appearance.

    Titles as far as they are known.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._titles: dict[str, str] = {}
        self._named: dict[str, None] = {}

    @property
    def ids(self) -> list[str]:
        """The ids in the order of their numbers."""
        return list(self._numbers)

    def number(self, identifier: str, title: str = "") -> int:
        """Return a passage's number."""
        if title:
            self._titles[identifier] = title
        self._named[identifier] = None
        return self._numbers.setdefault(identifier, len(self._numbers))

    def named(self) -> list[tuple[int, str, str]]:
        """Return (number, id, title) of all that were asked for since the last call."""
        named, self._named = self._named, {}
        return [
            (self._numbers[identifier], identifier, self._titles.get(identifier, "")) for identifier in named
        ]


@dataclass(frozen=True, slots=True)
class Chunks:
    """A list in packed pieces. ``starts``: the place of each piece's first item."""

    packed: tuple[str, ...]
    starts: tuple[int, ...]

    def elements(self, name: str) -> Iterator[str]:
        """Return the script elements, called ``name``-0 and so on."""
        return (element(f"{name}-{number}", packed) for number, packed in enumerate(self.packed))


def chunked(items: Iterable[Any], passages: Passages) -> Chunks:
    """Pack items, made one by one, in pieces ``{"passages": [[number, id, title], ...], "items": [...]}``.

    A piece has the passages that its items name, so it can be shown without another one.
    """
    packed: list[str] = []
    starts: list[int] = []
    waiting: list[bytes] = []

    def flush() -> None:
        packed.append(
            pack(b'{"passages":%b,"items":[%b]}' % (orjson.dumps(passages.named()), b",".join(waiting)))
        )
        waiting.clear()

    passages.named()
    size = 0
    for place, item in enumerate(items):
        if not waiting:
            starts.append(place)
            size = 0
        waiting.append(orjson.dumps(item))
        size += len(waiting[-1])
        if size >= CHUNK_BYTES:
            flush()
    if waiting:
        flush()
    return Chunks(tuple(packed), tuple(starts))
