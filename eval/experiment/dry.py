"""A model that computes nothing, with which a method's own code estimates from above the tokens it needs.

Prompts are counted with the real model's tokenizer and the passages that are really found. Every reply has
its longest length and no chain ends early. So a question's sum is an upper bound, with one exception:
sub-queries that CoRAG asks for again where a model repeats itself, up to ``corag.tries`` times as many, are
not in it. Methods whose steps depend on what a reply says are refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from corag.core.errors import ConfigError
from corag.core.protocols import Completion, GenerateRequest, Generation, Generator, Score, ScoreRequest
from corag.core.seeds import derive_seed, stable_hash
from corag.core.types import TokenUsage
from corag.generation.cached import CachedGenerator
from corag.generation.config import ModelConfig
from corag.generation.models import context_window, model_folder
from corag.generation.rendering import Renderer

FIXED_METHODS = ("closed_book", "one_step", "ircot", "iter_retgen", "corag")
"""Methods whose number of steps no reply but an early end changes."""

_YES = -20.0  # the log-likelihood of a judge's "Yes", which would end a chain
_ANY_LOGPROB = -1.0  # that of all else


def check_fixed(methods: Sequence[str]) -> None:
    """Raise :class:`ConfigError` for a method of which only a pilot can tell what it asks for."""
    if others := [name for name in methods if name not in FIXED_METHODS]:
        raise ConfigError(
            f"what {others[0]} asks for depends on what the model replies, so there is no dry plan of it: "
            f"leave 'dry' out, or name other methods ({', '.join(FIXED_METHODS)})."
        )


class DryModel(Generator):
    """A :class:`Generator` whose replies are words of their prompts. ``window``: prompt plus reply."""

    def __init__(self, renderer: Renderer, window: int) -> None:
        self._renderer, self._window = renderer, window
        self.fingerprint = f"dry:{stable_hash(renderer.fingerprint)}:{window}"

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._renderer.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Return ``max_tokens`` tokens of the prompt's words, other ones for each prompt and sample."""
        sampling = request.sampling
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - sampling.max_tokens)
        completions = tuple(self._reply(request, ids, number) for number in range(sampling.n))
        generated_tokens = sampling.max_tokens * sampling.n
        usage = TokenUsage(1, len(ids), generated_tokens, len(ids), generated_tokens)
        return Generation(completions, usage, shortening)

    def _reply(self, request: GenerateRequest, prompt: Sequence[int], number: int) -> Completion:
        sampling, words = request.sampling, request.prompt.text.split() or ["word"]
        seed = derive_seed(request.prompt.text, sampling.seed or 0, number)
        start = seed % len(words)
        # A number first: no two sub-queries are the same, for that would end a chain or spare a search.
        text = " ".join([str(seed), *words[start:], *words[:start]][: sampling.max_tokens])
        ids = self._renderer.text_ids(text)[: sampling.max_tokens]
        text = self._renderer.continuation((), ids)
        logprobs = (_ANY_LOGPROB,) * len(ids) if sampling.logprobs else None
        return self._renderer.with_token_texts(
            Completion(text, tuple(ids), "length", logprobs), prompt, sampling
        )

    async def score(self, request: ScoreRequest) -> Score:
        """Return the same log-likelihood for each token, the least for a "Yes"."""
        target = self._renderer.target_ids(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target))
        is_yes = isinstance(request.target, str) and request.target.strip().lower() == "yes"
        usage = TokenUsage(1, len(ids), len(target), len(ids), len(target))
        logprobs = (_YES if is_yes else _ANY_LOGPROB,) * len(target)
        return Score(tuple(target), logprobs, usage, shortening)


@asynccontextmanager
async def open_dry(config: ModelConfig) -> AsyncIterator[Generator]:
    """Open a dry model with the tokenizer, template and window of a configured one.

    Raises :class:`ConfigError` if its tokenizer is not known or not here.
    """
    if not config.tokenizer_name:
        raise ConfigError(
            f"a dry plan counts with the model's tokenizer, but that of '{config.name}' is not known: name "
            "it with 'model.tokenizer', or leave 'dry' out."
        )
    folder = model_folder(config.tokenizer_name, weights=False)
    renderer = Renderer.load(folder, config.chat, config.thoughts)
    window = config.max_context or context_window(folder) or 1 << 20
    yield CachedGenerator(DryModel(renderer, window))
