"""What a table shows besides a line per run: tests against a baseline, means over seeds, answers looked for
in texts.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from core.errors import ConfigError, DataError, nearest
from core.runs.manifest import Start
from core.runs.stamp import differences
from core.types import Passage
from eval.scoring.rows import FURTHER, Measures, PassageTexts
from eval.statistics.comparisons import Against
from eval.statistics.intervals import Spread, spread
from eval.tables.table import Summary, percent
from retrieval.store import PassageStore, has_store
from scripts.printing import wide_console

Over = Literal["", "seeds", "demonstrations"]
Means = Mapping[str, Mapping[str, Spread]]
_VARYING: dict[str, tuple[tuple[str, ...], ...]] = {
    "seeds": (("seed",),),
    "demonstrations": (
        ("demonstrations",),
        ("options", "demonstrations"),
        ("options", "reader_demonstrations"),
        ("options", "demonstration_ids"),
    ),
}


def chosen_measures(measured: Mapping[str, Measures], wanted: Sequence[str]) -> Mapping[str, Measures]:
    """Keep the wanted measures, all if none are named.

    Raises :class:`ConfigError` for one that no run has.
    """
    known = {measure for measures in measured.values() for measure in measures}
    for name in wanted:
        if name not in known:
            raise ConfigError(f"there is no measure '{name}' of these runs: {nearest(name, known)}")
    return {
        run: {name: values for name, values in measures.items() if not wanted or name in wanted}
        for run, measures in measured.items()
    }


def print_comparisons(compared: Sequence[Against], baseline: str, recall_at: int) -> None:
    """Print every run's difference from the baseline in every measure."""
    table = Table("method", "measure")
    for heading in (f"minus {baseline}", "p", "p (Holm)", "unseen below"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in compared:
        comparison = one.comparison
        unseen = "-" if comparison.detectable is None else f"{100 * comparison.detectable:.1f}"
        figures = percent(comparison.difference), f"{comparison.p_value:.4f}", f"{one.p_holm:.4f}", unseen
        table.add_row(one.run, measure_title(one.measure, recall_at), *figures)
    console = wide_console()
    console.print(table)
    console.print(
        "Differences in points with 95% bootstrap intervals, paired by question; sign-flip test, Holm over "
        f"{len(compared)} tests. A true difference under the last column's points is likely to go unseen "
        "(80% power, 5% level before correction).",
        soft_wrap=True,
    )


def measure_title(measure: str, recall_at: int) -> str:
    """Return what a table calls a measure."""
    return {"em": "EM", "f1": "F1", "recall": f"recall@{recall_at}", **FURTHER}.get(measure, measure)


def group_runs(settings: Mapping[str, Mapping[str, Any]], over: Over) -> dict[str, list[str]]:
    """Return the runs that differ in nothing but their seed or their demonstrations, by the name of the
    first; {} for over "".

    Raises :class:`ConfigError` if there are no two such runs, naming what else the first two differ in.
    """
    if not over:
        return {}
    rest = {name: _without(setting, _VARYING[over]) for name, setting in settings.items()}
    groups: dict[str, list[str]] = {}
    for name, setting in rest.items():
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(name)
    if len(groups) == len(settings):
        first, *others = rest.values()
        also = f" The first two also differ in {'; '.join(differences(first, others[0]))}." if others else ""
        raise ConfigError(
            f"no two of the runs differ in nothing but their {over}: there is nothing to take a mean "
            f"over.{also}"
        )
    return {members[0]: members for members in groups.values()}


def _without(settings: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    kept = copy.deepcopy(dict(settings))
    for *sections, last in paths:
        place = kept
        for section in sections:
            place = place.get(section, {})
        place.pop(last, None)
    return kept


def mean_of(summaries: Sequence[Summary]) -> dict[str, Spread]:
    """Return mean and deviation over runs of each measure and of the tokens per question."""
    found: dict[str, list[float]] = {}
    for summary in summaries:
        for name, interval in summary.measured.items():
            if interval is not None:
                found.setdefault(name, []).append(interval.mean)
        found.setdefault("tokens", []).append(summary.tokens)
    return {name: spread(values) for name, values in found.items()}


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


def print_means(means: Means, over: Over, recall_at: int) -> None:
    """Print mean and deviation of every group of runs."""
    names = list(dict.fromkeys(name for mean in means.values() for name in mean))
    table = Table("method")
    for heading in ("runs", *(measure_title(name, recall_at) for name in names)):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, mean in means.items():
        shown = [_mean_and_deviation(mean.get(measure), measure) for measure in names]
        table.add_row(name, str(mean["tokens"].n), *shown)
    console = wide_console()
    console.print(table)
    console.print(
        f"Mean ± standard deviation (n - 1) over runs that differ in their {over} only, each group called by "
        "its first run. This is how far such runs scatter; how far other questions would take them is what "
        "the intervals above say.",
        soft_wrap=True,
    )


def _mean_and_deviation(value: Spread | None, measure: str) -> str:
    if value is None:
        return "-"
    scale, digits = (1, 0) if measure == "tokens" else (100, 1)
    deviation = "" if value.deviation is None else f" ± {scale * value.deviation:,.{digits}f}"
    return f"{scale * value.mean:,.{digits}f}{deviation}"


def passage_texts(run: Path, start: Start) -> PassageTexts:
    """Return where to read the passages that a start of a run searched: the store beside its index, which
    needs no search engine.

    Raises :class:`ConfigError` if no index of the run lies here with its texts, and :class:`DataError` when
    asked for an id that it lacks.
    """
    stores = [PassageStore(Path(index)) for index in start.index if has_store(Path(index))]
    if not stores:
        raise ConfigError(
            f"the texts of the passages of '{run}' are not at hand: {start.searched} is not the folder of an "
            "index made by 'corag index'. Leave --answer_recall out."
        )

    def read(ids: Sequence[str]) -> list[str]:
        found: dict[str, Passage] = {}
        for store in stores:
            found |= store.passages([name for name in ids if name not in found])
        if missing := [name for name in ids if name not in found]:
            raise DataError(
                f"the index '{start.index[0]}' has no passage '{missing[0]}', which '{run}' found: it was "
                "built anew since."
            )
        return [found[name].contents for name in ids]

    return read
