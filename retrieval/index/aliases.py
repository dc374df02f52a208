"""Which ids of a corpus stand for the same passage in its index, and which for parts of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import orjson

from corag.core.errors import IndexMismatchError
from corag.core.system.files import write_atomically
from retrieval.corpora.sifting import NUMBER_SIGN

ALIASES = "passages.aliases.json"


@dataclass(frozen=True)
class Aliases:
    """What a gold id means in an index.

    Attributes:
        same_as: the id of the kept passage by each id that was dropped as a repeat of its text.
        numbered: whether passages that shared an id are called ID, ID#2, ID#3: then a part of a document
            counts as the document.
        titled: whether a passage counts by its title and file as well, as they stand: where ids cannot be
            looked up, as in a retriever of the user's own, a gold passage may be any of them.
    """

    same_as: Mapping[str, str] = field(default_factory=dict)
    numbered: bool = False
    titled: bool = False

    @classmethod
    def load(cls, folder: Path) -> Aliases:
        """Read the aliases of an index; none if it has none.

        Raises :class:`IndexMismatchError` if they cannot be read.
        """
        file = folder / ALIASES
        return cls.parse(file.read_bytes(), file) if file.is_file() else NO_ALIASES

    @classmethod
    def parse(cls, content: bytes, file: Path) -> Aliases:
        """Read the aliases out of a file's content, which :meth:`load` has read.

        Raises :class:`IndexMismatchError` if it cannot be read.
        """
        try:
            record = orjson.loads(content)
            return cls(dict(record["same_as"]), bool(record["numbered"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise IndexMismatchError(f"'{file}' cannot be read ({error!r:.80}): copy it back.") from None

    def save(self, folder: Path) -> None:
        """Write the aliases into an index folder; nothing if there are none."""
        if self:
            record = {"numbered": self.numbered, "same_as": dict(self.same_as)}
            write_atomically(folder / ALIASES, orjson.dumps(record).decode() + "\n")

    def __bool__(self) -> bool:
        return bool(self.same_as) or self.numbered

    def merge(self, other: Aliases) -> Aliases:
        """Return the aliases of two indexes that are searched together."""
        return Aliases(
            {**other.same_as, **self.same_as},
            self.numbered or other.numbered,
            self.titled or other.titled,
        )

    def names(self, ids: Iterable[str]) -> set[str]:
        """Return all that collected passages may be called by gold ids: their ids, and their documents'.

        >>> sorted(Aliases(numbered=True).names(["d1#2", "d3"]))
        ['d1', 'd1#2', 'd3']
        """
        names = set(ids)
        if self.numbered:
            for name in list(names):
                document, _, number = name.rpartition(NUMBER_SIGN)
                if document and number.isdecimal():
                    names.add(document)
        return names


NO_ALIASES = Aliases()


def load_aliases(folders: Iterable[str]) -> Aliases:
    """Return the aliases of indexes that are searched together; none of a folder that is not here.

    Raises :class:`IndexMismatchError` as :meth:`Aliases.load` does.
    """
    return reduce(Aliases.merge, (Aliases.load(Path(folder)) for folder in folders), NO_ALIASES)
