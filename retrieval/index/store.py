"""Passages on disk, read by row number or id without being held in memory."""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import orjson

from corag.core.types import Passage
from retrieval.index.aliases import ALIASES, NO_ALIASES, Aliases

# Hashes of ids rather than ids: 16 bytes per passage, whatever its id, in one sorted array.
TEXTS, OFFSETS, IDS = "passages.jsonl", "passages.offsets.npy", "passages.ids.npy"
STORE_FILES = (TEXTS, OFFSETS, IDS)


def storing(passages: Iterable[Passage], folder: Path) -> Iterator[Passage]:
    """Pass passages on while writing them as JSONL; then write the lines' offsets and a table of ids."""
    offsets, hashes, end = array("Q", [0]), array("Q"), 0
    with (folder / TEXTS).open("wb") as texts:
        for passage in passages:
            record = [passage.id, passage.title, passage.text, *_place(passage)]
            end += texts.write(orjson.dumps(record) + b"\n")
            offsets.append(end)
            hashes.append(hash_text(passage.id))
            yield passage
    all_hashes = np.frombuffer(hashes, "<u8")
    order = np.argsort(all_hashes, kind="stable")
    np.save(folder / OFFSETS, np.frombuffer(offsets, "<u8"))
    np.save(folder / IDS, np.stack([all_hashes[order], order.astype("<u8")]))


class Lines:
    """The lines of a file by number, counted from 0, without being held in memory."""

    def __init__(self, path: Path) -> None:
        self._text = _map_file(path)
        characters = np.frombuffer(self._text, np.uint8)
        ends = np.flatnonzero(characters == ord("\n"))
        if len(characters) and characters[-1] != ord("\n"):
            ends = np.append(ends, len(characters))
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        start = int(self._ends[number - 1]) + 1 if number else 0
        return self._text[start : int(self._ends[number])].decode().rstrip("\r")


def has_store(folder: Path) -> bool:
    """Whether :func:`storing` wrote passages into this folder, to their end."""
    return (folder / IDS).is_file()


class PassageStore:
    """Random access to what :func:`storing` wrote, through memory maps: opening is immediate at any size."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # asarray: the same map seen as a plain array, whose elements are read several times faster than a
        # memmap's
        self._offsets = np.asarray(np.load(folder / OFFSETS, mmap_mode="r"))
        self._sorted_hashes, self._rows = np.asarray(np.load(folder / IDS, mmap_mode="r"))
        self._texts = _map_file(folder / TEXTS)
        # Parsed when it is wanted, opened now: another index may take the folder's place.
        self._aliases = _map_file(folder / ALIASES) if (folder / ALIASES).is_file() else None

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def row(self, number: int) -> Passage:
        """Return the passage that was written at this place, counting from 0."""
        return Passage(
            *orjson.loads(self._texts[int(self._offsets[number]) : int(self._offsets[number + 1])])
        )

    def rows(self, start: int, stop: int) -> Iterator[Passage]:
        """Stream the passages of these rows."""
        return (self.row(number) for number in range(start, min(stop, len(self))))

    def read_id(self, number: int) -> str:
        """Return the id of the passage of this row."""
        return self.row(number).id

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones.

        An id that was dropped as a repeat brings the passage that was kept, under the id that was asked for.
        """
        if not len(self):
            return {}
        # All ids of a batch at once, in C: looked up one by one they would cost more than Lucene's search.
        hashes = np.fromiter(map(hash_text, ids), "<u8", len(ids))
        first = np.searchsorted(self._sorted_hashes, hashes)
        rows = self._rows[np.minimum(first, len(self) - 1)]
        starts, stops = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        by_id = {}
        for position, (identifier, start, stop) in enumerate(zip(ids, starts, stops, strict=True)):
            passage = Passage(*orjson.loads(self._texts[start:stop]))
            if passage.id == identifier:
                by_id[identifier] = passage
            elif other := self._look_further(identifier, hashes[position], int(first[position])):
                by_id[identifier] = other
            elif same_id := self.aliases.same_as.get(identifier):
                by_id[identifier] = replace(self.passages([same_id])[same_id], id=identifier)
        return by_id

    @cached_property
    def aliases(self) -> Aliases:
        """Which ids stand for the same passage."""
        return (
            Aliases.parse(self._aliases[:], self._folder / ALIASES)
            if self._aliases is not None
            else NO_ALIASES
        )

    def _look_further(self, identifier: str, id_hash: np.uint64, position: int) -> Passage | None:
        """Search the rows whose ids have the same hash: for unknown ids and the rare hash that two share."""
        while position < len(self) and self._sorted_hashes[position] == id_hash:
            passage = self.row(int(self._rows[position]))
            if passage.id == identifier:
                return passage
            position += 1
        return None

    def close(self) -> None:
        """Let go of the texts. Safe to call twice."""
        self._texts.close()
        if self._aliases is not None:
            self._aliases.close()


def _map_file(path: Path) -> mmap.mmap:
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _place(passage: Passage) -> tuple[str | int, ...]:
    """Return source and page, or neither: most corpora have none, and their stores stay as they were."""
    return (passage.source, passage.page) if passage.place else ()


def hash_text(text: str) -> int:
    """Return 8 bytes that stand for a text in a sorted table."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
