"""Tree search: breadth-first over sub-queries, each state judged by rollouts (paper, section 3.3.

Released code, ``_search``).

At every depth each kept state gets ``expand`` children; a child is worth the mean (or min) score of
``rollouts`` sampled continuations of at most ``rollout_hops`` hops; the best ``beam`` states are kept. No
child repeats a sub-query of its ancestors. Unlike the released code, rollouts that extend a kept state become
its children, and a chain is scored once; ``reuse: false`` brings that waste back.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from corag.candidates import Candidate, Outcome, cost_of_scores, judge
from corag.chain import Chain, SubQuery, fresh
from corag.config import CoRAGConfig
from corag.decode import grow, sample_sub_queries, stop_or_go_on, take_hop
from corag.final_answer import Context
from core.errors import BudgetExhaustedError
from core.gather import gather
from core.tools import Tools

OVERSAMPLE = 1.5  # released code: sub-queries sampled per child wanted, since some will be the same


async def tree_search(
    tools: Tools, config: CoRAGConfig, context: Context, known: Sequence[Chain] = ()
) -> Outcome:
    """Return every state that was judged, by depth and birth, and the best of those kept at the end.

    ``known``: chains made before, which count as rollouts that are there already. When the budget affords no
    further depth with at least two children each, the best chain is grown greedily instead.
    """
    tree = Tree(config, known)
    beam = [Candidate(Chain(), "tree")]
    judged: list[Candidate] = []
    for depth in range(1, config.max_hops + 1):
        growing = [state for state in beam if not state.chain.stopped]
        plan, share = plan_depth(config, depth, len(growing), tools, context)
        if plan is None:
            break
        branches = tools.branch(len(growing), share)
        families = await gather(
            tree.expand(state, branch, plan) for state, branch in zip(growing, branches, strict=True)
        )
        children = [child for family in families for child in tree.remember(family)]
        judged += children
        ended = [state for state in beam if state.chain.stopped]
        ended += [
            stuck(state, family) for state, family in zip(growing, families, strict=True) if not family.born
        ]
        beam = sorted([*ended, *children], key=worth)[: config.beam]  # stable: the earlier of equals
        if all(state.chain.stopped for state in beam):
            break
    best = beam[0]
    if not best.chain.stopped or best.chain.stopped == "budget":
        chain = replace(best.chain, stopped="")
        chain = await grow(chain, config.max_hops, tools, config, temperature=0, path=f"{best.path}/greedy")
        best = Candidate(chain, f"{best.path}/greedy")
    states = [state for state in judged if state.path != best.path]
    return Outcome((*states, best), len(states))


def plan_depth(
    config: CoRAGConfig, depth: int, states: int, tools: Tools, context: Context
) -> tuple[CoRAGConfig | None, int | None]:
    """Return the options of the next depth and its share of the budget: fewer rollouts first, then fewer
    children; None if none.

    A depth gets an even share of what is left, or up to half of it if it needs so much.
    """
    if tools.left is None:
        return config, None
    one_score = cost_of_scores(Chain(), depth + config.rollout_hops, 1, tools, config)
    even = tools.left // (config.max_hops - depth + 1)
    for rollouts in range(config.rollouts, 0, -1):
        for hops in range(min(config.rollout_hops, config.max_hops - depth), -1, -1):
            child = context.hop_cost * (1 + rollouts * hops) + rollouts * one_score
            full = states * config.expand * child
            share = min(full, max(even, tools.left // 2))
            children = min(config.expand, share // max(1, states * child))
            if children >= min(2, config.expand):
                return replace(config, expand=children, rollouts=rollouts, rollout_hops=hops), share
    return None, None


def stuck(state: Candidate, family: Family) -> Candidate:
    """Return a state that has no children as one that has ended."""
    return replace(
        state, chain=replace(state.chain, stopped=family.why, repeats=state.chain.repeats + family.repeats)
    )


def worth(state: Candidate) -> float:
    """Return what a state's rollouts scored; the worst there is if none could be afforded."""
    return math.inf if state.value is None else state.value


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a state, valued by its rollouts."""

    candidate: Candidate
    rollouts: list[Candidate]


@dataclass(frozen=True, slots=True)
class Family:
    """The children of a state. ``why`` there are none: "repeats" or "budget"."""

    born: tuple[Child, ...]
    repeats: int = 0
    why: str = ""


class Tree:
    """What a search remembers between depths: the rollouts made, and the scores of chains."""

    def __init__(self, config: CoRAGConfig, known: Sequence[Chain]) -> None:
        self._config = config
        # By sub-queries: a chain that was remembered twice would count as two rollouts.
        self._made: dict[tuple[str, ...], Chain] = {}
        self._add(known)
        self._scores: dict[tuple[str, ...], float | None] = {}

    async def expand(self, state: Candidate, tools: Tools, plan: CoRAGConfig) -> Family:
        """Return the children of a state.

        The memory is not changed meanwhile. ``plan``: the options of this depth.
        """
        try:
            ready, sub_queries, repeats = await self._next_sub_queries(state, tools, plan)
        except BudgetExhaustedError:
            return Family((), why="budget")

        async def one(number: int, tools: Tools) -> Child | None:
            path = f"{state.path}/child {number + 1}"
            try:
                if number < len(ready):
                    child = ready[number]
                else:
                    hop = await take_hop(sub_queries[number - len(ready)], tools, plan, path=path)
                    child = state.chain.then(hop)
            except BudgetExhaustedError:
                return None
            child = replace(child, repeats=state.chain.repeats + repeats)
            try:
                child = await stop_or_go_on(child, tools, plan, path=path)
            except BudgetExhaustedError:
                child = replace(child, stopped="budget")
            return await self._judge_by_rollouts(child, path, tools, plan)

        count = len(ready) + len(sub_queries)
        found = await gather(one(number, branch) for number, branch in enumerate(tools.branch(count)))
        born = tuple(each for each in found if each is not None)
        return Family(born, repeats, "budget" if count else "repeats")

    def remember(self, family: Family) -> list[Candidate]:
        """Keep the rollouts and scores of an expansion for the next depth; return the children."""
        for child in family.born:
            self._add(rollout.chain for rollout in child.rollouts)
            self._scores |= {rollout.chain.sub_queries: rollout.score for rollout in child.rollouts}
        return [child.candidate for child in family.born]

    def _add(self, chains: Iterable[Chain]) -> None:
        for chain in chains:
            self._made.setdefault(chain.sub_queries, chain)

    async def _next_sub_queries(
        self, state: Candidate, tools: Tools, plan: CoRAGConfig
    ) -> tuple[list[Chain], list[SubQuery], int]:
        """Return up to ``expand`` continuations, as earlier rollouts and as new sub-queries, and how many
        repeats came.
        """
        ready = self._one_hop_on(state.chain)[: plan.expand]
        wanted = plan.expand - len(ready)
        repeats = 0
        if not wanted:
            return ready, [], repeats
        asked = (*state.chain.sub_queries, *(chain.sub_queries[-1] for chain in ready))
        for attempt in range(plan.tries):
            path = f"{state.path}/retry {attempt}" if attempt else state.path
            sampled, again = await sample_sub_queries(
                state.chain,
                math.ceil(OVERSAMPLE * wanted),
                tools,
                plan,
                temperature=plan.temperature,
                path=path,
            )
            repeats += again
            unasked = fresh((each.text for each in sampled), asked, exact=plan.repeats == "exact")[:wanted]
            new = [each for each in sampled if each.text in unasked]
            if new or ready:
                return ready, new, repeats
        return [], [], repeats

    def _one_hop_on(self, chain: Chain) -> list[Chain]:
        """Return the chains of one more hop that earlier rollouts went through, each once."""
        if not self._config.reuse:
            return []
        further = self._longer(chain)
        found = fresh(
            (made.sub_queries[len(chain)] for made in further),
            chain.sub_queries,
            exact=self._config.repeats == "exact",
        )
        hops = {made.sub_queries[len(chain)]: made.hops[len(chain)] for made in reversed(further)}
        return [chain.then(hops[sub_query]) for sub_query in found]

    def _longer(self, chain: Chain) -> list[Chain]:
        """Return the earlier rollouts that go on from a chain, each once."""
        return [made for made in self._made.values() if len(made) > len(chain) and made.extends(chain)]

    async def _judge_by_rollouts(self, child: Chain, path: str, tools: Tools, plan: CoRAGConfig) -> Child:
        """Value a child by the scores of its rollouts; one that can grow no further is its own rollout."""
        target = min(len(child) + plan.rollout_hops, plan.max_hops)
        if child.stopped:
            starts = [child] * (1 if plan.reuse else plan.rollouts)
        else:
            known = self._longer(child) if plan.reuse else []
            known = [replace(made, stopped="") if made.stopped == "budget" else made for made in known]
            starts = (known + [child] * plan.rollouts)[: plan.rollouts]
        with tools.holding(cost_of_scores(child, target - len(child), len(starts), tools, plan)):
            chains = await gather(
                grow(
                    start, target, branch, plan, temperature=plan.temperature, path=f"{path}/rollout {number}"
                )
                for number, (start, branch) in enumerate(
                    zip(starts, tools.branch(len(starts)), strict=True), 1
                )
            )
        rollouts = await self._score(chains, path, tools)
        scores = [rollout.score for rollout in rollouts if rollout.score is not None]
        if not scores:
            return Child(Candidate(child, path), rollouts)
        value = statistics.fmean(scores) if plan.aggregate == "mean" else min(scores)
        return Child(Candidate(child, path, value=value), rollouts)

    async def _score(self, chains: Sequence[Chain], path: str, tools: Tools) -> list[Candidate]:
        """Score the rollouts, equal ones once, and those not at all whose score is known."""
        config = self._config
        if not config.reuse:
            return await gather(
                judge(chain, f"{path}/rollout {number}", branch, config)
                for number, (chain, branch) in enumerate(
                    zip(chains, tools.branch(len(chains)), strict=True), 1
                )
            )
        new: dict[tuple[str, ...], tuple[Chain, str]] = {}
        for number, chain in enumerate(chains, 1):
            if chain.sub_queries not in self._scores:
                new.setdefault(chain.sub_queries, (chain, f"{path}/rollout {number}"))
        judged = await gather(
            judge(chain, place, branch, config)
            for (chain, place), branch in zip(new.values(), tools.branch(len(new)), strict=True)
        )
        scores = self._scores | {each.chain.sub_queries: each.score for each in judged}
        return [
            Candidate(chain, f"{path}/rollout {number}", scores[chain.sub_queries])
            for number, chain in enumerate(chains, 1)
        ]
