"""Answer a dataset with many settings: a table, the Pareto set, a curve, the best setting per budget.

    corag sweep --config eval/configs/world.yaml
    corag sweep --config scripts/configs/decoding.yaml --cells scripts/configs/decoding_cells.yaml \
        --questions test.jsonl --retriever.index world-bm25

A cell is a name and what it changes: options of 'corag run', as "corag.max_hops: 4" or nested. A grid is a
list of blocks of options, each with a value or a list of values; its cells are their combinations. Cells of
the same model share one engine, its prefix cache and its memory of replies: where best of 4 has been, best of
8 asks for four chains only. Each cell has a run folder of its own, so the same command again goes on where it
was; once every question is answered it prints the report and starts no engine. Questions that failed are
tried again, as 'corag run' tries them again, so a cell that has any opens its engine each time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from eval.statistics.scaling import Fit
from eval.sweeps.findings import Findings, Measured
from eval.sweeps.record import Sweep, known_of, read_sweep, spending_record, write_sweep
from eval.sweeps.sweep import Openers, SweepConfig, answer_cells, planned
from eval.tables.printing import print_table, wide_console
from eval.tables.runs import all_failed
from eval.tables.table import percent

BACK_ENDS = Openers()


def main(config: SweepConfig) -> int:
    """Answer every cell, report, return 0; 1 if every question of some cell failed."""
    tested, developed = planned(config)
    asyncio.run(answer_cells([*tested, *developed], BACK_ENDS))
    sweep = read_sweep(tested, developed, config.reporting)
    record, written = write_sweep(config.folder, sweep)
    if importlib.util.find_spec("matplotlib") is None:
        print(
            "corag: no pictures: pip install matplotlib, then the same command draws them.", file=sys.stderr
        )
    folders = {each.name: each.cell.folder for each in sweep.tested}
    print_table([each.summary for each in sweep.tested], folders, known_of(sweep.tested).scorer)
    console = wide_console()
    print_findings(console, sweep)
    print_spending(console, sweep.cells)
    console.print(f"Written: {', '.join(map(str, written))}.", soft_wrap=True, markup=False)
    shown = {name: value for name, value in record.items() if name not in ("cells", "dev_cells")}
    print(json.dumps({"runs": record["cells"], **shown, "sweep": str(config.folder / "sweep.json")}))
    return int(all_failed([each.summary for each in sweep.cells]))


def print_findings(console: Console, sweep: Sweep) -> None:
    """Print the Pareto set, the curves, and the best cell under each budget."""
    found, measure = sweep.found, sweep.measure
    if found.failed:
        said = f"\nLeft out of all that follows, for every question failed: {', '.join(found.failed)}."
        console.print(said, soft_wrap=True, markup=False)
    console.print("\nPareto set (no other cell is as good for as few tokens):")
    scores = {each.name: each.scores for each in sweep.tested}
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
    print_choices(console, sweep)


def print_choices(console: Console, sweep: Sweep) -> None:
    """Print the best cell under each budget, and on which questions it was chosen."""
    choices = sweep.found.choices
    if choices:
        console.print(budget_table(sweep.found, bool(sweep.developed), sweep.measure))
    if unused := sorted(set(sweep.options.budgets) - {choice.budget for choice in choices}):
        named = ", ".join(f"{budget:,}" for budget in unused)
        console.print(
            f"No line for {named}: no cell is that cheap, or a smaller budget affords them all.",
            soft_wrap=True,
        )
    if sweep.developed:
        asked = sweep.developed[0].cell
        said = f"Chosen on {len(asked.questions)} dev questions: {asked.config.questions}."
        console.print(said, soft_wrap=True)
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
    spent = spending_record(cells)
    line = f"Shared work: the cells count {spent['tokens']:,} tokens"
    line += f", of which {spent['computed_tokens']:,} were computed"
    if spent["remembered_tokens"] is not None and spent["prefix_cache_tokens"] is not None:
        line += (
            f", {spent['remembered_tokens']:,} remembered from equal requests and "
            f"{spent['prefix_cache_tokens']:,} found in the prefix cache"
        )
    said = f"Of {spent['searches']:,} searches {spent['remembered_searches']:,} were remembered."
    console.print(f"{line}. {said}", soft_wrap=True)
