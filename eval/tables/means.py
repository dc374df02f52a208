"""Means over runs that differ in nothing but their seed, or their demonstrations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from corag.core.errors import ConfigError
from corag.core.runs.provenance import Provenance
from eval.scoring.rows import Measures
from eval.statistics.intervals import Spread, bootstrap_runs, spread
from eval.tables.columns import Summary
from eval.tables.runs import Run

Over = Literal["", "seeds", "demonstrations"]
Means = Mapping[str, Mapping[str, Spread]]
"""Means by the first run of a group and by measure; tokens per question are among the measures."""

_SEED = re.compile(r"[ ,]*\bseed=\d+")
# What may differ between the runs of one mean. Methods name their demonstrations in these three ways.
_VARYING_SETTINGS: Mapping[Over, Sequence[str]] = {
    "": (),
    "seeds": ("seed",),
    "demonstrations": ("demonstrations", "reader_demonstrations", "demonstration_ids"),
}


def find_points(settings: Mapping[str, Mapping[str, Any]], over: Over = "seeds") -> dict[str, list[str]]:
    """Return the runs that are one point: they differ in nothing but ``over``. By the name of the first.

    Tables, reports and sweeps all take their means by this. Runs that differ in nothing are no repeats: what
    tells them apart, such as the values in a method of the user's own, is not in their settings. Theirs are
    those of one name, but for the seed in it.
    """
    digests = {name: _without(setting, over).digest for name, setting in settings.items()}
    whole = {name: Provenance(dict(setting)).digest for name, setting in settings.items()}
    equal = Counter(whole.values())
    unclear = {digests[name] for name in settings if equal[whole[name]] > 1}
    points: dict[str, list[str]] = {}
    for name, digest in digests.items():
        of_name = _SEED.sub("", name) if digest in unclear else ""
        points.setdefault(f"{digest} {of_name}", []).append(name)
    return {members[0]: members for members in points.values()}


def group_runs(settings: Mapping[str, Mapping[str, Any]], over: Over) -> dict[str, list[str]]:
    """Return :func:`find_points`, {} for "".

    Raises :class:`ConfigError` if no point has two runs.
    """
    if not over:
        return {}
    points = find_points(settings, over)
    if len(points) == len(settings):
        raise ConfigError(
            f"no two of the runs differ in nothing but their {over}: there is nothing to take a mean over."
        )
    return points


def find_repeats(settings: Mapping[str, Mapping[str, Any]]) -> Over:
    """Return "seeds" if some of the runs differ in nothing else, else ""."""
    return "seeds" if len(find_points(settings)) < len(settings) else ""


def _without(settings: Mapping[str, Any], over: Over) -> Provenance:
    def others(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in _VARYING_SETTINGS[over]}

    return Provenance(others(settings) | {"options": others(settings.get("options", {}))})


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
