"""Reciprocal rank fusion by hand, and hybrid search and reranking over real indexes."""

from collections.abc import Callable

import pytest

from corag.core.errors import IndexMismatchError
from corag.core.fusion import fuse
from corag.core.types import Hit, Passage
from retrieval.config import RetrieverConfig
from retrieval.search.joined import FusedRetriever
from retrieval.search.pipeline import open_retriever
from tests.fakes import WordRetriever, passage
from tests.messages import raises_message


def ranking(*ids: str) -> list[Hit]:
    return [Hit(Passage(identifier, "", identifier), 1.0 - place) for place, identifier in enumerate(ids)]


def test_fusion_by_hand() -> None:
    fused = fuse([ranking("a", "b", "c"), ranking("b", "d"), ranking("b", "a")])
    expected = {"b": 1 / 62 + 1 / 61 + 1 / 61, "a": 1 / 61 + 1 / 62, "d": 1 / 62, "c": 1 / 63}
    assert [(hit.passage.id, hit.score) for hit in fused] == [
        (name, pytest.approx(score)) for name, score in expected.items()
    ]


def test_equal_scores_keep_the_order_of_first_appearance() -> None:
    fused = fuse([ranking("x", "y"), ranking("y", "x"), ranking("z")])
    assert [hit.passage.id for hit in fused] == ["x", "y", "z"]
    assert fuse([[], []]) == []


async def test_indexes_that_call_different_passages_alike_are_not_fused() -> None:
    """Numbered from 1, two corpora would hide half of each other's passages."""
    indexes = [WordRetriever([passage("1", f"{town} lies in Norway.")]) for town in ("Oslo", "Bergen")]
    fused = FusedRetriever(indexes, depth=5)  # type: ignore[arg-type]
    with raises_message(IndexMismatchError):
        await fused.search("What lies in Norway?", 2)
    same = FusedRetriever([indexes[0], indexes[0]], depth=5)  # type: ignore[list-item]
    assert [hit.passage.id for hit in await same.search("What lies in Norway?", 2)] == ["1"]


@pytest.mark.slow
async def test_hybrid_search_is_the_fusion_of_its_indexes(index_of: Callable[[str], str]) -> None:
    names = [index_of("bm25"), index_of("dense")]
    single = [await open_retriever(RetrieverConfig([name])) for name in names]
    hybrid = await open_retriever(RetrieverConfig(names, fusion_depth=20))
    query = "Who is the mayor of Town09?"
    expected = fuse([await each.search(query, 20) for each in single])[:6]
    assert list(await hybrid.search(query, 6)) == expected
    assert expected[0].passage.id == "m9"
    assert [passage.id for passage in await hybrid.passages(["t1", "?", "m2"])] == ["t1", "m2"]
    assert len({hybrid.fingerprint, *(each.fingerprint for each in single)}) == 3
    for each in (*single, hybrid):
        await each.close()


@pytest.mark.slow
async def test_the_reranker_orders_by_the_cross_encoders_own_scores(
    index_of: Callable[[str], str], tiny_reranker: str
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    config = RetrieverConfig([index_of("bm25")], reranker=tiny_reranker, rerank_depth=12)
    plain, reranked = await open_retriever(RetrieverConfig(config.index)), await open_retriever(config)
    query = "bridge across the Corvane"
    candidates = [hit.passage for hit in await plain.search(query, 12)]
    tokenizer = AutoTokenizer.from_pretrained(tiny_reranker)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_reranker)
    scores = {}
    for each in candidates:
        with torch.no_grad():
            logit = model(**tokenizer(query, each.contents, return_tensors="pt")).logits[0, 0]
        scores[each.id] = torch.sigmoid(logit).item()
    hits = await reranked.search(query, 5)
    assert [hit.passage.id for hit in hits] == sorted(scores, key=lambda identifier: -scores[identifier])[:5]
    assert [hit.score for hit in hits] == [pytest.approx(scores[hit.passage.id], abs=1e-4) for hit in hits]
    await plain.close()
    await reranked.close()
