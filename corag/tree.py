"""Tree search: breadth-first over sub-queries, each state judged by rollouts (paper, section 3.3; released code, ``_search``).

At every depth each kept state gets ``expand`` children; a child is worth the mean (or min) score of ``rollouts`` sampled
continuations of at most ``rollout_hops`` hops; the best ``beam`` states are kept. No child repeats a sub-query of its ancestors.
Unlike the released code, rollouts that extend a kept state become its children, and a chain is scored once; ``reuse: false``
brings that waste back.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from corag.candidates import Candidate, Outcome, cost_of_scores, judge
from corag.chain import Chain, fresh
from corag.config import CoRAGConfig
from corag.growing import grow, sample_sub_queries, stop_or_go_on, take_hop
from core.errors import BudgetExhaustedError
from core.together import together
from core.tools import Tools

OVERSAMPLE = 1.5  # released code: sub-queries sampled per child wanted, since some will be the same


async def tree_search(tools: Tools, config: CoRAGConfig, known: Sequence[Chain] = ()) -> Outcome:
    """Return every state that was judged, by depth and birth, and the best of those kept at the end.

    ``known``: chains made before, which count as rollouts that are there already.
    """
    tree = Tree(config, known)
    beam = [Candidate(Chain(), "tree")]
    judged: list[Candidate] = []
    for depth in range(1, config.max_hops + 1):
        growing = [state for state in beam if not state.chain.stopped]
        share = None if tools.left is None else tools.left // (config.max_hops - depth + 1)
        branches = tools.branch(len(growing), share)
        expanded = await together(tree.expand(state, branch) for state, branch in zip(growing, branches, strict=True))
        children = [child for family in expanded for child in tree.remember(family)]
        if not children:
            break
        judged += children
        ended = [state for state in beam if state.chain.stopped]
        beam = sorted([*ended, *children], key=worth)[: config.beam]  # stable: the earlier of equals
        if all(state.chain.stopped for state in beam):
            break
    why = "budget" if tools.budget else "repeats"  # it could not go on, if nothing else stopped it
    if not judged:
        return Outcome((Candidate(Chain(stopped=why), "tree"),), 0)
    chosen = judged.index(beam[0])
    if not beam[0].chain.stopped:
        judged[chosen] = replace(beam[0], chain=replace(beam[0].chain, stopped=why))
    return Outcome(tuple(judged), chosen)


def worth(state: Candidate) -> float:
    """Return what a state's rollouts scored; the worst there is if none could be afforded."""
    return math.inf if state.value is None else state.value


class Tree:
    """What a search remembers between depths: the rollouts made, and the scores of chains."""

    def __init__(self, config: CoRAGConfig, known: Sequence[Chain]) -> None:
        self._config = config
        self._made = list(known)
        self._scores: dict[tuple[str, ...], float | None] = {}

    async def expand(self, state: Candidate, tools: Tools) -> list[tuple[Candidate, list[Candidate]]]:
        """Return the children of a state with the rollouts that each was judged by. The memory is not changed meanwhile."""
        try:
            ready, sub_queries = await self._next_sub_queries(state, tools)
        except BudgetExhaustedError:
            return []
        count = len(ready) + len(sub_queries)
        branches = tools.branch(count)

        async def one(number: int, tools: Tools) -> tuple[Candidate, list[Candidate]] | None:
            path = f"{state.path}/child {number + 1}"
            try:
                if number < len(ready):
                    child = ready[number]
                else:
                    hop = await take_hop(sub_queries[number - len(ready)], tools, self._config, path=path)
                    child = state.chain.then(hop)
                child = await stop_or_go_on(child, tools, self._config, path=path)
            except BudgetExhaustedError:
                return None
            return await self._judge_by_rollouts(child, path, tools)

        born = await together(one(number, branch) for number, branch in enumerate(branches))
        return [each for each in born if each is not None]

    def remember(self, family: Sequence[tuple[Candidate, list[Candidate]]]) -> list[Candidate]:
        """Keep the rollouts and scores of an expansion for the next depth; return the children."""
        for _, rollouts in family:
            self._made += [rollout.chain for rollout in rollouts]
            self._scores |= {rollout.chain.sub_queries: rollout.score for rollout in rollouts}
        return [child for child, _ in family]

    async def _next_sub_queries(self, state: Candidate, tools: Tools) -> tuple[list[Chain], list[str]]:
        """Return up to ``expand`` continuations: chains one hop longer from earlier rollouts, and new sub-queries to try."""
        config = self._config
        ready = self._one_hop_on(state.chain)[: config.expand]
        wanted = config.expand - len(ready)
        if not wanted:
            return ready, []
        exact = config.repeats == "exact"
        asked = (*state.chain.sub_queries, *(chain.sub_queries[-1] for chain in ready))
        for attempt in range(config.tries):
            path = f"{state.path}/retry {attempt}" if attempt else state.path
            sampled = await sample_sub_queries(
                state.chain, math.ceil(OVERSAMPLE * wanted), tools, config, temperature=config.temperature, path=path
            )
            new = fresh(sampled, asked, exact=exact)[:wanted]
            if new or ready:
                return ready, new
        return [], []

    def _one_hop_on(self, chain: Chain) -> list[Chain]:
        """Return the chains of one more hop that earlier rollouts went through, each once."""
        if not self._config.reuse:
            return []
        further = [made for made in self._made if len(made) > len(chain) and made.extends(chain)]
        found = fresh(
            (made.sub_queries[len(chain)] for made in further), chain.sub_queries, exact=self._config.repeats == "exact"
        )
        hops = {made.sub_queries[len(chain)]: made.hops[len(chain)] for made in reversed(further)}
        return [chain.then(hops[sub_query]) for sub_query in found]

    async def _judge_by_rollouts(self, child: Chain, path: str, tools: Tools) -> tuple[Candidate, list[Candidate]]:
        """Value a child by the scores of its rollouts; one that can grow no further is its own rollout."""
        config = self._config
        target = min(len(child) + config.rollout_hops, config.max_hops)
        if child.stopped:
            starts = [child] * (1 if config.reuse else config.rollouts)
        else:
            known = [made for made in self._made if config.reuse and len(made) > len(child) and made.extends(child)]
            starts = (known + [child] * config.rollouts)[: config.rollouts]
        with tools.holding(cost_of_scores(child, target - len(child), len(starts), tools, config)):
            chains = await together(
                grow(start, target, branch, config, temperature=config.temperature, path=f"{path}/rollout {number}")
                for number, (start, branch) in enumerate(zip(starts, tools.branch(len(starts)), strict=True), 1)
            )
        rollouts = await self._score(chains, path, tools)
        scores = [rollout.score for rollout in rollouts if rollout.score is not None]
        if not scores:
            return Candidate(child, path), rollouts
        value = statistics.fmean(scores) if config.aggregate == "mean" else min(scores)
        return Candidate(child, path, value=value), rollouts

    async def _score(self, chains: Sequence[Chain], path: str, tools: Tools) -> list[Candidate]:
        """Score the rollouts, equal ones once, and those not at all whose score is known."""
        config = self._config
        if not config.reuse:
            return await together(
                judge(chain, f"{path}/rollout {number}", branch, config)
                for number, (chain, branch) in enumerate(zip(chains, tools.branch(len(chains)), strict=True), 1)
            )
        new: dict[tuple[str, ...], tuple[Chain, str]] = {}
        for number, chain in enumerate(chains, 1):
            if chain.sub_queries not in self._scores:
                new.setdefault(chain.sub_queries, (chain, f"{path}/rollout {number}"))
        judged = await together(
            judge(chain, place, branch, config)
            for (chain, place), branch in zip(new.values(), tools.branch(len(new)), strict=True)
        )
        scores = self._scores | {each.chain.sub_queries: each.score for each in judged}
        return [
            Candidate(chain, f"{path}/rollout {number}", scores[chain.sub_queries])
            for number, chain in enumerate(chains, 1)
        ]
