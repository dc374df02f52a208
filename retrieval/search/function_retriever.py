"""Something to search of the user's own: a function of a query and k, or an object of our protocol."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypeGuard

from corag.core.errors import ConfigError, DataError, SearchFailedError
from corag.core.own_objects import OwnFunction, describe
from corag.core.protocols import Retriever
from corag.core.types import Hit, Passage, passage_id
from retrieval.corpora.passages import passage_from_record
from retrieval.search.stage import SearchStage

_EXPECTATION = (
    "something to search is a function such as `def search(query, k): ...` that returns passages, or an "
    "object with such a `search`: examples/ has adapters of other libraries"
)


def own_retriever(target: Any, identity: str) -> SearchStage:
    """Return a search with the user's; ``identity``: what tells it from others.

    Raises :class:`ConfigError` for what cannot be searched.
    """
    if _is_retriever(target):
        return _BorrowedRetriever(target, identity)
    return FunctionRetriever(target, identity)


def _is_retriever(target: Any) -> TypeGuard[Retriever]:
    return not isinstance(target, type) and all(
        hasattr(target, name) for name in ("search", "passages", "fingerprint", "close")
    )


class _BorrowedRetriever(SearchStage):
    """A retriever that belongs to the user, so is not closed with the run."""

    def __init__(self, inner: Retriever, identity: str) -> None:
        super().__init__()
        self.fingerprint = f"python:{identity}"
        self._inner = inner
        self._takes_hop = "hop" in inspect.signature(inner.search).parameters

    @property
    def has_hops(self) -> bool:
        """Whether it may search otherwise for queries that were asked on the way to an answer."""
        return self._takes_hop

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Search as it does."""
        return await (self._inner.search(query, k, hop) if self._takes_hop else self._inner.search(query, k))

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Look up as it does."""
        return await self._inner.passages(ids)

    async def close(self) -> None:
        """Do nothing."""


class FunctionRetriever(SearchStage):
    """A function that returns passages, best first.

    Passages are looked up by id among those that were found since it was opened.
    """

    def __init__(self, target: Any, identity: str) -> None:
        super().__init__()
        self.name = describe(target)
        self._call = OwnFunction(target, "search", _EXPECTATION)
        try:
            inspect.signature(self._call.function).bind("query", 1)
        except TypeError:
            raise ConfigError(f"{self.name} does not take a query and k: {_EXPECTATION}.") from None
        self.fingerprint = f"python:{identity}"
        self._passage_by_id: dict[str, Passage] = {}

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits in the order in which they come, without repeats.

        Raises :class:`SearchFailedError` for what cannot be read as passages.
        """
        value = await self._call(query, k)
        try:
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise DataError("that is no list of passages.")
            hits = [read_hit(item, rank) for rank, item in enumerate(value, 1)]
        except DataError as error:
            raise SearchFailedError(
                f"{self.name} returned {' '.join(repr(value).split()):.80}: {error} Return a list of texts, "
                "of records with a text, of corag.Passage objects, or of pairs of one of these and its score."
            ) from None
        unique: dict[str, Hit] = {}
        for hit in hits:
            unique.setdefault(hit.passage.id, hit)
        found = list(unique.values())[:k]
        self._passage_by_id |= {hit.passage.id: hit.passage for hit in found}
        return found

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return those of the passages that were found before, in this order."""
        return [self._passage_by_id[name] for name in ids if name in self._passage_by_id]

    async def close(self) -> None:
        """End the thread in which it was called, and forget what was found."""
        self._call.close()
        self._passage_by_id.clear()


def read_hit(item: Any, rank: int) -> Hit:
    """Read an item of what a search returned; without a score it has that of its rank: 1, 1/2, 1/3.

    Raises :class:`DataError` for what is no passage.
    """
    if isinstance(item, Hit):
        return item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Real):
        return Hit(read_passage(item[0], f"item {rank}"), float(item[1]))
    return Hit(read_passage(item, f"item {rank}"), 1 / rank)


def read_passage(item: Any, where: str) -> Passage:
    """Read a text, a record or a passage; one without an id gets it from its content.

    Raises :class:`DataError` for anything else.
    """
    if isinstance(item, Passage):
        return item
    if isinstance(item, str):
        return Passage(passage_id("", item), "", item)
    if isinstance(item, Mapping):
        return passage_from_record(dict(item), where)
    raise DataError(f"{where} is {item!r:.60}, which is no passage.")
