"""The ceiling over a run that chose among candidates: what an oracle would have chosen, and what rankers do.

Between the two lies what better choosing could win; between the oracle and 100 what only better candidates
could.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from corag.core.errors import ConfigError
from corag.core.runs.manifest import Manifest
from eval.scoring.scorers import Scorer
from eval.statistics.intervals import Comparison, Interval, compare_paired, holm, interval_record
from eval.statistics.ranking import Floats, auc, pass_at, resample, share_of_gain
from eval.tables.candidates import (
    VOTE,
    CandidateSet,
    Metric,
    candidate_set,
    candidates_kind,
    list_candidates,
    mean_value,
    require_candidates,
    sizes_record,
    subset_sizes,
)
from eval.tables.cautions import confounding_note
from eval.tables.runs import Run, common_questions, read_runs, score_runs

OWN_CHOICE = "its own choice"
_BASELINE = "the baseline"


@dataclass(frozen=True, slots=True)
class RankerFigures:
    """What a ranker does among the candidates of a run.

    Attributes:
        name: of the ranker.
        values_by_size: what its choice is worth, by the number of candidates.
        gain: its choice among all of them minus the base, see :class:`Ceiling`.
        share: of the oracle's gain over the base; None where the oracle gains nothing.
        auc: how often a right candidate of a question has a higher score than a wrong one, mean over the
            questions that have both; None for the run's own choice, which has no scores.
        p_holm: the gain's p-value, corrected for all of the run's rankers; None where half of the questions
            failed.
    """

    name: str
    values_by_size: Mapping[int, Interval]
    gain: Comparison
    share: Interval | None
    auc: Interval | None = None
    p_holm: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        return {
            "selected": sizes_record(self.values_by_size),
            "gain": _gain_record(self.gain)
            | {"p_value_holm": None if self.p_holm is None else round(self.p_holm, 4)},
            **interval_record("share_of_oracle_gain", self.share),
            **interval_record("auc", self.auc),
        }


def _gain_record(gain: Comparison) -> dict[str, Any]:
    return interval_record("difference", gain.difference) | {"p_value": round(gain.p_value, 4)}


@dataclass(frozen=True)
class Ceiling:
    """A run's candidates in figures.

    Attributes:
        folder: the run's.
        questions: how many.
        failure_count: how many of them failed, which counts as wrong.
        candidates: of a question, on average.
        sizes: the numbers of candidates that figures are given at; the last is all.
        base: what gains are over: the baseline's values, or else those of one candidate on average.
        base_name: what to call it.
        oracle: what the best candidate is worth, by their number: pass@k where values are EM.
        oracle_gain: the best of all minus the base.
        rankers: the run's own choice first.
    """

    folder: Path
    questions: int
    failure_count: int
    candidates: float
    sizes: Sequence[int]
    base: Interval
    base_name: str
    oracle: Mapping[int, Interval]
    oracle_gain: Comparison
    rankers: Sequence[RankerFigures]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        return {
            "folder": str(self.folder),
            "questions": self.questions,
            "failed": self.failure_count,
            "candidates": round(self.candidates, 2),
            "base_name": self.base_name,
            **interval_record("base", self.base),
            "oracle": sizes_record(self.oracle),
            "oracle_gain": _gain_record(self.oracle_gain),
            "rankers": {each.name: each.to_json() for each in self.rankers},
        }


@dataclass(frozen=True)
class Ceilings:
    """Runs with candidates on the same questions.

    ``runs``: by name; ``scoring``: what to call the scorer in a sentence; ``notes``: what must be known
    beside the figures.
    """

    runs: Mapping[str, Ceiling]
    metric: Metric
    scorer: Scorer
    scoring: str
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return all figures as a JSON object."""
        return {
            "runs": {name: each.to_json() for name, each in self.runs.items()},
            "metric": self.metric,
            "scorer": self.scorer.name,
            "notes": list(self.notes),
        }


def measure_ceilings(
    folders: Mapping[str, Path], baseline: Path | None = None, metric: Metric = "em", scorer: str = "auto"
) -> Ceilings:
    """Measure the candidates of finished runs, over the questions that all of them have.

    ``baseline``: a further run, such as a greedy one, that gains are over; without, they are over one
    candidate. Raises :class:`ConfigError` for a run that keeps one answer to each question, for runs of
    different question files, and without a common question that has gold answers.
    """
    every_folder = {**folders, **({} if baseline is None else {_BASELINE: baseline})}
    scored_runs = score_runs(read_runs(every_folder), scorer)
    questions = [question for question in common_questions(scored_runs.runs) if question.answers]
    if not questions:
        raise ConfigError("no question has gold answers: right and wrong candidates cannot be told apart.")
    runs = {run.name: run.on(questions) for run in scored_runs.runs}
    base_run = runs.pop(_BASELINE, None)
    base, base_failed = None, frozenset[str]()
    if base_run:
        values = scored_runs.measures[_BASELINE][metric]
        base, base_failed = {each.id: values[each.id] for each in questions}, base_run.failed_ids
    for run in runs.values():
        require_candidates(run.name, run.rows.values(), run.manifest)
    figures = {
        name: _ceiling(
            run,
            scored_runs.scorer,
            metric,
            base,
            is_tested=2 * len(run.failed_ids | base_failed) < len(questions),
        )
        for name, run in runs.items()
    }
    manifests = {run.name: run.manifest for run in scored_runs.runs}
    notes = [
        *scored_runs.notes,
        confounding_note(manifests) if base_run else "",
        *map(_kind_note, runs.values()),
    ]
    return Ceilings(
        figures, metric, scored_runs.scorer, scored_runs.scoring, [note for note in notes if note]
    )


def _is_exchangeable(manifest: Manifest) -> bool:
    return candidates_kind(manifest).exchangeable(manifest.options)


def _kind_note(run: Run) -> str:
    """Return what must be known to read the figures of a run, "" for nothing."""
    if not _is_exchangeable(run.manifest):
        return (
            f"{run.name}: some candidates were made because of what others answered or scored, so k of them "
            "are no k fresh ones, nor is one of them a single chain: take best of N for @k, and a 'baseline' "
            "for gains."
        )
    about = candidates_kind(run.manifest).note(run.manifest.options)
    return f"{run.name}: {about}." if about else ""


def _ceiling(
    run: Run, scorer: Scorer, metric: Metric, baseline: Mapping[str, float] | None, *, is_tested: bool
) -> Ceiling:
    sets = [
        candidate_set(row, row.question, list_candidates(row, run.manifest), scorer, metric)
        for row in run.rows.values()
    ]
    sizes = subset_sizes(sets, exchangeable=_is_exchangeable(run.manifest))
    base = baseline or {each.question: pass_at(each.values, 1) for each in sets}
    best = {each.question: pass_at(each.values, sizes[-1]) for each in sets}
    names = dict.fromkeys(name for each in sets for name in each.scores)
    rankers = [_rank(name, sets, sizes, base, best) for name in (OWN_CHOICE, VOTE, *names)]
    p_values = holm([each.gain.p_value for each in rankers])
    return Ceiling(
        run.folder,
        len(sets),
        len(run.failed_ids),
        sum(len(each.values) for each in sets) / len(sets),
        sizes,
        mean_value(list(base.values())),
        "one candidate" if baseline is None else _BASELINE,
        {k: mean_value([pass_at(each.values, k) for each in sets]) for k in sizes},
        compare_paired(base, best),
        [replace(each, p_holm=p if is_tested else None) for each, p in zip(rankers, p_values, strict=True)],
    )


def _rank(
    name: str,
    sets: Sequence[CandidateSet],
    sizes: Sequence[int],
    base: Mapping[str, float],
    best: Mapping[str, float],
) -> RankerFigures:
    """Return the figures of a ranker, or of what the run chose itself. ``base``, ``best``: by question."""
    is_own = name == OWN_CHOICE
    by_size = {
        k: [each.final_value if is_own else each.at(name, k) for each in sets]
        for k in (sizes[-1:] if is_own else sizes)
    }
    values = dict(zip((each.question for each in sets), by_size[sizes[-1]], strict=True))
    results, least, most = (
        np.array([by_question[each.question] for each in sets]) for by_question in (values, base, best)
    )
    return RankerFigures(
        name,
        {k: mean_value(each) for k, each in by_size.items()},
        compare_paired(base, values),
        resample(len(sets), lambda counts: share_of_gain(results, least, most, counts)),
        None if is_own else _auc_within(name, sets),
    )


def _auc_within(ranker: str, sets: Sequence[CandidateSet]) -> Interval | None:
    by_question = np.array([auc(np.array(each.ranker_scores(ranker)), np.array(each.right)) for each in sets])
    has_both = ~np.isnan(by_question)  # the questions that have right and wrong candidates
    values = np.where(has_both, by_question, 0.0)

    def mean(counts: Floats) -> float:
        return float(counts @ values / (counts @ has_both)) if counts @ has_both else math.nan

    return resample(len(sets), mean)
