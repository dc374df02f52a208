"""The figure of finished runs: score over tokens per question, with intervals and the Pareto frontier."""

from __future__ import annotations

from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.files import atomic_replace
from corag.core.installation import require
from eval.scoring.rows import measure_title
from eval.statistics.scaling import pareto_set
from eval.sweeps.plots import FORMATS, Point, draw_scaling
from eval.tables.results import ResultsTable


def check_figure(file: str | Path) -> None:
    """Raise :class:`ConfigError` for a file that is no picture's, or without matplotlib."""
    if Path(file).suffix.lower() not in FORMATS:
        raise ConfigError(
            f"'{file}' is no name of a figure: it must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, "
            "such as score.pdf."
        )
    require("a figure", "matplotlib")


def draw_figure(table: ResultsTable, file: str | Path) -> str:
    """Draw the runs of a table to a file, whose ending is the format; return the heading of what is drawn.

    That is F1, or else the first measure that the table shows. Raises :class:`ConfigError` as
    :func:`check_figure`, and if no run has a score.
    """
    check_figure(file)
    names = [name for name in table.summaries[0].measures if table.shows(name)]
    measure = "f1" if "f1" in names else next(iter(names), "")
    scored_summaries = [
        each
        for each in table.summaries
        if each.measures.get(measure) is not None and each.failure_count < each.n
    ]
    if not scored_summaries:
        raise ConfigError(
            "no run has a score to draw: it needs gold answers, or gold passages that it found."
        )
    scores = [each.measures[measure] for each in scored_summaries]
    means = [score.mean for score in scores if score is not None]
    best = set(pareto_set([each.tokens for each in scored_summaries], means))
    points = [
        Point(
            each.method,
            each.method,
            each.tokens,
            100 * score.mean,
            None if score.low is None else 100 * score.low,
            None if score.high is None else 100 * score.high,
            number in best,
        )
        for number, (each, score) in enumerate(zip(scored_summaries, scores, strict=True))
        if score is not None
    ]
    title = measure_title(measure, table.recall_at)
    heading = (
        f"{title} over tokens per question, n = {max(each.n for each in scored_summaries):,}, 95% intervals"
    )
    with atomic_replace(file) as temporary:
        draw_scaling(points, [temporary], measure=title, title=heading, form=Path(file).suffix[1:].lower())
    return title
