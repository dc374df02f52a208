"""BM25 in other languages than English, and queries that are longer than a retriever reads.

An index's analyser is that of its searches.
"""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corag.core.protocols import Retriever, search_note
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.index.manifest import IndexManifest
from retrieval.lucene.languages import LANGUAGES, open_analyzer, prepare
from retrieval.search.pipeline import open_retriever

TEXTS = {
    "de": ("Die Häuser stehen am Fluss.", "Am Berg wächst Wein.", "Haus"),
    "zh": ("杭州是浙江省的省会，位于钱塘江边。", "这座山上种葡萄。", "浙江的省会"),
    "ja": ("東京は日本の首都です。", "山で葡萄を作っています。", "日本の首都"),
    "th": ("เชียงใหม่เป็นเมืองที่ใหญ่ที่สุดในภาคเหนือ", "บนภูเขามีไร่องุ่น", "เมืองใหญ่ภาคเหนือ"),
    "km": ("ភ្នំពេញជារាជធានីនៃប្រទេសកម្ពុជា", "នៅលើភ្នំមានទំពាំងបាយជូរ", "រាជធានីនៃប្រទេស"),
    "el": ("Οι πόλεις βρίσκονται στο ποτάμι.", "Στο βουνό φυτρώνει σταφύλι.", "πόλη"),
    "standard": ("Bæjarins hús standa við ána.", "Vínviður vex á fjallinu.", "hús"),
}


def build(folder: Path, texts: list[str], **options: object) -> tuple[str, IndexManifest, list[str]]:
    corpus, reports = folder / "corpus.jsonl", list[str]()
    corpus.write_text(
        "".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts))
    )
    config = IndexConfig([str(corpus)], str(folder / "index"), **options)  # type: ignore[arg-type]
    return str(folder / "index"), build_index(config, reports.append), reports


async def found(retriever: Retriever, query: str) -> list[str]:
    return [hit.passage.id for hit in await retriever.search(query, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("language", TEXTS)
async def test_an_index_is_searched_by_its_own_languages_analyser(language: str, tmp_path: Path) -> None:
    *texts, query = TEXTS[language]
    index, manifest, reports = build(tmp_path, texts, language=language)
    assert manifest.settings.detail("language") == language
    assert len(reports) == 1
    retriever = await open_retriever(RetrieverConfig([index]))
    assert await found(retriever, query) == ["0"]
    (passage,) = await retriever.passages(["0"])
    assert passage.text == texts[0], "the passage itself stays as it was"
    await retriever.close()


def test_texts_are_composed_and_words_set_apart_where_lucene_cannot() -> None:
    assert prepare("Zu\u0308rich", "de") == "Z\u00fcrich"
    assert prepare("រាជធានីនៃប្រទេស", "km") == "រាជធានី នៃ ប្រទេស"


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_analyser_is_there(language: str) -> None:
    if language != "en":
        open_analyzer(language)


@pytest.mark.slow
@pytest.mark.parametrize("bm25", ["pyserini", "ircot"])
async def test_a_query_of_many_terms_is_searched_whole(index_of: Callable[[str], str], bm25: str) -> None:
    from eval.experiment import extensions  # noqa: F401 - the preset of IRCoT

    retriever = await open_retriever(RetrieverConfig([index_of("bm25")], bm25=bm25))
    padding = " ".join(f"w{number}" for number in range(5_000))
    short, long = await retriever.search("Corvane", 3), await retriever.search(f"{padding} Corvane", 3)
    assert [hit.passage.id for hit in long] == [hit.passage.id for hit in short] != []
    await retriever.close()


@pytest.mark.slow
async def test_a_query_longer_than_a_model_reads_is_said(
    index_of: Callable[[str], str], tiny_reranker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = await open_retriever(RetrieverConfig([index_of("dense")]))
    assert search_note(await retriever.search("bridge " * 40, 2)) == ""
    assert search_note(await retriever.search("bridge " * 400, 2)) == (
        "the encoder read the first 256 of the query's 402 tokens"
    )
    await retriever.close()
    from transformers import PreTrainedTokenizerFast as Tokenizer

    threads, set_limits = set[int](), Tokenizer.set_truncation_and_padding

    def watch(*arguments: Any, **options: Any) -> None:
        threads.add(threading.get_ident())
        set_limits(*arguments, **options)

    monkeypatch.setattr(Tokenizer, "set_truncation_and_padding", watch)
    config = RetrieverConfig([index_of("bm25")], reranker=tiny_reranker, rerank_depth=5)
    reranked = await open_retriever(config)
    threads.clear()
    assert search_note(await reranked.search("bridge " * 40, 2)) == ""
    assert search_note(await reranked.search("bridge " * 400, 2)) == (
        "the re-ranker reads 512 tokens of query and passage together; the query has 402"
    )
    await reranked.close()
    assert len(threads) == 1, "two at once would change each other's limits"
