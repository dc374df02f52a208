"""'corag run --pilot' and 'corag sweep --pilot': what the questions will take that a pilot left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from corag.cli.result import CommandResult
from corag.core.pace import clock
from eval.experiment.estimate import MIN_QUESTIONS
from eval.sweeps.plan import PlannedRun
from eval.tables.printing import figures_table, wide_console


def print_plan(plans: Sequence[PlannedRun]) -> CommandResult:
    """Print a plan. The status is 1 if too little could be answered for one."""
    console = wide_console()
    table = figures_table("what", right=("left of", "time", "computed tokens", "within", "tokens"))
    for each in plans:
        table.add_row(each.name, *_figures(each))
    console.print(table)
    if is_incomplete := any(each.rest is None for each in plans):
        console.print(f"No figure: fewer than {MIN_QUESTIONS} questions were answered to judge by.")
    console.print("The same command without 'pilot' goes on from these answers.", soft_wrap=True)
    record = {"runs": [asdict(each) | {"folder": str(each.folder)} for each in plans]}
    return CommandResult(int(is_incomplete), [record])


def _figures(run: PlannedRun) -> Iterator[str]:
    rest = run.rest
    yield f"{run.questions:,}" if rest is None else f"{rest.questions:,} of {run.questions:,}"
    if rest is not None:
        yield "-" if rest.seconds is None else clock(rest.seconds)
        yield from (f"{rest.computed:,}", f"±{rest.error:.0%}", f"{rest.tokens:,}")
