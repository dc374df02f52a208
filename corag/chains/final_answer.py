"""The final answer: which passages it sees, in which order, and how they are cut to fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corag.chains.chain import Chain, Hop, top_passages
from corag.chains.comparison import ComputedAnswer, compare
from corag.chains.config import CoRAGConfig
from corag.chains.costs import NO_COSTS, Costs, expected_costs
from corag.chains.prompting import clip, final_answer_prompt
from corag.core.errors import BudgetExhaustedError, DataError
from corag.core.fusion import fuse, interleave
from corag.core.language.text import mentions
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.shorten import count_to_drop, token_bound
from corag.core.tools import Tools
from corag.core.types import Hit, Passage


@dataclass(frozen=True, slots=True)
class Context:
    """What was retrieved for the question itself, best first, and what it lets one expect as ``costs``."""

    hits: tuple[Hit, ...]
    costs: Costs = NO_COSTS

    def passages(self, chain: Chain, config: CoRAGConfig) -> list[Passage]:
        """Return the passages for the final answer, best first, as ``config.context`` says.

        Those of the question (paper), of the chain's searches, both, or the chain's evidence.
        """
        if config.context == "question":
            return top_passages(self.hits, config.context_passages)
        if config.context == "evidence" and (supporting := evidence(chain, config)):
            return supporting[: config.context_passages]
        lists = list(chain.hits)
        if config.context != "chain":
            lists.insert(0, self.hits)
        return top_passages(merge_hits(lists, config) or self.hits, config.context_passages)

    def gather_ids(self, chain: Chain, config: CoRAGConfig) -> tuple[str, ...]:
        """Ids of all that was found: by the chain's searches, fused by reciprocal rank (paper, table 4).

        In turns the question's own search is the first of the lists. Without hops, it is all there is.
        """
        lists = list(chain.hits)
        if config.merge == "turns":
            lists.insert(0, self.hits)
        return tuple(hit.passage.id for hit in merge_hits(lists, config) or self.hits)


def merge_hits(lists: Sequence[Sequence[Hit]], config: CoRAGConfig) -> list[Hit]:
    """Make one list of several searches', best first, as ``config.merge`` says."""
    return interleave(lists) if config.merge == "turns" else fuse(lists)


def evidence(chain: Chain, config: CoRAGConfig) -> list[Passage]:
    """Return the passages that carry the chain: of each hop the best one that its sub-answer stands in.

    In the order of the hops, each once. Refused hops have none, nor has a sub-answer that was made up.
    """
    by_id = {
        passage.id: passage
        for hop, hits in zip(chain.hops, chain.hits, strict=True)
        for passage in _find_evidence(hop, hits, config)
    }
    return list(by_id.values())


def _find_evidence(hop: Hop, hits: Sequence[Hit], config: CoRAGConfig) -> list[Passage]:
    if hop.refused:
        return []
    shortlist = top_passages(hits, config.passages_per_hop)
    return [passage for passage in shortlist if mentions([passage.contents], [hop.sub_answer])][:1]


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """A final answer, the passages it was given, best first, and whether the budget allowed to ask for it.

    ``comparison``: what it was computed from, if it was; its passages are then the chain's evidence.
    """

    text: str
    passages: tuple[Passage, ...]
    affordable: bool = True
    comparison: ComputedAnswer | None = None


async def retrieve_context(tools: Tools, config: CoRAGConfig) -> Context:
    """Retrieve for the question itself, or take the passages that it brings, as ``given_context`` says.

    Raises :class:`DataError` if the index lacks one of these.
    """
    if config.given_context == "use" and tools.question.context_ids:
        hits = await context_of_question(tools)
    else:
        depth = max(config.search_depth, config.context_passages)
        hits = await tools.search(tools.question.text, k=depth, path="question")
    return Context(hits, expected_costs(hits, tools, config))


async def context_of_question(tools: Tools) -> tuple[Hit, ...]:
    """Return the passages that the question brings.

    Without those that the index lacks, it would quietly be another question.
    """
    ids = tools.question.context_ids
    passages = await tools.passages(ids)
    present = {passage.id for passage in passages}
    if missing := [name for name in ids if name not in present]:
        raise DataError(
            f"question '{tools.question.id}' brings the passage '{missing[0]}' among its context_ids, but "
            f"the index has no such passage ({len(missing)} of {len(ids)} are missing): give the index of "
            "the corpus that they were retrieved from, or corag.given_context=ignore, and the question is "
            "searched for."
        )
    return tuple(Hit(passage, 1 / rank) for rank, passage in enumerate(passages, 1))


async def final_answer(
    chain: Chain, context: Context, tools: Tools, config: CoRAGConfig, *, path: str = ""
) -> FinalAnswer:
    """Answer the question from a chain and passages: P(A | Q, Q_1:L, A_1:L, D_1:k) (section 3.1).

    If the budget is too small even without passages, the last sub-answer that is not a refusal has to do.
    With ``compare`` "rules" the model is not asked for what the sub-answers decide.
    """
    if config.compare == "rules" and (comparison := compare(tools.question.text, chain.hops)):
        return FinalAnswer(comparison.answer, tuple(evidence(chain, config)), comparison=comparison)
    budget_left = None if tools.left is None else max(0, tools.left - tools.thinking_tokens)
    prompt, passages = final_prompt(
        tools.question.text, chain, context, tools.count_tokens, config, budget_left=budget_left
    )
    template = config.prompt("final_answer")
    read_answer = template.read_answer if template.whole else config.conventions.read_answer
    try:
        reply = await tools.generate(
            prompt,
            role="final",
            max_tokens=config.max_answer_tokens,
            path=path,
            is_answer=template.whole,
        )
    except BudgetExhaustedError:
        sub_answers = [hop.sub_answer for hop in chain.hops if not hop.refused]
        return FinalAnswer(sub_answers[-1] if sub_answers else "", (), affordable=False)
    # The window may have been too small for the worst ones.
    visible = len(passages) - reply.shortening.count("passage")
    return FinalAnswer(read_answer(reply.text), tuple(passages[:visible]))


def final_prompt(
    query: str,
    chain: Chain,
    context: Context,
    count: Callable[[str], int],
    config: CoRAGConfig,
    *,
    budget_left: int | None = None,
) -> tuple[Prompt, list[Passage]]:
    """Return the final prompt and the passages in it, best first: cut each, then as many as fit.

    ``count``: of a text's tokens. ``budget_left``: tokens left for prompt and answer, if they are limited.
    Whole passages are left out, the worst first, until prompt and answer fit ``budget_left`` and
    ``max_prompt_tokens``; the released code takes the prompt's middle for the latter instead, and the
    passages within it.
    """
    passages = clip(context.passages(chain, config), count, config)
    conventions = config.conventions
    # Passages that are cited by number are left out whole, the last first.
    cuts = conventions.cuts_middle and not config.prompt("final_answer").cites
    window = config.max_prompt_tokens + config.max_answer_tokens if config.max_prompt_tokens else None
    limits = [each for each in (budget_left, None if cuts else window) if each is not None]

    def render(number: int) -> tuple[Prompt, Prompt]:
        """Return the prompt with the best so many passages, and the same once it is cut."""
        whole = final_answer_prompt(query, chain, passages[:number], config)
        return whole, conventions.cut_final(whole, config.max_prompt_tokens, count) if cuts else whole

    number = len(passages)
    if limits:  # without a limit no token is counted

        def excess(dropped_number: int) -> int:
            prompt = render(len(passages) - dropped_number)[1]
            return token_bound(prompt, config.max_answer_tokens, count) - min(limits)

        number -= count_to_drop(excess, [count(passage.contents) for passage in reversed(passages)])
    whole, prompt = render(number)
    best = passages[:number]
    return prompt, remaining(best, whole, prompt, config) if cuts else best


def remaining(passages: list[Passage], before: Prompt, after: Prompt, config: CoRAGConfig) -> list[Passage]:
    """Return the passages of which a prompt still shows something after it was cut, best first."""

    # Each passage is a segment with a rank of its own, which a cut leaves as it is. One that is written as a
    # blank, having a title alone where only texts are written, has a rank too, though none of it is shown.
    def ranks(prompt: Prompt, *, blank: bool) -> list[int | None]:
        segments = [each for message in prompt.messages for each in message.segments]
        return [each.drop for each in segments if each.kind == "passage" and (blank or each.text.strip())]

    every, survivors = ranks(before, blank=True), ranks(after, blank=False)
    if config.context_order == "best_last":
        every.reverse()
    return [passage for passage, rank in zip(passages, every, strict=True) if rank in survivors]
