"""Answer a dataset with many settings: a table, the Pareto set, a curve, the best setting per budget.

    corag sweep --config eval/configs/world.yaml
    corag sweep --config mine.yaml --cells cells.yaml --questions test.jsonl --retriever.index world-bm25

A cell is a name and what it changes: options of 'corag run', as "corag.max_hops: 4" or nested. A grid is a
list of blocks of options, each with a value or a list of values; its cells are their combinations. Cells of
the same model share one engine, its prefix cache and its request cache: where best of 4 has been, best of
8 asks for four chains only. Each cell has a run folder of its own, so the same command again goes on where it
was; once every question is answered it prints the report and starts no engine. Questions that failed are
tried again, as 'corag run' tries them again, so a cell that has any opens its engine each time.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from corag.cli.plans import print_plan
from corag.cli.result import CommandResult
from corag.core.runs.failures import Failures
from corag.core.runs.folder import ANOTHER_OUT
from corag.core.system.folder_lock import refuse_if_locked
from corag.core.system.installation import how_to_install, missing
from eval.experiment.opening import prepare_output
from eval.sweeps.plan import PilotOptions, plan_sweep
from eval.sweeps.printing import print_findings
from eval.sweeps.record import read_sweep, sweep_table, write_sweep
from eval.sweeps.sweep import Openers, SweepConfig, answer_cells, plan_cells
from eval.tables.printing import print_results, wide_console

BACK_ENDS = Openers()


@dataclass(frozen=True)
class SweepOptions(PilotOptions, SweepConfig):
    """Options of 'corag sweep'."""


def main(config: SweepOptions) -> CommandResult:
    """Answer every cell and report. The status is 1 if more questions failed than may."""
    if config.pilot:
        return print_plan(plan_sweep(config, config.pilot, BACK_ENDS))
    test_cells, dev_cells = plan_cells(config)
    for cell in (*test_cells, *dev_cells):
        refuse_if_locked(cell.folder, advice=ANOTHER_OUT)
    prepare_output(config.folder)
    asyncio.run(answer_cells([*test_cells, *dev_cells], BACK_ENDS))
    sweep = read_sweep(test_cells, dev_cells, config)
    record, files = write_sweep(config.folder, sweep)
    if missing(["matplotlib"]):
        print(
            f"corag: no pictures: {how_to_install('plots')}, then the same command draws them.",
            file=sys.stderr,
        )
    console = wide_console()
    print_results(sweep_table(sweep), console)
    print_findings(console, sweep)
    console.print(f"Written: {', '.join(map(str, files))}.", soft_wrap=True)
    rest = {name: value for name, value in record.items() if name not in ("cells", "dev_cells")}
    figures = {"runs": record["cells"], **rest, "sweep": str(config.folder / "sweep.json")}
    failures = sum((each.summary.failures for each in sweep.cells), Failures())
    status = int(any(each.summary.is_empty for each in sweep.cells))
    return CommandResult(status, [figures], failures, config.max_failed)
