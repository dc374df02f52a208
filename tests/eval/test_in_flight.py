"""As many questions are in flight as the engine's size wants, unless a number was given."""

from __future__ import annotations

import pytest

from corag.core.errors import ConfigError
from corag.generation.config import ModelConfig
from eval.experiment import in_flight
from eval.experiment.in_flight import questions_in_flight, sequences_of
from eval.experiment.run import RunConfig
from tests.messages import raises_message

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
        assert RunConfig(questions="q.jsonl").batch_size == expected
        assert RunConfig(questions="q.jsonl", batch_size=7).batch_size == 7
        assert questions_in_flight(0, ModelConfig(backend="transformers")) == 64
        assert questions_in_flight(0, servers) == 128
        assert questions_in_flight(0, ModelConfig(max_num_seqs=2048)) == 512
        assert questions_in_flight(0, ModelConfig(max_num_seqs=32)) == 64
    with raises_message(ConfigError):
        RunConfig(questions="q.jsonl", batch_size=-1)
