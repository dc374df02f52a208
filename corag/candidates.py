"""What a strategy hands back: the chains it made, with the score that ranks them, and which one is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.prompting import refusal_prompt
from corag.scores import refusal_log_likelihood
from core.errors import BudgetExhaustedError
from core.tools import Tools
from core.types import Passage

TOKENS_PER_HOP = 48  # what a hop adds to a prompt, about: only used to keep room in a budget


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chain and its place in the search.

    ``score``: of this chain; lower is better; None if it was never needed or could not be afforded.
    ``value``: of a state of the tree: what its rollouts, which are longer chains, scored. The two are never
    compared.
    """

    chain: Chain
    path: str
    score: float | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A final answer, the passages that it was given, best first, and whether the budget allowed to ask for
    it.
    """

    text: str
    passages: tuple[Passage, ...]
    affordable: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """All candidates in a fixed order, the index of the chosen one, and its final answer, if known
    already.
    """

    candidates: tuple[Candidate, ...]
    chosen: int
    conclusion: Conclusion | None = None

    @property
    def best(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]


async def judge(chain: Chain, path: str, tools: Tools, config: CoRAGConfig) -> Candidate:
    """Score a chain as ``rank_by`` says; a chain without hops has not found anything, so is worst."""
    if not len(chain):
        return Candidate(chain, path)
    if config.rank_by == "refusals":
        return Candidate(chain, path, float(chain.refusals))
    try:
        return Candidate(chain, path, await refusal_log_likelihood(chain, tools, config, path=path))
    except BudgetExhaustedError:
        return Candidate(chain, path)


def cost_of_scores(chain: Chain, hops: int, scores: int, tools: Tools, config: CoRAGConfig) -> int:
    """Return what scoring ``scores`` chains of ``hops`` more hops will cost, about; 0 without a budget."""
    if tools.left is None or config.rank_by != "refusal":
        return 0
    prompt = refusal_prompt(tools.question.text, chain, config)
    return scores * (tools.cost(prompt, tools.count_tokens(config.refusal) + 1) + hops * TOKENS_PER_HOP)


def pick(candidates: Sequence[Candidate]) -> Outcome:
    """Choose the candidate of the lowest score; the first of equals, and of unscored ones the longest."""
    ranks = [
        (1, -len(candidate.chain)) if candidate.score is None else (0, candidate.score)
        for candidate in candidates
    ]
    return Outcome(tuple(candidates), ranks.index(min(ranks)))
