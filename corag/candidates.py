"""The chains of an answered question, read from a run's row: what each answered, what its rankers said.

Apart from the options, which are read and written without any run: this knows traces, of older versions too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corag.signals import SIGNALS
from core.runs.rows import SavedRow
from core.text import extract_answer
from core.types import CandidateAnswer


def candidates_of(row: SavedRow, options: Mapping[str, Any]) -> tuple[CandidateAnswer, ...]:
    """Return the chains that were answered from, with their scores: higher is better.

    All of a run that measures or judges final answers; else the chosen one alone, whose answer is the run's.
    A draft is no final answer: passages may change it.

    ``options``: the run's, as its manifest has them. Those of older versions lack some.
    """
    chains, chosen = row.further.get("chains", ()), row.further.get("chosen", 0)
    drafts = options.get("judged") == "draft" and not options.get("measure_candidates")
    said = _answers_by_path(row, options) | {
        chain["path"]: chain["answer"] for chain in chains if chain.get("answer") is not None and not drafts
    }
    if chains:
        said[chains[chosen]["path"]] = row.text
    return tuple(
        CandidateAnswer(said[chain["path"]], chain["path"], _scores_of(chain, options))
        for chain in chains
        if chain["path"] in said
    )


def _answers_by_path(row: SavedRow, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the answers of chains by path, from the steps: votes of older versions have them there only."""
    replies = {
        step["path"]: step["texts"][0]
        for step in row.written
        if step.get("role") == "final" and step["path"] and step.get("texts")
    }
    if options.get("replies") == "as_written":
        return replies
    return {path: extract_answer(text) for path, text in replies.items()}


def _scores_of(chain: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, float]:
    """Return what is said of a chain in the trace, by what it might have been ranked by: higher is better.

    Without votes, which are counted anew among any candidates.
    """
    # A chain without hops has found nothing: in ranking it has no score.
    hops = chain["hops"]
    scores = {"refusals": -float(sum(hop["refused"] for hop in hops))} if hops else {}
    ranked_by = str(options.get("rank_by", "refusal"))
    if chain["score"] is not None and "vote" not in ranked_by.split("+"):
        scores[ranked_by] = -chain["score"]
    for name, value in chain.get("signals", {}).items():
        if value is not None and name not in ("refusals", "vote"):
            # An older version had others, of which more was better.
            scores[name] = SIGNALS[name].score(value) if name in SIGNALS else value
    return scores
