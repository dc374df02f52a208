"""What only a GPU can show of the engine; steps of scripts/recipes/gpu_check.sh, each a line of JSON.

python -m benchmarks.on_gpu head                    # the output layer in float32: exactness and time
python -m benchmarks.on_gpu replay                  # vLLM's trace replay against the plug-in
python -m benchmarks.on_gpu shape FOLDER 8b|tiny    # a model of that size without weights: load_format dummy
python -m benchmarks.on_gpu pace RUN                # questions and computed tokens a second of a run
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from benchmarks.scoring import _all, _differences, _generate, _passages, _requests, _seconds
from corag.core.protocols import Score
from corag.core.runs.folder import read_rows
from corag.generation.config import ModelConfig
from corag.generation.models import model_folder
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator

_PROMPTS, _TOKENS = 16, 300
_SKIP_STATUS = 77  # the status by which a step says that it could not be tried
_SHAPES: dict[str, dict[str, Any]] = {
    "8b": {  # Llama-3.1-8B's, but for the vocabulary, which is that of the tokenizer
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    },
}  # fmt: skip


def _open(model: str = "default", **engine: Any) -> VllmGenerator:
    return VllmGenerator.open(
        ModelConfig(name=model, max_context=2048, gpu_memory_utilization=0.5, engine=engine)
    )


async def head() -> dict[str, Any]:
    """Return mean differences from the forward pass in float32, with the output layer in it and without."""
    oracle = TransformersGenerator.open(
        ModelConfig(backend="transformers", dtype="float32", max_context=2048)
    )
    texts = [_passages(seed, _TOKENS, oracle.count_tokens) for seed in range(_PROMPTS)]
    requests = _requests(texts, 0)
    expected_scores = await _all(requests, oracle.score)
    await oracle.close()
    del oracle
    figures: dict[str, Any] = {}
    for name in ("float32", "model"):
        generator = _open(hf_overrides={"head_dtype": name})
        await _all(requests, generator.score)
        seconds = statistics.median([await _seconds(requests, generator.score) for _ in range(3)])
        differences = _differences(await _all(requests, generator.score), expected_scores)
        await generator.close()
        figures[f"head_{name}"] = {"mean_abs_diff": statistics.mean(differences), "seconds": seconds}
    return figures


async def replay() -> dict[str, Any]:
    """Return how vLLM's trace replay and the plug-in differ in scores and seconds, in one engine."""
    generator = _open()
    if not generator._replays:
        print("this vLLM has no trace replay, or runs its first model runner")
        sys.exit(_SKIP_STATUS)
    texts = [_passages(seed, _TOKENS, generator.count_tokens) for seed in range(_PROMPTS)]
    await _generate(generator, texts)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    scores: dict[bool, list[Score]] = {}
    for shift in range(4):
        for way in (True, False):
            generator._replays = way
            duration = await _seconds(_requests(texts, shift), generator.score)
            seconds[way] += [duration] * bool(shift)  # the first of a shape is slow
    for way in (True, False):
        generator._replays = way
        scores[way] = await _all(_requests(texts, 3), generator.score)
    await generator.close()
    return {
        "max_abs_diff": max(_differences(scores[True], scores[False])),
        "replay_seconds": statistics.median(seconds[True]),
        "plugin_seconds": statistics.median(seconds[False]),
    }


async def shape(folder: str, size: str) -> dict[str, Any]:
    """Write a folder that vLLM opens with dummy weights: a configuration, and the small model's tokenizer.

    The texts of such a model mean nothing; its speed, memory and batches are those of a real one.
    """
    source, target = Path(model_folder("default")), Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, target)
    settings = json.loads((source / "config.json").read_text()) | _SHAPES[size]
    (target / "config.json").write_text(json.dumps(settings, indent=1))
    save_file({"none": np.zeros(1, np.float16)}, target / "model.safetensors")
    return {"folder": folder, "size": size}


async def pace(run: str, estimate: str = "") -> dict[str, Any]:
    """Return questions and computed tokens a second of a run's one start, beside an estimate of them."""
    rows = list(read_rows(Path(run)).values())
    if failed := [row.error for row in rows if row.error]:
        sys.exit(f"{len(failed)} of {len(rows)} questions failed: {failed[0]}")
    begun = min(row.begun for row in rows)
    seconds = max(row.begun + row.seconds for row in rows) - begun
    tokens = sum(row.total_usage.computed for row in rows)
    return {
        "questions": len(rows),
        "questions_per_s": len(rows) / seconds,
        "computed_tokens_per_s": tokens / seconds,
        "computed_tokens_per_question": tokens / len(rows),
        "generated_tokens_per_question": sum(row.total_usage.generated for row in rows) / len(rows),
        "estimate": estimate,
    }


def main(arguments: Sequence[str]) -> None:
    """Run a step and print its figures as the last line."""
    steps: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
        "head": head,
        "replay": replay,
        "shape": shape,
        "pace": pace,
    }
    print(json.dumps(asyncio.run(steps[arguments[0]](*arguments[1:]))))


if __name__ == "__main__":
    main(sys.argv[1:])
