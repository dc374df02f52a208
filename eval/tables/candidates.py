"""The candidates of a run: the answers among which its method chose, each with what it is worth.

Nothing here knows a method: each brings how its candidates are read (``Method.candidates``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corag.core.errors import ConfigError
from corag.core.language.text import ballot
from corag.core.method import Candidates
from corag.core.runs.manifest import Manifest
from corag.core.runs.rows import SavedRow
from corag.core.types import CandidateAnswer, Question
from eval.experiment.registry import METHODS
from eval.scoring.scorers import Scorer
from eval.statistics.intervals import Interval, bootstrap_mean, interval_record
from eval.statistics.ranking import selection_value, vote_shares, vote_value

VOTE = "vote"
Metric = Literal["em", "f1"]


@dataclass(frozen=True)
class CandidateSet:
    """One question with its candidates.

    Attributes:
        question: its id.
        values: of each candidate, EM or F1.
        right: whether each is right by EM.
        spellings: their answers as votes compare them.
        scores: of each ranker in the trace, NaN for a candidate that it did not score.
        final_value: the value of the run's answer.
    """

    question: str
    values: Sequence[float]
    right: Sequence[bool]
    spellings: Sequence[str]
    scores: Mapping[str, Sequence[float]]
    final_value: float

    def at(self, ranker: str, k: int) -> float:
        """Return what the ranker's choice among k of the candidates is worth on average."""
        if ranker == VOTE:
            return vote_value(self.spellings, self.values, k)
        return selection_value(self.ranker_scores(ranker), self.values, k)

    def ranker_scores(self, ranker: str) -> Sequence[float]:
        """Return a ranker's scores of the candidates; of the vote the share of them with the same answer."""
        if ranker == VOTE:
            return vote_shares(self.spellings)
        return self.scores.get(ranker, [math.nan] * len(self.values))


def candidates_kind(manifest: Manifest) -> Candidates:
    """Return how a run's method keeps its candidates; of a user's own, which need not be there, as usual."""
    method = METHODS.get(manifest.method)
    return method.candidates if method else Candidates()


def list_candidates(row: SavedRow, manifest: Manifest) -> tuple[CandidateAnswer, ...]:
    """Return the candidates of a row, as the method of its run reads them."""
    return candidates_kind(manifest).load(row, manifest.options)


def require_candidates(name: str, rows: Iterable[SavedRow], manifest: Manifest) -> None:
    """Raise :class:`ConfigError` if no row has more than one candidate."""
    if any(len(list_candidates(row, manifest)) > 1 for row in rows):
        return
    advice = candidates_kind(manifest).advice or "this method does not choose among answers."
    raise ConfigError(f"the run '{name}' keeps no more than one answer to a question: {advice}")


def candidate_set(
    row: SavedRow, question: Question, answers: Sequence[CandidateAnswer], scorer: Scorer, metric: Metric
) -> CandidateSet:
    """Return a question with its candidates; without any, the run's own answer is the only one.

    ``question``: the row's, with the gold answers that count.
    """
    candidates = answers or (CandidateAnswer(row.text),)
    gold, is_failure = question.answers, row.answer is None
    items = [scorer.score(each.text, gold) for each in candidates]
    names = dict.fromkeys(name for each in candidates for name in each.scores)
    final_score = scorer.score(row.text, gold)
    return CandidateSet(
        question.id,
        # A failed question has no answer, so none that is right, though "" be a gold answer.
        [0.0 if is_failure else getattr(item, metric) for item in items],
        [not is_failure and item.em == 1 for item in items],
        [ballot(each.text) for each in candidates],
        {name: [each.scores.get(name, math.nan) for each in candidates] for name in names},
        0.0 if is_failure else getattr(final_score, metric),
    )


def subset_sizes(sets: Sequence[CandidateSet], *, exchangeable: bool) -> list[int]:
    """Return the powers of two below the most candidates that a question has, and that number.

    That number alone unless they are ``exchangeable``: k of those that were sampled until they agreed are no
    k fresh ones.
    """
    most = max(len(each.values) for each in sets)
    if not exchangeable:
        return [most]
    return [2**power for power in range(most.bit_length()) if 2**power < most] + [most]


def mean_value(values: Sequence[float]) -> Interval:
    """Return the mean of what choices are worth, at least one."""
    # Sums of exact ways carry rounding errors: what is 0 or 1 but for these is meant to be.
    mean = bootstrap_mean([min(1.0, max(0.0, round(value, 12))) for value in values])
    assert mean is not None  # there is a question
    return mean


def sizes_record(values: Mapping[int, Interval]) -> dict[str, Any]:
    """Write intervals by the number of candidates as JSON."""
    return {str(k): interval_record("mean", interval) for k, interval in values.items()}
