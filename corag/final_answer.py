"""The final answer: which passages it sees, in which order, and how they are cut to fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corag.candidates import TOKENS_PER_HOP, Conclusion
from corag.chain import Chain, top_passages
from corag.config import CoRAGConfig
from corag.prompting import final_answer_prompt, sub_answer_prompt, sub_query_prompt
from core.errors import BudgetExhaustedError, DataError
from core.fusion import fuse
from core.text import extract_answer
from core.tools import Tools, most_tokens
from core.types import Hit, Passage


@dataclass(frozen=True, slots=True)
class Context:
    """What was retrieved for the question itself, best first.

    ``reserve``: tokens to keep for the final answer, about; ``hop_cost``: what a hop may cost, about. 0
    without a budget.
    """

    hits: tuple[Hit, ...]
    reserve: int = 0
    hop_cost: int = 0

    def passages(self, chain: Chain, config: CoRAGConfig) -> list[Passage]:
        """Return the passages for the final answer, best first: the question's (paper), the chain's, or both
        fused.
        """
        if config.context == "question":
            return top_passages(self.hits, config.context_passages)
        lists = [hop.hits for hop in chain.hops]
        if config.context == "fused":
            lists.insert(0, self.hits)
        return top_passages(fuse(lists) or self.hits, config.context_passages)

    def gathered(self, chain: Chain) -> tuple[str, ...]:
        """Ids of all that the chain's searches found, fused by reciprocal rank (paper, table 4).

        Without hops, the question's.
        """
        return tuple(hit.passage.id for hit in fuse([hop.hits for hop in chain.hops]) or self.hits)


async def retrieve_context(tools: Tools, config: CoRAGConfig) -> Context:
    """Retrieve for the question itself, or take the passages that it brings, and reckon what the final answer
    will cost.

    Raises :class:`DataError` if the index lacks one of these.
    """
    if tools.question.context_ids:
        hits = await given_context(tools)
    else:
        depth = max(config.search_depth, config.context_passages)
        hits = await tools.search(tools.question.text, k=depth, path="question")
    if tools.left is None and not config.mean_budget:
        return Context(hits)
    query, nothing = tools.question.text, Chain()
    final = final_answer_prompt(
        query, nothing, clip(top_passages(hits, config.context_passages), tools.count_tokens, config), config
    )
    reserve = tools.cost(final, config.max_answer_tokens) + config.max_hops * TOKENS_PER_HOP
    sub_answer = sub_answer_prompt(query, top_passages(hits, config.passages_per_hop), config)
    hop_cost = tools.cost(sub_query_prompt(query, nothing, config), config.max_sub_query_tokens)
    return Context(
        hits, reserve, hop_cost + tools.cost(sub_answer, config.max_sub_answer_tokens) + TOKENS_PER_HOP
    )


async def given_context(tools: Tools) -> tuple[Hit, ...]:
    """Return the passages that the question brings.

    Without those that the index lacks, it would quietly be another question.
    """
    ids = tools.question.context_ids
    given = await tools.passages(ids)
    found = {passage.id for passage in given}
    if missing := [name for name in ids if name not in found]:
        raise DataError(
            f"question '{tools.question.id}' brings the passage '{missing[0]}' among its context_ids, but "
            f"the index has no such passage ({len(missing)} of {len(ids)} are missing): give the index of "
            "the corpus that they were retrieved from, or remove context_ids from the question file, and "
            "the question is searched for."
        )
    return tuple(Hit(passage, 1 / rank) for rank, passage in enumerate(given, 1))


async def final_answer(
    chain: Chain, context: Context, tools: Tools, config: CoRAGConfig, *, path: str = ""
) -> Conclusion:
    """Answer the question from a chain and passages (section 3.1).

    If the budget is too small even without passages, the last sub-answer that is not a refusal has to do.
    """
    passages = final_passages(
        tools.question.text, chain, context, tools.count_tokens, config, left=tools.left
    )
    prompt = final_answer_prompt(tools.question.text, chain, passages, config)
    try:
        reply = await tools.generate(prompt, role="final", max_tokens=config.max_answer_tokens, path=path)
    except BudgetExhaustedError:
        found = [hop.sub_answer for hop in chain.hops if not hop.refused]
        return Conclusion(found[-1] if found else "", (), affordable=False)
    # the window may have been too small for the worst ones
    seen = len(passages) - reply.shortening.count("passage")
    return Conclusion(extract_answer(reply.text), tuple(passages[:seen]))


def final_passages(
    query: str,
    chain: Chain,
    context: Context,
    count: Callable[[str], int],
    config: CoRAGConfig,
    *,
    left: int | None = None,
) -> list[Passage]:
    """Return what the final answer is shown, best first: cut to ``max_passage_tokens``, then as many as fit.

    ``count``: of a text's tokens. ``left``: tokens left for prompt and answer, if they are limited. Whole
    passages are left out, the worst first, until prompt and answer fit ``left`` and ``max_prompt_tokens``.
    """
    kept = clip(context.passages(chain, config), count, config)
    window = config.max_prompt_tokens + config.max_answer_tokens if config.max_prompt_tokens else None
    limit = min((tokens for tokens in (left, window) if tokens is not None), default=None)
    while kept and limit is not None:
        prompt = final_answer_prompt(query, chain, kept, config)
        if most_tokens(prompt, config.max_answer_tokens, count) <= limit:
            break
        kept.pop()
    return kept


def clip(passages: Sequence[Passage], count: Callable[[str], int], config: CoRAGConfig) -> list[Passage]:
    """Cut each passage to ``max_passage_tokens``."""
    if not config.max_passage_tokens:
        return list(passages)
    return [
        Passage(passage.id, passage.title, clip_text(passage.text, config.max_passage_tokens, count))
        for passage in passages
    ]


def clip_text(text: str, limit: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning of whole words that has at most ``limit`` tokens.

    Of characters, if no word has so few.
    """
    ends = [place for place, character in enumerate(text) if character.isspace()] + [len(text)]
    return _longest(text, ends, limit, count) or _longest(text, range(len(text) + 1), limit, count)


def _longest(text: str, ends: Sequence[int], limit: int, count: Callable[[str], int]) -> str:
    low, high = 0, len(ends)
    while low < high:  # the first ``low`` ends fit; those from ``high`` on do not
        middle = (low + high) // 2
        if count(text[: ends[middle]]) <= limit:
            low = middle + 1
        else:
            high = middle
    return text[: ends[low - 1]] if low else ""
