"""The ceiling over a run that chose among candidates: what an oracle would have chosen, and what rankers do.

Between the two lies what better choosing could win; between the oracle and 100 what only better candidates
could. Nothing here knows a method: it says itself what its candidates are (``MethodConfig.candidates``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from core.errors import ConfigError
from core.method import MethodConfig
from core.runs.folder import read_rows
from core.runs.manifest import Manifest
from core.runs.rows import SavedRow
from core.seeds import derive_seed
from core.text import normalize_answer
from core.types import CandidateAnswer, Question
from eval.experiment.registry import METHODS
from eval.scoring.scorers import Scorer, scorer_title
from eval.statistics.intervals import (
    Comparison,
    Interval,
    bootstrap_mean,
    compare_paired,
    holm,
    interval_record,
)
from eval.statistics.ranking import (
    Floats,
    auc,
    calibrated,
    calibration_error,
    pass_at,
    resampled,
    selected_at,
    share_of_gain,
    vote_shares,
    voted_at,
)
from eval.tables.runs import (
    check_same_file,
    common_questions,
    gold_note,
    manifest_of_answers,
    rows_of,
    scoring_of,
    unfinished_note,
)

VOTE = "vote"
CHOSEN = "its own choice"
Metric = Literal["em", "f1"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True)
class CandidateSet:
    """One question with its candidates.

    Attributes:
        question: its id.
        values: of each candidate, EM or F1.
        right: whether each is right by EM.
        spelled: their answers as votes compare them.
        scores: of each ranker that the trace tells, NaN where it says nothing.
        own: the value of the run's answer.
    """

    question: str
    values: Sequence[float]
    right: Sequence[bool]
    spelled: Sequence[str]
    scores: Mapping[str, Sequence[float]]
    own: float

    def at(self, ranker: str, k: int) -> float:
        """Return what the ranker's choice among k of the candidates is worth on average."""
        if ranker == VOTE:
            return voted_at(self.spelled, self.values, k)
        return selected_at(self.scores_of(ranker), self.values, k)

    def scores_of(self, ranker: str) -> Sequence[float]:
        """Return a ranker's scores of the candidates; of the vote the share of them that say the same."""
        if ranker == VOTE:
            return vote_shares(self.spelled)
        return self.scores.get(ranker, [math.nan] * len(self.values))


@dataclass(frozen=True, slots=True)
class Ranked:
    """What a ranker does among the candidates of a run.

    Attributes:
        name: of the ranker.
        selected: what its choice is worth, by the number of candidates.
        gain: its choice among all of them minus the base, see :class:`Ceiling`.
        p_holm: the gain's p-value, corrected for all of the run's rankers.
        share: of the oracle's gain over the base; None where the oracle gains nothing.
        auc: at telling right from wrong candidates of one question, mean over the questions that have both.
        pooled_auc: the same over all pairs of candidates, of whatever questions.
        calibration: the expected calibration error of its chances.
        chances: how its scores became chances of being right.
    """

    name: str
    selected: Mapping[int, Interval]
    gain: Comparison
    p_holm: float
    share: Interval | None
    auc: Interval | None = None
    pooled_auc: Interval | None = None
    calibration: Interval | None = None
    chances: str = ""


@dataclass(frozen=True)
class Ceiling:
    """A run's candidates in figures.

    Attributes:
        folder: the run's.
        questions: how many.
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
    candidates: float
    sizes: Sequence[int]
    base: Interval
    base_name: str
    oracle: Mapping[int, Interval]
    oracle_gain: Comparison
    rankers: Sequence[Ranked]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        return {
            "folder": str(self.folder),
            "questions": self.questions,
            "candidates": round(self.candidates, 2),
            "base_name": self.base_name,
            **interval_record("base", self.base),
            "oracle": sizes_record(self.oracle),
            "oracle_gain": _gain_record(self.oracle_gain),
            "rankers": {each.name: _ranked_record(each) for each in self.rankers},
        }


@dataclass(frozen=True)
class Ceilings:
    """Runs with candidates on the same questions.

    ``runs``: by name; ``scoring``: what to call the scorer in a sentence; ``notes``: which questions are left
    out, and whose gold answers count.
    """

    runs: Mapping[str, Ceiling]
    metric: Metric
    scorer: Scorer
    scoring: str
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return all figures as a JSON object."""
        runs = {name: each.to_json() for name, each in self.runs.items()}
        return {
            "runs": runs,
            "metric": self.metric,
            "scorer": self.scorer.name,
            "notes": list(self.notes),
        }


def ceilings_of(
    runs: Mapping[str, Path], baseline: Path | None = None, metric: Metric = "em", scorer: str = "auto"
) -> Ceilings:
    """Weigh the candidates of finished runs, over the questions that all of them have.

    ``baseline``: a further run, such as a greedy one, that gains are over; without, they are over one
    candidate. Raises :class:`ConfigError` for a run that keeps one answer to each question, for runs of
    different question files, and without a common question that has gold answers.
    """
    everything = {**runs, **({} if baseline is None else {_BASELINE: baseline})}
    manifests = {name: manifest_of_answers(folder) for name, folder in everything.items()}
    check_same_file(list(manifests.values()))
    chosen, _ = scoring_of(next(iter(manifests.values())), scorer, 0)
    found = {name: read_rows(folder) for name, folder in everything.items()}
    asked = [question for question in common_questions(found) if question.answers]
    if not asked:
        raise ConfigError("no question has gold answers: right and wrong candidates cannot be told apart.")
    rows = rows_of(found, asked)
    base = None if baseline is None else _own_values(rows[_BASELINE], asked, chosen, metric)
    for name in runs:
        require_candidates(name, rows[name].values(), manifests[name])
    figures = {
        name: _ceiling(
            folder,
            manifests[name],
            choices_of(rows[name].values(), asked, manifests[name], chosen, metric),
            base,
        )
        for name, folder in runs.items()
    }
    unlike = [name for name in runs if not _exchangeable(manifests[name])]
    note = _unlike_note(unlike, advise_baseline=baseline is None)
    notes = [unfinished_note(found, asked), gold_note(rows, manifests), note]
    notes += [_about(name, manifests[name]) for name in runs]
    if baseline is not None:
        notes += [_unlike_baseline(name, manifests[name], manifests[_BASELINE]) for name in runs]
    title = scorer_title(chosen, asked, next(iter(manifests.values())).last.aliases)
    return Ceilings(figures, metric, chosen, title, [note for note in notes if note])


_BASELINE = "the baseline"


def _exchangeable(manifest: Manifest) -> bool:
    return method_of(manifest).exchangeable_candidates(manifest.options)


def _about(name: str, manifest: Manifest) -> str:
    said = method_of(manifest).about_candidates(manifest.options)
    return f"{name}: {said}." if said else ""


def _unlike_baseline(name: str, manifest: Manifest, base: Manifest) -> str:
    """Say what a gain is of besides the choice."""
    pairs = {
        "the method": (manifest.method, base.method),
        "the model": (manifest.model, base.model),
        "the index": (manifest.retriever, base.retriever),
    }
    other = [what for what, (here, there) in pairs.items() if here != there]
    if not other:
        return ""
    return (
        f"{name}: the baseline differs in more than the choice, in {' and '.join(other)}: a gain over it is "
        "not of choosing alone."
    )


def _unlike_note(names: Sequence[str], *, advise_baseline: bool) -> str:
    if not names:
        return ""
    advice = "take best of N for @k" + (", and give a --baseline for gains" if advise_baseline else "")
    return (
        f"{', '.join(names)}: some candidates were made because of what others answered or scored, so k of "
        f"them are no k fresh ones, nor is one of them a single chain: {advice}."
    )


def candidates_in(row: SavedRow, manifest: Manifest) -> tuple[CandidateAnswer, ...]:
    """Return the candidates of a row, as the method of its run tells."""
    return method_of(manifest).candidates(row, manifest.options)


def method_of(manifest: Manifest) -> type[MethodConfig]:
    """Return the options' class of a run's method; of a user's own, what all have in common."""
    entry = METHODS.get(manifest.method)
    return entry.config if entry else MethodConfig


def require_candidates(name: str, rows: Iterable[SavedRow], manifest: Manifest) -> None:
    """Raise :class:`ConfigError` if no row has more than one candidate."""
    if any(len(candidates_in(row, manifest)) > 1 for row in rows):
        return
    advice = method_of(manifest).KEEPS_CANDIDATES or "this method does not choose among answers."
    raise ConfigError(f"the run '{name}' keeps no more than one answer to a question: {advice}")


def choices_of(
    rows: Iterable[SavedRow], asked: Sequence[Question], manifest: Manifest, scorer: Scorer, metric: Metric
) -> list[CandidateSet]:
    """Return the questions with their candidates. ``asked``: the rows' questions, with the gold answers."""
    return [
        choice_of(row, question, candidates_in(row, manifest), scorer, metric)
        for row, question in zip(rows, asked, strict=True)
    ]


def choice_of(
    row: SavedRow, question: Question, found: Sequence[CandidateAnswer], scorer: Scorer, metric: Metric
) -> CandidateSet:
    """Return a question with its candidates; without any, the run's own answer is the only one."""
    candidates = found or (CandidateAnswer(row.text),)
    gold, failed = question.answers, row.answer is None
    items = [scorer.score(each.text, gold) for each in candidates]
    names = dict.fromkeys(name for each in candidates for name in each.scores)
    own = scorer.score(row.text, gold)
    return CandidateSet(
        question.id,
        [0.0 if failed else getattr(item, metric) for item in items],
        [not failed and item.em == 1 for item in items],
        [normalize_answer(each.text) for each in candidates],
        {name: [each.scores.get(name, math.nan) for each in candidates] for name in names},
        0.0 if failed else getattr(own, metric),
    )


def _own_values(
    rows: Mapping[str, SavedRow], asked: Sequence[Question], scorer: Scorer, metric: Metric
) -> dict[str, float]:
    return {each.id: choice_of(rows[each.id], each, (), scorer, metric).own for each in asked}


def oracle_of(choices: Sequence[CandidateSet], sizes: Sequence[int]) -> dict[int, Interval]:
    """Return what the best of k candidates is worth, by k. ``sizes``: those that :func:`sizes_of` returns."""
    return {k: _mean([pass_at(each.values, k) for each in choices]) for k in sizes}


def sizes_of(choices: Sequence[CandidateSet], *, exchangeable: bool) -> list[int]:
    """Return the powers of two below the most candidates that a question has, and that number.

    That number alone unless they are ``exchangeable``: k of those that were sampled until they agreed are no
    k fresh ones.
    """
    most = max(len(each.values) for each in choices)
    if not exchangeable:
        return [most]
    return [2**power for power in range(most.bit_length()) if 2**power < most] + [most]


def sizes_record(values: Mapping[int, Interval]) -> dict[str, Any]:
    """Write intervals by the number of candidates as JSON."""
    return {str(k): interval_record("mean", interval) for k, interval in values.items()}


def _mean(values: Sequence[float]) -> Interval:
    # Sums of exact ways carry rounding errors: what is 0 or 1 but for these is meant to be.
    found = bootstrap_mean([min(1.0, max(0.0, round(value, 12))) for value in values])
    assert found is not None  # there is a question
    return found


def _ceiling(
    folder: Path,
    manifest: Manifest,
    choices: Sequence[CandidateSet],
    baseline: Mapping[str, float] | None,
) -> Ceiling:
    sizes = sizes_of(choices, exchangeable=_exchangeable(manifest))
    base = baseline or {each.question: pass_at(each.values, 1) for each in choices}
    best = {each.question: pass_at(each.values, sizes[-1]) for each in choices}
    ranking = _Ranking(choices, sizes, base, best, method_of(manifest).LOG_ODDS)
    names = dict.fromkeys(name for each in choices for name in each.scores)
    rankers = [ranking.own(), *(ranking.of(name) for name in (VOTE, *names))]
    adjusted = holm([each.gain.p_value for each in rankers])
    return Ceiling(
        folder,
        len(choices),
        sum(len(each.values) for each in choices) / len(choices),
        sizes,
        _mean(list(base.values())),
        "one candidate" if baseline is None else _BASELINE,
        oracle_of(choices, sizes),
        compare_paired(base, best),
        [replace(each, p_holm=p) for each, p in zip(rankers, adjusted, strict=True)],
    )


@dataclass(frozen=True)
class _Ranking:
    """The candidates of a run, flat, so that figures of thousands of resamples take a second."""

    choices: Sequence[CandidateSet]
    sizes: Sequence[int]
    base: Mapping[str, float]
    best: Mapping[str, float]
    log_odds: Sequence[str]

    def own(self) -> Ranked:
        """Weigh what the run chose itself."""
        values = {each.question: each.own for each in self.choices}
        gain, share = self._over_base(values)
        return Ranked(CHOSEN, {self.sizes[-1]: _mean(list(values.values()))}, gain, 1.0, share)

    def of(self, name: str) -> Ranked:
        """Weigh a ranker."""
        by_size = {k: [each.at(name, k) for each in self.choices] for k in self.sizes}
        questions = [each.question for each in self.choices]
        gain, share = self._over_base(dict(zip(questions, by_size[self.sizes[-1]], strict=True)))
        scores = np.array([score for each in self.choices for score in each.scores_of(name)])
        chances, how = self._chances(name, scores)
        return Ranked(
            name,
            {k: _mean(values) for k, values in by_size.items()},
            gain,
            1.0,
            share,
            self._within(name),
            self._pooled(lambda weights: auc(scores, self.right, weights)),
            self._pooled(lambda weights: calibration_error(chances, self.right, weights)),
            how,
        )

    @cached_property
    def right(self) -> np.ndarray:
        """Whether each candidate is right, question by question."""
        return np.array([right for each in self.choices for right in each.right])

    @cached_property
    def _places(self) -> np.ndarray:
        """The question's number of each candidate."""
        return np.repeat(np.arange(len(self.choices)), [len(each.values) for each in self.choices])

    def _over_base(self, values: Mapping[str, float]) -> tuple[Comparison, Interval | None]:
        reached, least, most = (
            np.array([found[each.question] for each in self.choices])
            for found in (values, self.base, self.best)
        )
        share = resampled(len(reached), lambda counts: share_of_gain(reached, least, most, counts))
        return compare_paired(self.base, values), share

    def _within(self, name: str) -> Interval | None:
        by_question = np.array(
            [auc(np.array(each.scores_of(name)), np.array(each.right)) for each in self.choices]
        )
        mixed = ~np.isnan(by_question)
        told = np.where(mixed, by_question, 0.0)

        def mean(counts: Floats) -> float:
            return float(counts @ told / (counts @ mixed)) if counts @ mixed else math.nan

        return resampled(len(told), mean)

    def _pooled(self, figure: Any) -> Interval | None:
        # Questions are resampled, not candidates: those of one question are more alike than others.
        return resampled(len(self.choices), lambda counts: figure(counts[self._places]))

    def _chances(self, name: str, scores: Floats) -> tuple[Floats, str]:
        if name == VOTE:
            return scores, "its share of the votes"
        if name in self.log_odds:
            return 1 / (1 + np.exp(-np.nan_to_num(scores, nan=-np.inf))), "by its log odds"
        halves = np.array([derive_seed("half", each.question) % 2 == 0 for each in self.choices])
        return calibrated(scores, self.right, halves[self._places]), "isotonic, fitted on the other half"


def _gain_record(gain: Comparison) -> dict[str, Any]:
    return interval_record("difference", gain.difference) | {"p_value": round(gain.p_value, 4)}


def _ranked_record(each: Ranked) -> dict[str, Any]:
    return {
        "selected": sizes_record(each.selected),
        "gain": _gain_record(each.gain) | {"p_value_holm": round(each.p_holm, 4)},
        **interval_record("share_of_oracle_gain", each.share),
        **interval_record("auc", each.auc),
        **interval_record("pooled_auc", each.pooled_auc),
        **interval_record("calibration_error", each.calibration),
        "chances": each.chances,
    }
