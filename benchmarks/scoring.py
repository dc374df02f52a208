"""Scoring by forced decoding against prompt_logprobs in speed, against a transformers forward pass in value.

Prompts of 700 tokens and more that the engine has just generated from are scored 16 at a time, which is what
CoRAG's training and search do all the time. Two engines run one after the other: float32 for speed and the
largest difference, bfloat16 (float16 on GPUs without it) for the average difference.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from corag.core.prompting.prompt import Prompt
from corag.core.protocols import GenerateRequest, Sampling, Score, ScoreRequest
from corag.generation.config import ModelConfig
from corag.generation.models import native_dtype
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator

_PLACES = (
    "Arlow Benmoor Castel Dunwick Elmsford Farrow Glenholt Harwick "
    "Ilford Jarrow Kelby Lanmoor Merrow Norwick Orford Penholt"
).split()
_FACTS = (
    "{a} is a town on the river that runs from {b} to the sea.",
    "The company founded in {a} in {year} moved its works to {b} soon after.",
    "The writer from {a} spent {n} years in {b} and wrote two books there.",
    "A bridge of {n} arches was built near {a} by an engineer from {b}.",
    "In {year} the museum of {a} bought a painting that had hung in {b}.",
)
_REPEATS = 3


async def main(prompts: int = 16, tokens: int = 700) -> dict[str, float]:
    """Return "speedup", forced over prompt_logprobs, and the differences per token from transformers.

    ``prompts``: how many are scored at a time. ``tokens``: each prompt has at least as many.
    """
    import torch

    oracle = TransformersGenerator.open(
        ModelConfig(backend="transformers", dtype="float32", max_context=2048)
    )
    texts = [_passages(seed, tokens, oracle.count_tokens) for seed in range(prompts)]
    # The same prompts, each time with other targets.
    rounds = [_requests(texts, shift) for shift in range(_REPEATS + 1)]
    expected_scores = await _all(rounds[-1], oracle.score)
    await oracle.close()
    del oracle

    full = await _open("float32")
    await _generate(full, texts)
    await _all(rounds[0], full.score)  # the first batch of a shape is slow: leave it out
    await _all(rounds[0][:2], full.score_by_prompt_logprobs)
    forced_seconds = statistics.median([await _seconds(batch, full.score) for batch in rounds[1:]])
    slow_seconds = await _seconds(rounds[-1], full.score_by_prompt_logprobs)
    largest = max(_differences(await _all(rounds[-1], full.score), expected_scores))
    await full.close()

    coarse = native_dtype(on_cpu=False) if torch.cuda.is_available() else "bfloat16"
    half = await _open(coarse)
    few = min(4, prompts)  # a CPU that only emulates bfloat16 would take minutes for more
    half_scores = await _all(rounds[-1][:few], half.score)
    await half.close()
    return {
        "prompts": prompts,
        "prompt_tokens_at_least": min(score.usage.prompt for score in expected_scores),
        "target_tokens_average": statistics.mean(len(score.token_ids) for score in expected_scores),
        "forced_seconds": forced_seconds,
        "prompt_logprobs_seconds": slow_seconds,
        "speedup": slow_seconds / forced_seconds,
        "max_abs_diff_float32": largest,
        f"mean_abs_diff_{coarse}": statistics.mean(_differences(half_scores, expected_scores[:few])),
    }


async def _open(dtype: Literal["float32", "bfloat16", "float16"]) -> VllmGenerator:
    # A GPU: torch keeps what the oracle took, and vLLM does not start where less than its share is free.
    return VllmGenerator.open(
        ModelConfig(dtype=dtype, max_context=2048, kv_cache_gb=2.0, gpu_memory_utilization=0.5)
    )


def _passages(seed: int, tokens: int, count: Callable[[str], int]) -> str:
    """Make up a plain prompt of at least so many tokens about places that do not exist."""
    dice = random.Random(seed)
    lines: list[str] = []
    while count(" ".join(lines)) < tokens:
        a, b = dice.sample(_PLACES, 2)
        lines.append(
            dice.choice(_FACTS).format(a=a, b=b, year=dice.randint(1700, 1990), n=dice.randint(2, 20))
        )
    return " ".join(lines) + f" The river that runs past {dice.choice(_PLACES)} comes from"


def _requests(texts: Sequence[str], shift: int) -> list[ScoreRequest]:
    targets = (f" the hills of {_PLACES[(i + shift) % len(_PLACES)]}" for i in range(len(texts)))
    return [ScoreRequest(Prompt.of_text(text), target) for text, target in zip(texts, targets, strict=True)]


async def _generate(generator: VllmGenerator, texts: Sequence[str]) -> None:
    requests = (GenerateRequest(Prompt.of_text(text), Sampling(8)) for text in texts)
    await asyncio.gather(*(generator.generate(request) for request in requests))


async def _all(
    requests: Sequence[ScoreRequest], score: Callable[[ScoreRequest], Awaitable[Score]]
) -> list[Score]:
    return list(await asyncio.gather(*(score(request) for request in requests)))


async def _seconds(
    requests: Sequence[ScoreRequest], score: Callable[[ScoreRequest], Awaitable[Score]]
) -> float:
    start = time.perf_counter()
    await _all(requests, score)
    return time.perf_counter() - start


def _differences(scores: Sequence[Score], expected_scores: Sequence[Score]) -> list[float]:
    """Absolute differences of all target tokens' log-probabilities."""
    return [
        abs(a - b)
        for score, other in zip(scores, expected_scores, strict=True)
        for a, b in zip(score.token_logprobs, other.token_logprobs, strict=True)
    ]
