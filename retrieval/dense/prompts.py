"""The texts that an encoder was trained to have before its queries and its documents.

Sentence-transformers folders bring them in ``config_sentence_transformers.json``: ``prompts``, texts by name,
and ``default_prompt_name``. The names are the authors' own: "query" and "passage" (mxbai, E5), "query" alone
(Qwen3, GTE, Arctic), "retrieval.query" (Jina), "web_search_query" (E5-Mistral, BGE-Gemma), "s2p_query"
(Stella), "Retrieval-query" (EmbeddingGemma). Models older than that file have none, though their cards ask
for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AUTO = "auto"
"""Of ``query_prefix`` and ``passage_prefix``: what the encoder brings."""

_FILE = "config_sentence_transformers.json"
# The first that a model has counts: sentence-transformers' own names come first, in its order.
_QUERY = (
    "query",
    "queries",
    "search_query",
    "retrieval.query",
    "retrieval_query",
    "web_search_query",
    "s2p_query",
)
_DOCUMENT = ("document", "passage", "corpus", "documents", "passages", "search_document", "retrieval.passage",
             "retrieval.document", "retrieval_passage", "retrieval_document")  # fmt: skip

_REPRESENT = "Represent this sentence for searching relevant passages: "
_WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
# Encoders whose cards ask for texts that their files do not bring, or that a server does not tell, by what
# their names have in them. The first counts.
_BY_CARD: tuple[tuple[str, str, str], ...] = (
    (r"\be5-(small|base|large)(-v2|-unsupervised)?\b(?!-instruct)", "query: ", "passage: "),
    (r"\bnomic-embed-text\b", "search_query: ", "search_document: "),
    (r"\bbge-(small|base|large)-en\b", _REPRESENT, ""),
    (r"\bbge-(small|base|large)-zh\b", "为这个句子生成表示以用于检索相关文章：", ""),
    (r"\be5-\w+-instruct\b|\be5-mistral\b", f"{_WEB_SEARCH} ", ""),
    (r"\bqwen3-embedding\b", _WEB_SEARCH, ""),
    (r"\bsnowflake-arctic-embed-?\w*-v2|\bsnowflake-arctic-embed2\b", "query: ", ""),
    (r"\bmxbai-embed-(large|xsmall)\b|\bsnowflake-arctic-embed\b", _REPRESENT, ""),
    (r"\bembeddinggemma\b", "task: search result | query: ", "title: none | text: "),
)


@dataclass(frozen=True)
class Prompts:
    """What stands before a query and before a document, "" for nothing."""

    query: str = ""
    document: str = ""


def own_prompts(
    prompts: Mapping[str, str], default_name: str | None, names_in_file: Sequence[str]
) -> Prompts:
    """Return what a model's own prompts are for searching.

    Args:
        prompts: the model's, by name.
        default_name: the one that the model has for any text; None for none.
        names_in_file: those that stand in the model's file. Sentence-transformers adds empty ones by itself,
            and "document" would hide a model's "passage".
    """
    by_name = {_plain(name): text for name, text in reversed(list(prompts.items()))}
    names = {_plain(name) for name in names_in_file}
    default = prompts.get(default_name, "") if default_name else ""
    # A default for queries is none for documents, and the other way round.
    kind = _plain(default_name or "")
    return Prompts(
        _first(_QUERY, by_name, names, "" if kind in _DOCUMENT else default),
        _first(_DOCUMENT, by_name, names, "" if kind in _QUERY else default),
    )


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _first(
    candidates: Sequence[str], prompts: Mapping[str, str], names_in_file: set[str], default: str
) -> str:
    """Return the first prompt that says something; "" if the file states one that is empty."""
    texts = [prompts[name] for name in candidates if prompts.get(name)]
    if texts:
        return texts[0]
    return "" if any(name in names_in_file for name in candidates) else default


def stated_names(folder: Path) -> list[str]:
    """Return the names of the prompts in a model's file, none without the file."""
    try:
        record: Any = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        return list(record.get("prompts") or ())
    except (OSError, ValueError, AttributeError):
        return []


def prompts_by_card(*names: str) -> Prompts | None:
    """Return what the authors' cards ask for, for a model known by one of its names; None for others.

    >>> prompts_by_card("intfloat/e5-base-v2")
    Prompts(query='query: ', document='passage: ')
    """
    for pattern, query, document in _BY_CARD:
        if any(re.search(pattern, name.lower()) for name in names):
            return Prompts(query, document)
    return None
