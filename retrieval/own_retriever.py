"""Something to search of the user's own: any object or function that returns passages for a query.

What it returns is read by its form: texts, records, (passage, score) pairs, hits, documents of LangChain and
LlamaIndex, predictions of DSPy, the arrays of bm25s, the lists of Chroma. Passages without an id get one from
their content.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, cast

from corag.core.errors import ConfigError, DataError, SearchFailedError
from corag.core.own_calls import OwnCall
from corag.core.own_identity import identify
from corag.core.protocols import Retriever
from corag.core.types import Hit, Passage, passage_id
from retrieval.records import passage_from_record

FUNCTIONS = ("search", "retrieve", "invoke", "__call__")
SETTINGS = {
    "k": (
        "k",
        "top_k",
        "n",
        "num",
        "limit",
        "n_results",
        "topk",
        "size",
        "_similarity_top_k",
        "similarity_top_k",
        "search_kwargs",
    ),
}
_EXPECTATION = (
    "something to search needs one of search, retrieve, invoke or __call__, which takes a query, or to be a "
    "function of query and k that returns passages: write one, such as `def search(query, k): ...`"
)


def adapt_retriever(retriever: Any) -> Retriever:
    """Return a retriever around an own object or function; one that has our protocol is used as it is.

    Raises :class:`ConfigError` for what cannot be searched.
    """
    if inspect.iscoroutinefunction(getattr(retriever, "search", None)) and hasattr(retriever, "passages"):
        return _BorrowedRetriever(cast("Retriever", retriever))
    if not hasattr(retriever, "invoke") and callable(getattr(retriever, "as_retriever", None)):
        retriever = retriever.as_retriever()  # a vector store of LangChain's, an index of LlamaIndex's
    return PythonRetriever(retriever)


class _BorrowedRetriever:
    """A retriever that belongs to the user, so is not closed with the run."""

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner
        self.fingerprint = f"python:{identify(inner)}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Do nothing."""


class PythonRetriever:
    """A :class:`corag.core.protocols.Retriever` around an object or function of the user's.

    If it is not told k, as many as are wanted are kept of what it returns. Passages are looked up by id among
    those that were found since it was opened.
    """

    def __init__(self, retriever: Any) -> None:
        self._call = OwnCall(retriever, FUNCTIONS, SETTINGS, _EXPECTATION)
        if "token" in self._call.first:
            raise ConfigError(
                f"{self._call.name} takes tokens, not a query: give a function of query and k around it, "
                "such as `def search(query, k): ...`, that splits the query and returns texts."
            )
        self.fingerprint = f"python:{identify(retriever)}"
        self._most = _size_of(retriever)
        self._passage_by_id: dict[str, Passage] = {}

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits in the order in which they come, without repeats.

        Raises :class:`SearchFailedError` for what cannot be read as passages.
        """
        value = await self._call(query, {"k": min(k, self._most)})
        try:
            hits = read_hits(value)
        except DataError as error:
            raise SearchFailedError(
                f"{self._call.name} returned {_first_characters(value)}: {error} Return texts, records with "
                "a text, (passage, score) pairs, or corag.Passage objects."
            ) from None
        unique = {hit.passage.id: hit for hit in reversed(hits)}
        ids = list(dict.fromkeys(hit.passage.id for hit in hits))[:k]
        self._passage_by_id |= {name: unique[name].passage for name in ids}
        return [unique[name] for name in ids]

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return those of the passages that were found before, in this order."""
        return [self._passage_by_id[name] for name in ids if name in self._passage_by_id]

    async def close(self) -> None:
        """End the thread in which it was called, and forget what was found."""
        self._call.close()
        self._passage_by_id.clear()


def read_hits(value: Any) -> list[Hit]:
    """Read what a search returned. Passages without scores are scored by rank: 1, 1/2, 1/3.

    Scores that grow along the list are distances, and count as negative. Raises :class:`DataError` with a
    sentence's end for what is no list of passages.
    """
    items, scores = _items_of(value)
    passages: list[Passage] = []
    item_scores: list[float | None] = []
    for position, item in enumerate(items):
        passage, score = read_passage(item, f"item {position + 1}")
        passages.append(passage)
        item_scores.append(scores[position] if scores is not None and position < len(scores) else score)
    final_scores = [float(score) for score in item_scores if score is not None]
    if len(final_scores) < len(passages):
        final_scores = [1 / rank for rank in range(1, len(passages) + 1)]
    elif final_scores != sorted(final_scores, reverse=True) and final_scores == sorted(final_scores):
        final_scores = [-score for score in final_scores]
    return [Hit(passage, score) for passage, score in zip(passages, final_scores, strict=True)]


def _items_of(value: Any) -> tuple[Sequence[Any], Sequence[float] | None]:
    """Return the items of what a search returned, with scores if they come apart from them."""
    if isinstance(value, Mapping):
        for name in ("passages", "documents", "results", "hits", "docs"):
            if name in value:
                items, inner = _items_of(value[name])
                items, scores = _join_columns(items, value)
                return items, inner if scores is None else scores
        raise DataError(
            f"a record with {', '.join(map(str, value))[:100] or 'nothing'} has no list of passages."
        )
    for name in ("passages", "documents"):  # of DSPy and bm25s
        if (
            not isinstance(value, list)
            and (inner := getattr(value, name, None)) is not None
            and not callable(inner)
        ):
            items, _ = _items_of(inner)
            scores = getattr(value, "scores", None)
            return items, None if scores is None else [float(each) for each in _flat(scores)]
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and _is_numbers(_flat(value[1]))
        and not isinstance(value[0], str)
    ):
        return _flat(value[0]), [float(each) for each in _flat(value[1])]
    items = _flat(value)
    if items is None:
        raise DataError("that is no list of passages.")
    return items, None


# What stands beside a list of passages, one for each, and the field of a record that it is: Chroma's names.
_COLUMNS = {"ids": "id", "titles": "title", "metadatas": "metadata"}
_SCORES = ("scores", "distances")


def _join_columns(
    items: Sequence[Any], record: Mapping[str, Any]
) -> tuple[Sequence[Any], Sequence[float] | None]:
    """Return passages with what stands beside them in lists of their own, and their scores.

    Raises :class:`DataError` for lists of another length.
    """
    columns = {name: _column(record[name]) for name in (*_COLUMNS, *_SCORES) if record.get(name) is not None}
    for name, values in columns.items():
        if len(values) != len(items):
            raise DataError(f"it has {len(items)} passages, but {len(values)} {name}: one is due for each.")
    fields = {field: columns[name] for name, field in _COLUMNS.items() if name in columns}
    if fields and all(isinstance(each, str | Mapping) for each in items):
        items = [
            {field: values[position] for field, values in fields.items() if values[position] is not None}
            | ({"text": each} if isinstance(each, str) else dict(each))
            for position, each in enumerate(items)
        ]
    scores = next((columns[name] for name in _SCORES if name in columns), None)
    return items, [float(each) for each in scores] if scores and _is_numbers(scores) else None


def _column(value: Any) -> list[Any]:
    """Return a list, of an array or of the only list within another: Chroma has one for each query."""
    value = value.tolist() if hasattr(value, "tolist") else value
    inner = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    inner = inner.tolist() if hasattr(inner, "tolist") else inner
    values = inner if isinstance(inner, list | tuple) else value
    return list(values) if isinstance(values, list | tuple) else [values]


def _flat(value: Any) -> Any:
    """Return a list, of an array or of one list within another, as batches of one query have it."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, list | tuple):
        return None
    inner: Any = value[0] if len(value) == 1 else None
    inner = inner.tolist() if hasattr(inner, "tolist") else inner
    is_pair = isinstance(inner, list) and len(inner) == 2 and _is_numbers(inner[1:])
    return inner if isinstance(inner, list) and not is_pair else list(value)


def _is_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(each, Real) and not isinstance(each, bool) for each in values
    )


def read_passage(item: Any, where: str) -> tuple[Passage, float | None]:
    """Return a passage with its score, None if that is not said.

    Raises :class:`DataError` for what is no passage.
    """
    if isinstance(item, Hit):
        return item.passage, item.score
    if isinstance(item, Passage):
        return item, None
    if isinstance(item, str):
        return Passage(passage_id("", item), "", item), None
    if isinstance(item, list | tuple) and len(item) == 2:
        pair = item if _is_numbers([item[1]]) else item[::-1]  # (passage, score), or the other way round
        if _is_numbers([pair[1]]):
            return read_passage(pair[0], where)[0], float(pair[1])
    raw_score: Any = item.get("score") if isinstance(item, Mapping) else getattr(item, "score", None)
    score = float(raw_score) if _is_numbers([raw_score]) else None
    record = item if isinstance(item, Mapping) else _record_of(item)
    if record is None:
        raise DataError(f"{where} is {item!r:.60}, which is no passage.")
    if isinstance(record.get("long_text"), str) and "text" not in record:  # DSPy's ColBERTv2: title | text
        title, bar, text = record["long_text"].partition(" | ")
        record = {**record, "text": text if bar else title, "title": title if bar else ""}
    return passage_from_record(record, where), score


def _record_of(item: Any) -> dict[str, Any] | None:
    """Return a document of LangChain's or a node of LlamaIndex's, with or without its score, as a record."""
    node = getattr(item, "node", item)
    text = getattr(node, "page_content", None)
    if text is None and callable(getattr(node, "get_content", None)):
        text = node.get_content()
    if text is None:
        text = getattr(node, "text", None)
    if not isinstance(text, str):
        return None
    metadata = getattr(node, "metadata", None)
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    identifier = next(
        (value for name in ("id", "node_id", "id_") if (value := getattr(node, name, None))), None
    )
    name = identifier or metadata.get("id") or metadata.get("_id")
    return {"text": text, "metadata": metadata, **({"id": str(name)} if name else {})}


def _size_of(retriever: Any) -> int:
    """Return how many passages there are, where asking for more is an error: in LlamaIndex's BM25."""
    scores = getattr(getattr(retriever, "bm25", None), "scores", None)
    size = scores.get("num_docs") if isinstance(scores, Mapping) else None
    return sys.maxsize if size is None else int(size)


def _first_characters(value: Any) -> str:
    text = " ".join(repr(value).split())  # a table has lines
    return text if len(text) <= 80 else f"{text[:80]}..."
