"""The ceiling over a run that chose among candidates: what an oracle would have chosen, and what rankers do.

Between the two lies what better choosing could win; between the oracle and 100 what only better candidates
could.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.runs.manifest import Manifest
from corag.core.types import Question
from eval.scoring.scorers import Scorer, choose_scorer, scorer_title
from eval.statistics.intervals import Comparison, Interval, compare_paired, holm, interval_record
from eval.statistics.ranking import pass_at
from eval.tables.candidates import (
    VOTE,
    Metric,
    candidate_set,
    candidates_kind,
    list_candidates,
    mean_value,
    oracle_values,
    require_candidates,
    sizes_record,
    subset_sizes,
)
from eval.tables.rankers import RankerFigures, RankerFiguresMaker, gain_record
from eval.tables.runs import Run, common_questions, gold_note, read_runs, unfinished_note

_BASELINE = "the baseline"


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
    rankers: Sequence[RankerFigures]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        return {
            "folder": str(self.folder),
            "questions": self.questions,
            "candidates": round(self.candidates, 2),
            "base_name": self.base_name,
            **interval_record("base", self.base),
            "oracle": sizes_record(self.oracle),
            "oracle_gain": gain_record(self.oracle_gain),
            "rankers": {each.name: each.to_json() for each in self.rankers},
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


def measure_ceilings(
    folders: Mapping[str, Path], baseline: Path | None = None, metric: Metric = "em", scorer: str = "auto"
) -> Ceilings:
    """Measure the candidates of finished runs, over the questions that all of them have.

    ``baseline``: a further run, such as a greedy one, that gains are over; without, they are over one
    candidate. Raises :class:`ConfigError` for a run that keeps one answer to each question, for runs of
    different question files, and without a common question that has gold answers.
    """
    everything = {**folders, **({} if baseline is None else {_BASELINE: baseline})}
    runs = read_runs(everything)
    start = runs[0].manifest.last
    rule = choose_scorer(start.scorer if scorer == "auto" else scorer, runs[0].manifest.dataset)
    all_questions = common_questions(runs)
    questions = [question for question in all_questions if question.answers]
    if not questions:
        raise ConfigError("no question has gold answers: right and wrong candidates cannot be told apart.")
    common = [run.on(questions) for run in runs]
    chosen_runs = [run for run in common if run.name in folders]
    base_run = None if baseline is None else common[-1]
    for run in chosen_runs:
        require_candidates(run.name, run.rows.values(), run.manifest)
    base = None if base_run is None else _answer_values(base_run, rule, metric)
    base_failed = base_run.failed_ids if base_run is not None else frozenset[str]()
    figures = {
        run.name: _ceiling(
            run, rule, metric, base, is_tested=2 * len(run.failed_ids | base_failed) < len(questions)
        )
        for run in chosen_runs
    }
    notes = [
        unfinished_note(runs, all_questions),
        _unscored_note(all_questions, questions),
        gold_note(runs),
        *_failed_notes(common),
        *_reading_notes(chosen_runs, base_run),
    ]
    title = scorer_title(rule, questions, start.aliases)
    return Ceilings(figures, metric, rule, title, [note for note in notes if note])


def _unscored_note(all_questions: Sequence[Question], questions: Sequence[Question]) -> str:
    """Return how many questions have no gold answers; "" for none."""
    unscored_count = len(all_questions) - len(questions)
    return (
        f"{unscored_count:,} of {len(all_questions):,} questions have no gold answers: left out."
        if unscored_count
        else ""
    )


def _failed_notes(runs: Sequence[Run]) -> list[str]:
    """Return for each run how many of its questions failed; "" for none."""
    return [
        f"{run.name}: {len(run.failed_ids):,} of {len(run.rows):,} questions failed, which counts as wrong: "
        "run the same command again first, which asks them anew."
        if run.failed_ids
        else ""
        for run in runs
    ]


def _answer_values(run: Run, scorer: Scorer, metric: Metric) -> dict[str, float]:
    """Return by question what the run's own answer is worth."""
    return {
        name: candidate_set(row, row.question, (), scorer, metric).final_value
        for name, row in run.rows.items()
    }


def _reading_notes(runs: Sequence[Run], baseline: Run | None) -> list[str]:
    """Return what must be known to read the figures of some runs; "" for what need not be said."""
    unlike = [run.name for run in runs if not _exchangeable(run.manifest)]
    notes = [_unlike_note(unlike, advise_baseline=baseline is None)]
    for run in runs:
        about = candidates_kind(run.manifest).note(run.manifest.options)
        notes.append(f"{run.name}: {about}." if about else "")
    if baseline is not None:
        notes += [_unlike_baseline(run.name, run.manifest, baseline.manifest) for run in runs]
    return notes


def _exchangeable(manifest: Manifest) -> bool:
    return candidates_kind(manifest).exchangeable(manifest.options)


def _unlike_baseline(name: str, manifest: Manifest, base: Manifest) -> str:
    """Return what a gain is of besides the choice."""
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
    """Return of which runs k candidates are no k fresh ones."""
    if not names:
        return ""
    advice = "take best of N for @k" + (", and give a 'baseline' for gains" if advise_baseline else "")
    return (
        f"{', '.join(names)}: some candidates were made because of what others answered or scored, so k of "
        f"them are no k fresh ones, nor is one of them a single chain: {advice}."
    )


def _ceiling(
    run: Run, scorer: Scorer, metric: Metric, baseline: Mapping[str, float] | None, *, is_tested: bool
) -> Ceiling:
    sets = [
        candidate_set(row, row.question, list_candidates(row, run.manifest), scorer, metric)
        for row in run.rows.values()
    ]
    sizes = subset_sizes(sets, exchangeable=_exchangeable(run.manifest))
    base = baseline or {each.question: pass_at(each.values, 1) for each in sets}
    best = {each.question: pass_at(each.values, sizes[-1]) for each in sets}
    maker = RankerFiguresMaker(sets, sizes, base, best)
    names = dict.fromkeys(name for each in sets for name in each.scores)
    rankers = [maker.run_choice(), *(maker.figures(name) for name in (VOTE, *names))]
    p_values: Sequence[float | None] = holm([each.gain.p_value for each in rankers])
    if not is_tested:
        p_values = [None] * len(rankers)
    return Ceiling(
        run.folder,
        len(sets),
        sum(len(each.values) for each in sets) / len(sets),
        sizes,
        mean_value(list(base.values())),
        "one candidate" if baseline is None else _BASELINE,
        oracle_values(sets, sizes),
        compare_paired(base, best),
        [replace(each, p_holm=p) for each, p in zip(rankers, p_values, strict=True)],
    )
