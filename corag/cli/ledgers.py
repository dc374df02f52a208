"""'corag table --ledger': where the tokens and seconds of finished runs went.

By role: what was asked of the model, what the engine found in its cache, what was remembered, what it
computed. By stage: how long questions waited. And the share of the time in which no request of the run was at
the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from corag.core.runs.manifest import Manifest
from corag.core.types import MEASURING
from eval.tables.ledger import Ledger, Spending, Waiting, read_ledger
from eval.tables.printing import figures_table, wide_console


def print_ledgers(runs: Mapping[str, Path]) -> dict[str, Any]:
    """Print the ledger of each run, and return all of them as a JSON object."""
    console = wide_console(150)
    # All are read before anything is printed: one may be no run.
    ledgers = {name: read_ledger(folder) for name, folder in runs.items()}
    for name, ledger in ledgers.items():
        title = f"{Manifest.read(runs[name]).method}: {runs[name]}"
        console.print(
            f"{title} ({ledger.questions} questions, {ledger.failure_count} failed)", soft_wrap=True
        )
        console.print(roles_table(ledger))
        console.print(stages_table(ledger))
        console.print("\n".join(remarks(ledger)) + "\n", soft_wrap=True, markup=False)
    return {"runs": {name: each.to_json() | {"folder": str(runs[name])} for name, each in ledgers.items()}}


def roles_table(ledger: Ledger) -> Table:
    """Return what each role spent, in tokens."""
    table = figures_table(
        "role", right=("calls", "prompt", "generated", "in cache", "remembered", "computed", "share")
    )
    for role, spending in ledger.roles.items():
        table.add_row(role, *_tokens(spending), f"{100 * ledger.share(role):.1f}%")
    table.add_section()
    table.add_row("all", *_tokens(ledger.total), "")
    return table


def stages_table(ledger: Ledger) -> Table:
    """Return what questions waited for, in seconds."""
    table = figures_table("seconds of", right=("calls", "all", "mean", "p50", "p95"))
    for stage, waiting in ledger.stages.items():
        table.add_row(stage, *_seconds(waiting))
    table.add_section()
    table.add_row("question, first call to answer", *_seconds(ledger.question_seconds))
    return table


def remarks(ledger: Ledger) -> list[str]:
    """Return how to read the tables, and what the engine did meanwhile."""
    lines = [
        "Tokens: prompt + generated = in cache + remembered + computed; share: of all computed tokens.",
        "Seconds of a stage: waiting; calls made at the same time are added up. Mean, p50 and p95 are per "
        "question.",
    ]
    if MEASURING in ledger.roles:
        lines.append(f'"{MEASURING}" was only measured: its tokens are in this table and no other.')
    if estimated_tokens := ledger.total.usage.estimated:
        lines.append(
            f"Of these tokens {estimated_tokens:,} were not counted by the server, but estimated, one for "
            "four bytes of text: 'model.tokenizer' counts them."
        )
    if ledger.retry_count:
        lines.append(
            f"Besides: {ledger.retry_count} failed attempts that were tried again, "
            f"{ledger.retried_usage.total:,} tokens."
        )
    starts = f" in {len(ledger.starts)} starts, added up" if len(ledger.starts) > 1 else ""
    lines.append(f"Wall time: {ledger.wall:,.1f} s{starts}, without loading engine and index.")
    if ledger.idle_share is not None and ledger.in_flight is not None:
        lines.append(
            f"Engine idle share: {100 * ledger.idle_share:.1f}% of the wall time, with no request of this "
            f"run in flight; {ledger.in_flight:.1f} were on average."
        )
    return lines


def _tokens(spending: Spending) -> list[str]:
    usage = spending.usage
    figures = [
        usage.calls,
        usage.prompt,
        usage.generated,
        spending.in_cache,
        spending.remembered_tokens,
        usage.computed,
    ]
    return ["-" if figure is None else f"{figure:,}" for figure in figures]


def _seconds(waiting: Waiting | None) -> list[str]:
    if waiting is None:
        return ["unknown", "-", "-", "-", "-"]
    seconds = [f"{value:,.2f}" for value in (waiting.total, waiting.mean, waiting.p50, waiting.p95)]
    return [f"{waiting.calls:,}", *seconds]
