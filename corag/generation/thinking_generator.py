"""A model that thinks, asked in two: for a thought of a bounded length, then for the reply behind it.

A reply's limit of tokens, stop strings, log-probabilities and first words then hold for the reply alone, a
thought that would not end is ended, and all engines do the same. What is computed twice lies in the engine's
prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from corag.core.gather import gather
from corag.core.prompting.prompt import Thought
from corag.core.protocols import (
    Ability,
    GenerateRequest,
    Generation,
    Generator,
    GeneratorStage,
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

    One that does not sees to it by itself. ``most``: tokens of a thought.
    """
    if not isinstance(engine, ThinkingEngine) or engine.thinking is None:
        return engine
    return ThinkingGenerator(engine, engine.thinking, thinking_budget(most, engine.window))


def thinking_budget(most: int, window: int) -> int:
    """Return how many tokens a thought may have. ``most``: the option's value; ``window``: in tokens."""
    return max(1, min(most, window // _SHARE_OF_WINDOW))


class ThinkingGenerator(GeneratorStage):
    """A :class:`Generator` around an engine that renders prompts, whose model may think before it replies.

    Thoughts stand in no completion, but of prompts that want all that is written (:data:`ALOUD`). Scores of
    given texts are taken behind the form of no thought.
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
        """Continue a prompt, behind a thought if the model thinks; as a whole if the prompt asks for that."""
        if request.prompt.plain or request.prompt.thought is not None:
            return await self._inner.generate(request)
        if self._thinking.generates:
            samples = range(request.sampling.n)
            return _join(await gather(self._think(request, number) for number in samples))
        return self._without_thoughts(await self._inner.generate(_hiding_thoughts(request)))

    async def _think(self, request: GenerateRequest, number: int) -> Generation:
        """Generate sample ``number``: a thought, ended where its budget ends, then the reply behind it."""
        seed = request.sampling.seed
        sampling = replace(request.sampling, n=1, seed=None if seed is None else seed + number)
        before = await self._inner.generate(
            replace(
                request,
                watch=None,
                prompt=replace(
                    request.prompt, thought=Thought("", closed=False), prefix="", prefix_wording=()
                ),
                sampling=replace(
                    sampling,
                    max_tokens=self._budget,
                    stop=((self._thinking.form or THINK).end,),
                    logprobs=False,
                    logit_bias=(),
                    # Some families' marks are special tokens.
                    special_tokens=Ability.SPECIAL_TOKENS not in self.lacks,
                ),
            )
        )
        thought = inner_text(before.text)
        prompt = replace(request.prompt, thought=Thought(thought))
        # Some begin another thought: it is taken out, and a reply that is nothing else is empty.
        reply = self._without_thoughts(
            await self._inner.generate(_hiding_thoughts(replace(request, prompt=prompt, sampling=sampling)))
        )
        # The prompt is that of the request and the thought. What was read for it again is left out, as of
        # further samples of one prompt.
        tokens = before.usage.generated
        length = max(0, reply.usage.prompt - tokens)
        computed = min(length, before.usage.computed_prompt + reply.usage.computed_prompt)
        spent = TokenUsage(0, 0, tokens, 0, tokens, min(tokens, before.usage.estimated))
        met_budget = before.completions[0].finish_reason == "length"
        return replace(
            reply,
            usage=replace(reply.usage, prompt=length, computed_prompt=computed),
            thinking=spent + reply.thinking,
            thoughts=(thought,),
            thoughts_cut=max(int(met_budget), reply.thoughts_cut),
        )

    def _without_thoughts(self, reply: Generation) -> Generation:
        """Take thoughts that nothing announced out of completions, and their tokens out of what these cost.

        They were no longer than a reply may be: of one that met its end, or a stop string, nothing is left.
        """
        starts = [thought_in(completion.text) for completion in reply.completions]
        if not any(starts):
            return reply
        pairs = list(zip(reply.completions, starts, strict=True))
        thoughts = tuple(completion.text[:start] for completion, start in pairs)
        usage = reply.usage
        tokens = min(usage.generated, sum(map(self.count_tokens, thoughts)))
        computed_tokens = min(usage.computed_generated, tokens)
        return replace(
            reply,
            completions=tuple(without_thought(completion, start) for completion, start in pairs),
            usage=replace(
                usage,
                generated=usage.generated - tokens,
                computed_generated=usage.computed_generated - computed_tokens,
            ),
            thinking=TokenUsage(generated=tokens, computed_generated=computed_tokens),
            thoughts=tuple(map(inner_text, thoughts)),
            thoughts_cut=sum(is_cut(completion.text) for completion in reply.completions),
        )


def _hiding_thoughts(request: GenerateRequest) -> GenerateRequest:
    """Return a request whose watcher sees no thought before the reply."""
    watch = request.watch
    if watch is None:
        return request
    return replace(request, watch=lambda text: watch(text[thought_in(text) :]))


def _join(samples: Sequence[Generation]) -> Generation:
    """Return the samples of one request: its prompt counts once."""
    usages = [sample.usage for sample in samples]
    return Generation(
        tuple(sample.completions[0] for sample in samples),
        replace(
            usages[0],
            computed_prompt=min(usage.computed_prompt for usage in usages),
            generated=sum(usage.generated for usage in usages),
            computed_generated=sum(usage.computed_generated for usage in usages),
            estimated=sum(usage.estimated for usage in usages),
        ),
        samples[0].shortening,
        sum((sample.thinking for sample in samples), TokenUsage()),
        tuple(thought for sample in samples for thought in sample.thoughts),
        sum(sample.thoughts_cut for sample in samples),
    )
