"""Let a language model say which answers of some runs are right.

    corag judge runs/test/one_step-1a2b3c4d runs/test/corag-5e6f7a8b --model.name Qwen/Qwen3-8B

The verdicts lie in a folder of each run, one per judge, so the same command again goes on where it was. A
question that failed counts as wrong without being asked about; so does a verdict that cannot be read, and the
table says how many there were.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

from corag.cli.result import CommandResult
from corag.core.runs.failures import Failures
from eval.judging import JudgedRun, JudgingConfig, judge_runs
from eval.statistics.intervals import INTERVALS
from eval.tables.columns import percent
from eval.tables.conditions import Conditions, describe_conditions
from eval.tables.printing import figures_table, wide_console
from eval.tables.runs import Run, read_run


def main(config: JudgingConfig) -> CommandResult:
    """Judge the runs and print a table. The status is 1 if none was judged, or the judge failed too often."""
    runs = [read_run(name, folder) for name, folder in config.by_name().items()]
    return _report(asyncio.run(judge_runs(runs, config)), runs, config)


def _report(results: Mapping[str, JudgedRun], runs: Sequence[Run], config: JudgingConfig) -> CommandResult:
    (prompt,) = config.judge.templates()
    conditions = describe_conditions({run.name: run.manifest for run in runs})
    print_verdicts(results, f"{config.model.name}, prompt {prompt.identity}", conditions)
    print(f"Verdicts: {', '.join(one.folder for one in results.values())}")
    records = {name: one.to_json() for name, one in results.items()}
    for name, one in results.items():
        if one.judged_nothing and one.unreadable:
            line = (
                f"corag: {name}: no verdict of the judge is yes or no, so nothing is counted: {one.folder}."
            )
            print(line, file=sys.stderr)
    has_empty = any(one.judged_nothing for one in results.values())
    failures = sum((one.failures for one in results.values()), Failures())
    record = {"judged": records, "prompt": prompt.identity, "conditions": conditions.to_json()}
    return CommandResult(int(has_empty), [record], failures, config.max_failed)


def print_verdicts(results: Mapping[str, JudgedRun], who: str, conditions: Conditions) -> None:
    """Print a line per run, then what the EM is by, and what the runs were made with."""
    table = figures_table("method", right=("n", "judged right", "EM", "failed", "judge failed", "unreadable"))
    for name, one in results.items():
        counts = str(one.failed), str(one.judge_failed), str(one.unreadable)
        table.add_row(name, str(one.n), percent(one.right), percent(one.em), *counts)
    console = wide_console()
    console.print(table)
    console.print(
        f"Percent with 95% intervals: {INTERVALS}; what failed or cannot be read counts as wrong. "
        f"Judge: {who}. A judge is a model: look at some of its verdicts before you believe it.",
        soft_wrap=True,
    )
    runs = [
        f"{name}: EM by the scorer {one.scorer}; {conditions.lines_by_run[name]}"
        for name, one in results.items()
    ]
    for line in [*conditions.common_lines, *runs]:
        console.print(line, soft_wrap=True)
