"""Blocks of JSON in a page, for what is large and seldom looked at: gzipped, in base64, in pieces.

Nothing in them can end a script element. A piece is unpacked when a reader looks at it.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from eval.report.traces import Passages

CHUNK_BYTES = 200_000  # of JSON: unpacked in a few milliseconds, and large enough to compress well


def pack(text: bytes) -> str:
    """Compress and write in base64; equal texts give equal ones, since no time is written (``mtime=0``)."""
    return base64.b64encode(gzip.compress(text, compresslevel=6, mtime=0)).decode("ascii")


def block(name: str, packed: str) -> str:
    """Return the script element that holds a block; browsers do not run its type."""
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>\n'


@dataclass(frozen=True, slots=True)
class Chunks:
    """A list in packed pieces. ``starts``: the place of each piece's first item."""

    pieces: tuple[str, ...]
    starts: tuple[int, ...]

    def blocks(self, name: str) -> Iterator[str]:
        """Return the script elements, called ``name``-0 and so on."""
        return (block(f"{name}-{number}", piece) for number, piece in enumerate(self.pieces))


def pack_chunks(items: Iterable[Any], passages: Passages) -> Chunks:
    """Pack items, made one by one, in pieces ``{"passages": [[number, id, title], ...], "items": [...]}``.

    A piece has the passages that its items name, so it can be shown without another one.
    """
    pieces: list[str] = []
    starts: list[int] = []
    waiting: list[bytes] = []

    def flush() -> None:
        named = orjson.dumps(passages.take_named())
        pieces.append(pack(b'{"passages":%b,"items":[%b]}' % (named, b",".join(waiting))))
        waiting.clear()

    passages.take_named()  # forget what was named before: by another run's pieces
    for number, item in enumerate(items):
        if not waiting:
            starts.append(number)
        waiting.append(orjson.dumps(item))
        if sum(map(len, waiting)) >= CHUNK_BYTES:
            flush()
    if waiting:
        flush()
    return Chunks(tuple(pieces), tuple(starts))
