"""Seven sets as one question file, and one table of their figures; for scripts/recipes/seven_sets.sh.

    python scripts/recipes/seven_sets.py merge OUT.jsonl LIMIT SET.jsonl ...
    python scripts/recipes/seven_sets.py table PUBLISHED.yaml SET.csv ...

Question files are FlashRAG's, and the merged one is: a question's kind is its set. The CSV files are those of
``corag table --kinds SET --to csv``.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml


def merge(out: str, limit: str, *files: str) -> None:
    """Write the first ``limit`` questions of each file, all for 0; kind and ids have the file's name."""
    lines = []
    for file in map(Path, files):
        for line in file.read_text(encoding="utf-8").splitlines()[: int(limit) or None]:
            row = json.loads(line)
            kind = {"metadata": (row.get("metadata") or {}) | {"type": file.stem}}
            lines.append(json.dumps(row | {"id": f"{file.stem}/{row['id']}"} | kind))
    Path(out).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def table(published: str, *files: str) -> None:
    """Print a Markdown table: our rows with intervals, mean over sets and tokens, then published rows."""
    sets = [Path(file).stem for file in files]
    rows: dict[str, dict[str, Mapping[str, str]]] = {}
    for file in files:
        with open(file, encoding="utf-8", newline="") as lines:
            for record in csv.DictReader(lines):
                rows.setdefault(Path(record["folder"]).parent.name, {})[Path(file).stem] = record
    print_row(["row", *sets, "mean", "tokens", "source"])
    print_row(["---"] * (len(sets) + 4))
    for name, records in rows.items():
        figures = [our_figure(records.get(each)) for each in sets]
        print_row([name, *figures, our_mean(list(records.values()), len(sets)), tokens(records), "here"])
    papers = yaml.safe_load(Path(published).read_text(encoding="utf-8"))
    for row in papers["rows"]:
        em = dict(zip(papers["sets"], row["em"], strict=True))
        shown = [em.get(each) for each in sets]
        if any(value is not None for value in shown):
            print_row([row["name"], *map(percent, shown), percent(mean(shown)), "", row["source"]])


def our_figure(record: Mapping[str, str] | None) -> str:
    """Write the exact match of a run on a set with its interval."""
    if record is None or not record["em"]:
        return ""
    em, low, high = (100 * float(record[name]) for name in ("em", "em_low", "em_high"))
    return f"{em:.1f} [{low:.1f}, {high:.1f}]"


def our_mean(records: Sequence[Mapping[str, str]], count: int) -> str:
    """Write the mean over all sets, each as much as any other, with its interval; "" where one is missing.

    The interval adds the squares of the sets' distances to their bounds (MOVER: Zou and Donner 2008).
    """
    figures = [
        [float(record[name]) for name in ("em", "em_low", "em_high")] for record in records if record["em"]
    ]
    if len(figures) < count:
        return ""
    center = fmean(em for em, _, _ in figures)
    low = center - math.hypot(*(em - low for em, low, _ in figures)) / count
    high = center + math.hypot(*(high - em for em, _, high in figures)) / count
    return f"{100 * center:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def tokens(records: Mapping[str, Mapping[str, str]]) -> str:
    """Write the mean over sets of the tokens of a question."""
    return f"{fmean(float(record['tokens_per_question']) for record in records.values()):,.0f}"


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of figures, None where one is missing."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def percent(value: float | None) -> str:
    """Write a figure, "" for none."""
    return "" if value is None else f"{value:.1f}"


def print_row(cells: Sequence[Any]) -> None:
    """Print a line of the table."""
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")


if __name__ == "__main__":
    (merge if sys.argv[1] == "merge" else table)(*sys.argv[2:])
