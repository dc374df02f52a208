"""What GRPO's processes ask for: each its own GPU, or a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corag.cli.main import main as command
from corag.core.errors import ConfigError
from corag.generation.config import ModelConfig
from retrieval.config import RetrieverConfig
from tests.messages import raises_message
from tests.tiny import save_tiny_encoder
from tests.training.experimental.test_grpo import Options, chains, engine, index, options  # noqa: F401
from training.experimental.placement import check_placement

RANKS = str(Path(__file__).parent / "ranks.py")


def test_eight_ranks_put_nothing_on_the_device_of_the_first(
    chains: str,  # noqa: F811
    index: str,  # noqa: F811
    start: str,
    tiny_model: str,
    tmp_path: Path,
) -> None:
    """The frozen twin and the encoder are opened in a thread of their own, whose current GPU is the first."""
    encoder = save_tiny_encoder(tmp_path / "encoder")
    passages = Path(index).parent / "corpus.jsonl"
    words = ["index", str(passages), "--out", str(tmp_path / "dense"), "--encoder", str(encoder)]
    assert command([*words, "--kind", "dense"]) == 0
    (tmp_path / "dev.jsonl").write_text(json.dumps({"id": "d", "question": "Who?", "answers": ["I"]}) + "\n")
    given = {
        "chains": [chains], "index": [index], "dense": [str(tmp_path / "dense")], "model": tiny_model,
        "adapter": start, "questions": str(tmp_path / "dev.jsonl"),
    }  # fmt: skip
    (tmp_path / "options.json").write_text(json.dumps(given))
    ended = subprocess.run(
        [sys.executable, RANKS, str(tmp_path / "options.json")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == [[f"cuda:{rank}"] for rank in range(8)]


@pytest.mark.parametrize(
    ("changes", "environment"),
    [
        ({}, {"ACCELERATE_USE_FSDP": "true"}),
        ({}, {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}),
        ({"engine": ModelConfig(backend="vllm")}, {"WORLD_SIZE": "8"}),
        ({"engine": ModelConfig(backend="transformers", device="cuda:0")}, {"WORLD_SIZE": "8"}),
        ({"retriever": RetrieverConfig(index=["x"], device="cuda")}, {"WORLD_SIZE": "8"}),
        ({"retriever": RetrieverConfig(index=["x"], search_device="cuda")}, {"WORLD_SIZE": "8"}),
    ],
)
def test_what_would_hang_or_meet_on_one_gpu_is_refused(
    changes: dict[str, Any],
    environment: dict[str, str],
    options: Options,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = options(**changes)
    check_placement(config)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with raises_message(ConfigError):
        check_placement(config)
