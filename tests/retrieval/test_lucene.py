"""Lucene BM25: real indexes, compared with Pyserini's own searcher."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from corag.core.errors import BackendError, ConfigError, IndexMismatchError, SearchFailedError
from corag.core.types import Passage
from eval.experiment import extensions  # noqa: F401 - the preset of IRCoT
from retrieval.config import Bm25, IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.lucene.bm25 import LuceneSearcher, build_lucene
from retrieval.lucene.java import java_class
from retrieval.search.pipeline import open_retriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore

pytestmark = pytest.mark.slow

QUERIES = [
    "Which river does Town07 lie on?",
    "bridge across the Corvane",
    "who sold honey",
    "mayor",
    "naïve 😀 travellers",
    "nothing-matches-this",
]


async def test_pyserini_opens_our_index_and_returns_the_same(index_of: Callable[[str], str]) -> None:
    retriever = await open_retriever(RetrieverConfig([index_of("bm25")]))
    from pyserini.search.lucene import LuceneSearcher as Pyserini

    pyserini = Pyserini(index_of("bm25"))
    for query in QUERIES:
        ours = [
            (hit.passage.id, pytest.approx(hit.score, abs=1e-5)) for hit in await retriever.search(query, 7)
        ]
        assert ours == [(hit.docid, hit.score) for hit in pyserini.search(query, 7)]
    assert ours == []
    await retriever.close()


async def test_batched_equals_one_at_a_time(index_of: Callable[[str], str]) -> None:
    retriever = await open_retriever(RetrieverConfig([index_of("bm25")], cache_size=0))
    asked = [(f"{query} {number}", 1 + number % 5) for number in range(60) for query in QUERIES]
    together = await asyncio.gather(*(retriever.search(query, k) for query, k in asked))
    for (query, k), hits in zip(asked, together, strict=True):
        assert hits == await retriever.search(query, k)
        assert len(hits) == len({hit.passage.id for hit in hits}) <= k
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    await retriever.close()


async def test_blank_queries_and_closed_indexes(index_of: Callable[[str], str]) -> None:
    retriever = await open_retriever(RetrieverConfig([index_of("bm25")]))
    assert await retriever.search(" \n", 3) == ()
    with raises_message(ConfigError):
        await retriever.search("town", 0)
    await retriever.close()
    await retriever.close()
    with raises_message(BackendError):
        await retriever.search("town", 3)


async def test_a_refused_query_fails_alone(index_of: Callable[[str], str]) -> None:
    retriever = await open_retriever(RetrieverConfig([index_of("bm25")]))
    lucene = java_class("org.apache.lucene.search.IndexSearcher")
    most = lucene.getMaxClauseCount()
    lucene.setMaxClauseCount(10)
    try:
        many = " ".join(f"word{number}" for number in range(20))
        good, bad = await asyncio.gather(
            retriever.search("mayor", 2), retriever.search(many, 2), return_exceptions=True
        )
    finally:
        lucene.setMaxClauseCount(most)
    assert not isinstance(good, BaseException) and len(good) == 2
    assert isinstance(bad, SearchFailedError) and "(20 words)" in str(bad)
    await retriever.close()


def test_ircot_preset_adds_the_scores_of_title_and_text(index_of: Callable[[str], str]) -> None:
    assert Bm25.from_config(RetrieverConfig(bm25="ircot")) == Bm25(1.2, 0.75, ("title", "text"))
    assert Bm25.from_config(RetrieverConfig(bm25="ircot", k1=0.5, b=0)) == Bm25(0.5, 0, ("title", "text"))
    scores = {}
    for fields in (("title", "text"), ("title",), ("text",)):
        searcher = LuceneSearcher(Path(index_of("bm25")), Bm25(1.2, 0.75, fields))
        (hits,) = searcher.search(["mayor of Town05"], 72)
        assert not isinstance(hits, SearchFailedError)
        scores[fields] = {hit.passage.id: hit.score for hit in hits}
        searcher.close()
    both = scores["title", "text"]
    assert both["m5"] == max(both.values())
    for identifier, score in both.items():
        parts = scores[("title",)].get(identifier, 0) + scores[("text",)].get(identifier, 0)
        assert score == pytest.approx(parts, abs=1e-3)


def test_k1_and_b_change_scores(index_of: Callable[[str], str]) -> None:
    best = set()
    for k1, b in ((0.9, 0.4), (1.2, 0.75), (0.9, 0.0)):
        searcher = LuceneSearcher(Path(index_of("bm25")), Bm25(k1, b, ("contents",)))
        (hits,) = searcher.search(["bridge Corvane"], 1)
        assert not isinstance(hits, SearchFailedError)
        best.add(hits[0].score)
        searcher.close()
    assert len(best) == 3
    with raises_message(ConfigError):
        Bm25.from_config(RetrieverConfig(b=1.5))


async def test_the_passage_store_changes_nothing_but_the_time(
    index_of: Callable[[str], str], passages: list[Passage], tmp_path: Path
) -> None:
    # what Pyserini builds: no store beside Lucene's files
    build_lucene(passages, tmp_path / "plain", 2, ignore)
    folders = [index_of("bm25"), str(tmp_path / "plain")]
    for preset in ("pyserini", "ircot"):
        stored, plain = [await open_retriever(RetrieverConfig([folder], bm25=preset)) for folder in folders]
        for query in QUERIES:
            assert await stored.search(query, 5) == await plain.search(query, 5)
        assert await stored.passages(["b3", "no", "t0"]) == (passages[11], passages[0])
        assert await plain.passages(["b3", "no", "t0"]) == (passages[11], passages[0])
        await stored.close()
        await plain.close()


async def test_relative_folders_are_those_of_python_and_not_of_java(
    passages: list[Passage], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Java, which runs by now, stays where it was
    build_index(IndexConfig([str(corpus)], "relative"), ignore)
    retriever = await open_retriever(RetrieverConfig(["relative"]))
    assert (await retriever.search("Town11 glass mayor", 1))[0].passage == passages[34]
    await retriever.close()


async def test_a_plain_lucene_index_without_our_manifest(passages: list[Passage], tmp_path: Path) -> None:
    build_lucene(passages, tmp_path / "plain", 2, ignore)
    retriever = await open_retriever(RetrieverConfig([str(tmp_path / "plain")]))
    again = await open_retriever(RetrieverConfig([str(tmp_path / "plain")], k1=0.5))
    assert (await retriever.search("Town11 glass mayor", 1))[0].passage.id == "m11"
    assert retriever.fingerprint != again.fingerprint
    with raises_message(IndexMismatchError):
        LuceneSearcher(tmp_path / "plain", Bm25(0.9, 0.4, ("paragraph",)))
    await retriever.close()
    await again.close()
