"""With deterministic arithmetic a reply is the same alone and beside any others, to the last digit."""

from __future__ import annotations

import asyncio

import pytest

from corag.core.errors import ConfigError
from corag.core.protocols import Completion, GenerateRequest, Sampling, ScoreRequest
from corag.generation.config import ModelConfig
from corag.generation.open import open_generator
from tests.fakes import chat_prompt
from tests.messages import raises_message

STORY = "Anna and Ben walked to the old mill by the river, and the miller told them of its wheel. "


def requests(numbers: range) -> list[GenerateRequest]:
    """Greedy and sampled ones, of lengths from a line to 1,400 tokens; some begin alike."""
    return [
        GenerateRequest(
            chat_prompt(f"{STORY * 4 * (number % 5) ** 2}Tell me what number {number % 17} stands for."),
            Sampling(8, temperature=0.7 * (number % 2), seed=number, logprobs=True),
        )
        for number in numbers
    ]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["vllm", "transformers"])
def test_a_reply_is_the_same_alone_and_beside_others(backend: str) -> None:
    """In bfloat16 where the machine has it; with what is in the prefix cache, and without."""

    async def answer() -> list[list[tuple[Completion, ...]]]:
        config = ModelConfig(
            backend=backend, max_context=2048, kv_cache_gb=1.0, remember=False, deterministic=True
        )
        try:
            generator = await open_generator(config)
        except ConfigError as error:
            assert backend == "vllm" and "need a GPU" in str(error)
            pytest.skip(f"refused without a GPU, as it should be: {error}")
        try:
            own, others = requests(range(5)), requests(range(8, 14))
            if backend == "transformers":  # one after another, so few and short ones
                own, others = own[:2], others[2:4]
            alone = [(await generator.generate(each)).completions for each in own]
            rounds = [alone]
            for neighbours in (others, others[::-1]):
                replies = await asyncio.gather(*map(generator.generate, [*neighbours, *own]))
                rounds.append([each.completions for each in replies[-len(own) :]])
            score = ScoreRequest(own[1].prompt, " The miller of the river.", end_of_turn=True)
            lonely = await generator.score(score)
            among, *_ = await asyncio.gather(generator.score(score), *map(generator.generate, others))
            assert lonely.token_logprobs == among.token_logprobs
            assert ":deterministic" in generator.fingerprint, "a run's manifest has it among its settings"
            return rounds
        finally:
            await generator.close()

    alone, *rounds = asyncio.run(answer())
    assert [each == alone for each in rounds] == [True] * 2


@pytest.mark.parametrize(
    "config",
    [
        {"backend": "server", "urls": ("http://localhost:1",)},
        {"backend": "openai", "urls": ("http://localhost:1",), "name": "served"},
        {"name": "mine.py:Model"},
    ],
)
def test_what_computes_elsewhere_is_not_asked_for_it(config: dict[str, object]) -> None:
    with raises_message(ConfigError):
        ModelConfig(deterministic=True, **config)  # type: ignore[arg-type]
