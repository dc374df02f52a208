"""A model whose context needs more cache than there is memory reads as much as fits, and says so."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from corag.core.protocols import GenerateRequest, Sampling
from corag.generation.config import ModelConfig
from corag.generation.vllm_engine import _window
from eval.experiment.opening import open_model_quietly
from tests.fakes import chat_prompt


def started(fitting: int, asked: int = -1, whole: int = 131_072) -> SimpleNamespace:
    """What vLLM says of a model after it has started."""
    return SimpleNamespace(
        max_model_len=fitting, original_max_model_len=asked, get_and_verify_max_len=lambda _: whole
    )


def test_the_same_context_is_taken_whatever_little_else_is_in_memory() -> None:
    assert {_window(started(fitting))[0] for fitting in (65_536, 98_432, 98_400, 131_056)} == {65_536}
    assert "reads 131,072 tokens at once" in _window(started(98_432))[1][0]
    assert "model.max_context=65536" in _window(started(98_432))[1][0]


@pytest.mark.parametrize("model", [started(131_072), started(3_000, asked=3_000)])
def test_a_context_that_fits_or_was_asked_for_is_left_as_it_is(model: SimpleNamespace) -> None:
    assert _window(model) == (model.max_model_len, ())


@pytest.mark.slow
def test_an_engine_with_little_memory_starts_and_answers(capfd: pytest.CaptureFixture[str]) -> None:
    """The default model reads 8,192 tokens, which take 180 MiB of cache."""

    async def answer() -> str:
        generator = await open_model_quietly(ModelConfig(backend="vllm", kv_cache_gb=0.12))
        try:
            prompt = chat_prompt("What is the capital of France? Answer in one word.")
            reply = await generator.generate(GenerateRequest(prompt, Sampling(8)))
            assert ":4096:" in generator.fingerprint
        finally:
            await generator.close()
        return reply.completions[0].text

    assert "Paris" in asyncio.run(answer())
    said = capfd.readouterr().err
    assert "reads 8,192 tokens at once" in said and "it reads 4,096" in said
