"""Self-RAG's reflection tokens: what the model thinks, as probabilities of one token against the others of
its group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from baselines.self_rag_config import SelfRAGConfig
from baselines.self_rag_critique import SUPPORT, UTILITY, Critique
from core.errors import ConfigError
from core.tools import Tools

_NAME_TOKENS = 8  # a reflection token scored costs less than that, however the model spells it


async def distribution(
    before: str, names: Sequence[str], tools: Tools, config: SelfRAGConfig, *, role: str, place: str
) -> list[float]:
    """Return the probabilities of some reflection tokens after ``before``, which sum to 1.

    Raises :class:`ConfigError` if the model does not have these tokens.
    """
    prompt = config.prompt_at(tools.question.text, before)
    logprobs: list[float] = []
    for name in names:
        score = await tools.score(prompt, name, role=role, path=place)
        if not logprobs and len(score.token_ids) != 1:
            raise ConfigError(
                f"the model has no reflection token '{name}': it reads it as {len(score.token_ids)} tokens. "
                "Name a model that was trained for Self-RAG, such as --model.name "
                "selfrag/selfrag_llama2_7b, or choose the method self_rag_prompted."
            )
        logprobs.append(score.sum)
    weights = [math.exp(logprob - max(logprobs)) for logprob in logprobs]
    return [weight / sum(weights) for weight in weights]


async def wants_passages(before: str, tools: Tools, config: SelfRAGConfig, *, place: str) -> bool:
    """Whether the model wants passages after ``before`` (section 3.3, adaptive retrieval with a
    threshold).
    """
    if config.retrieval != "adaptive":
        return config.retrieval == "always"
    yes, _ = await distribution(
        before, config.retrieve_tokens[:2], tools, config, role="retrieve", place=place
    )
    return yes > config.threshold


async def segment_end(
    before: str, text: str, tools: Tools, config: SelfRAGConfig, *, last: bool, place: str
) -> tuple[int, bool]:
    """Return how many characters of a generated text are its segment, and whether passages are wanted after
    it.

    A segment ends where the model writes that it wants some, or writes that it does not, but not surely
    enough. The ``last`` segment is not asked about the latter.
    """
    if config.retrieval == "never":
        return len(text), False
    yes, no, _ = config.retrieve_tokens
    for found in re.finditer(f"{re.escape(yes)}|{re.escape(no)}", text):
        said_yes = found.group() == yes
        if said_yes or (
            not last and await wants_passages(before + text[: found.start()], tools, config, place=place)
        ):
            return found.start(), True
    return len(text), False


async def criticise(
    before: str, text: str, tools: Tools, config: SelfRAGConfig, *, with_passage: bool, place: str
) -> Critique:
    """Judge a segment: ISREL where it begins, ISSUP and ISUSE where the model wrote such a token first, else
    0.

    What has no weight is not asked about.
    """

    async def expected(names: Sequence[str], values: Sequence[float], at: int) -> float:
        chances = await distribution(before + text[:at], names, tools, config, role="critique", place=place)
        return sum(chance * value for chance, value in zip(chances, values, strict=True))

    relevance = support = utility = 0.0
    if with_passage and config.w_rel:
        relevance = await expected(config.relevance_tokens, (1.0, 0.0), 0)
    if with_passage and config.w_sup and (at := first_of(config.support_tokens, text)) is not None:
        support = await expected(config.support_tokens, SUPPORT, at)
    if config.w_use and (at := first_of(config.utility_tokens, text)) is not None:
        utility = await expected(config.utility_tokens, UTILITY, at)
    return Critique(relevance, support, utility)


def most_critique_tokens(
    before: str, tools: Tools, config: SelfRAGConfig, *, last: bool, with_passage: bool
) -> int:
    """Return what ending and judging a segment may cost at most, if the model says but once that it needs no
    passages.
    """
    calls = 2 if config.retrieval == "adaptive" and not last else 0
    calls += len(config.relevance_tokens) if with_passage and config.w_rel else 0
    calls += len(config.support_tokens) if with_passage and config.w_sup else 0
    calls += len(config.utility_tokens) if config.w_use else 0
    prompt = config.prompt_at(tools.question.text, before)
    return calls * tools.cost(prompt, config.max_segment_tokens + _NAME_TOKENS)


def first_of(names: Sequence[str], text: str) -> int | None:
    """Return where the first of these names stands in a text, None if there is none."""
    return min((at for name in names if (at := text.find(name)) >= 0), default=None)
