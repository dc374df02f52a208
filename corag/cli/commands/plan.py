"""Say what a run or a sweep will take before it is paid for: time, tokens, searches, disk.

    corag plan --config experiment.yaml --pilot 20
    corag plan --config eval/configs/world.yaml

A pilot of some questions, drawn evenly from all, is answered by every method or cell. 'corag run' or 'corag
sweep' with the same options goes on from there, so nothing is asked twice. --dry true runs no model and gives
tokens, searches and disk if every reply had its longest length: mostly more than a run takes, but no bound.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from corag.cli.result import CommandResult
from corag.core.machine import available_memory, count_cores
from corag.core.pace import clock
from corag.core.runs.environment import gpu_names
from eval.experiment.estimate import MIN_QUESTIONS, RunEstimate, short
from eval.sweeps.plan import PlanConfig, PlannedRun, plan_runs
from eval.sweeps.sweep import Openers
from eval.tables.printing import figures_table, wide_console

BACK_ENDS = Openers()
_BOTTLENECK_SHARE = 0.5  # share of the waiting above which searches are the bottleneck


def main(config: PlanConfig) -> CommandResult:
    """Answer the pilot and print the plan. The status is 1 if too little could be answered for one."""
    plans = plan_runs(config, BACK_ENDS)
    console = wide_console()
    table = figures_table(
        "what", right=("left of", "time", "computed", "within", "tokens", "searches", "traces")
    )
    for each in plans:
        if (rest := each.rest) is None:
            table.add_row(each.name, f"{each.questions:,}", *["-"] * 6)
            continue
        table.add_row(
            each.name,
            f"{rest.questions:,} of {each.questions:,}",
            "-" if rest.seconds is None else clock(rest.seconds),
            short(rest.computed),
            f"±{rest.error:.0%}",
            short(rest.tokens),
            f"{rest.searches:,}",
            f"{rest.bytes / 1e6:,.1f} MB",
        )
    console.print(table)
    for line in remarks(config, plans):
        console.print(line, soft_wrap=True)
    record = {"runs": [asdict(each) | {"folder": str(each.folder)} for each in plans]}
    return CommandResult(int(any(each.rest is None for each in plans)), [record])


def remarks(config: PlanConfig, plans: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield what the table does not show: sums, the bottleneck, what is there, and how to go on."""
    if rests := [each.rest for each in plans if each.rest]:
        yield from (bound_lines if config.dry else total_lines)(rests)
        size = sum(rest.bytes for rest in rests)
        free = shutil.disk_usage(existing_folder(config.folder)).free
        enough = "" if free > 2 * size else ": too little"
        yield f"Disk: {size / 1e6:,.0f} MB of traces; {free / 1e9:,.1f} GB are free{enough}."
    if len(rests) < len(plans):
        yield (
            f"Fewer than {MIN_QUESTIONS} questions were answered where there is no figure: nothing to judge "
            "by."
        )
    memory = available_memory()
    for folder in map(Path, config.retriever.index):
        if folder.is_dir():
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            fits = "fits" if size < memory else "does not fit, so searches will read the disk: it should fit"
            yield f"Index {folder}: {size / 1e9:,.2f} GB, which {fits} into the memory that is free."
    if not config.dry and (slow := [each.name for each in plans if each.searching > _BOTTLENECK_SHARE]):
        yield f"Bottleneck: the searches of {', '.join(slow)}. More search servers or a smaller index help."
    elif rests and not config.dry:
        yield "Bottleneck: the engine."
    gpus = gpu_names()
    kinds = f"{len(gpus)} GPUs ({gpus[0]})" if gpus else "no GPU"
    yield f"Machine: {count_cores()} cores, {memory / 1e9:,.0f} GB of memory free, {kinds}."
    if not config.dry:
        command = "sweep" if config.is_sweep else "run"
        yield f"'corag {command}' with the same options goes on from these answers."


def total_lines(rests: Sequence[RunEstimate]) -> Iterator[str]:
    """Yield the sums of a plan by a pilot, and how quick the pilot was."""
    seconds = sum(rest.seconds or 0.0 for rest in rests)
    tokens = sum(rest.computed for rest in rests)
    yield (
        f"In all {clock(seconds)} with engine and index open, {short(tokens)} computed tokens; judged by "
        f"{rests[0].judged_by} questions each. Caches were cold for the first of them, so longer runs are "
        "rather quicker."
    )
    if seconds:
        searches = sum(rest.searches for rest in rests) / seconds
        pace = f"{tokens / seconds:,.0f} computed tokens and {searches:,.1f} searches a second"
        yield f"Pace of the pilot: {pace}."


def bound_lines(rests: Sequence[RunEstimate]) -> Iterator[str]:
    """Yield the sums of a dry plan, and what they leave out."""
    tokens, searches = sum(rest.tokens for rest in rests), sum(rest.searches for rest in rests)
    yield (
        f"Estimate from above: {short(tokens)} tokens and {searches:,} searches, by {rests[0].judged_by} "
        "questions each: no model was run. Every reply has its longest length, no chain ends early and no "
        "cache helps. A run takes more only if the other questions are longer, or if a model repeats "
        "sub-queries, which CoRAG asks again (up to 'corag.tries' times as many). For seconds run a pilot "
        "(without 'dry')."
    )


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
