"""Encoder and re-ranker with sentence-transformers' real trainers on a tiny real model."""

from __future__ import annotations

import copy
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from corag.generation.adapters import read_manifest
from retrieval.dense.encoder import HOP_ENCODER, Encoder
from retrieval.dense.prompts import Prompts
from retrieval.search.rerank import RerankedRetriever
from tests.fakes import WordRetriever, passage
from tests.tiny import save_tiny_encoder
from tests.training.launching import launched
from training import encoder, reranker
from training.retriever_config import EncoderTraining, RerankerTraining, RetrieverTraining
from training.retriever_pairs import PairCounts, RetrieverPair, RetrieverPairsReport, _table
from training.tables import save

pytestmark = pytest.mark.slow

COLOURS = tuple("red green blue white black brown grey pink gold silver orange purple".split())
PROGRAMS = {"encoder": (encoder, EncoderTraining), "reranker": (reranker, RerankerTraining)}
Options = Callable[..., Any]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A query names a colour, and the house of that colour is right; boats are wrong."""
    houses = [f"{each}\nThe {each} house stands by the river." for each in COLOURS]
    boats = [f"{each}\nThe {each} boat lies at anchor." for each in COLOURS]
    rows = [
        RetrieverPair(
            f"q{place}", "sub_query", 1, f"Where is the {each} one?", [houses[place]],
            [boats[place - 1], boats[place - 2], boats[place - 3]],
        )
        for place, each in enumerate(COLOURS)
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("pairs") / "pairs"
    report = RetrieverPairsReport({"chains": []}, len(rows), {}, {"train/sub_query": PairCounts(12, 12, 36)})
    save(folder, {"train": [_table(rows)], "validation": [_table(rows[:4])]}, "retriever_pairs.json", report)
    return str(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_encoder(tmp_path_factory.mktemp("base"))


@pytest.fixture
def options(pairs: str, base: str, tmp_path: Path) -> Options:
    """Return a maker of options for a quick training into a folder of the test's own."""

    def make(name: str, **changes: Any) -> RetrieverTraining:
        quick = {
            "pairs": [pairs], "out": str(tmp_path / "made"), "model": base, "precision": "float32",
            "negatives": 2, "max_length": 16, "batch_size": 4, "max_steps": 6, "learning_rate": 5e-3,
            "logging_steps": 1, "warmup": 0.0, "save_steps": 0,
        }  # fmt: skip
        return PROGRAMS[name][1](**(quick | changes))

    return make


def weights_of(config: Any) -> dict[str, torch.Tensor]:
    return dict(load_file(Path(config.out) / "model.safetensors"))


def losses_of(config: Any) -> list[float]:
    lines = [json.loads(line) for line in (Path(config.out) / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_an_encoder_learns_which_passage_answers(options: Options) -> None:
    config = options("encoder", passages="trained", max_steps=25)
    manifest = encoder.main(config)
    assert manifest == read_manifest(Path(config.out))
    losses = losses_of(config)
    assert len(losses) == 25 and losses[-1] < losses[0]
    result = manifest["result"]
    assert manifest["settings"]["options"]["passages"] == "trained" and result["queries"] == 12
    assert encoder.main(config) == manifest, "what has finished is left as it is"


def test_an_encoder_of_queries_alone_searches_the_vectors_of_the_one_it_came_from(
    options: Options, base: str
) -> None:
    config = options("encoder", max_steps=60, batch_size=6)
    manifest = encoder.main(config)
    learned, own = Encoder(config.out), Encoder(base)
    note = json.loads((Path(config.out) / HOP_ENCODER).read_text())
    assert note == {"passages": "frozen", "passage_encoder": own.fingerprint}
    assert learned.max_tokens == own.max_tokens, "trained on short texts, it reads long ones"
    texts = [f"{each}\nThe {each} house stands by the river." for each in COLOURS]
    queries = [f"Where is the {each} one?" for each in COLOURS]
    vectors = own.encode(texts)

    def share(encoder: Encoder) -> float:
        found = (encoder.encode(queries) @ vectors.T).argmax(axis=1)
        return float((found == np.arange(len(COLOURS))).mean())

    assert share(learned) > share(own) and share(learned) > 0.5
    assert manifest["result"]["evaluation"]["loss"] < losses_of(config)[0]


def test_frozen_passages_give_sentence_transformers_own_loss_of_the_same_vectors(base: str) -> None:
    """At the start both models are the same, so that the loss is, and each passage is encoded once."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from training.frozen_passages import FrozenPassagesLoss

    model = SentenceTransformer(base, device="cpu").eval()
    columns = [["Where is red?", "Where is green?"], ["red house", "a green house"], ["x", "red house"]]
    features = [model.preprocess(each) for each in columns]
    ours, theirs = FrozenPassagesLoss(model, copy.deepcopy(model)), MultipleNegativesRankingLoss(model)
    copies = [dict(each) for each in features]
    expected = theirs([dict(each) for each in features], torch.tensor([]))
    for _ in range(2):
        found = ours([dict(each) for each in copies], torch.tensor([]))
        torch.testing.assert_close(found, expected)
    assert len(ours._vectors) == 3
    found.backward()
    assert all(weight.grad is None for weight in ours._frozen[0].parameters())
    assert not any("_frozen" in name for name, _ in ours.named_parameters())


def test_prompts_of_a_models_card_count_as_its_own(options: Options, base: str, tmp_path: Path) -> None:
    trained = []
    for name, stated in (("e5-small-v2", {}), ("own", {"query": "query: ", "passage": "passage: "})):
        model = shutil.copytree(base, tmp_path / name)
        (model / "config_sentence_transformers.json").write_text(json.dumps({"prompts": stated}))
        encoder.main(config := options("encoder", max_steps=2, model=str(model), out=f"{model} made"))
        assert Encoder(config.out).prompts == Prompts("query: ", "passage: ")
        trained.append(weights_of(config))
    torch.testing.assert_close(*trained, rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", ["listnet", "lambda"])
async def test_a_reranker_learns_and_reranks(options: Options, loss: str) -> None:
    config = options("reranker", loss=loss, max_steps=15)
    manifest = reranker.main(config)
    losses = losses_of(config)
    assert sum(losses[-5:]) < sum(losses[:5])
    assert manifest["settings"]["options"]["loss"] == loss
    world = [
        passage("red", "The red boat lies at anchor."),
        passage("gold", "The gold house stands by the river."),
    ]
    wrapped = RerankedRetriever(WordRetriever(world), config.out, 12)
    hits = await wrapped.search("Where is the gold one?", 2)
    assert [each.passage.id for each in hits] == ["gold", "red"]
    await wrapped.close()


@pytest.mark.drill
@pytest.mark.parametrize("name", PROGRAMS)
def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(
    options: Options, tmp_path: Path, name: str
) -> None:
    program, _ = PROGRAMS[name]
    once = options(name, max_steps=14, save_steps=2, out=str(tmp_path / "once"))
    twice = replace(once, out=str(tmp_path / "twice"))
    with (tmp_path / "log").open("w") as log:
        process = launched(str(program.__file__), twice, tmp_path, log, dies_after=4)
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    resumed, whole = program.main(twice)["result"], program.main(once)["result"]
    assert resumed["resumed_from"].startswith("checkpoint-") and whole["resumed_from"] == ""
    before, after = weights_of(once), weights_of(twice)
    assert before.keys() == after.keys()
    for weight in before:
        torch.testing.assert_close(after[weight], before[weight], rtol=0, atol=1e-5)
