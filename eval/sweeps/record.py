"""What a sweep leaves in its folder beside its runs: sweep.json, sweep.csv, sweep.png and sweep.svg."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.files import write_atomically
from corag.core.seeds import stable_hash
from corag.core.types import Question
from eval.scoring.rows import MEASURES
from eval.scoring.scorers import choose_scorer, scorer_title
from eval.sweeps.cells import Cell
from eval.sweeps.findings import METRICS, Findings, FinishedCell, Reporting, score_cells, weigh_cells
from eval.sweeps.plots import plot
from eval.tables.candidates import sizes_record
from eval.tables.columns import COLUMNS
from eval.tables.conditions import Conditions, describe_conditions
from eval.tables.ledger import Spending
from eval.tables.means import find_repeats
from eval.tables.results import ResultsTable, make_table, table_of_new_runs
from eval.tables.runs import write_run_answers

# Figures of a cell that have no interval, as sweep.csv names them.
_PLAIN_FIELDS = [name for column in COLUMNS if column.name not in MEASURES for name in column.fields]


@dataclass(frozen=True)
class Sweep:
    """A finished sweep: its cells on the questions of the report and the dev questions, and what they say."""

    test_cells: Sequence[FinishedCell]
    dev_cells: Sequence[FinishedCell]
    findings: Findings
    options: Reporting

    @property
    def measure(self) -> str:
        """What the cells are compared by, as a reader calls it."""
        return METRICS[self.options.metric]

    @property
    def cells(self) -> list[FinishedCell]:
        """The cells on either questions."""
        return [*self.test_cells, *self.dev_cells]


def read_sweep(tests: Sequence[Cell], devs: Sequence[Cell], options: Reporting) -> Sweep:
    """Read the runs of answered cells back from disk and weigh them against each other."""
    test_cells, dev_cells = score_cells(tests, options.metric), score_cells(devs, options.metric)
    return Sweep(test_cells, dev_cells, weigh_cells(test_cells, dev_cells, options), options)


def write_sweep(out: Path, sweep: Sweep) -> tuple[dict[str, Any], list[Path]]:
    """Write the files of a sweep; return what sweep.json says, and the files. Pictures need matplotlib.

    The answers are among them if ``answers_to`` names a file for them.
    """
    config, questions = sweep.test_cells[0].cell.config, sweep.test_cells[0].cell.questions
    record = sweep_record(sweep)
    files = [out / "sweep.csv", out / "sweep.json"]
    write_atomically(files[1], json.dumps(record, indent=1) + "\n")
    write_atomically(files[0], render_csv(sweep))
    if config.answers_to:
        write_run_answers(
            {each.name: each.cell.folder for each in sweep.test_cells}, config.answers_to, questions
        )
        files.append(Path(config.answers_to))
    title = f"{Path(config.questions).name}, n = {len(questions)}"
    pictures = [out / "sweep.png", out / "sweep.svg"]
    has_pictures = plot(pictures, sweep.test_cells, sweep.findings, sweep.options.metric, title)
    return record, files + (pictures if has_pictures else [])


def refuse_other_questions(out: Path, questions: Sequence[Question]) -> None:
    """Raise :class:`ConfigError` where a sweep of other questions, or of more, has left its figures.

    More questions that begin with those of before may go on with them.
    """
    file = out / "sweep.json"
    if not file.is_file():
        return
    before = json.loads(file.read_bytes())["questions"]
    if _digest(questions[: before["n"]]) != before.get("digest"):
        raise ConfigError(
            f"'{out}' holds a finished sweep of {before['n']:,} questions of {before['file']}, whose figures "
            f"those of these {len(questions):,} would replace: give another 'out', or the options of before "
            "('limit', 'skip', 'strict')."
        )


def _digest(questions: Sequence[Question]) -> str:
    return stable_hash("\n".join(question.id for question in questions))


@dataclass(frozen=True)
class ReadingNotes:
    """What a reader must know beside the figures of some cells.

    ``scorer``: how they are scored; ``conditions``: what they were made with.
    """

    scorer: str
    conditions: Conditions


def reading_notes(cells: Sequence[FinishedCell]) -> ReadingNotes:
    """Return how the cells are scored, by the gold answers of now, and what their manifests say."""
    config = cells[0].cell.config
    scorer = choose_scorer(config.scorer, config.dataset)
    title = scorer_title(scorer, cells[0].cell.questions, config.aliases)
    return ReadingNotes(title, describe_conditions({each.name: each.manifest for each in cells}))


def sweep_table(sweep: Sweep) -> ResultsTable:
    """Return the table of the cells on the questions of the report."""
    cells = sweep.test_cells
    config = cells[0].cell.config
    folders, scorer = (
        {each.name: each.cell.folder for each in cells},
        choose_scorer(config.scorer, config.dataset),
    )
    table = make_table(
        [each.summary for each in cells],
        folders,
        {each.name: each.manifest for each in cells},
        scorer,
        reading_notes(cells).scorer,
    )
    if not find_repeats({each.name: each.manifest.settings for each in cells}):
        return table
    with_means = table_of_new_runs(folders, cells[0].cell.questions, scorer, config.recall_at, "seeds")
    return replace(
        table, over="seeds", means=with_means.means, groups=with_means.groups, notes=with_means.notes
    )


def sweep_record(sweep: Sweep) -> dict[str, Any]:
    """Write a sweep as a JSON object; scores are fractions, but in percent where they are the curve's y."""
    test_cells, dev_cells, findings = sweep.test_cells, sweep.dev_cells, sweep.findings
    config = test_cells[0].cell.config
    notes, dev_notes = reading_notes(test_cells), reading_notes(dev_cells) if dev_cells else None
    record = {
        "questions": {
            "file": config.questions,
            "dataset": config.dataset,
            "n": len(test_cells[0].cell.questions),
            "digest": _digest(test_cells[0].cell.questions),
        },
        "metric": sweep.options.metric,
        "scorer_title": notes.scorer,
        "conditions": notes.conditions.common_lines,
    }
    if dev_notes:
        record |= {"dev_scorer_title": dev_notes.scorer, "dev_conditions": dev_notes.conditions.common_lines}
    curves = {
        name: {
            through: {"refused": fit} if isinstance(fit, str) else asdict(fit)
            for through, fit in fits.items()
        }
        for name, fits in findings.fits.items()
    }
    chosen_on = dev_cells[0].cell.config.questions if dev_cells else "the same questions: optimistic"
    return record | {
        "cells": {
            each.name: cell_record(each, notes) | {"pareto": each.name in findings.pareto}
            for each in test_cells
        },
        "dev_cells": {each.name: cell_record(each, dev_notes) for each in dev_cells if dev_notes},
        "pareto": findings.pareto,
        "failed": findings.failed_cells,
        "fit": {
            "formula": "y = a * log(x + b) + c",
            "x": "tokens per question",
            "y": f"{sweep.measure} in percent",
            "log": "natural",
            "curves": curves,
        },
        "best_under_budget": {
            "chosen_on": chosen_on,
            "choices": [asdict(choice) for choice in findings.choices],
        },
        "shared_work": spending_record(sweep.cells),
        "scorer": choose_scorer(config.scorer, config.dataset).name,
    }


def cell_record(each: FinishedCell, notes: ReadingNotes) -> dict[str, Any]:
    """Write a cell as a JSON object: its figures, and the options and conditions that tell it from others."""
    settings = {"method": each.cell.method, "options": each.options, "folder": str(each.cell.folder)}
    settings["conditions"] = notes.conditions.lines_by_run[each.name]
    figures = each.summary.to_json() | {"remembered_tokens": each.spending.remembered_tokens}
    if each.pass_at:
        figures |= {"pass_at": sizes_record(each.pass_at), "oracle": sizes_record(each.oracle)}
    return figures | settings


def spending_record(cells: Sequence[FinishedCell]) -> dict[str, int | None]:
    """Write what all cells together cost, and how much of it they shared."""
    total = sum((each.spending for each in cells), Spending())
    return {
        "tokens": total.usage.total,
        "remembered_tokens": total.remembered_tokens,
        "prefix_cache_tokens": total.in_cache,
        "computed_tokens": total.usage.computed,
        "searches": sum(each.searches for each in cells),
        "remembered_searches": sum(each.remembered_searches for each in cells),
    }


def render_csv(sweep: Sweep) -> str:
    """Write a line per cell, then one per cell on the dev questions.

    Options that differ are columns, scores fractions. "oracle" is what the best of all candidates would score
    in the metric. The last two columns say how the line is scored, and all that must be known beside it.
    """
    options = list(
        dict.fromkeys(name for each in sweep.test_cells for name in each.options if name != "method")
    )
    measures = list(dict.fromkeys(name for each in sweep.cells for name in each.summary.measures))
    scores = [f"{name}{end}" for name in measures for end in ("", "_low", "_high")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    sizes = sorted({k for each in sweep.cells for k in each.pass_at})
    passes = [f"pass@{k}" for k in sizes]
    heads = [
        "questions",
        "cell",
        "method",
        *options,
        "metric",
        "pareto",
        *scores,
        *_PLAIN_FIELDS,
        *passes,
        "oracle",
    ]
    writer.writerow([*heads, "folder", "scorer", "conditions"])
    for questions, cells in (("test", sweep.test_cells), ("dev", sweep.dev_cells)):
        if not cells:
            continue
        notes = reading_notes(cells)
        for each in cells:
            values = [each.options.get(option, "") for option in options]
            pareto = int(each.name in sweep.findings.pareto) if questions == "test" else ""
            line = [questions, each.name, each.cell.method, *values, sweep.options.metric, pareto]
            conditions = " ".join([*notes.conditions.common_lines, notes.conditions.lines_by_run[each.name]])
            figures = [*_figures(each, measures), *_oracles(each, sizes)]
            writer.writerow([*line, *figures, each.cell.folder, notes.scorer, conditions])
    return text.getvalue()


def _oracles(each: FinishedCell, sizes: Sequence[int]) -> Iterator[Any]:
    """Yield a cell's pass@k, blank where it has not so many candidates, then its oracle's score."""
    for k in sizes:
        yield round(each.pass_at[k].mean, 4) if k in each.pass_at else ""
    yield round(each.oracle[max(each.oracle)].mean, 4) if each.oracle else ""


def _figures(each: FinishedCell, measures: Sequence[str]) -> Iterator[Any]:
    """Yield a cell's measures, each with its interval, then its other figures."""
    record = each.summary.to_json()
    for name in measures:
        yield record.get(name)
        yield from record.get(f"{name}_interval") or (None, None)
    yield from (record[name] for name in _PLAIN_FIELDS)
