"""Means over runs that differ in nothing but their seed, or their demonstrations."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from corag.core.errors import ConfigError
from corag.core.runs.stamp import differences
from eval.statistics.intervals import Spread, spread
from eval.tables.columns import Summary

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


def _without(settings: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    remaining = copy.deepcopy(dict(settings))
    for *sections, last in paths:
        section_settings = remaining
        for section in sections:
            section_settings = section_settings.get(section, {})
        section_settings.pop(last, None)
    return remaining


def mean_over_runs(summaries: Sequence[Summary]) -> dict[str, Spread]:
    """Return mean and deviation over runs of each measure and of the tokens per question."""
    values: dict[str, list[float]] = {}
    for summary in summaries:
        for name, interval in summary.measures.items():
            if interval is not None:
                values.setdefault(name, []).append(interval.mean)
        values.setdefault("tokens", []).append(summary.tokens)
    return {name: spread(each) for name, each in values.items()}


def means_record(means: Means) -> dict[str, Any]:
    """Write means as JSON: fractions, and tokens per question."""
    return {
        name: {
            measure: {
                "mean": round(value.mean, 4),
                "deviation": None if value.deviation is None else round(value.deviation, 4),
                "runs": value.n,
            }
            for measure, value in mean.items()
        }
        for name, mean in means.items()
    }
