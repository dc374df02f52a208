"""What a sweep found, printed: Pareto set, curves, the best cell under each budget."""

from __future__ import annotations

from rich.console import Console

from eval.statistics.scaling import Fit
from eval.sweeps.record import Sweep
from eval.tables.columns import percent
from eval.tables.printing import figures_table


def print_findings(console: Console, sweep: Sweep) -> None:
    """Print the Pareto set, the curves, and the best cell under each budget."""
    findings, measure = sweep.findings, sweep.measure
    if findings.failed_cells:
        line = (
            f"\nLeft out of all that follows, for every question failed: {', '.join(findings.failed_cells)}."
        )
        console.print(line, soft_wrap=True)
    console.print("\nPareto set (no other cell is as good for as few tokens):")
    for cell in findings.frontier:
        figures = f"{cell.mean_tokens:>9,.0f} tokens  {measure} {100 * cell.mean_score:5.1f}"
        console.print(f"  {figures}  {cell.name}", soft_wrap=True)
    if findings.curves:
        console.print(
            f"Curves (x: tokens per question, {measure} in percent, natural logarithm, "
            "95% bootstrap intervals):"
        )
    for name, curve in findings.curves.items():
        line = fit_line(curve.fit, measure, curve.through) if curve.fit else f"none: {curve.reason}"
        console.print(f"  {name}: {line}", soft_wrap=True)
    print_choices(console, sweep)


def print_choices(console: Console, sweep: Sweep) -> None:
    """Print the best cell under each budget, and on which questions it was chosen."""
    choices = sweep.findings.choices
    if not choices:
        failed = sweep.findings.failed_cells
        cells = (sweep.dev or sweep.test).cells
        costs = [each.scores.mean_tokens for each in cells if each.scores.name not in failed]
        if costs:
            line = f"No cell is within any of the budgets: the cheapest takes {min(costs):,.0f} tokens."
            console.print(line, soft_wrap=True)
        return
    dev = ["dev tokens", f"dev {sweep.measure}"] if sweep.dev else []
    table = figures_table("budget", "cell", right=[*dev, "tokens", sweep.measure])
    table.title, table.title_justify = "Best under each budget (tokens per question, on average)", "left"
    for each in choices:
        chosen = [f"{each.chosen_tokens:,.0f}", f"{100 * each.chosen_score:.1f}"] if dev else []
        table.add_row(f"{each.budget:>7,}", each.cell, *chosen, f"{each.tokens:,.0f}", percent(each.score))
    console.print(table)
    chosen_on = (
        f"Chosen on {len(sweep.dev.cells[0].cell.questions)} dev questions: {sweep.chosen_on}."
        if sweep.dev
        else "Chosen on the very questions that are reported: optimistic. Name others with 'dev.questions'."
    )
    console.print(f"{chosen_on} Up to the next budget the same cell is the best.", soft_wrap=True)


def fit_line(fit: Fit, measure: str, through: str) -> str:
    """Write a curve with its intervals on one line."""
    parts = [fit.curve.formula(measure)]
    for name, estimate, digits in (("a", fit.a, 2), ("b", fit.b, 0), ("c", fit.c, 1)):
        if estimate.low is not None and estimate.high is not None:
            parts.append(f"{name} [{estimate.low:,.{digits}f}, {estimate.high:,.{digits}f}]")
    if fit.r_squared is not None:
        parts.append(f"R² {fit.r_squared:.3f}")
    which = "of its Pareto set" if through == "frontier" else "all its cells"
    parts.append(f"{fit.points} points ({which}), {fit.questions} questions")
    return "; ".join(parts)
