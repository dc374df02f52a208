"""What a sweep leaves in its folder, sweep.csv, sweep.json, sweep.png and sweep.svg, and what it prints."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from core.files import write_atomically
from core.runs.manifest import Manifest
from eval.experiment.conditions import conditions
from eval.scoring.scorers import chosen_scorer, scorer_title
from eval.statistics.scaling import Fit
from eval.sweeps.cells import Cell, groups_of
from eval.sweeps.findings import MEASURES, Findings, Measured, Reporting, find, measured
from eval.sweeps.plots import Line, Point, draw_scaling
from eval.tables.ledger import Spending
from eval.tables.runs import status
from eval.tables.table import json_record, percent
from scripts.printing import print_table, wide_console

_PLAIN = ("n", "failed", "tokens_per_question", "computed_tokens", "calls", "searches", "steps")


def report(out: Path, tests: Sequence[Cell], devs: Sequence[Cell], options: Reporting) -> int:
    """Write the files and print the account of a finished sweep; the last line is JSON.

    Return 0, or 1 if every question of some cell failed.
    """
    tested, developed = measured(tests, options.metric), measured(devs, options.metric)
    found = find(tested, developed, options)
    first, questions = tests[0].config, tests[0].questions
    scorer = chosen_scorer(first.scorer, first.dataset)
    record = record_of(tested, developed, found, options) | {"scorer": scorer.name}
    write_atomically(out / "sweep.json", json.dumps(record, indent=1) + "\n")
    write_atomically(out / "sweep.csv", csv_of(tested, developed, found, options.metric))
    pictures = plot(out, tested, found, options.metric, f"{Path(first.questions).name}, n = {len(questions)}")
    folders = {each.name: each.cell.folder for each in tested}
    print_table([each.summary for each in tested], folders, known_of(tested).scorer)
    console = wide_console()
    print_findings(console, tested, developed, found, options)
    print_spending(console, [*tested, *developed])
    written = [out / "sweep.csv", out / "sweep.json", *pictures]
    console.print(f"Written: {', '.join(map(str, written))}.", soft_wrap=True, markup=False)
    shown = {name: value for name, value in record.items() if name not in ("cells", "dev_cells")}
    print(json.dumps({"runs": record["cells"], **shown, "sweep": str(out / "sweep.json")}))
    return status([each.summary for each in [*tested, *developed]])


@dataclass(frozen=True)
class Known:
    """What a reader must know beside the figures of some cells: how they are scored, what they share, and by
    cell what else.
    """

    scorer: str
    shared: Sequence[str]
    own: Mapping[str, str]


def known_of(cells: Sequence[Measured]) -> Known:
    """Return how the cells are scored, by the gold answers of now, and what their manifests say."""
    config = cells[0].cell.config
    chosen = chosen_scorer(config.scorer, config.dataset)
    title = scorer_title(chosen, cells[0].cell.questions, config.aliases)
    return Known(title, *conditions({each.name: Manifest.read(each.cell.folder) for each in cells}))


def record_of(
    tested: Sequence[Measured], developed: Sequence[Measured], found: Findings, options: Reporting
) -> dict[str, Any]:
    """Write a sweep as a JSON object; scores are fractions, but in percent where they are the curve's y."""
    config = tested[0].cell.config
    known, known_of_dev = known_of(tested), known_of(developed) if developed else None
    of_dev = (
        {"dev_scorer_title": known_of_dev.scorer, "dev_conditions": known_of_dev.shared}
        if known_of_dev
        else {}
    )
    return {
        "questions": {
            "file": config.questions,
            "dataset": config.dataset,
            "n": len(tested[0].cell.questions),
        },
        "metric": options.metric,
        "scorer_title": known.scorer,
        "conditions": known.shared,
        **of_dev,
        "cells": {
            each.name: cell_record(each, known) | {"pareto": each.name in found.pareto} for each in tested
        },
        "dev_cells": {each.name: cell_record(each, known_of_dev) for each in developed if known_of_dev},
        "pareto": found.pareto,
        "failed": found.failed,
        "fit": {
            "formula": "y = a * log(x + b) + c",
            "x": "tokens per question",
            "y": f"{MEASURES[options.metric]} in percent",
            "log": "natural",
            **{
                name: {"refused": fit} if isinstance(fit, str) else asdict(fit)
                for name, fit in found.fits.items()
            },
        },
        "best_under_budget": {
            "chosen_on": developed[0].cell.config.questions
            if developed
            else "the same questions: optimistic",
            "choices": [asdict(choice) for choice in found.choices],
        },
        "shared_work": spending_record([*tested, *developed]),
    }


def cell_record(each: Measured, known: Known) -> dict[str, Any]:
    """Write a cell as a JSON object: what the table says of it, and the options and conditions that tell it
    from the others.
    """
    told = {"method": each.cell.method, "options": each.options, "folder": str(each.cell.folder)}
    told["conditions"] = known.own[each.name]
    return json_record(each.summary) | {"remembered_tokens": each.spent.remembered} | told


def spending_record(cells: Sequence[Measured]) -> dict[str, int | None]:
    """Write what all cells together cost, and how much of it they shared."""
    spent = sum((each.spent for each in cells), Spending())
    return {
        "tokens": spent.usage.total,
        "remembered_tokens": spent.remembered,
        "prefix_cache_tokens": spent.in_cache,
        "computed_tokens": spent.usage.computed,
        "searches": sum(each.searches for each in cells),
        "remembered_searches": sum(each.remembered_searches for each in cells),
    }


def csv_of(tested: Sequence[Measured], developed: Sequence[Measured], found: Findings, metric: str) -> str:
    """Write a line per cell, then one per cell on the dev questions.

    Options that differ are columns, scores fractions.

    ``metric``: what the Pareto set is by.
    The last two columns say how the line is scored, and all that must be known beside it.
    """
    options = list(dict.fromkeys(option for each in tested for option in each.options if option != "method"))
    measures = list(dict.fromkeys(name for each in [*tested, *developed] for name in each.summary.measured))
    scores = [f"{name}{end}" for name in measures for end in ("", "_low", "_high")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "questions",
            "cell",
            "method",
            *options,
            "metric",
            "pareto",
            *scores,
            *_PLAIN,
            "folder",
            "scorer",
            "conditions",
        ]
    )
    known = {asked: known_of(cells) for asked, cells in (("test", tested), ("dev", developed)) if cells}
    for asked, each in [*(("test", each) for each in tested), *(("dev", each) for each in developed)]:
        record = json_record(each.summary)
        told = [each.options.get(option, "") for option in options]
        pareto = int(each.name in found.pareto) if asked == "test" else ""
        figures = [
            value
            for name in measures
            for value in (record.get(name), *(record.get(f"{name}_interval") or (None, None)))
        ] + [record[name] for name in _PLAIN]
        said = " ".join([*known[asked].shared, known[asked].own[each.name]])
        writer.writerow(
            [
                asked,
                each.name,
                each.cell.method,
                *told,
                metric,
                pareto,
                *figures,
                each.cell.folder,
                known[asked].scorer,
                said,
            ]
        )
    return text.getvalue()


def plot(out: Path, tested: Sequence[Measured], found: Findings, metric: str, title: str) -> list[Path]:
    """Draw sweep.png and sweep.svg and return their paths; without matplotlib, say how to get them."""
    if importlib.util.find_spec("matplotlib") is None:
        print(
            "corag: no pictures: pip install matplotlib, then the same command draws them.", file=sys.stderr
        )
        return []
    files = [out / "sweep.png", out / "sweep.svg"]
    shown = [each for each in tested if each.name not in found.failed]
    if not shown:
        return []
    groups = groups_of([each.cell for each in shown], [each.options for each in shown])
    points = [point_of(each, group, found, metric) for each, group in zip(shown, groups, strict=True)]
    draw_scaling(
        points, files, measure=MEASURES[metric], title=title, line=line_of(points, found, MEASURES[metric])
    )
    return files


def line_of(points: Sequence[Point], found: Findings, measure: str) -> Line | None:
    """Return the curve that is drawn: the one through the Pareto set, or else the one through all cells, if
    there is any.
    """
    for name, title in (("pareto", "frontier"), ("all", "all cells")):
        fit = found.fits[name]
        if isinstance(fit, Fit):
            spent = [point.tokens for point in points if point.on_frontier or name == "all"]
            said = [title, f"{fit.points} points"]
            said += [] if fit.r_squared is None else [f"R² {fit.r_squared:.2f}"]
            said += [f"b at its {fit.at_limit} limit"] if fit.at_limit else []
            return Line(
                fit.curve, min(spent), max(spent), f"{fit.curve.formula(measure)}  ({', '.join(said)})"
            )
    return None


def point_of(each: Measured, group: str, found: Findings, metric: str) -> Point:
    """Return a cell as it is drawn."""
    interval = each.summary.measured[metric]
    low, high = (interval.low, interval.high) if interval else (None, None)
    return Point(
        each.cell.label,
        group,
        each.scores.mean_tokens,
        100 * each.scores.mean_score,
        None if low is None else 100 * low,
        None if high is None else 100 * high,
        each.name in found.pareto,
    )


def print_findings(
    console: Console,
    tested: Sequence[Measured],
    developed: Sequence[Measured],
    found: Findings,
    options: Reporting,
) -> None:
    """Print the Pareto set, the curves, and the best cell under each budget."""
    measure = MEASURES[options.metric]
    if found.failed:
        console.print(
            f"\nLeft out of all that follows, for every question failed: {', '.join(found.failed)}.",
            soft_wrap=True,
            markup=False,
        )
    console.print("\nPareto set (no other cell is as good for as few tokens):")
    scores = {each.name: each.scores for each in tested}
    for cell in (scores[name] for name in found.pareto):
        figures = f"{cell.mean_tokens:>9,.0f} tokens  {measure} {100 * cell.mean_score:5.1f}"
        console.print(f"  {figures}  {cell.name}", soft_wrap=True, markup=False)
    console.print(
        f"Curves (x: tokens per question, {measure} in percent, natural logarithm, 95% bootstrap intervals):"
    )
    for name, title in (("pareto", "through the Pareto set"), ("all", "through all cells")):
        fit = found.fits[name]
        told = fit if isinstance(fit, str) else fit_line(fit, measure)
        console.print(f"  {title}: {told}", soft_wrap=True, markup=False)
    if found.choices:
        console.print(budget_table(found, bool(developed), measure))
    if unused := sorted(set(options.budgets) - {choice.budget for choice in found.choices}):
        named = ", ".join(f"{budget:,}" for budget in unused)
        console.print(
            f"No line for {named}: no cell is that cheap, or a smaller budget affords them all.",
            soft_wrap=True,
        )
    if developed:
        asked = developed[0].cell
        console.print(
            f"Chosen on {len(asked.questions)} dev questions: {asked.config.questions}.", soft_wrap=True
        )
    else:
        console.print(
            "Chosen on the very questions that are reported: optimistic. Name others with --dev.questions."
        )


def fit_line(fit: Fit, measure: str) -> str:
    """Write a curve with its intervals on one line."""
    parts = [fit.curve.formula(measure)]
    for name, estimate, digits in (("a", fit.a, 2), ("b", fit.b, 0), ("c", fit.c, 1)):
        if estimate.low is not None and estimate.high is not None:
            parts.append(f"{name} [{estimate.low:,.{digits}f}, {estimate.high:,.{digits}f}]")
    if fit.r_squared is not None:
        parts.append(f"R² {fit.r_squared:.3f}")
    parts.append(f"{fit.points} points, {fit.questions} questions")
    if fit.at_limit:
        parts.append(f"b is at its {fit.at_limit} limit, so these points do not tell it")
    return "; ".join(parts)


def budget_table(found: Findings, chosen_on_dev: bool, measure: str) -> Table:
    """Return the best cell under each budget."""
    table = Table(title="Best under each budget (tokens per question, on average)", title_justify="left")
    dev = ["dev tokens", f"dev {measure}"] if chosen_on_dev else []
    for heading in ("budget", "cell", *dev, "tokens", measure):
        table.add_column(heading, justify="left" if heading == "cell" else "right", no_wrap=heading != "cell")
    for choice in found.choices:
        figures = [f"{choice.chosen_tokens:,.0f}", f"{100 * choice.chosen_score:.1f}"] if dev else []
        table.add_row(
            f"{choice.budget:,}", choice.cell, *figures, f"{choice.tokens:,.0f}", percent(choice.score)
        )
    return table


def print_spending(console: Console, cells: Sequence[Measured]) -> None:
    """Say how many of the cells' tokens were computed, and which were shared."""
    spent = sum((each.spent for each in cells), Spending())
    line = f"Shared work: the cells count {spent.usage.total:,} tokens, of which {spent.usage.computed:,} were computed"
    if spent.remembered is not None and spent.in_cache is not None:
        line += (
            f", {spent.remembered:,} remembered from equal requests and {spent.in_cache:,} found in the "
            "prefix cache"
        )
    searches, remembered = (
        sum(getattr(each, name) for each in cells) for name in ("searches", "remembered_searches")
    )
    console.print(f"{line}. Of {searches:,} searches {remembered:,} were remembered.", soft_wrap=True)
