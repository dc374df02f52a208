"""'corag table --ledger': where the tokens and seconds of finished runs went.

By role: what was asked of the model, what the engine found in its cache, what was remembered, what it
computed. By stage: how long questions waited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from corag.core.runs.manifest import Manifest
from corag.core.types import MEASURING
from eval.tables.ledger import Ledger, read_ledger
from eval.tables.printing import figures_table, wide_console

TOKENS = ("calls", "prompt", "generated", "in_cache", "remembered", "computed", "share")
SECONDS = ("calls", "total", "mean", "p50", "p95")


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
        record = ledger.to_json()
        console.print(table_of("role", TOKENS, record["roles"] | {"all": record["total"]}))
        waiting = record["waiting"] | {"question, first call to answer": record["question_seconds"]}
        console.print(table_of("seconds of", SECONDS, waiting))
        console.print("\n".join(remarks(ledger)) + "\n", soft_wrap=True, markup=False)
    return {"runs": {name: each.to_json() | {"folder": str(runs[name])} for name, each in ledgers.items()}}


def table_of(
    first: str, columns: Sequence[str], rows: Mapping[str, Mapping[str, float | None] | None]
) -> Table:
    """Return a table of figures by name; what is not known is a dash."""
    table = figures_table(first, right=[name.replace("_", " ") for name in columns])
    for name, figures in rows.items():
        table.add_row(name, *(figure((figures or {}).get(column)) for column in columns))
    return table


def figure(value: float | None) -> str:
    """Write a count, or seconds or a share with two digits; a dash for what is not known."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def remarks(ledger: Ledger) -> list[str]:
    """Return how to read the tables."""
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
    return [*lines, f"Wall time: {ledger.wall:,.1f} s, without loading engine and index."]
