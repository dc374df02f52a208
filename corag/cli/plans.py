"""'corag run --pilot' and 'corag sweep --pilot': what the questions will take that a pilot left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from corag.cli.result import CommandResult
from corag.core.pace import clock
from eval.experiment.estimate import MIN_QUESTIONS, RunEstimate, short
from eval.sweeps.plan import PlannedRun
from eval.tables.printing import figures_table, wide_console

_BOTTLENECK_SHARE = 0.5  # share of the waiting above which searches are the bottleneck


def print_plan(plans: Sequence[PlannedRun]) -> CommandResult:
    """Print a plan. The status is 1 if too little could be answered for one."""
    console = wide_console()
    table = figures_table("what", right=("left of", "time", "computed", "within", "tokens", "searches"))
    for each in plans:
        table.add_row(each.name, *_figures(each))
    console.print(table)
    for line in remarks(plans):
        console.print(line, soft_wrap=True)
    record = {"runs": [asdict(each) | {"folder": str(each.folder)} for each in plans]}
    return CommandResult(int(any(each.rest is None for each in plans)), [record])


def _figures(run: PlannedRun) -> Iterator[str]:
    rest = run.rest
    yield f"{run.questions:,}" if rest is None else f"{rest.questions:,} of {run.questions:,}"
    if rest is not None:
        yield "-" if rest.seconds is None else clock(rest.seconds)
        yield from (short(rest.computed), f"±{rest.error:.0%}", short(rest.tokens))
        yield f"{rest.searches:,}"


def remarks(plans: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield what the table does not show: sums, the bottleneck, and how to go on."""
    if rests := [each.rest for each in plans if each.rest]:
        yield _sums(rests)
        slow = ", ".join(each.name for each in plans if each.searching > _BOTTLENECK_SHARE)
        cure = f"searches of {slow}. More search servers or a smaller index help."
        yield f"Bottleneck: the {cure if slow else 'engine.'}"
    if len(rests) < len(plans):
        yield (
            f"Fewer than {MIN_QUESTIONS} questions were answered where there is no figure: nothing to judge "
            "by."
        )
    yield "The same command without 'pilot' goes on from these answers."


def _sums(rests: Sequence[RunEstimate]) -> str:
    seconds = sum(rest.seconds or 0.0 for rest in rests)
    return (
        f"In all {clock(seconds)} with engine and index open, {short(sum(rest.computed for rest in rests))} "
        f"computed tokens; judged by {rests[0].judged_by} questions each. Caches were cold for the first of "
        "them, so longer runs are rather quicker."
    )
