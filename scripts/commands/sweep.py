"""Answer a dataset with many settings: a table, the Pareto set, a curve, the best setting per budget.

    corag sweep --config eval/configs/world.yaml
    corag sweep --config scripts/configs/decoding.yaml --cells scripts/configs/decoding_cells.yaml \
        --questions test.jsonl --retriever.index world-bm25

A cell is a name and what it changes: options of 'corag run', as "corag.max_hops: 4" or nested. A grid is a
list of blocks of options, each with a value or a list of values; its cells are their combinations. Cells of
the same model share one engine, its prefix cache and its request cache: where best of 4 has been, best of
8 asks for four chains only. Each cell has a run folder of its own, so the same command again goes on where it
was; once every question is answered it prints the report and starts no engine. Questions that failed are
tried again, as 'corag run' tries them again, so a cell that has any opens its engine each time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys

from core.runs.failures import Failures
from core.runs.folder import writable_folder
from eval.experiment.opening import ENGINE_LOG, log_to
from eval.sweeps.printing import print_findings, print_spending
from eval.sweeps.record import read_sweep, reading_notes, write_sweep
from eval.sweeps.sweep import Openers, SweepConfig, answer_cells, planned
from eval.tables.printing import print_table, wide_console
from eval.tables.runs import all_failed
from scripts.ended import Ended

BACK_ENDS = Openers()


def main(config: SweepConfig) -> Ended:
    """Answer every cell and report. The status is 1 if more questions failed than may."""
    test_cells, dev_cells = planned(config)
    writable_folder(config.folder)
    log_to(config.folder / ENGINE_LOG)
    asyncio.run(answer_cells([*test_cells, *dev_cells], BACK_ENDS))
    sweep = read_sweep(test_cells, dev_cells, config.reporting)
    record, written = write_sweep(config.folder, sweep)
    if importlib.util.find_spec("matplotlib") is None:
        print(
            "corag: no pictures: pip install matplotlib, then the same command draws them.", file=sys.stderr
        )
    folders = {each.name: each.cell.folder for each in sweep.test_cells}
    print_table([each.summary for each in sweep.test_cells], folders, reading_notes(sweep.test_cells).scorer)
    console = wide_console()
    print_findings(console, sweep)
    print_spending(console, sweep.cells)
    console.print(f"Written: {', '.join(map(str, written))}.", soft_wrap=True, markup=False)
    shown = {name: value for name, value in record.items() if name not in ("cells", "dev_cells")}
    figures = {"runs": record["cells"], **shown, "sweep": str(config.folder / "sweep.json")}
    failures = sum((each.summary.failures for each in sweep.cells), Failures())
    status = int(all_failed([each.summary for each in sweep.cells]))
    return Ended(status, [figures], failures, config.max_failed)
