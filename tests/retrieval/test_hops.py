"""An encoder for what methods ask on the way: which searches it serves, and among which vectors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.protocols import search_note
from corag.core.runner import answer_question
from corag.core.tools import SearchStep, Tools
from corag.core.types import Hit, Question
from eval.experiment.executor import WithoutPassage
from eval.experiment.registry import METHODS, MethodOptions, bind
from retrieval.config import RetrieverConfig
from retrieval.dense.encoder import HOP_ENCODER, Encoder
from retrieval.search.batched import BY_HOP_ENCODER
from retrieval.search.function_retriever import own_retriever
from retrieval.search.hop_encoder import set_hop_encoder
from retrieval.search.pipeline import open_retriever
from retrieval.search.stage import with_note
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
    assert retriever.has_hops and not plain.has_hops
    assert list(await retriever.search(QUESTION, 5)) == list(await plain.search(QUESTION, 5))
    texts = [passage.contents for passage in make_passages()]
    cosines = Encoder("default").encode(texts) @ Encoder(hop_encoder).encode([SUB_QUERY])[0]
    best = np.argsort(-cosines)[:5]
    hits = await retriever.search(SUB_QUERY, 5, hop=True)
    assert search_note(hits) == BY_HOP_ENCODER
    assert list(await plain.search(SUB_QUERY, 5, hop=True)) == list(await retriever.search(SUB_QUERY, 5))
    assert [hit.passage.contents for hit in hits] == [texts[place] for place in best]
    assert [hit.score for hit in hits] == pytest.approx(cosines[best].tolist(), abs=1e-5)
    assert plain.fingerprint != retriever.fingerprint
    left_out = WithoutPassage(retriever, hits[0].passage.id)
    assert list(await left_out.search(SUB_QUERY, 4, hop=True)) == list(hits[1:])
    await retriever.close()
    await plain.close()


async def test_a_served_index_keeps_its_hop_encoder(index_of: Callable[[str], str], hop_encoder: str) -> None:
    local = await open_retriever(RetrieverConfig([index_of("dense")], hop_encoder=hop_encoder))
    async with served(local) as url:
        linked = await open_retriever(RetrieverConfig(url=[url], links="titles"))
        assert linked.has_hops and linked.fingerprint != local.fingerprint
        for hop in (False, True):
            # All 72 passages: links only bring them into another order.
            found = [await each.search(SUB_QUERY, 72, hop) for each in (local, linked)]
            ranks = [[hit.passage.id for hit in hits] for hits in found]
            assert ranks[1][0] == "t7" and sorted(ranks[0]) == sorted(ranks[1])
        remote = await open_retriever(RetrieverConfig(url=[url]))
        queries = [await linked.search(SUB_QUERY, 72, hop) for hop in (False, True)]
        assert list(queries[0]) != list(queries[1]), "the second is encoded otherwise"
        await linked.close()
        assert remote.has_hops and remote.fingerprint == local.fingerprint
        for hop in (False, True):
            mine, theirs = [await each.search(SUB_QUERY, 5, hop) for each in (local, remote)]
            assert list(mine) == list(theirs) and search_note(mine) == search_note(theirs)
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
        set_hop_encoder([], Encoder("default"))


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


class HopsApart(WordRetriever):
    """Notes apart what was asked on the way."""

    def __init__(self) -> None:
        super().__init__(WORLD)
        self.later: list[str] = []

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        hits = await super().search(query, k)
        if hop:
            self.later.append(self.queries.pop())
        return with_note(hits, "later" if hop else "")


@pytest.mark.parametrize("method", [name for name, entry in METHODS.items() if entry.searches])
async def test_every_method_asks_the_hop_encoder_for_all_but_the_question(method: str) -> None:
    hops = 0
    for number in range(12):
        question = Question(f"q{number}", f"Who wrote book {number} of Mara Velden?", ("X",))
        retriever = HopsApart()
        tools = Tools(question, model(method), retriever)
        row = await answer_question(question, bind(method, MethodOptions()), tools)
        assert not row.error
        steps = [step for step in tools.steps if isinstance(step, SearchStep) and step.query.strip()]
        noted = [step.query for step in steps if "later" in step.note]
        assert sorted(noted) == sorted(retriever.later), "the trace says which"
        assert sorted(retriever.queries + retriever.later) == sorted(step.query for step in steps)
        assert question.text not in retriever.later
        assert len(set(retriever.queries)) <= 2, "the question, with or without its question words"
        hops += len(retriever.later)
    assert (hops == 0) == (method in SEARCHES), "who searches once never does"


async def test_an_own_retriever_of_our_protocol_is_told_of_hops_and_leaving_out_keeps_what_was_noted() -> (
    None
):
    class Own(WordRetriever):
        async def search(self, query: str, k: int, hop: bool = False) -> list[Hit]:
            return with_note(await super().search(query, k), "of a hop" if hop else "")  # type: ignore[return-value]

    own = own_retriever(Own(WORLD), "own")
    assert own.has_hops and search_note(await own.search("Mara", 2, True)) == "of a hop"
    left = await WithoutPassage(own, WORLD[0].id).search("Mara", 2, True)
    assert search_note(left) == "of a hop" and WORLD[0].id not in [hit.passage.id for hit in left]
