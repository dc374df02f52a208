"""Rankers of candidates in figures: what their choice is worth, and how well their scores are calibrated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.seeds import derive_seed
from eval.statistics.intervals import Comparison, Interval, compare_paired, interval_record
from eval.statistics.ranking import Floats, auc, calibrate, calibration_error, resample, share_of_gain
from eval.tables.candidates import VOTE, CandidateSet, mean_value, sizes_record

OWN_CHOICE = "its own choice"


@dataclass(frozen=True, slots=True)
class RankerFigures:
    """What a ranker does among the candidates of a run.

    Attributes:
        name: of the ranker.
        values_by_size: what its choice is worth, by the number of candidates.
        gain: its choice among all of them minus the base, see :class:`eval.tables.ceiling.Ceiling`.
        p_holm: the gain's p-value, corrected for all of the run's rankers; None where half of the questions
            failed.
        share: of the oracle's gain over the base; None where the oracle gains nothing.
        auc: at telling right from wrong candidates of one question, mean over the questions that have both.
        pooled_auc: the same over all pairs of candidates, of whatever questions.
        calibration: the expected calibration error of its chances.
        chances: how its scores became chances of being right; "" for the run's own choice, which has none.
    """

    name: str
    values_by_size: Mapping[int, Interval]
    gain: Comparison
    p_holm: float | None
    share: Interval | None
    auc: Interval | None = None
    pooled_auc: Interval | None = None
    calibration: Interval | None = None
    chances: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        return {
            "selected": sizes_record(self.values_by_size),
            "gain": gain_record(self.gain)
            | {"p_value_holm": None if self.p_holm is None else round(self.p_holm, 4)},
            **interval_record("share_of_oracle_gain", self.share),
            **interval_record("auc", self.auc),
            **interval_record("pooled_auc", self.pooled_auc),
            **interval_record("calibration_error", self.calibration),
            "chances": self.chances,
        }


def gain_record(gain: Comparison) -> dict[str, Any]:
    """Write a gain as JSON."""
    return interval_record("difference", gain.difference) | {"p_value": round(gain.p_value, 4)}


@dataclass(frozen=True)
class RankerFiguresMaker:
    """Makes the figures of every ranker of a run.

    The candidates lie flat in arrays, so that figures of thousands of resamples take a second.

    Attributes:
        sets: the run's questions with their candidates.
        sizes: the numbers of candidates that figures are given at; the last is all.
        base: by question, what gains are over.
        best: by question, the value of the best candidate.
    """

    sets: Sequence[CandidateSet]
    sizes: Sequence[int]
    base: Mapping[str, float]
    best: Mapping[str, float]

    def run_choice(self) -> RankerFigures:
        """Return the figures of what the run chose itself."""
        values = {each.question: each.final_value for each in self.sets}
        gain, share = self._over_base(values)
        return RankerFigures(
            OWN_CHOICE, {self.sizes[-1]: mean_value(list(values.values()))}, gain, 1.0, share
        )

    def figures(self, ranker: str) -> RankerFigures:
        """Return the figures of a ranker, ``p_holm`` not yet corrected."""
        by_size = {k: [each.at(ranker, k) for each in self.sets] for k in self.sizes}
        questions = [each.question for each in self.sets]
        gain, share = self._over_base(dict(zip(questions, by_size[self.sizes[-1]], strict=True)))
        scores = np.array([score for each in self.sets for score in each.ranker_scores(ranker)])
        chances, how = self._chances(ranker, scores)
        return RankerFigures(
            ranker,
            {k: mean_value(values) for k, values in by_size.items()},
            gain,
            1.0,
            share,
            self._auc_within(ranker),
            self._resample_pooled(lambda weights: auc(scores, self.right, weights)),
            self._resample_pooled(lambda weights: calibration_error(chances, self.right, weights)),
            how,
        )

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Whether each candidate is right, question by question."""
        return np.array([right for each in self.sets for right in each.right])

    @cached_property
    def _question_numbers(self) -> NDArray[np.int64]:
        """The question's number of each candidate."""
        return np.repeat(np.arange(len(self.sets)), [len(each.values) for each in self.sets])

    def _over_base(self, values: Mapping[str, float]) -> tuple[Comparison, Interval | None]:
        results, least, most = (
            np.array([by_question[each.question] for each in self.sets])
            for by_question in (values, self.base, self.best)
        )
        share = resample(len(results), lambda counts: share_of_gain(results, least, most, counts))
        return compare_paired(self.base, values), share

    def _auc_within(self, ranker: str) -> Interval | None:
        by_question = np.array(
            [auc(np.array(each.ranker_scores(ranker)), np.array(each.right)) for each in self.sets]
        )
        has_both = ~np.isnan(by_question)  # the questions that have right and wrong candidates
        values = np.where(has_both, by_question, 0.0)

        def mean(counts: Floats) -> float:
            return float(counts @ values / (counts @ has_both)) if counts @ has_both else math.nan

        return resample(len(values), mean)

    def _resample_pooled(self, figure: Callable[[Floats], float]) -> Interval | None:
        # Questions are resampled, not candidates: those of one question are more alike than others.
        return resample(len(self.sets), lambda counts: figure(counts[self._question_numbers]))

    def _chances(self, ranker: str, scores: Floats) -> tuple[Floats, str]:
        if ranker == VOTE:
            return scores, "its share of the votes"
        # Halves by the question's id, so that the same questions fall into the same half in every run.
        halves = np.array([derive_seed("half", each.question) % 2 == 0 for each in self.sets])
        return calibrate(
            scores, self.right, halves[self._question_numbers]
        ), "isotonic, fitted on the other half"
