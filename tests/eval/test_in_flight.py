"""As many questions are in flight as the engine's size wants, unless a number was given."""

from __future__ import annotations

import pytest

from corag.chains.config import CoRAGConfig
from corag.core.errors import ConfigError
from corag.generation.config import ModelConfig
from eval.experiment import in_flight
from eval.experiment.in_flight import questions_in_flight, sequences_of
from eval.experiment.run import RunConfig
from tests.messages import raises_message
from training.sample import SampleRunConfig
from training.sampling import SampleConfig

H100, A100, L4 = (
    "NVIDIA H100 80GB HBM3, 81559 MiB",
    "NVIDIA A100-SXM4-80GB, 81920 MiB",
    "NVIDIA L4, 23034 MiB",
)


def test_the_engines_own_size_is_known_by_the_card() -> None:
    cards = ((), (H100,), (H100, H100), (A100,), (L4,), (H100, L4), ("NVIDIA GB10, [N/A]",))
    assert [sequences_of(each) for each in cards] == [256, 1024, 1024, 256, 256, 256, 256]


def test_questions_in_flight_follow_the_engines_size(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = ModelConfig(backend="server", urls=("http://localhost:1", "http://localhost:2"))
    for gpus, expected in (([], 64), ([L4], 64), ([H100] * 8, 256)):
        monkeypatch.setattr(in_flight, "_gpus", lambda gpus=gpus: gpus)
        assert RunConfig(questions="q.jsonl", method=["ircot"]).in_flight("ircot") == expected
        assert RunConfig(questions="q.jsonl", method=["ircot"], batch_size=7).in_flight("ircot") == 7
        assert questions_in_flight(0, ModelConfig(backend="transformers")) == 64
        assert questions_in_flight(0, servers) == 128
        assert questions_in_flight(0, ModelConfig(max_num_seqs=2048)) == 512
        assert questions_in_flight(0, ModelConfig(max_num_seqs=32)) == 64
    with raises_message(ConfigError):
        RunConfig(questions="q.jsonl", batch_size=-1)


@pytest.mark.parametrize(
    ("gpus", "by_chains"),
    [
        ([H100] * 8, {1: 256, 2: 128, 4: 64, 8: 32, 16: 16, 64: 8}),
        ([], {1: 64, 2: 32, 4: 16, 8: 8, 16: 8}),
    ],
)
def test_chains_count_as_what_they_send(
    gpus: list[str], by_chains: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 questions of 8 chains filled the cache of 310 prompts, and each chain's beginning was lost."""
    monkeypatch.setattr(in_flight, "_gpus", lambda: gpus)
    model = ModelConfig(backend="vllm")
    for chains, expected in by_chains.items():
        strategy = {"strategy": "best_of_n"} if chains > 1 else {}
        config = RunConfig(
            questions="q.jsonl",
            method=["corag", "ircot"],
            model=model,
            corag=CoRAGConfig(chains=chains, **strategy),
        )
        assert config.in_flight("corag") == expected
        assert config.most_in_flight == config.in_flight("ircot") == by_chains[1], (
            "of one chain in the same run"
        )
        sampled = SampleRunConfig(questions="q.jsonl", model=model, sample=SampleConfig(chains=chains))
        assert sampled.batch_size == expected
