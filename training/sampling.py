"""The procedure for one question: rejection sampling of chains (paper, section 3.1), or its decomposition.

For every training question several chains are sampled, the likelihood of the gold answer is measured after
each hop, and the chain under which it is likeliest is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Le

from corag.chains.chain import Chain, Hop
from corag.chains.config import CoRAGConfig
from corag.chains.decode import decode_chain, search_hop
from corag.chains.final_answer import retrieve_context
from corag.chains.rank import AnswerScore, answer_log_likelihood
from corag.core.language.text import exact_match, mentions, normalize_answer
from corag.core.options.classes import Options
from corag.core.seeds import derive_seed
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question
from eval.datasets.reasoning import as_question, resolve
from ircot.method import IRCoTConfig
from training.thoughts import GoldThought, follow_reasoning


@dataclass(frozen=True)
class SampleConfig(Options):
    """How chains are made for training. The defaults are the paper's."""

    source: Literal["model", "decomposition", "given", "thoughts"] = "model"
    """"model" samples chains and keeps the best (rejection sampling); "decomposition" follows the dataset's
    sub-questions, with a search for each, and skips a question if no hit contains a sub-answer; "given" uses
    the chains of the dataset corag, with their unanswered hops; "thoughts" follows sub-questions in IRCoT's
    loop, as long as its paragraphs contain the answers."""

    chains: Annotated[int, Ge(1)] = 16
    """chains sampled per question."""

    max_hops: Annotated[int, Ge(1)] = 5
    """the maximum length of a chain is drawn from 1 to this."""

    temperature: Annotated[float, Ge(0)] = 0.7
    """sampling temperature of sub-queries; sub-answers are greedy."""

    sure_above: Annotated[float, Le(0)] = -0.05
    """a chain ends once the gold answer's mean log-likelihood per token is above this."""

    reject_below: Annotated[float, Le(0)] | None = None
    """a question is dropped if the gold answer's mean log-likelihood per token is below this after its best
    chain; unset, as in the paper, none is."""

    rank_by: Literal["mean", "sum"] = "mean"
    """score of a chain: log-likelihood of the gold answer, "mean" per token or "sum" (the paper does not
    specify; they differ only between aliases of different length)."""


@dataclass(frozen=True, slots=True)
class SampledChain:
    """A candidate.

    ``means`` and ``sums``: log-likelihood of the gold answer after each hop, per token and whole. ``drawn``:
    the length that was drawn for it. ``stopped``: "length", "match" (a sub-answer is the gold answer), "sure"
    (the gold answer became likely enough), "repeats" (no new sub-query came), "unsupported" (an annotated
    sub-answer is not in the passages).
    """

    hops: tuple[Hop, ...]
    means: tuple[float, ...]
    sums: tuple[float, ...]
    drawn: int
    stopped: str
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class SampledChains(Answer):
    """What sampling returns for one question: every candidate, and the index of the one that is kept.

    ``context_ids``: what a search for the question itself found, best first. ``chosen`` is None if the
    question is left out, and ``rejected`` says why: "threshold", "no chain" or "unsupported". ``thoughts``:
    of source "thoughts", which makes no chains.
    """

    context_ids: tuple[str, ...] = ()
    chains: tuple[SampledChain, ...] = ()
    chosen: int | None = None
    rejected: str = ""
    thoughts: tuple[GoldThought, ...] = ()


async def collect_thoughts(question: Question, tools: Tools, ircot: IRCoTConfig) -> SampledChains:
    """Return the gold thoughts of one question, with the paragraphs that IRCoT would have had for each.

    The question has a gold answer and a decomposition.
    """
    thoughts, reaches_answer = await follow_reasoning(question, tools, ircot)
    return SampledChains(
        text="",
        passage_ids=thoughts[-1].passage_ids if thoughts else (),
        steps=len(thoughts),
        stopped="answer" if reaches_answer else "unsupported",
        rejected="" if thoughts else "unsupported",
        thoughts=thoughts,
    )


async def sample_chains(
    question: Question, tools: Tools, config: SampleConfig, corag: CoRAGConfig
) -> SampledChains:
    """Sample chains for one question and keep the one under which its gold answer is likeliest.

    The question has a gold answer, and a decomposition where that is followed.
    """
    context = await retrieve_context(tools, corag)
    if config.source in ("decomposition", "given"):
        follow = follow_decomposition if config.source == "decomposition" else follow_given_chain
        chains = [await follow(question, tools, corag)]
    else:
        chains = await tools.fan_out(
            range(1, config.chains + 1),
            lambda number, branch: sample_chain(number, question, branch, config, corag),
        )
    best, reason = choose(chains, config)
    return SampledChains(
        text="",
        passage_ids=tuple(hit.passage.id for hit in context.hits),
        steps=0 if best is None else len(chains[best].hops),
        stopped=reason if best is None else chains[best].stopped,
        context_ids=tuple(hit.passage.id for hit in context.hits),
        chains=tuple(chains),
        chosen=best,
        rejected=reason,
    )


async def sample_chain(
    number: int, question: Question, tools: Tools, config: SampleConfig, corag: CoRAGConfig
) -> SampledChain:
    """Sample one chain, the gold answer scored after each hop (section 3.1).

    Its length is drawn from [1, max_hops], so that the candidates of a question differ in length too. It ends
    before that once a sub-answer is the gold answer, or makes it likely enough: further hops would only teach
    the model to ask on.
    """
    path = f"chain {number}"
    length = 1 + derive_seed(tools.seed, question.id, "length", path) % config.max_hops
    scores = list[AnswerScore]()

    async def score_hop(chain: Chain, hop_path: str) -> Chain:
        scores.append(await answer_log_likelihood(chain, question.answers, tools, corag, path=hop_path))
        if exact_match(chain.hops[-1].sub_answer, question.answers):
            return replace(chain, stopped="match")
        return replace(chain, stopped="sure" if scores[-1].mean > config.sure_above else "")

    chain = await decode_chain(
        Chain(), length, tools, corag, temperature=config.temperature, path=path, after_hop=score_hop
    )
    return _record_chain(chain, scores, length, chain.stopped or "length", chain.repeats)


async def follow_decomposition(question: Question, tools: Tools, corag: CoRAGConfig) -> SampledChain:
    """Make the chain of a question's annotated sub-questions and answers.

    It ends where no hit of the search holds an answer.
    """
    chain = Chain()
    answers: list[str] = []
    for step in question.decomposition:
        sub_query = as_question(resolve(step.question, answers))
        hits = await search_hop(chain, sub_query, tools, corag, path=f"hop {len(chain) + 1}")
        hits = lift_evidence(hits, step.answer, corag.passages_per_hop)
        if not hits:
            return _record_chain(chain, [], len(question.decomposition), "unsupported")
        chain = chain.then(Hop(sub_query, step.answer, False, tuple(hit.id for hit in hits)), tuple(hits))
        answers.append(step.answer)
    return await _score_at_end(chain, question, tools, corag)


async def follow_given_chain(question: Question, tools: Tools, corag: CoRAGConfig) -> SampledChain:
    """Take over the chain that the dataset brings, with what is found here for each of its sub-queries.

    Somebody's model sampled it, so nothing is asked of its sub-answers: wrong and refused ones stay, as in
    the paper's training set. What is longer than its limit of tokens is marked as cut, so that no row teaches
    it. A chain without any hop is scored as it is.
    """
    chain = Chain()
    for step in question.decomposition:
        hits = await search_hop(chain, step.question, tools, corag, path=f"hop {len(chain) + 1}")
        sub_answer, is_refusal = corag.conventions.read_sub_answer(step.answer, corag.refusal)
        hop = Hop(
            step.question,
            sub_answer,
            is_refusal,
            tuple(hit.id for hit in hits),
            query_cut=tools.count_tokens(step.question) > corag.max_sub_query_tokens,
            answer_cut=tools.count_tokens(sub_answer) > corag.max_sub_answer_tokens,
        )
        chain = chain.then(hop, tuple(hits))
    return await _score_at_end(chain, question, tools, corag)


async def _score_at_end(chain: Chain, question: Question, tools: Tools, corag: CoRAGConfig) -> SampledChain:
    # Once, not after each hop: the hops are given, so there is no best place to stop.
    score = await answer_log_likelihood(chain, question.answers, tools, corag)
    return _record_chain(chain, [score], len(chain), "length")


def lift_evidence(hits: Sequence[Hit], answer: str, count: int) -> tuple[Hit, ...]:
    """Return hits of which one that is shown holds the answer; none if there is no such hit.

    Where it stands too low, the first that holds it takes the last place that is shown: a reader has to
    learn from it what to read, whatever a search would have ranked before it. "Yes" and "no" stand in
    passages by chance, so for them the hits stay as they are.
    """
    if normalize_answer(answer) in ("yes", "no"):
        return tuple(hits)
    holds = [mentions([hit.passage.contents], [answer]) for hit in hits]
    if not any(holds) or any(holds[:count]):
        return tuple(hits) if any(holds) else ()
    first = holds.index(True)
    others = [*hits[:first], *hits[first + 1 :]]
    return (*others[: count - 1], hits[first], *others[count - 1 :])


def choose(chains: Sequence[SampledChain], config: SampleConfig) -> tuple[int | None, str]:
    """Return the index of the best chain, the first of equals; or None, and why the question is left out."""
    # Only an annotated chain is ever unsupported, and it has no rivals.
    if any(chain.stopped == "unsupported" for chain in chains):
        return None, "unsupported"
    indices = [index for index, chain in enumerate(chains) if chain.means]
    if not indices:
        return None, "no chain"
    best = max(
        indices,
        key=lambda index: (chains[index].means if config.rank_by == "mean" else chains[index].sums)[-1],
    )
    if config.reject_below is not None and chains[best].means[-1] < config.reject_below:
        return None, "threshold"
    return best, ""


def _record_chain(
    chain: Chain,
    scores: Sequence[AnswerScore],
    length: int,
    stop_reason: str,
    repeats: int = 0,
) -> SampledChain:
    means = tuple(score.mean for score in scores)
    sums = tuple(score.sum for score in scores)
    return SampledChain(chain.hops, means, sums, length, stop_reason, repeats)
