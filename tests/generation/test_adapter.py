"""A LoRA adapter changes what the model says, and the fingerprint tells."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.errors import ConfigError
from core.prompt import Prompt
from core.protocols import ScoreRequest
from generation.config import ModelConfig
from generation.hf import TransformersGenerator
from generation.models import model_folder
from generation.vllm_engine import _lora_rank


def random_adapter(folder: Path) -> str:
    """Save a small adapter whose weights are random, so that it changes every reply."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(model_folder("default"), dtype=torch.float32)
    config = LoraConfig(r=6, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(model, config).save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_an_adapter_changes_scores_and_fingerprint(tmp_path: Path, hf_generator: TransformersGenerator) -> None:
    adapter = random_adapter(tmp_path)
    adapted = TransformersGenerator.open(
        ModelConfig(backend="transformers", dtype="float32", max_context=2048, adapter=adapter)
    )
    request = ScoreRequest(Prompt.of_user("What is the capital of France?"), "Paris")
    scores = [(await generator.score(request)).sum for generator in (adapted, hf_generator)]
    await adapted.close()
    assert abs(scores[0] - scores[1]) > 0.01
    assert adapted.fingerprint != hf_generator.fingerprint


def test_the_rank_is_rounded_up_to_one_that_vllm_offers(tmp_path: Path) -> None:
    for rank, offered in ((1, 8), (8, 8), (9, 16), (320, 320)):
        (tmp_path / "adapter_config.json").write_text(f'{{"r": {rank}}}')
        assert _lora_rank(str(tmp_path)) == offered
    (tmp_path / "adapter_config.json").write_text('{"r": 1000}')
    with pytest.raises(ConfigError, match="rank 1000"):
        _lora_rank(str(tmp_path))
