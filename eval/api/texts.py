"""A list of texts as something to search: a BM25 index in the cache, found again by its content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from corag.core.errors import ConfigError, DataError
from corag.core.seeds import stable_hash
from corag.core.system.files import cache_folder, write_atomically
from eval.experiment.opening import quiet
from retrieval.config import IndexConfig
from retrieval.http.wire import passage_to_record
from retrieval.index.build import build_index
from retrieval.search.function_retriever import read_passage


def index_of_texts(texts: Sequence[Any]) -> str:
    """Return the folder of a BM25 index over texts, records, documents or passages, built if it is not there.

    Raises:
        ConfigError: for an empty list.
        DataError: for what is no passage.
    """
    if not texts:
        raise ConfigError("there is nothing to search: the list of texts is empty.")
    try:
        passages = [read_passage(text, f"item {number}") for number, text in enumerate(texts, 1)]
    except DataError as error:
        raise DataError(
            f"a list that is to be searched holds texts, records or passages, but {error}"
        ) from None
    lines = "".join(json.dumps(passage_to_record(each), ensure_ascii=False) + "\n" for each in passages)
    folder = cache_folder() / "texts" / stable_hash(lines)
    corpus = folder / "texts.jsonl"
    if not corpus.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(corpus, lines)
    with quiet(f"building an index of {len(passages):,} texts"):
        build_index(IndexConfig([str(corpus)], str(folder / "bm25")), lambda line: None)
    return str(folder / "bm25")
