"""Passages on disk, read by row number or id without being held in memory."""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson

from core.errors import DataError
from core.types import Passage

TEXTS, OFFSETS, IDS, DOCID = "passages.jsonl", "passages.offsets.npy", "passages.ids.npy", "docid"


def write_store(passages: Iterable[Passage], folder: Path) -> int:
    """Write passages as JSONL with the offset of every line, an id table, and Pyserini's ``docid`` (an id per line).

    Returns their number. Raises :class:`DataError` for an id that spans lines.
    """
    offsets, hashes, end = array("Q", [0]), array("Q"), 0
    with (folder / TEXTS).open("wb") as texts, (folder / DOCID).open("w", encoding="utf-8") as ids:
        for passage in passages:
            if passage.id.splitlines() != [passage.id]:
                raise DataError(
                    f"the passage id {passage.id!r} is empty or spans lines: give every passage a one-line id."
                )
            end += texts.write(orjson.dumps([passage.id, passage.title, passage.text]) + b"\n")
            ids.write(passage.id + "\n")
            offsets.append(end)
            hashes.append(_hash(passage.id))
    all_hashes = np.frombuffer(hashes, "<u8")
    order = np.argsort(all_hashes, kind="stable")
    np.save(folder / OFFSETS, np.frombuffer(offsets, "<u8"))
    np.save(folder / IDS, np.stack([all_hashes[order], order.astype("<u8")]))
    return len(hashes)


class PassageStore:
    """Random access to what :func:`write_store` wrote, through memory maps: opening is immediate at any size."""

    def __init__(self, folder: Path) -> None:
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r")
        self._sorted_hashes, self._rows = np.load(folder / IDS, mmap_mode="r")
        with (folder / TEXTS).open("rb") as texts:
            self._texts = mmap.mmap(texts.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def row(self, number: int) -> Passage:
        """Return the passage that was written at this place, counting from 0."""
        return Passage(*orjson.loads(self._texts[int(self._offsets[number]) : int(self._offsets[number + 1])]))

    def rows(self, start: int, stop: int) -> Iterator[Passage]:
        """Stream the passages of these rows."""
        return (self.row(number) for number in range(start, min(stop, len(self))))

    def id_of(self, number: int) -> str:
        """Return the id of the passage of this row."""
        return self.row(number).id

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        found = {}
        for identifier in ids:
            wanted = np.uint64(_hash(identifier))
            first, last = (int(np.searchsorted(self._sorted_hashes, wanted, side)) for side in ("left", "right"))
            candidates = (self.row(int(number)) for number in self._rows[first:last])  # several only if hashes collide
            found.update({passage.id: passage for passage in candidates if passage.id == identifier})
        return found

    def close(self) -> None:
        """Let go of the texts. Safe to call twice."""
        self._texts.close()


def _hash(identifier: str) -> int:
    return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=8).digest(), "little")
