"""A model that thinks, asked in two: for a thought of a bounded length, then for the reply behind it.

A reply's limit of tokens, stop strings, log-probabilities and first words then hold for the reply alone, a
thought that would not end is ended, and all engines do the same. What is computed twice lies in the engine's
prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from corag.core.gather import gather
from corag.core.prompting.prompt import Shortening, Thought
from corag.core.protocols import (
    Ability,
    Completion,
    GenerateRequest,
    Generation,
    Generator,
    Sampling,
    Score,
    ScoreRequest,
)
from corag.core.types import TokenUsage
from corag.generation.thinking import THINK, Thinking, is_cut, thought_in, without_thought

_SHARE_OF_WINDOW = 4  # thoughts have at most a quarter of it: the rest is for passages


def thinking_budget(most: int, window: int) -> int:
    """Return how many tokens a thought may have. ``most``: the option's value; ``window``: in tokens."""
    return max(1, min(most, window // _SHARE_OF_WINDOW))


@dataclass(frozen=True, slots=True)
class _Sample:
    """One completion and what it cost. ``thought``: what was written before it."""

    completion: Completion
    usage: TokenUsage
    shortening: Shortening
    thinking: TokenUsage
    thought: str
    cut: bool


class ThinkingGenerator:
    """A :class:`Generator` around an engine that renders prompts, whose model may think before it replies.

    Thoughts stand in no completion. Scores of given texts are taken behind the form of no thought.
    """

    def __init__(self, inner: Generator, thinking: Thinking, budget: int) -> None:
        """``thinking``: what the engine's renderer does; ``budget``: most tokens of a thought."""
        self._inner = inner
        self._thinking = thinking
        self._budget = budget
        self.fingerprint = inner.fingerprint + (f"/{budget}" if thinking.generates else "")
        self.thinking_tokens = budget if thinking.generates else 0

    @property
    def about(self) -> tuple[str, ...]:
        """The lines that the engine wants printed when it has been opened, and one on the thoughts."""
        return (*getattr(self._inner, "about", ()), *filter(None, [self._thinking.describe()]))

    def __getattr__(self, name: str) -> object:
        # What an engine may have besides: lacks, name, about, retried, failed, and its own.
        return getattr(self._inner, name)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._inner.count_tokens(text)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, behind no thought."""
        return await self._inner.score(request)

    async def close(self) -> None:
        """Close the engine."""
        await self._inner.close()

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt, behind a thought if the model thinks."""
        if request.prompt.plain:
            return await self._inner.generate(request)
        numbers = range(request.sampling.n)
        if self._thinking.generates:
            return _joined(await gather(self._think(request, number) for number in numbers))
        reply = await self._inner.generate(request)
        starts = [thought_in(completion.text) for completion in reply.completions]
        if not any(starts):
            return reply
        if self._thinking.mode == "off":  # it thinks all the same: behind a closed thought none can be put
            return self._stripped(reply, starts)
        # A thought that nothing announced. It used up tokens of the reply, and may have met a stop string.
        # Of greedy requests and of samples with a seed the same comes again behind it.
        given_up = replace(reply.usage, calls=0, prompt=0, computed_prompt=0)
        samples = await gather(
            self._think(request, number) if starts[number] else self._plain(reply, number)
            for number in numbers
        )
        joined = _joined(samples)
        thoughts = sum(start > 0 for start in starts)
        return replace(joined, thinking=joined.thinking + _share(given_up, thoughts, len(starts)))

    def _stripped(self, reply: Generation, starts: Sequence[int]) -> Generation:
        """Return a reply without the thoughts that stand before its completions."""
        texts = [completion.text for completion in reply.completions]
        thoughts = tuple(text[:start] for text, start in zip(texts, starts, strict=True))
        tokens = min(reply.usage.generated, sum(map(self.count_tokens, thoughts)))
        return replace(
            reply,
            completions=tuple(map(without_thought, reply.completions, starts)),
            usage=replace(reply.usage, generated=reply.usage.generated - tokens),
            thinking=TokenUsage(generated=tokens),
            thoughts=thoughts,
            thoughts_cut=sum(map(is_cut, texts)),
        )

    async def _plain(self, reply: Generation, number: int) -> _Sample:
        usage = _share(reply.usage, 1, len(reply.completions))
        usage = replace(usage, calls=1, prompt=reply.usage.prompt, computed_prompt=reply.usage.computed_prompt)
        return _Sample(reply.completions[number], usage, reply.shortening, TokenUsage(), "", False)

    async def _think(self, request: GenerateRequest, number: int) -> _Sample:
        """Generate sample ``number``: a thought, ended where its budget ends, then the reply."""
        sampling, prompt = _sample(request.sampling, number), request.prompt
        end = (self._thinking.form or THINK).end
        thought = await self._inner.generate(
            replace(
                request,
                prompt=replace(prompt, thought=Thought("", closed=False), prefix="", prefix_wording=()),
                sampling=replace(
                    sampling, max_tokens=self._budget, stop=(end,), logprobs=False, logit_bias=(),
                    special_tokens=Ability.SPECIAL_TOKENS not in getattr(self._inner, "lacks", ()),
                ),
            )
        )  # fmt: skip
        text = thought.text
        reply = await self._inner.generate(
            replace(request, prompt=replace(prompt, thought=Thought(text)), sampling=sampling)
        )
        (completion,) = reply.completions
        # Some begin another thought: it is taken out, and a reply that is nothing else is empty.
        if start := thought_in(completion.text):
            completion = without_thought(completion, start)
        tokens = thought.usage.generated
        # The second prompt is the first with the thought. What was read for it again is left out, as of
        # further samples of one prompt.
        length = max(0, reply.usage.prompt - tokens)
        computed = min(length, thought.usage.computed_prompt + reply.usage.computed_prompt)
        usage = replace(reply.usage, prompt=length, computed_prompt=computed)
        cut = thought.completions[0].finish_reason == "length" or is_cut(reply.text)
        thinking = TokenUsage(0, 0, tokens, 0, tokens, min(tokens, thought.usage.estimated))
        return _Sample(completion, usage, reply.shortening, thinking, text, cut)


def _sample(sampling: Sampling, number: int) -> Sampling:
    """Return how one of several samples is drawn by itself: with its number added to the seed."""
    seed = None if sampling.seed is None else sampling.seed + number
    return replace(sampling, n=1, seed=seed)


def _share(usage: TokenUsage, parts: int, of: int) -> TokenUsage:
    """Return the generated tokens of some of a request's samples, about: only their sum is known."""
    return TokenUsage(
        0, 0, usage.generated * parts // of, 0, usage.computed_generated * parts // of, usage.estimated * parts // of
    )  # fmt: skip


def _joined(samples: Sequence[_Sample]) -> Generation:
    """Return the samples of one request: its prompt counts once."""
    usages = [sample.usage for sample in samples]
    usage = replace(
        usages[0],
        computed_prompt=min(usage.computed_prompt for usage in usages),
        generated=sum(usage.generated for usage in usages),
        computed_generated=sum(usage.computed_generated for usage in usages),
        estimated=sum(usage.estimated for usage in usages),
    )
    return Generation(
        tuple(sample.completion for sample in samples),
        usage,
        samples[0].shortening,
        sum((sample.thinking for sample in samples), TokenUsage()),
        tuple(sample.thought for sample in samples),
        sum(sample.cut for sample in samples),
    )
