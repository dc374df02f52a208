"""Tree search: breadth-first over sub-queries, each state valued by rollouts.

Paper, section 3.3; released code, ``_search``. At every depth each kept state gets ``expand`` children; a
child is worth the mean (or min) score of ``rollouts`` sampled continuations of at most ``rollout_hops`` hops;
the best ``beam`` states are kept. No child repeats a sub-query of its ancestors. Unlike the released code,
rollouts that extend a kept state become its children, and a chain is scored once; ``reuse: false`` brings
that waste back. The other ways of that code are in :mod:`corag.chains.released_code`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from corag.chains.chain import Chain, SubQuery
from corag.chains.config import CoRAGConfig
from corag.chains.costs import plan_depth, reserve_for_scores
from corag.chains.decode import apply_stop_rule, decode_chain, sample_sub_queries, take_hop
from corag.chains.final_answer import Context
from corag.chains.rank import Candidate, Outcome, score_all
from corag.core.errors import BudgetExhaustedError
from corag.core.tools import Tools


async def tree_search(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """Return every state that was valued, by depth and order, and the best of those kept at the end.

    When the budget affords no further depth with at least two children each, the best chain is decoded to its
    end greedily instead.
    """
    tree = Tree(config, context)
    beam = [Candidate(Chain(), "tree")]
    valued_states: list[Candidate] = []
    for depth in range(1, config.max_hops + 1):
        open_states = [state for state in beam if not state.chain.stopped]
        plan, share = plan_depth(depth, len(open_states), context.costs, tools, config)
        if plan is None:
            break
        # Expand: the states do not see each other's rollouts, so none depends on which is ready first.
        before = tools.spent.total
        expansions = await tools.fan_out(open_states, partial(tree.expand, plan=plan), budget=share)
        if not config.conventions.values_all and sum(len(each.children) for each in expansions) > config.beam:
            rest = None if share is None else max(1, share - tools.spent.total + before)
            expansions = await tools.fan_out(expansions, partial(tree.value, plan=plan), budget=rest)
        children = [child for expansion in expansions for child in tree.keep(expansion)]
        valued_states += children
        # Prune: ended states compete with the children; those without children have ended now.
        ended_states = [state for state in beam if state.chain.stopped]
        ended_states += [
            end_state(state, expansion)
            for state, expansion in zip(open_states, expansions, strict=True)
            if not expansion.children
        ]
        # Sorting is stable: of equals the earlier one stays.
        beam = sorted([*ended_states, *children], key=value_or_worst)[: config.beam]
        if all(state.chain.stopped for state in beam):
            break
    best = beam[0]
    if not best.chain.stopped or best.chain.stopped == "budget":
        chain, path = replace(best.chain, stopped=""), f"{best.path}/greedy"
        chain = await decode_chain(chain, config.max_hops, tools, config, temperature=0, path=path)
        best = Candidate(chain, path)
    states = [state for state in valued_states if state.path != best.path]
    return Outcome((*states, best), len(states))


def end_state(state: Candidate, expansion: Expansion) -> Candidate:
    """Return a state that has no children as one that has ended."""
    repeats = state.chain.repeats + expansion.repeats
    return replace(state, chain=replace(state.chain, stopped=expansion.stopped, repeats=repeats))


def value_or_worst(state: Candidate) -> float:
    """Return what a state's rollouts scored; the worst there is if none could be afforded."""
    return math.inf if state.value is None else state.value


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a state, valued by its rollouts."""

    candidate: Candidate
    rollouts: list[Candidate]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The children of a state. ``stopped``: why there are none, "repeats" or "budget"."""

    children: tuple[Child, ...]
    repeats: int = 0
    stopped: str = ""


class Tree:
    """What a search remembers between depths: the rollouts made, and the scores of chains."""

    def __init__(self, config: CoRAGConfig, context: Context) -> None:
        self._config, self._context = config, context
        # By sub-queries: a chain that was remembered twice would count as two rollouts.
        self._rollouts: dict[tuple[str, ...], Chain] = {}
        self._scores: dict[tuple[str, ...], float | None] = {}

    async def expand(self, state: Candidate, tools: Tools, *, plan: CoRAGConfig) -> Expansion:
        """Return the children of a state, each valued by rollouts. What the search remembers stays as it is.

        ``plan``: the options of this depth.
        """
        try:
            ready, sub_queries, repeats = await self._next_sub_queries(state, tools, plan)
        except BudgetExhaustedError:
            return Expansion((), stopped="budget")

        async def one(number: int, branch: Tools) -> Child | None:
            path = f"{state.path}/child {number + 1}"
            try:
                if number < len(ready):
                    chain = ready[number]
                else:
                    sub_query = sub_queries[number - len(ready)]
                    chain = await take_hop(state.chain, sub_query, branch, plan, path=path)
            except BudgetExhaustedError:
                return None
            chain = replace(chain, repeats=state.chain.repeats + repeats)
            try:
                chain = await apply_stop_rule(chain, branch, plan, path=path)
            except BudgetExhaustedError:
                chain = replace(chain, stopped="budget")
            # Whether there is anything to choose shows when all children are there.
            if not plan.conventions.values_all:
                return Child(Candidate(chain, path), [])
            return await self._value_by_rollouts(chain, path, branch, plan)

        count = len(ready) + len(sub_queries)
        results = await tools.fan_out(range(count), one)
        children = tuple(each for each in results if each is not None)
        return Expansion(children, repeats, "budget" if count else "repeats")

    async def value(self, expansion: Expansion, tools: Tools, *, plan: CoRAGConfig) -> Expansion:
        """Value the children of an expansion that was made without."""

        async def one(child: Child, branch: Tools) -> Child:
            return await self._value_by_rollouts(child.candidate.chain, child.candidate.path, branch, plan)

        return replace(expansion, children=tuple(await tools.fan_out(expansion.children, one)))

    def keep(self, expansion: Expansion) -> list[Candidate]:
        """Remember the rollouts and scores of an expansion for the next depth; return the children."""
        for child in expansion.children:
            self._add_rollouts(rollout.chain for rollout in child.rollouts)
            self._scores |= {rollout.chain.sub_queries: rollout.score for rollout in child.rollouts}
        return [child.candidate for child in expansion.children]

    def _add_rollouts(self, chains: Iterable[Chain]) -> None:
        for chain in chains:
            self._rollouts.setdefault(chain.sub_queries, chain)

    async def _next_sub_queries(
        self, state: Candidate, tools: Tools, plan: CoRAGConfig
    ) -> tuple[list[Chain], list[SubQuery], int]:
        """Return up to ``expand`` continuations, earlier rollouts before new sub-queries, and the repeats."""
        ready = self._one_hop_on(state.chain)[: plan.expand]
        missing = plan.expand - len(ready)
        repeats = 0
        if not missing:
            return ready, [], repeats
        earlier = [chain.sub_queries[-1] for chain in ready]
        if not plan.conventions.repeats_in_children:
            earlier += state.chain.sub_queries
        for attempt in range(plan.tries):
            path = f"{state.path}/retry {attempt}" if attempt else state.path
            samples, again = await sample_sub_queries(
                state.chain, plan.conventions.count_samples(missing), tools, plan,
                temperature=plan.temperature, path=path, may_repeat=plan.conventions.repeats_in_children,
            )  # fmt: skip
            repeats += again
            fresh_texts = plan.conventions.fresh((each.text for each in samples), earlier)[:missing]
            new = [each for each in samples if each.text in fresh_texts]
            if new or ready:
                return ready, new, repeats
        return [], [], repeats

    def _one_hop_on(self, chain: Chain) -> list[Chain]:
        """Return the chains of one more hop that earlier rollouts went through, each once."""
        if not self._config.reuse:
            return []
        further = self._longer(chain)
        next_queries = self._config.conventions.fresh(
            (rollout.sub_queries[len(chain)] for rollout in further), chain.sub_queries
        )
        # Of several that go through the same sub-query the first: all else of the hop follows from it.
        by_next = {rollout.sub_queries[len(chain)]: rollout for rollout in reversed(further)}
        return [chain.continue_as(by_next[sub_query]) for sub_query in next_queries]

    def _longer(self, chain: Chain) -> list[Chain]:
        """Return the earlier rollouts that go on from a chain, each once."""
        return [
            rollout
            for rollout in self._rollouts.values()
            if len(rollout) > len(chain) and rollout.extends(chain)
        ]

    async def _value_by_rollouts(self, chain: Chain, path: str, tools: Tools, plan: CoRAGConfig) -> Child:
        """Value a child by the scores of its rollouts; one that can go on no further is its own rollout."""
        target = min(len(chain) + plan.rollout_hops, plan.max_hops)
        if chain.stopped:
            starts = [chain] * (1 if plan.reuse else plan.rollouts)
        else:
            earlier = self._longer(chain) if plan.reuse else []
            # An earlier rollout that ran out of tokens may go on: now there are some.
            earlier = [
                replace(rollout, stopped="") if rollout.stopped == "budget" else rollout
                for rollout in earlier
            ]
            starts = (earlier + [chain] * plan.rollouts)[: plan.rollouts]

        async def roll_out(start: tuple[int, Chain], branch: Tools) -> Chain:
            number, prefix = start
            rollout_path = f"{path}/rollout {number}"
            return await decode_chain(
                prefix, target, branch, plan, temperature=plan.temperature, path=rollout_path
            )

        costs, further = self._context.costs, target - len(chain)
        with reserve_for_scores(len(starts), costs, tools, plan, chain=chain, hops=further):
            chains = await tools.fan_out(list(enumerate(starts, 1)), roll_out)
        rollouts = await self._score(chains, path, tools)
        scores = [rollout.score for rollout in rollouts if rollout.score is not None]
        if not scores:
            return Child(Candidate(chain, path), rollouts)
        value = statistics.fmean(scores) if plan.aggregate == "mean" else min(scores)
        return Child(Candidate(chain, path, value=value), rollouts)

    async def _score(self, chains: Sequence[Chain], path: str, tools: Tools) -> list[Candidate]:
        """Score the rollouts; with ``reuse`` equal ones once, and those not at all whose score is known."""
        rollouts = [Candidate(chain, f"{path}/rollout {number}") for number, chain in enumerate(chains, 1)]
        if not self._config.reuse:
            return await score_all(rollouts, tools, self._config, self._context)
        new: dict[tuple[str, ...], Candidate] = {}
        for each in rollouts:
            if self._scores.get(each.chain.sub_queries) is None:  # new, or not affordable before
                new.setdefault(each.chain.sub_queries, each)
        candidates = await score_all(list(new.values()), tools, self._config, self._context)
        scores = self._scores | {each.chain.sub_queries: each.score for each in candidates}
        return [replace(each, score=scores[each.chain.sub_queries]) for each in rollouts]
