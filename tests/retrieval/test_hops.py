"""An encoder for what methods ask on the way: which searches it serves, and among which vectors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.runner import answer_question
from corag.core.tools import SearchStep, Tools
from corag.core.types import Question
from eval.experiment.executor import WithoutPassage
from eval.experiment.registry import METHODS, MethodOptions, bind
from retrieval.config import RetrieverConfig
from retrieval.dense.encoder import HOP_ENCODER, Encoder
from retrieval.hops import HopRetriever, with_hop_encoder
from retrieval.open import open_retriever
from tests.baselines.test_every_method import SEARCHES, model
from tests.fakes import WordRetriever
from tests.messages import raises_message
from tests.retrieval.conftest import make_passages, static_encoder
from tests.retrieval.test_http import served
from tests.story import WORLD

QUESTION, SUB_QUERY = "Which town lies on the river Bost?", "Who sells honey in Town07?"


@pytest.fixture(scope="module")
def hop_encoder(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder as 'corag train encoder' leaves it, for passages of the default encoder."""
    return trained_for_default(tiny_encoder, tmp_path_factory.mktemp("hops") / "tiny")


def trained_for_default(encoder: str, folder: Path) -> str:
    shutil.copytree(encoder, folder, dirs_exist_ok=True)
    record = {"passages": "frozen", "passage_encoder": Encoder("default").fingerprint}
    (folder / HOP_ENCODER).write_text(json.dumps(record))
    return str(folder)


async def test_sub_queries_are_encoded_by_the_hop_encoder_among_the_same_vectors(
    index_of: Callable[[str], str], hop_encoder: str
) -> None:
    plain = await open_retriever(RetrieverConfig([index_of("dense")]))
    retriever = await open_retriever(RetrieverConfig([index_of("dense")], hop_encoder=hop_encoder))
    assert isinstance(retriever, HopRetriever)
    assert list(await retriever.search(QUESTION, 5)) == list(await plain.search(QUESTION, 5))
    texts = [passage.contents for passage in make_passages()]
    cosines = Encoder("default").encode(texts) @ Encoder(hop_encoder).encode([SUB_QUERY])[0]
    best = np.argsort(-cosines)[:5]
    hits = await retriever.hops.search(SUB_QUERY, 5)
    assert [hit.passage.contents for hit in hits] == [texts[place] for place in best]
    assert [hit.score for hit in hits] == pytest.approx(cosines[best].tolist(), abs=1e-5)
    assert len({plain.fingerprint, retriever.fingerprint, retriever.hops.fingerprint}) == 3
    left_out = WithoutPassage(retriever, hits[0].passage.id)
    assert left_out.hops is not None
    assert list(await left_out.hops.search(SUB_QUERY, 4)) == list(hits[1:])
    await retriever.close()
    await plain.close()


async def test_fusion_links_and_one_re_ranker_serve_both(
    index_of: Callable[[str], str], hop_encoder: str, tiny_reranker: str
) -> None:
    config = RetrieverConfig(
        [index_of("bm25"), index_of("dense")], hop_encoder=hop_encoder, links="titles",
        reranker=tiny_reranker, rerank_depth=20,
    )  # fmt: skip
    retriever = await open_retriever(config)
    assert isinstance(retriever, HopRetriever)
    hits = await retriever.hops.search("What is Town07 known for?", 20)
    assert {"t7"} <= {hit.passage.id for hit in hits}
    again = await retriever.search("What is Town07 known for?", 20)
    scores = {hit.passage.id: hit.score for hit in again}
    both = [hit for hit in hits if hit.passage.id in scores]
    assert both and [hit.score for hit in both] == pytest.approx([scores[hit.passage.id] for hit in both])
    await retriever.close()
    await retriever.close()


async def test_a_served_index_keeps_its_hop_encoder(index_of: Callable[[str], str], hop_encoder: str) -> None:
    local = await open_retriever(RetrieverConfig([index_of("dense")], hop_encoder=hop_encoder))
    assert isinstance(local, HopRetriever)
    async with served(local) as url:
        linked = await open_retriever(RetrieverConfig(url=[url], links="titles"))
        assert isinstance(linked, HopRetriever) and linked.fingerprint != local.fingerprint
        for mine, theirs in ((local, linked), (local.hops, linked.hops)):
            # All 72 passages: links only bring them into another order.
            ranks = [[hit.passage.id for hit in await each.search(SUB_QUERY, 72)] for each in (mine, theirs)]
            assert ranks[1][0] == "t7" and sorted(ranks[0]) == sorted(ranks[1])
        remote = await open_retriever(RetrieverConfig(url=[url]))
        queries = [await each.search(SUB_QUERY, 72) for each in (linked, linked.hops)]
        assert list(queries[0]) != list(queries[1]), "the second is encoded otherwise"
        await linked.close()
        assert isinstance(remote, HopRetriever) and remote.fingerprint == local.fingerprint
        for mine, theirs in ((local, remote), (local.hops, remote.hops)):
            assert list(await theirs.search(SUB_QUERY, 5)) == list(await mine.search(SUB_QUERY, 5))
        assert list(await remote.passages(["t0"])) == list(await local.passages(["t0"]))
        await remote.close()
    await local.close()


async def test_what_cannot_serve_is_refused(
    index_of: Callable[[str], str], tiny_encoder: str, tmp_path: Path
) -> None:
    dense = RetrieverConfig([index_of("dense")], hop_encoder=tiny_encoder)
    with raises_message(ConfigError):
        await open_retriever(replace(dense, index=[index_of("bm25")]))
    with raises_message(IndexMismatchError):
        await open_retriever(replace(dense, hop_encoder=static_encoder(tmp_path / "static")))
    trained = Path(tiny_encoder).with_name("trained")
    Path(tiny_encoder).rename(trained)
    try:
        for record in ({"passages": "trained"}, {"passages": "frozen", "passage_encoder": "another"}):
            (trained / HOP_ENCODER).write_text(json.dumps(record))
            with raises_message(IndexMismatchError):
                await open_retriever(replace(dense, hop_encoder=str(trained)))
        (trained / HOP_ENCODER).unlink()
        with raises_message(IndexMismatchError):  # nothing says what it was trained for
            await open_retriever(replace(dense, hop_encoder=str(trained)))
    finally:
        (trained / HOP_ENCODER).unlink(missing_ok=True)
        trained.rename(tiny_encoder)
    await (await open_retriever(replace(dense, hop_encoder="default"))).close()
    with raises_message(ConfigError):
        with_hop_encoder([], Encoder("default"))


async def test_the_prompt_of_hop_queries_is_part_of_what_is_searched(
    index_of: Callable[[str], str], hop_encoder: str, tmp_path: Path
) -> None:
    prompted = trained_for_default(hop_encoder, tmp_path / "prompted")
    settings = tmp_path / "prompted" / "config_sentence_transformers.json"
    own = json.loads(settings.read_text())
    settings.write_text(json.dumps(own | {"prompts": {"query": "question: ", "document": ""}}))
    fingerprints = set()
    for folder in (hop_encoder, prompted):
        retriever = await open_retriever(RetrieverConfig([index_of("dense")], hop_encoder=folder))
        fingerprints.add(retriever.fingerprint)
        await retriever.close()
    assert Encoder(prompted).fingerprint == Encoder(hop_encoder).fingerprint, "the same weights"
    assert len(fingerprints) == 2


@pytest.mark.parametrize("method", [name for name, entry in METHODS.items() if entry.searches])
async def test_every_method_asks_the_hop_encoder_for_all_but_the_question(method: str) -> None:
    hops = 0
    for number in range(12):
        question = Question(f"q{number}", f"Who wrote book {number} of Mara Velden?", ("X",))
        first, later = WordRetriever(WORLD), WordRetriever(WORLD)
        tools = Tools(question, model(method), HopRetriever(first, later))
        row = await answer_question(question, bind(method, MethodOptions()), tools)
        assert not row.error
        steps = [step for step in tools.steps if isinstance(step, SearchStep) and step.query.strip()]
        noted = [step.query for step in steps if "hop encoder" in step.note]
        assert sorted(noted) == sorted(later.queries), "the trace says which"
        assert sorted(first.queries + later.queries) == sorted(step.query for step in steps)
        assert question.text not in later.queries
        assert len(set(first.queries)) <= 2, "the question, with or without its question words"
        hops += len(later.queries)
    assert (hops == 0) == (method in SEARCHES), "who searches once never does"
