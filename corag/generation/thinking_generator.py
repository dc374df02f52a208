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
    GeneratorStage,
    Sampling,
)
from corag.core.types import TokenUsage
from corag.generation.thinking import (
    THINK,
    Thinking,
    ThinkingEngine,
    inner_text,
    is_cut,
    thought_in,
    without_thought,
)

_SHARE_OF_WINDOW = 4  # thoughts have at most a quarter of it: the rest is for passages


def with_thoughts_apart(engine: Generator, most: int) -> Generator:
    """Return an engine's generator without thoughts in its completions, if the engine renders prompts.

    One that does not sees to it by itself, and so does one that is told to keep thoughts.

    ``most``: tokens of a thought.
    """
    if not isinstance(engine, ThinkingEngine) or engine.thinking is None or engine.thinking.mode == "keep":
        return engine
    return ThinkingGenerator(engine, engine.thinking, thinking_budget(most, engine.window))


def thinking_budget(most: int, window: int) -> int:
    """Return how many tokens a thought may have. ``most``: the option's value; ``window``: in tokens."""
    return max(1, min(most, window // _SHARE_OF_WINDOW))


@dataclass(frozen=True, slots=True)
class _ThoughtfulSample:
    """One completion and what it cost. ``thought``: what was written before it."""

    completion: Completion
    usage: TokenUsage
    shortening: Shortening
    thinking: TokenUsage
    thought: str
    is_cut: bool


class ThinkingGenerator(GeneratorStage):
    """A :class:`Generator` around an engine that renders prompts, whose model may think before it replies.

    Thoughts stand in no completion. Scores of given texts are taken behind the form of no thought.
    """

    def __init__(self, inner: Generator, thinking: Thinking, budget: int) -> None:
        """``thinking``: what the engine's renderer does; ``budget``: most tokens of a thought."""
        super().__init__(inner)
        self._thinking = thinking
        self._budget = budget
        self.about = (*inner.about, *filter(None, [thinking.describe()]))
        if thinking.generates:
            self.fingerprint += f"/{budget}"
            self.thinking_tokens = budget

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt, behind a thought if the model thinks."""
        if request.prompt.plain:
            return await self._inner.generate(request)
        if self._thinking.generates:
            return _join_samples(
                await gather(self._think(request, number) for number in range(request.sampling.n))
            )
        reply = await self._inner.generate(request)
        if not any(thought_in(completion.text) for completion in reply.completions):
            return reply
        # Thoughts that nothing announced, so they were no longer than a reply may be. One that met the end of
        # the reply's tokens, or a stop string, is closed and the reply asked for again.
        samples = [self._without_thought(reply, number) for number in range(request.sampling.n)]
        return _join_samples(
            await gather(
                self._reply(request, number, sample) if self._is_cut(reply, number) else _as_it_is(sample)
                for number, sample in enumerate(samples)
            )
        )

    def _is_cut(self, reply: Generation, number: int) -> bool:
        """Whether a sample has too little of a reply behind a thought that can be closed."""
        completion = reply.completions[number]
        is_short = completion.finish_reason == "length" or is_cut(completion.text)
        return bool(thought_in(completion.text)) and is_short and self._thinking.mode != "off"

    def _without_thought(self, reply: Generation, number: int) -> _ThoughtfulSample:
        """Take a thought out of a completion, and its tokens out of what that cost."""
        completion = reply.completions[number]
        start = thought_in(completion.text)
        thought = completion.text[:start]
        usage = _share(reply.usage, 1, len(reply.completions))
        tokens = min(usage.generated, self.count_tokens(thought)) if start else 0
        computed_tokens = min(usage.computed_generated, tokens)
        usage = replace(
            reply.usage,
            generated=usage.generated - tokens,
            computed_generated=usage.computed_generated - computed_tokens,
            estimated=usage.estimated,
        )
        thinking = TokenUsage(generated=tokens, computed_generated=computed_tokens)
        rest, thought_cut = without_thought(completion, start), is_cut(completion.text)
        return _ThoughtfulSample(rest, usage, reply.shortening, thinking, thought, thought_cut)

    async def _think(self, request: GenerateRequest, number: int) -> _ThoughtfulSample:
        """Generate sample ``number``: a thought, ended where its budget ends, then the reply."""
        prompt = replace(request.prompt, thought=Thought("", closed=False), prefix="", prefix_wording=())
        sampling = replace(
            _sample(request.sampling, number),
            max_tokens=self._budget,
            stop=((self._thinking.form or THINK).end,),
            logprobs=False,
            logit_bias=(),
            # Some families' marks are special tokens.
            special_tokens=Ability.SPECIAL_TOKENS not in self.lacks,
        )
        thought = await self._inner.generate(replace(request, prompt=prompt, sampling=sampling))
        usage = replace(thought.usage, generated=0, computed_generated=0, estimated=0)
        tokens = thought.usage.generated
        thinking = TokenUsage(0, 0, tokens, 0, tokens, min(tokens, thought.usage.estimated))
        is_cut = thought.completions[0].finish_reason == "length"
        sample = _ThoughtfulSample(
            thought.completions[0], usage, thought.shortening, thinking, thought.text, is_cut
        )
        return await self._reply(request, number, sample)

    async def _reply(
        self, request: GenerateRequest, number: int, before: _ThoughtfulSample
    ) -> _ThoughtfulSample:
        """Generate sample ``number`` behind a thought. ``before``: what has been generated for it."""
        text = inner_text(before.thought)
        reply = await self._inner.generate(
            replace(
                request,
                prompt=replace(request.prompt, thought=Thought(text)),
                sampling=_sample(request.sampling, number),
            )
        )
        # Some begin another thought: it is taken out, and a reply that is nothing else is empty.
        last = self._without_thought(reply, 0)
        # The prompt is that of the request and the thought. What was read for it again is left out, as of
        # further samples of one prompt; and what was written before the thought was closed is all thought.
        tokens = before.thinking.generated
        length = max(0, reply.usage.prompt - tokens)
        usage = replace(
            last.usage,
            prompt=length,
            computed_prompt=min(length, before.usage.computed_prompt + reply.usage.computed_prompt),
        )
        given_up = TokenUsage(
            generated=before.usage.generated, computed_generated=before.usage.computed_generated
        )
        thinking = before.thinking + given_up + last.thinking
        thought_cut = before.is_cut or last.is_cut
        return _ThoughtfulSample(last.completion, usage, reply.shortening, thinking, text, thought_cut)


async def _as_it_is(sample: _ThoughtfulSample) -> _ThoughtfulSample:
    return sample


def _sample(sampling: Sampling, number: int) -> Sampling:
    """Return how one of several samples is drawn by itself: with its number added to the seed."""
    seed = None if sampling.seed is None else sampling.seed + number
    return replace(sampling, n=1, seed=seed)


def _share(usage: TokenUsage, parts: int, of: int) -> TokenUsage:
    """Return the generated tokens of some of a request's samples, about: only their sum is known."""
    generated_tokens, computed_tokens, estimated_tokens = (
        tokens * parts // of for tokens in (usage.generated, usage.computed_generated, usage.estimated)
    )
    return TokenUsage(0, 0, generated_tokens, 0, computed_tokens, estimated_tokens)


def _join_samples(samples: Sequence[_ThoughtfulSample]) -> Generation:
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
        sum(sample.is_cut for sample in samples),
    )
