"""The chains of an answered question, read from a run's row: what each answered, what its rankers say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corag.chains.signals import SIGNALS
from corag.core.method import Candidates
from corag.core.runs.rows import SavedRow
from corag.core.types import CandidateAnswer


@dataclass(frozen=True)
class ChainCandidates(Candidates):
    """The chains of a question, each with the answer that it led to and what its rankers say."""

    advice: str = (
        "answer with corag.strategy=best_of_n (or adaptive) and corag.measure=refusal, or corag.rank_by=vote."
    )

    def load(self, row: SavedRow, options: Mapping[str, Any]) -> tuple[CandidateAnswer, ...]:
        """Return the chains that were answered from, with their scores: higher is better.

        All of a run that measures or judges final answers; else the chosen one alone, whose answer is the
        run's. A draft is no final answer: passages may change it.
        """
        chains, best = row.further.get("chains", ()), row.further.get("chosen", 0)
        drafts = options.get("judged") == "draft" and not options.get("measure")
        answers = {
            chain["path"]: chain["answer"] for chain in chains if chain["answer"] is not None and not drafts
        }
        if chains:
            answers[chains[best]["path"]] = row.text
        return tuple(
            CandidateAnswer(answers[chain["path"]], chain["path"], _read_scores(chain, options))
            for chain in chains
            if chain["path"] in answers
        )

    def exchangeable(self, options: Mapping[str, Any]) -> bool:
        """Adaptive compute samples on while its chains disagree; a tree grows by scores."""
        return options.get("strategy") not in ("adaptive", "tree")

    def note(self, options: Mapping[str, Any]) -> str:
        """A greedy chain may be better or worse than a sampled one, and is among any k as often as these."""
        mixes = options.get("strategy") == "best_of_n" and options.get("first_chain_greedy")
        return "one of the candidates is greedy, so @k mixes it with samples" if mixes else ""


def _read_scores(chain: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, float]:
    """Return what the trace has of a chain, by what it might have been ranked by: higher is better.

    Without votes, which are counted anew among any candidates.
    """
    # A chain without hops has found nothing: in ranking it has no score.
    hops = chain["hops"]
    scores = {"refusals": -float(sum(hop["refused"] for hop in hops))} if hops else {}
    ranked_by = str(options.get("rank_by", "refusal"))
    if chain["score"] is not None and "vote" not in ranked_by.split("+"):
        scores[ranked_by] = -chain["score"]
    for name, value in chain["signals"].items():
        if value is not None and name not in ("refusals", "vote"):
            scores[name] = SIGNALS[name].to_score(value)
    return scores
