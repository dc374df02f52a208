"""What a sweep leaves in its folder beside its runs: sweep.json, sweep.csv, sweep.png and sweep.svg."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corag.core.system.files import write_atomically
from eval.scoring.rows import MEASURES
from eval.sweeps.cells import Cell
from eval.sweeps.findings import (
    METRICS,
    Findings,
    FinishedCell,
    FinishedCells,
    MethodCurve,
    score_cells,
    weigh_cells,
)
from eval.sweeps.plots import plot
from eval.sweeps.sweep import SWEEP_FILE, SweepConfig, questions_digest
from eval.tables.columns import COLUMNS, flat_figures
from eval.tables.conditions import Conditions, describe_conditions
from eval.tables.means import find_repeats
from eval.tables.records import records_csv
from eval.tables.results import ResultsTable, table_of_scored
from eval.tables.runs import write_run_answers

# Figures of a cell that have no interval, as sweep.csv names them.
_PLAIN_FIELDS = [name for column in COLUMNS if column.name not in MEASURES for name in column.fields]


@dataclass(frozen=True)
class Sweep:
    """A finished sweep: its cells on the questions of the report and the dev questions, and what they say."""

    test: FinishedCells
    dev: FinishedCells | None
    findings: Findings
    metric: str

    @property
    def measure(self) -> str:
        """What the cells are compared by, as a reader calls it."""
        return METRICS[self.metric]

    @property
    def test_cells(self) -> Sequence[FinishedCell]:
        """The cells on the questions of the report."""
        return self.test.cells

    @property
    def cells(self) -> list[FinishedCell]:
        """The cells on either questions."""
        return [*self.test.cells, *(self.dev.cells if self.dev else ())]

    @property
    def chosen_on(self) -> str:
        """The file of the questions that the best cells were chosen on."""
        return self.dev.cells[0].cell.config.questions if self.dev else "the same questions: optimistic"


def read_sweep(tests: Sequence[Cell], devs: Sequence[Cell], config: SweepConfig) -> Sweep:
    """Read the runs of answered cells back from disk and weigh them against each other."""
    test = score_cells(tests, config.metric)
    dev = score_cells(devs, config.metric) if devs else None
    findings = weigh_cells(test.cells, dev.cells if dev else (), config.budgets, config.resamples)
    return Sweep(test, dev, findings, config.metric)


def write_sweep(out: Path, sweep: Sweep) -> tuple[dict[str, Any], list[Path]]:
    """Write the files of a sweep; return what sweep.json says, and the files. Pictures need matplotlib.

    The answers are among them if ``answers_to`` names a file for them.
    """
    config, questions = sweep.test_cells[0].cell.config, sweep.test_cells[0].cell.questions
    record = sweep_record(sweep)
    files = [out / "sweep.csv", out / SWEEP_FILE]
    write_atomically(files[1], json.dumps(record, indent=1) + "\n")
    write_atomically(files[0], records_csv(sweep_lines(sweep)))
    if config.answers_to:
        folders = {each.name: each.cell.folder for each in sweep.test_cells}
        write_run_answers(folders, config.answers_to, questions)
        files.append(Path(config.answers_to))
    title = f"{Path(config.questions).name}, n = {len(questions)}"
    pictures = [out / "sweep.png", out / "sweep.svg"]
    has_pictures = plot(pictures, sweep.test_cells, sweep.findings, sweep.measure, title)
    return record, files + (pictures if has_pictures else [])


def sweep_table(sweep: Sweep) -> ResultsTable:
    """Return the table of the cells on the questions of the report."""
    over = find_repeats({each.name: each.run.manifest.settings for each in sweep.test_cells})
    return table_of_scored(sweep.test.scored_runs, over=over)


def _conditions(cells: FinishedCells) -> Conditions:
    return describe_conditions({each.name: each.run.manifest for each in cells.cells})


def sweep_record(sweep: Sweep) -> dict[str, Any]:
    """Write a sweep as a JSON object; scores are fractions, but in percent where they are the curve's y."""
    findings, first = sweep.findings, sweep.test_cells[0].cell
    return {
        "questions": {
            "file": first.config.questions,
            "dataset": first.config.dataset,
            "n": len(first.questions),
            "digest": questions_digest(first.questions),
        },
        "metric": sweep.metric,
        "scorer_title": sweep.test.scored_runs.scoring,
        "conditions": _conditions(sweep.test).common_lines,
        "cells": {
            name: each | {"pareto": name in findings.frontier_cells}
            for name, each in _cell_records(sweep.test).items()
        },
        "dev_cells": _cell_records(sweep.dev) if sweep.dev else {},
        "pareto": findings.pareto,
        "failed": findings.failed_cells,
        "fit": {
            "formula": "y = a * log(x + b) + c",
            "x": "tokens per question",
            "y": f"{sweep.measure} in percent",
            "log": "natural",
            "curves": {name: _curve_record(each) for name, each in findings.curves.items()},
        },
        "best_under_budget": {
            "chosen_on": sweep.chosen_on,
            "choices": [asdict(choice) for choice in findings.choices],
        },
        "scorer": sweep.test.scored_runs.scorer.name,
    }


def _curve_record(curve: MethodCurve) -> dict[str, Any]:
    return {"through": curve.through, **asdict(curve.fit)} if curve.fit else {"refused": curve.reason}


def _cell_records(cells: FinishedCells) -> dict[str, Any]:
    """Write cells as JSON objects: figures, and the options and conditions that tell each from others."""
    lines = _conditions(cells).lines_by_run
    records = {}
    for each in cells.cells:
        records[each.name] = each.summary.to_json() | {
            "method": each.cell.method,
            "options": each.options,
            "folder": str(each.cell.folder),
            "conditions": lines[each.name],
        }
    return records


def sweep_lines(sweep: Sweep) -> list[dict[str, Any]]:
    """Return the lines of sweep.csv: one per cell, then one per cell on the dev questions.

    Options that differ are columns, scores fractions. The last two columns say how the line is scored, and
    all that must be known beside it.
    """
    dev = _lines(sweep, sweep.dev, "dev") if sweep.dev else ()
    return [*_lines(sweep, sweep.test, "test"), *dev]


def _lines(sweep: Sweep, cells: FinishedCells, questions: str) -> Iterator[dict[str, Any]]:
    options = dict.fromkeys(name for each in sweep.test_cells for name in each.options if name != "method")
    measures = dict.fromkeys(name for each in sweep.cells for name in each.summary.measures)
    conditions = _conditions(cells)
    for each in cells.cells:
        figures = flat_figures(each.summary)
        yield {
            "questions": questions,
            "cell": each.name,
            "method": each.cell.method,
            **{name: each.options.get(name) for name in options},
            "metric": sweep.metric,
            "pareto": int(each.name in sweep.findings.frontier_cells) if cells is sweep.test else None,
            **{
                f"{name}{end}": figures.get(f"{name}{end}")
                for name in measures
                for end in ("", "_low", "_high")
            },
            **{name: figures[name] for name in _PLAIN_FIELDS},
            "folder": each.cell.folder,
            "scorer": cells.scored_runs.scoring,
            "conditions": " ".join([*conditions.common_lines, conditions.lines_by_run[each.name]]),
        }
