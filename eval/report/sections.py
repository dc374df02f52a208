"""What a report shows without scripts: verdict, table, tests, charts, groups of questions, conditions.

All figures are those of :mod:`eval.tables`, in the words that a terminal has; a test stands in a section of
its baseline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from corag.core.runs.provenance import Provenance
from eval.report.chart import draw_chart, marker, symbols
from eval.report.markup import Markup, element, folded, joined, table
from eval.tables.printing import (
    comparison_cells,
    comparison_notes,
    condition_lines,
    further_columns,
    main_columns,
    mean_cells,
    means_note,
)
from eval.tables.results import ResultsTable, compare_each_other
from eval.tables.runs import Run, ScoredRuns

_MEASURES = ("em", "f1")
_CHART_NOTE = element("p", "Bars: 95% intervals. A line joins the runs of one method.", class_="note")
_NAMED_RUNS = 3  # in the title


def sections(results: ResultsTable, scored_runs: ScoredRuns, baseline: str) -> Markup:
    """Return all sections of a page but for the questions. ``baseline``: the run whose tests are unfolded."""
    runs = scored_runs.runs
    methods = [run.manifest.method for run in runs]
    charts = [
        element("figure", chart, class_="card")
        for measure in _MEASURES
        if (chart := draw_chart(results, measure, methods))
    ]
    legend = element("p", *(_run_name(number, run.name) for number, run in enumerate(runs)), class_="legend")
    scaling = [element("div", *charts, class_="charts"), legend, _CHART_NOTE] if charts else []
    headlines = [
        element("p", each, class_="lead" if each == results.verdict else "caution")
        for each in results.headlines
    ]
    return joined(
        [
            symbols(len(runs)),
            element("section", element("h1", title_of(runs), id="title"), *headlines, class_="intro"),
            _section("results", "Results", *_results(results, scored_runs, baseline)),
            _section("scaling", "Accuracy against tokens", *scaling),
            _section("settings", "Conditions", *_conditions(runs)),
        ]
    )


def title_of(runs: Sequence[Run]) -> str:
    """Return what a page is about: its runs and their question file."""
    names = [run.name for run in runs]
    called = f"{len(names)} runs" if len(names) > _NAMED_RUNS else ", ".join(names)
    return f"{called} on {Path(runs[0].manifest.last.questions).name}"


def _section(name: str, title: str, *children: Markup) -> Markup | None:
    if not children:
        return None
    head = element("h2", title, id=f"{name}-title")
    return element("section", head, *children, id=name, aria_labelledby=f"{name}-title")


def _run_name(run: int, name: str) -> Markup:
    return element("span", marker(run), name, class_="run-name")


def _results(results: ResultsTable, scored_runs: ScoredRuns, baseline: str) -> Iterator[Markup]:
    columns = (main_columns(results) | further_columns(results)).values()
    heads = ["run", *(heading for heading, _ in columns)]
    names = [results.conditions.mark_name(each.method) for each in results.summaries]
    rows = [
        [_run_name(run, name), *(values[run].replace(" [", "\n[") for _, values in columns)]
        for run, name in enumerate(names)
    ]
    figures = table(heads, rows, class_="figures")
    yield element("div", figures, class_="card scroller", role="region", aria_label="Results", tabindex=0)
    if results.means:
        heads, *lines = mean_cells(results)
        yield element("div", table(heads, lines, class_="figures"), class_="card scroller")
        yield element("p", means_note(results), class_="note")
    yield element("ul", *(element("li", each) for each in condition_lines(results)), class_="remarks")
    shown = next((first for first, members in results.groups.items() if baseline in members), baseline)
    for run, tests in compare_each_other(results, scored_runs).items():
        heads = ["run", "measure", f"minus {run}", "p", "p (Holm)", "MDE", ""]
        cells = table(heads, [comparison_cells(one, results.recall_at) for one in tests], class_="figures")
        notes = [element("p", each, class_="note") for each in comparison_notes(tests)]
        # One name for all: a browser opens one of them at a time.
        yield folded(f"Tests against {run}", cells, *notes, open=run == shown, name="baseline")


def _conditions(runs: Sequence[Run]) -> Iterator[Markup]:
    """Yield in which settings each run differs from the first, and its manifest."""
    first = Provenance(runs[0].manifest.settings)
    for run in runs:
        changes = first.differences(Provenance(run.manifest.settings))
        items = element("ul", *(element("li", each) for each in changes), class_="note")
        manifest = json.dumps(run.manifest.to_json(), indent=1, ensure_ascii=False)
        title = f"Settings of {run.name}" + f", and what differs from {runs[0].name}" * bool(changes)
        yield folded(title, items, element("pre", manifest, tabindex=0))
