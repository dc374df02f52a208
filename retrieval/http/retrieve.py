r"""``POST /retrieve`` as agents that are trained by reinforcement learning ask it.

The protocol is that of Search-R1's ``retrieval_server.py``, which verl, verl-tool and Tree-GRPO ask too:
{"queries": [...], "topk": 3, "return_scores": true} is answered with
{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}, a list per query; without
``return_scores`` the lists hold the documents themselves. Agents take the first line of ``contents``,
'"Title"\ntext', for the title. BrowseComp-Plus's agents send one {"query": "..."} and read
{"result": [{"document": {"title", "text"}, "docid"}, ...]}.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from corag.core.errors import BackendError, CoragError, DataError
from corag.core.protocols import Retriever
from corag.core.types import Hit, Passage

DEFAULT_TOPK = 3  # of Search-R1's server and configurations
DEFAULT_TOPK_SINGLE = 5  # of BrowseComp-Plus's server
MAX_K = 1_000  # a slip such as topk=100000 would hold up everyone else's searches
MAX_PASSAGES = 100_000  # of a reply: some 100 MB


async def retrieve(retriever: Retriever, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request; all of its queries are searched for as one batch.

    A query that cannot be searched for gets an empty list, and a sentence under its number in "errors": one
    of hundreds shall not cost a training step. Raises :class:`DataError` for a request that makes no sense,
    :class:`BackendError` if the index is lost.
    """
    if "queries" not in body and "query" in body:
        (query,) = _queries([body["query"]], "'query' must be a string")
        hits, error = await _search(retriever, query, _topk(body, DEFAULT_TOPK_SINGLE, 1))
        return {"result": list(map(_with_title, hits))} | ({"errors": {"0": error}} if error else {})
    queries = _queries(body.get("queries"), "'queries' must be a list of strings")
    topk = _topk(body, DEFAULT_TOPK, len(queries))
    with_scores = body.get("return_scores")
    if with_scores is not None and not isinstance(with_scores, bool):
        raise DataError(f"'return_scores' must be true or false, but is {with_scores!r:.40}.")
    outcomes = await asyncio.gather(*(_search(retriever, query, topk) for query in queries))
    write = _with_score if with_scores else _document
    errors = {str(number): error for number, (_, error) in enumerate(outcomes) if error}
    result = [list(map(write, hits)) for hits, _ in outcomes]
    return {"result": result} | ({"errors": errors} if errors else {})


async def _search(retriever: Retriever, query: str, topk: int) -> tuple[Sequence[Hit], str]:
    try:
        return await retriever.search(query, topk), ""
    except BackendError:  # no fault of this query: the whole request fails, and clients try again
        raise
    except CoragError as error:
        return (), str(error)


def _queries(value: Any, rule: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise DataError(f'{rule}, such as {{"queries": ["Who wrote Dune?"], "topk": {DEFAULT_TOPK}}}.')
    return value


def _topk(body: Mapping[str, Any], default: int, queries: int) -> int:
    """Return how many passages a query is to get: null and 0 are the default, as in Search-R1's server."""
    topk = body.get("topk")
    if topk is None or (topk == 0 and not isinstance(topk, bool)):
        topk = default
    if not isinstance(topk, int) or isinstance(topk, bool) or not 1 <= topk <= MAX_K:
        raise DataError(f"'topk' must be a whole number from 1 to {MAX_K:,}, but is {topk!r:.40}.")
    if queries * topk > MAX_PASSAGES:
        raise DataError(
            f"{queries:,} queries with topk {topk:,} ask for {queries * topk:,} passages, but a reply has "
            f"{MAX_PASSAGES:,} at most: send several requests."
        )
    return topk


def _document(hit: Hit) -> dict[str, Any]:
    return {"id": hit.id, "contents": f'"{_title(hit.passage)}"\n{hit.passage.text}'}


def _with_score(hit: Hit) -> dict[str, Any]:
    return {"document": _document(hit), "score": hit.score}


def _with_title(hit: Hit) -> dict[str, Any]:
    document = {"title": _title(hit.passage), "text": hit.passage.text}
    return {"document": document, "docid": hit.id, "score": hit.score}


def _title(passage: Passage) -> str:
    """Return the title in one line: agents split contents at the first newline. Without one, the origin."""
    return " ".join((passage.title or passage.origin).split())
