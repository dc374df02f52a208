"""CoRAG: chain-of-retrieval augmented generation (Wang et al., NeurIPS 2025, arXiv 2501.14342).

A chain of sub-queries, each searched and answered, is decoded greedily, as the best of N, by tree search, or
with as much of these as the question seems to need; the final answer is read from the chain and from
passages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from corag.chains.adaptive import adaptive
from corag.chains.candidates import ChainCandidates
from corag.chains.chain import Chain, Hop
from corag.chains.comparison import ComputedAnswer
from corag.chains.config import CoRAGConfig
from corag.chains.final_answer import Context, final_answer, retrieve_context
from corag.chains.measure import Measurement, measure_all
from corag.chains.rank import Candidate, Outcome
from corag.chains.strategies import best_of_n, greedy
from corag.chains.taught import training_difference
from corag.chains.tree import tree_search
from corag.core.method import Method
from corag.core.tools import Tools
from corag.core.types import Branch, Question, ReadAnswer


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """A candidate chain as it stands in the trace. ``path`` is its place in the search.

    ``score``: of the chain; ``value``: of a state of the tree, by its rollouts. Lower is better. ``answer``:
    the one that was judged to rank it, or else the final answer that was only measured, None without either.
    ``signals``: what was measured of it, by name (:class:`Candidate`).
    """

    path: str
    hops: tuple[Hop, ...]
    score: float | None
    value: float | None
    stopped: str
    repeats: int
    answer: str | None = None
    signals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoRAGAnswer(ReadAnswer):
    """CoRAG's result.

    ``passage_ids``: all that was found for the chosen chain, merged; ``context_ids``: what the final answer
    was shown, best first. ``steps``: hops of the chosen chain. ``stopped``: why it ended, "budget" if tokens
    ran out before the final answer, or allowed fewer than N chains. ``refusals``, ``repeats``: of the chosen
    chain. ``chains``: every candidate; ``chosen``: the index of the one that was kept. ``comparison``: what
    the answer was computed from, None if the model gave it.
    """

    refusals: int = 0
    repeats: int = 0
    chains: tuple[ChainRecord, ...] = ()
    chosen: int = 0
    comparison: ComputedAnswer | None = None

    def branch(self) -> Branch | None:
        """Return the chain that was kept."""
        if not self.chains:
            return None
        chain = self.chains[self.chosen]
        hops = [(hop.sub_query, "" if hop.refused else hop.sub_answer) for hop in chain.hops]
        return Branch(chain.path, [each.path for each in self.chains], hops)


async def corag(question: Question, tools: Tools, config: CoRAGConfig) -> CoRAGAnswer:
    """Answer one question: retrieve for it, decode chains, keep the best, answer from it (sections 3.1, 3.3).

    Raises :class:`corag.core.errors.DataError` if it brings ``context_ids`` that the index lacks.
    """
    # D: the passages that the question by itself retrieves. The final answer reads them.
    context = await retrieve_context(tools, config)
    # Q_1:L, A_1:L: decode one chain or many (section 3.3) and keep the one of the lowest penalty.
    with tools.reserve_tokens(context.costs.final_answer):
        outcome = await decode_and_rank(tools, config, context)
    # A: P(A | Q, Q_1:L, A_1:L, D). Where answers are judged, it is there already.
    chain = outcome.best.chain
    final = outcome.best.final or await final_answer(chain, context, tools, config)
    # Not in the paper: what the other candidates would have answered, to see what choosing costs.
    measurements = await measure_all(outcome, final, context, tools, config) if config.measure else {}
    fewer = config.strategy == "best_of_n" and config.max_hops and len(outcome.candidates) < config.chains
    return CoRAGAnswer(
        text=final.text,
        passage_ids=context.gather_ids(chain, config),
        steps=len(chain),
        stopped="budget" if fewer or not final.affordable else chain.stopped,
        context_ids=tuple(passage.id for passage in final.passages),
        refusals=chain.refusals,
        repeats=chain.repeats,
        chains=tuple(record(each, measurements.get(each.path)) for each in outcome.candidates),
        chosen=outcome.chosen,
        comparison=final.comparison,
    )


async def decode_and_rank(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """Decode chains and choose one, as the strategy says."""
    if not config.max_hops:
        return Outcome((Candidate(Chain(stopped="length"), "no hops"),), 0)
    match config.strategy:
        case "greedy":
            return await greedy(tools, config)
        case "best_of_n":
            return await best_of_n(tools, config, context)
        case "tree":
            return await tree_search(tools, config, context)
        case "adaptive":
            return await adaptive(tools, config, context)


def record(candidate: Candidate, measurement: Measurement | None = None) -> ChainRecord:
    """Write a candidate for the trace: passages by id."""
    chain = candidate.chain
    signals = measurement.signals if measurement else candidate.signals
    return ChainRecord(
        candidate.path,
        chain.hops,
        candidate.score,
        candidate.value,
        chain.stopped,
        chain.repeats,
        measurement.answer if measurement else candidate.answer,
        {str(name): value for name, value in signals.items() if math.isfinite(value)},
    )


METHOD = Method(
    corag,
    CoRAGConfig,
    "chains of sub-queries and sub-answers: greedy, best of N, tree, adaptive (Wang et al. 2025)",
    published="2025-01",
    grouped_by=("strategy",),
    candidates=ChainCandidates(),
    training_difference=training_difference,
)
