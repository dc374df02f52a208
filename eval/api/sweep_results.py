"""A sweep, from Python: ``sweep`` answers its cells on the models that are open, and holds what they say."""

from __future__ import annotations

import asyncio
import base64
import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.json_types import to_json_types
from corag.core.system.installation import require
from eval.api.arguments import Questions, question_file, with_keywords
from eval.api.ask import NO_INDEX, entry_of, options_of
from eval.api.background import waits
from eval.api.opened import Index, Model, lend_index, lend_model
from eval.api.own_objects import takes_own_objects
from eval.api.results import WithOptions, base_of, with_section
from eval.api.run_folders import FinishedRuns
from eval.api.table import Table
from eval.experiment.questions import FurtherQuestions
from eval.experiment.workers.choice import without_workers
from eval.sweeps.cells import Changes, read_cells
from eval.sweeps.findings import Findings
from eval.sweeps.printing import print_findings
from eval.sweeps.record import Sweep, read_sweep, sweep_table, write_sweep
from eval.sweeps.sweep import Openers, SweepConfig, answer_cells, apply_questions
from eval.tables.printing import render_text
from retrieval.config import RetrieverConfig

GivenCell = WithOptions | Mapping[str, Any]
GivenCells = Mapping[str, GivenCell]


@dataclass(frozen=True, repr=False, kw_only=True)
class SweepResults(FinishedRuns):
    """What the cells of a sweep scored and spent, and what they say together.

    ``print`` shows the table, the Pareto set, the fitted curves and the best cell under each budget. Paired
    tests of the cells: ``corag.table(swept, baseline=NAME)``; a page: ``corag.report(swept)``.

    Attributes:
        folder: the folder of the sweep, with sweep.json, sweep.csv, its pictures and a run folder per cell.
        record: the cells with their figures.
        picture: sweep.png, scores against tokens; None if every cell failed.
    """

    folder: Path
    record: Sweep
    picture: Path | None

    @property
    def findings(self) -> Findings:
        """The Pareto set, the curve of each method and the best cell under each budget."""
        return self.record.findings

    def table(self) -> Table:
        """Return the table of the cells."""
        return Table(sweep_table(self.record))

    def to_pandas(self) -> Any:
        """Return a data frame with a line per cell: its options, scores (fractions) and tokens."""
        require("to_pandas()", "pandas")
        import pandas

        return pandas.read_csv(self.folder / "sweep.csv")

    def __str__(self) -> str:
        findings = render_text(lambda console: print_findings(console, self.record))
        return f"{self.table()}\n{findings}\nPicture: {self.picture or 'none'}."

    def __repr__(self) -> str:
        return f"<SweepResults of {len(self.runs)} cells: print them, or call .table(), .to_pandas()>"

    def _repr_html_(self) -> str:
        text = f"<pre>{html.escape(str(self))}</pre>"
        if self.picture is None:
            return text
        data = base64.b64encode(self.picture.read_bytes()).decode()
        return f'{text}<img style="max-width: 100%" src="data:image/png;base64,{data}">'


@waits
@takes_own_objects
async def sweep(
    questions: Questions,
    cells: GivenCells,
    model: Model | Any,
    index: Index | Any | None = None,
    *,
    out: str | os.PathLike[str],
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    dev: Questions | None = None,
    dev_index: Index | Any | None = None,
    metric: str = "f1",
    **options: Any,
) -> SweepResults:
    """Answer questions with many settings and weigh what they score against what they spend.

    The same call again goes on where it was; a finished sweep answers nothing.

    Args:
        questions: a question file, or questions: objects or records as in a file. All need gold answers.
        cells: settings by name. Each is a method, (a method, its config), or the options that it changes, by
            their names on the command line: ``{"method": "corag", "corag.chains": 8, "model.adapter": ...}``.
        model: what :func:`open_model` returned, or an object or function that it takes. A cell that changes
            a model's option has it opened for as long as it is needed, beside this one.
        index: what :func:`open_index` returned, or what it takes; None if no cell searches.
        out: folder of the sweep.
        grid: blocks of options, each with a value or a list of values, a further cell for each combination:
            ``{"method": "corag", "corag.strategy": "best_of_n", "corag.chains": [2, 4, 8]}``.
        dev: further questions, on which the best cell under each budget is chosen.
        dev_index: the index of these, if it is another.
        metric: what cells are compared by: "f1", "em", "recall" or a measure of the scorer's.
        options: further ones of :class:`eval.sweeps.sweep.SweepConfig`, such as ``budgets=[1000, 4000]``,
            ``dataset="hotpotqa"``, ``limit=100``, ``recall_at=15``.

    Raises:
        ConfigError: for settings that cannot be, or a folder that holds cells with other settings.
        BackendError: if an engine or index is gone. A question that fails is a row with its error.
    """
    # Closed, they would be opened again without a word.
    _ = model.engine, index and index.engine, dev_index and dev_index.engine
    config = base_of(SweepConfig, questions, model, index, Path(out), {"metric": metric, **options})
    config = replace(config, workers=without_workers(config.workers, config.model))
    if dev is not None:
        config = with_keywords(config, {"dev": _dev_questions(dev, dev_index, Path(out))})
    changes = {name: _changes(config, each, index) for name, each in cells.items()}
    blocks = [grid] if isinstance(grid, Mapping) else grid
    parsed_cells = read_cells(config, changes, to_json_types(blocks))
    for cell in parsed_cells:
        if cell.needs_index and not cell.has_index:
            raise ConfigError(NO_INDEX.format(f"the cell '{cell.name}'"))
    test_cells, dev_cells = apply_questions(config, parsed_cells)
    await answer_cells([*test_cells, *dev_cells], Openers(lend_model, lend_index))
    # Off the loop: the curve's intervals and the pictures take seconds, in which others go on.
    record = await asyncio.to_thread(read_sweep, test_cells, dev_cells, config)
    _, files = await asyncio.to_thread(write_sweep, config.folder, record)
    return SweepResults(
        {each.name: each.cell.folder for each in record.test_cells},
        record.test_cells[0].cell.questions,
        folder=config.folder,
        record=record,
        picture=next((file for file in files if file.suffix == ".png"), None),
    )


def _changes(base: SweepConfig, cell: GivenCell, index: Index | None) -> Changes:
    """Return what a cell changes, or all its options where it names a method and its configuration."""
    if isinstance(cell, Mapping):
        return {name: to_json_types(value) for name, value in cell.items()}
    method, config = cell if isinstance(cell, tuple) else (cell, None)
    name, entry = entry_of(method)
    return with_section(base, name, entry, options_of(name, entry, config, index))


def _dev_questions(dev: Questions, index: Index | None, out: Path) -> FurtherQuestions:
    file, _ = question_file(dev, out / "dev", {})
    dataset = "" if isinstance(dev, str | os.PathLike) else "jsonl"
    return FurtherQuestions(
        questions=file, dataset=dataset, retriever=index.options if index else RetrieverConfig()
    )
