"""What a sweep found, printed: Pareto set, curves, the best cell under each budget, the shared work."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from eval.statistics.scaling import Fit
from eval.sweeps.findings import Findings, FinishedCell, mean_scores
from eval.sweeps.record import Sweep, spending_record
from eval.tables.columns import percent


def print_findings(console: Console, sweep: Sweep) -> None:
    """Print the Pareto set, the curves, and the best cell under each budget."""
    findings, measure = sweep.findings, sweep.measure
    if findings.failed_cells:
        line = (
            f"\nLeft out of all that follows, for every question failed: {', '.join(findings.failed_cells)}."
        )
        console.print(line, soft_wrap=True)
    console.print("\nPareto set (no other cell is as good for as few tokens):")
    scores = {each.name: each for each in mean_scores(sweep.test_cells)}
    for cell in (scores[name] for name in findings.pareto):
        figures = f"{cell.mean_tokens:>9,.0f} tokens  {measure} {100 * cell.mean_score:5.1f}"
        console.print(f"  {figures}  {cell.name}", soft_wrap=True)
    if findings.fits:
        console.print(
            f"Curves (x: tokens per question, {measure} in percent, natural logarithm, "
            "95% bootstrap intervals):"
        )
    for name, fits in findings.fits.items():
        for through, title in (("pareto", "its Pareto set"), ("all", "all its cells")):
            fit = fits[through]
            line = fit if isinstance(fit, str) else fit_line(fit, measure)
            console.print(f"  {name}, through {title}: {line}", soft_wrap=True)
    print_choices(console, sweep)


def print_choices(console: Console, sweep: Sweep) -> None:
    """Print the best cell under each budget, and on which questions it was chosen."""
    choices = sweep.findings.choices
    if choices:
        console.print(budget_table(sweep.findings, bool(sweep.dev_cells), sweep.measure))
    if unused_budgets := sorted(set(sweep.options.budgets) - {choice.budget for choice in choices}):
        budgets = ", ".join(f"{budget:,}" for budget in unused_budgets)
        console.print(
            f"No line for {budgets}: no cell is that cheap, or a smaller budget affords them all.",
            soft_wrap=True,
        )
    if sweep.dev_cells:
        cell = sweep.dev_cells[0].cell
        line = f"Chosen on {len(cell.questions)} dev questions: {cell.config.questions}."
        console.print(line, soft_wrap=True)
    else:
        console.print(
            "Chosen on the very questions that are reported: optimistic. Name others with 'dev.questions'."
        )


def fit_line(fit: Fit, measure: str) -> str:
    """Write a curve with its intervals on one line; of one that its points do not tell, only that."""
    if fit.at_limit:
        return f"none: b is at its {fit.at_limit} limit, so these {fit.points} points do not tell a curve."
    parts = [fit.curve.formula(measure)]
    for name, estimate, digits in (("a", fit.a, 2), ("b", fit.b, 0), ("c", fit.c, 1)):
        if estimate.low is not None and estimate.high is not None:
            parts.append(f"{name} [{estimate.low:,.{digits}f}, {estimate.high:,.{digits}f}]")
    if fit.r_squared is not None:
        parts.append(f"R² {fit.r_squared:.3f}")
    parts.append(f"{fit.points} points, {fit.questions} questions")
    return "; ".join(parts)


def budget_table(findings: Findings, chosen_on_dev: bool, measure: str) -> Table:
    """Return the best cell under each budget."""
    table = Table(title="Best under each budget (tokens per question, on average)", title_justify="left")
    dev = ["dev tokens", f"dev {measure}"] if chosen_on_dev else []
    for heading in ("budget", "cell", *dev, "tokens", measure):
        table.add_column(heading, justify="left" if heading == "cell" else "right", no_wrap=heading != "cell")
    for choice in findings.choices:
        figures = [f"{choice.chosen_tokens:,.0f}", f"{100 * choice.chosen_score:.1f}"] if dev else []
        table.add_row(
            f"{choice.budget:,}", choice.cell, *figures, f"{choice.tokens:,.0f}", percent(choice.score)
        )
    return table


def print_spending(console: Console, cells: Sequence[FinishedCell]) -> None:
    """Print how many of the cells' tokens were computed, and which were shared."""
    total = spending_record(cells)
    line = f"Shared work: the cells count {total['tokens']:,} tokens"
    line += f", of which {total['computed_tokens']:,} were computed"
    if total["remembered_tokens"] is not None and total["prefix_cache_tokens"] is not None:
        line += (
            f", {total['remembered_tokens']:,} remembered from equal requests and "
            f"{total['prefix_cache_tokens']:,} found in the prefix cache"
        )
    searches = f"Of {total['searches']:,} searches {total['remembered_searches']:,} were remembered."
    console.print(f"{line}. {searches}", soft_wrap=True)
