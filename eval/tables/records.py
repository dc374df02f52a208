"""A table as flat records: for CSV and for data frames.

They have every figure as it stands in JSON: fractions. Questions that runs disagree on are not in them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from corag.core.errors import ConfigError
from eval.scoring.rows import MEASURES
from eval.statistics.comparisons import Against
from eval.tables.columns import flat_figures
from eval.tables.means import means_record
from eval.tables.results import ResultsTable

Form = Literal["text", "latex", "markdown", "csv", "json"]


def check_form(form: Form, disagreements: object) -> None:
    """Raise :class:`ConfigError` if there are disagreements to list in a form that has no place for them."""
    if disagreements and form not in ("text", "json"):
        raise ConfigError(
            "disagreements are listed in text and JSON only: leave them out here, or print the table."
        )


def table_records(table: ResultsTable) -> list[dict[str, Any]]:
    """Return a flat record per run: figures as in JSON, each interval as two fields, the tests and means.

    A mean over runs stands in the record of the first of them.

    Raises :class:`ConfigError` for a table that lists disagreements.
    """
    check_form("csv", table.disagreements)
    tests = {(one.run, one.measure): one for one in table.against}
    measures = dict.fromkeys(one.measure for one in table.against)
    hidden = {f"{name}{end}" for name in MEASURES if not table.shows(name) for end in ("", "_low", "_high")}
    hidden |= {"method", "reasons", "measured_on_fewer"}
    records = []
    for summary in table.summaries:
        figures = flat_figures(summary)
        record: dict[str, Any] = {"run": summary.method}
        record |= {name: value for name, value in figures.items() if name not in hidden}
        record |= {"estimated": summary.has_estimates, "unasked": summary.unasked_count}
        for name, interval in filter(lambda each: table.shows(each[0]), summary.measures.items()):
            record[f"{name}_n"] = interval.n if interval else 0
        if trained_for := table.conditions.untrained.get(summary.method):
            record["trained_for_others"] = ", ".join(trained_for)
        if table.baseline:
            record["baseline"] = table.baseline
        for measure in measures:
            # Of means, and so not what the record's own figures differ by.
            name = f"{measure}_over_{table.over}" if table.over else measure
            record |= _test_record(name, tests.get((summary.method, measure)))
        for measure, spread in means_record(table.means).get(summary.method, {}).items():
            if measure == "tokens" or table.shows(measure):
                record |= {f"{measure}_{name}_over_{table.over}": value for name, value in spread.items()}
        records.append(record | {"folder": str(table.runs[summary.method])})
    return records


def _test_record(measure: str, test: Against | None) -> dict[str, Any]:
    """Write a test against the baseline as fields that begin with its measure."""
    figures: Mapping[str, Any] = {} if test is None else test.to_json()
    low, high = figures.get("difference_interval") or (None, None)
    return {
        f"{measure}_difference": figures.get("difference"),
        f"{measure}_difference_low": low,
        f"{measure}_difference_high": high,
        f"{measure}_p": figures.get("p_value"),
        f"{measure}_p_holm": figures.get("p_value_holm"),
        f"{measure}_mde": figures.get("detectable"),
    }


def to_csv(table: ResultsTable) -> str:
    """Write a line per run."""
    return records_csv(table_records(table))


def records_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Write records with all fields that any of them has; lists as JSON, None as nothing."""
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for record in records:
        values = [record.get(name) for name in names]
        writer.writerow(
            [json.dumps(each, ensure_ascii=False) if isinstance(each, list) else each for each in values]
        )
    return text.getvalue()
