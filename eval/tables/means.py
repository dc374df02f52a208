"""Means over runs that differ in nothing but their seed, or their demonstrations."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from corag.core.errors import ConfigError
from corag.core.runs.stamp import differences
from eval.scoring.rows import Measures
from eval.statistics.intervals import Spread, bootstrap_runs, spread
from eval.tables.columns import Summary
from eval.tables.runs import Run

Over = Literal["", "seeds", "demonstrations"]
Means = Mapping[str, Mapping[str, Spread]]
"""Means by the first run of a group and by measure; tokens per question are among the measures."""

# Where a manifest's settings say what may differ between the runs of one mean. Methods name their
# demonstrations in these three ways.
_VARYING_SETTINGS: dict[str, tuple[tuple[str, ...], ...]] = {
    "seeds": (("seed",),),
    "demonstrations": (
        ("demonstrations",),
        ("options", "demonstrations"),
        ("options", "reader_demonstrations"),
        ("options", "demonstration_ids"),
    ),
}


def group_runs(settings: Mapping[str, Mapping[str, Any]], over: Over) -> dict[str, list[str]]:
    """Return the runs that differ in nothing but ``over``, by the name of the first; {} for "".

    Raises :class:`ConfigError` if there are no two such runs, naming what else the first two differ in.
    """
    if not over:
        return {}
    other_settings = {name: _without(setting, _VARYING_SETTINGS[over]) for name, setting in settings.items()}
    groups: dict[str, list[str]] = {}
    for name, setting in other_settings.items():
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(name)
    if len(groups) == len(settings):
        first, *others = other_settings.values()
        also = f" The first two also differ in {'; '.join(differences(first, others[0]))}." if others else ""
        raise ConfigError(
            f"no two of the runs differ in nothing but their {over}: there is nothing to take a mean "
            f"over.{also}"
        )
    return {members[0]: members for members in groups.values()}


def find_repeats(settings: Mapping[str, Mapping[str, Any]]) -> Over:
    """Return "seeds" if some of the runs differ in nothing else, else ""."""
    with suppress(ConfigError):
        return "seeds" if group_runs(settings, "seeds") else ""
    return ""


def _without(settings: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    remaining = copy.deepcopy(dict(settings))
    for *sections, last in paths:
        section_settings = remaining
        for section in sections:
            section_settings = section_settings.get(section, {})
        section_settings.pop(last, None)
    return remaining


def mean_over_runs(summaries: Sequence[Summary], measures: Sequence[Measures]) -> dict[str, Spread]:
    """Return mean and deviation over runs of each measure and of the tokens per question.

    ``measures``: their scores, of which the intervals are made.
    """
    values: dict[str, list[float]] = {}
    for summary in summaries:
        for name, interval in summary.measures.items():
            if interval is not None:
                values.setdefault(name, []).append(interval.mean)
        values.setdefault("tokens", []).append(summary.tokens)
    means = {name: spread(each) for name, each in values.items()}
    for name, value in means.items():
        scores = [each[name] for each in measures if each.get(name)]
        if value.n > 1 and scores and (interval := bootstrap_runs(scores)):
            means[name] = replace(value, low=interval.low, high=interval.high)
    return means


def mean_of_scores(runs: Sequence[Measures]) -> Measures:
    """Return each question's mean over runs, in the measures and questions that all of them have."""
    first, *others = runs
    return {
        measure: {
            question: math.fsum(run[measure][question] for run in runs) / len(runs)
            for question in scores
            if all(question in other[measure] for other in others)
        }
        for measure, scores in first.items()
        if all(measure in other for other in others)
    }


def differing_note(runs: Sequence[Run]) -> str:
    """Return how many questions some runs, called by the first, did not all answer alike; "" for one run."""
    shared = set.intersection(*({*run.rows} for run in runs))
    answers = [
        {row.answer.text if row.answer else None for row in (run.rows[each] for run in runs)}
        for each in shared
    ]
    differing = sum(len(each) > 1 for each in answers)
    questions = f"{differing:,} of {len(answers):,} questions"
    return f"{runs[0].name}: its {len(runs)} runs answer {questions} differently." if len(runs) > 1 else ""


def means_record(means: Means) -> dict[str, Any]:
    """Write means as JSON: fractions, and tokens per question."""
    return {
        name: {
            measure: {
                "mean": round(value.mean, 4),
                "deviation": None if value.deviation is None else round(value.deviation, 4),
                "interval": None if value.low is None else [round(value.low, 4), round(value.high or 0.0, 4)],
                "runs": value.n,
            }
            for measure, value in mean.items()
        }
        for name, mean in means.items()
    }
