"""A table in the forms that other programs take: CSV, LaTeX, Markdown, and records for a data frame.

CSV and records have every figure as it stands in JSON: fractions. LaTeX and Markdown are for people and have
what is printed in papers: scores in percent with their intervals, tokens, the tests against a baseline, and
what must be known beside these. Questions that runs disagree on are in none of them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corag.core.errors import ConfigError
from corag.core.text import printable
from eval.scoring.rows import MEASURES, measure_title
from eval.statistics.comparisons import LEVEL, Against
from eval.statistics.intervals import Interval, Spread
from eval.tables.columns import Summary
from eval.tables.means import means_record
from eval.tables.results import ResultsTable
from eval.tables.verdicts import count_questions

Form = Literal["text", "latex", "markdown", "csv", "json"]
_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "†": r"$^{\dagger}$", "≈": r"$^{\approx}$", "Δ": r"$\Delta$", "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


def check_form(form: Form, disagreements: object) -> None:
    """Raise :class:`ConfigError` if there are disagreements to list in a form that has no place for them."""
    if disagreements and form not in ("text", "json"):
        raise ConfigError(
            "disagreements are listed in text and JSON only: leave them out here, or print the table."
        )


def table_records(table: ResultsTable) -> list[dict[str, Any]]:
    """Return a flat record per run: figures as in JSON, each interval as two fields, the tests and means.

    A mean over runs stands in the record of the first of them.

    Raises :class:`ConfigError` for a table that lists disagreements.
    """
    check_form("csv", table.disagreements)
    tests = {(one.run, one.measure): one for one in table.against}
    measures = dict.fromkeys(one.measure for one in table.against)
    records = []
    for summary in table.summaries:
        figures = summary.to_json()
        record: dict[str, Any] = {"run": figures.pop("method")}
        left_out = ("first_error", "reasons", "measured_on_fewer")
        for name, value in figures.items():
            if name.endswith("_interval"):
                measure = name.removesuffix("_interval")
                record[f"{measure}_low"], record[f"{measure}_high"] = value or (None, None)
            elif name not in left_out:
                record[name] = value
        record |= {"estimated": summary.estimated, "unasked": summary.unasked}
        for name, interval in summary.measured.items():
            record[f"{name}_n"] = interval.n if interval else 0
        if trained_for := table.conditions.untrained.runs.get(summary.method):
            record["trained_for_others"] = ", ".join(trained_for)
        if table.baseline:
            record["baseline"] = table.baseline
        for measure in measures:
            record |= _test_record(measure, tests.get((summary.method, measure)))
        for measure, spread in means_record(table.means).get(summary.method, {}).items():
            record |= {f"{measure}_{name}_over_{table.over}": value for name, value in spread.items()}
        records.append(record | {"folder": str(table.runs[summary.method])})
    return records


def _test_record(measure: str, test: Against | None) -> dict[str, Any]:
    """Write a test against the baseline as fields that begin with its measure."""
    figures: Mapping[str, Any] = {} if test is None else test.to_json()
    low, high = figures.get("difference_interval") or (None, None)
    return {
        f"{measure}_difference": figures.get("difference"),
        f"{measure}_difference_low": low,
        f"{measure}_difference_high": high,
        f"{measure}_p": figures.get("p_value"),
        f"{measure}_p_holm": figures.get("p_value_holm"),
        f"{measure}_mde": figures.get("detectable"),
    }


def to_csv(table: ResultsTable) -> str:
    """Write a line per run."""
    return records_csv(table_records(table))


def records_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Write records with all fields that any of them has; lists as JSON, None as nothing."""
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for record in records:
        values = [record.get(name) for name in names]
        writer.writerow(
            [json.dumps(each, ensure_ascii=False) if isinstance(each, list) else each for each in values]
        )
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class _Score:
    """A measure of a run as text.

    ``mark``: "best", "even" (not significantly worse than the best) or "". ``interval``, ``difference`` and
    ``p``: "" where there is none.
    """

    mean: str
    interval: str
    mark: str
    difference: str
    p: str


@dataclass(frozen=True, slots=True)
class _Paper:
    """What papers print of a table: by run its scores, in the order of ``measures``, and its tokens.

    ``sizes``: of how many questions each measure is, in words.
    """

    measures: Sequence[str]
    titles: Sequence[str]
    tested: Sequence[str]
    lines: Mapping[str, tuple[Sequence[_Score], str]]
    sizes: Sequence[str]


def _paper(table: ResultsTable) -> _Paper:
    """Return the measures that some run has, as text."""
    measures = [name for name in MEASURES if any(each.measured.get(name) for each in table.summaries)]
    tests = {(one.run, one.measure): one for one in table.against}
    lines = {
        each.method: (
            [_score(table, each, name, tests.get((each.method, name))) for name in measures],
            f"{each.tokens:.0f}",
        )
        for each in table.summaries
    }
    for run, means in table.means.items():
        if (runs := means["tokens"].n) > 1:
            scores = [_mean(means.get(name)) for name in measures]
            lines[f"{run}, mean of {runs}"] = (scores, f"{means['tokens'].mean:.0f}")
    tested = [name for name in measures if any(one.measure == name for one in table.against)]
    titles = [measure_title(name, table.recall_at) for name in measures]
    sizes = [
        _questions(value.n for each in table.summaries if (value := each.measured.get(name)))
        for name in measures
    ]
    return _Paper(measures, titles, tested, lines, sizes)


def _mean(value: Spread | None) -> _Score:
    if value is None:
        return _Score("", "", "", "", "")
    deviation = "" if value.deviation is None else f"± {100 * value.deviation:.1f}"
    return _Score(f"{100 * value.mean:.1f}", deviation, "", "", "")


def _questions(counts: Iterable[int]) -> str:
    """Write how many questions some figures of the runs are of."""
    numbers = list(counts)
    return count_questions(min(numbers), max(numbers))


def _score(table: ResultsTable, summary: Summary, measure: str, test: Against | None) -> _Score:
    value = summary.measured.get(measure)
    leading = table.leaders.get(measure)
    mark = ""
    if leading and len(leading.best) < len(leading.best) + len(leading.worse) + len(leading.even):
        mark = "best" if summary.method in leading.best else "even" * (summary.method in leading.even)
    difference = "" if test is None else f"{100 * test.comparison.difference.mean:+.1f}"
    p = None if test is None else test.p_holm
    return _Score(
        "" if value is None else f"{100 * value.mean:.1f}",
        _interval(value),
        mark,
        "0.0" if difference == "-0.0" else difference,
        "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}",
    )


def _interval(value: Interval | None) -> str:
    if value is None or value.low is None or value.high is None:
        return ""
    return f"[{100 * value.low:.1f}, {100 * value.high:.1f}]"


def _caption(table: ResultsTable, paper: _Paper, best: str, even: str) -> str:
    """Return the sentences below a table. ``best``, ``even``: how it marks these."""
    n = _questions(each.n for each in table.summaries)
    titles, of, tokens = ", ".join(paper.titles), f", {n}", ""
    if len(set(paper.sizes)) > 1:
        pairs = zip(paper.titles, paper.sizes, strict=True)
        titles, of, tokens = ", ".join(f"{title} ({size})" for title, size in pairs), "", f" ({n})"
    elif paper.sizes and paper.sizes[0] != n:
        of, tokens = f", {paper.sizes[0]}", f" ({n})"
    parts = [f"{titles} in percent with 95% intervals{of}; tokens per question{tokens}."]
    if not paper.titles:
        parts = [f"Tokens per question, {n}."]
    marks = {each.mark for scores, _ in paper.lines.values() for each in scores}
    if "best" in marks:
        parts.append(f"{best}: the highest.")
    if "even" in marks:
        parts.append(
            f"{even}: not significantly below it (paired sign-flip tests, Holm's rule, level {LEVEL:g})."
        )
    if paper.tested:
        tests = sum(one.p_holm is not None for one in table.against)
        parts.append(
            f"Differences are from {table.baseline}, in points; p by Holm's rule over {tests} paired "
            "sign-flip tests."
        )
    if table.means:
        parts.append(f"±: standard deviation (n - 1) over runs that differ in their {table.over} only.")
    return " ".join(filter(None, [*parts, *_cautions(table.summaries), table.conditions.untrained.note]))


def _cautions(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield what a reader of the figures must not miss: what failed, was not scored, or was estimated."""

    def of(counts: Mapping[str, int]) -> str:
        return ", ".join(
            f"{each.method} {counts[each.method]:,} of {each.n:,}"
            for each in summaries
            if counts[each.method]
        )

    if failed := of({each.method: each.failed for each in summaries}):
        yield f"Failed questions, which count as wrong: {failed}."
    if unscored := of({each.method: each.unscored for each in summaries}):
        yield f"Questions without gold answers, which are left out of EM and F1: {unscored}."
    if unasked := of({each.method: each.unasked for each in summaries}):
        yield f"Questions whose budget allowed no call of the model: {unasked}."
    if estimated := [each.method for each in summaries if each.estimated]:
        yield f"Tokens that were estimated, not counted: those of {', '.join(estimated)}."


def _notes(table: ResultsTable) -> Iterator[str]:
    """Yield all that must be known beside the figures and what a caption says."""
    yield f"Scorer: {table.scoring}."
    yield from table.conditions.shared
    yield from (f"{name}: {own}" for name in table.runs if (own := table.conditions.own[name]))
    yield from (each for each in table.sentences if each != table.conditions.untrained.note)


def to_markdown(table: ResultsTable) -> str:
    """Write a table as Markdown: scores in percent with intervals, the best in bold, and all notes below.

    Raises :class:`ConfigError` for a table that lists disagreements.
    """
    check_form("markdown", table.disagreements)
    paper, untrained = _paper(table), table.conditions.untrained
    heads = ["method"]
    for name, title in zip(paper.measures, paper.titles, strict=True):
        heads += [title, *([f"Δ {title}", "p"] if name in paper.tested else [])]
    lines = [[*heads, "tokens"], [":--", *["--:"] * len(heads)]]
    for run, (scores, tokens) in paper.lines.items():
        line = [_markdown(untrained.marked(run))]
        for name, score in zip(paper.measures, scores, strict=True):
            mean = f"**{score.mean}**" if score.mark == "best" else score.mean + "≈" * (score.mark == "even")
            line.append(" ".join(filter(None, [mean, score.interval])))
            if name in paper.tested:
                line += [score.difference, score.p.replace("<", "&lt;")]
        lines.append([*line, f"{int(tokens):,}"])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    caption = _caption(table, paper, "Bold", "≈")
    verdict = [table.verdict] if table.verdict else []
    notes = "\n".join(f"- {_markdown(each)}" for each in _notes(table))
    return "\n\n".join([text, *map(_markdown, [caption, *verdict]), notes]) + "\n"


def _markdown(text: str) -> str:
    """Write a text so that it is no markup."""
    line = " ".join(printable(text).split())
    return "".join(f"\\{sign}" if sign in r"\`*_|<[]" else sign for sign in line)


def to_latex(table: ResultsTable) -> str:
    r"""Write a table as LaTeX with booktabs and siunitx: the best in bold, runs that may be as good marked.

    Each score has a column of numbers (``S``) and one of intervals, and, with a baseline, one of differences
    and one of p-values. All else that must be known stands in comments.

    Raises :class:`ConfigError` for a table that lists disagreements.
    """
    check_form("latex", table.disagreements)
    paper, untrained = _paper(table), table.conditions.untrained
    spec, heads, rules, below = _latex_head(paper)
    lines = []
    for run, (scores, tokens) in paper.lines.items():
        cells = [_tex(run) + r"$^{\dagger}$" * (run in untrained.runs)]
        for name, score in zip(paper.measures, scores, strict=True):
            cells += _latex_cells(score, tested=name in paper.tested)
        # Without the {} a name in brackets, or a star, would be an argument of \midrule or \\ before it.
        lines.append(f"    {{}}{' & '.join([*cells, tokens])} \\\\")
    caption = _tex(_caption(table, paper, "Bold", "≈")).replace("Bold:", r"\textbf{Bold}:", 1)
    comments = [table.verdict, table.conditions.untrained.note, *_notes(table)]
    head = [
        r"% In the preamble: \usepackage{booktabs,siunitx}",
        *(f"% {' '.join(printable(each).split())}" for each in comments if each),
    ]
    return "\n".join(
        [
            *head,
            r"\begin{table}[t]",
            r"  \centering",
            r"  \small",
            r"  \sisetup{detect-weight=true, mode=text, retain-explicit-plus=true, group-separator={,}, "
            r"group-minimum-digits=4}",
            r"  \setlength{\tabcolsep}{4pt}",
            f"  \\caption{{{caption}}}",
            r"  \label{tab:results}",
            f"  \\begin{{tabular}}{{{spec}}}",
            r"    \toprule",
            f"    {' & '.join(heads)} \\\\",
            *([f"    {' '.join(rules)}", f"    {' & '.join(below)} \\\\"] if rules else []),
            r"    \midrule",
            *lines,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_head(paper: _Paper) -> tuple[str, list[str], list[str], list[str]]:
    """Return the columns' types, the heads, the rules below them, and a second line of heads."""
    spec, heads, rules, below = "@{}l", ["Method"], [], [""]
    place = 2
    for number, (name, title) in enumerate(zip(paper.measures, paper.titles, strict=True)):
        scores = [scores[number] for scores, _ in paper.lines.values()]
        spec += f" S[table-format={_format(each.mean for each in scores)}]@{{\\,}}l"
        width = 4 if name in paper.tested else 2
        if width == 4:
            spec += f" S[table-format=+{_format(each.difference.lstrip('+-') for each in scores)}] r"
            rules.append(f"\\cmidrule(lr){{{place}-{place + 3}}}")
            below += [r"\multicolumn{2}{c}{\%}", r"{$\Delta$}", r"\multicolumn{1}{c}{$p$}"]
        else:
            below += [r"\multicolumn{2}{c}{\%}"]
        heads.append(f"\\multicolumn{{{width}}}{{c}}{{{_tex(title)}}}")
        place += width
    digits = max(len(tokens) for _, tokens in paper.lines.values())
    return f"{spec} S[table-format={digits}.0]@{{}}", [*heads, "{Tokens}"], rules, [*below, ""]


def _format(numbers: Iterator[str] | Any) -> str:
    """Return siunitx's format for the widest of some numbers with one decimal."""
    return f"{max((len(each.partition('.')[0]) for each in numbers if each), default=1)}.1"


def _latex_cells(score: _Score, *, tested: bool) -> Iterator[str]:
    """Yield the cells of a score, empty where there is none."""
    yield (r"\bfseries " * (score.mark == "best") + score.mean) if score.mean else "{--}"
    yield _TEX["≈"] * (score.mark == "even") + (
        f"{{\\scriptsize {_tex(score.interval)}}}" if score.interval else ""
    )
    if tested:
        yield score.difference or "{--}"
        yield score.p.replace("<", "$<$") or "--"


def _tex(text: str) -> str:
    """Write a text so that it is no command."""
    return "".join(_TEX.get(sign, sign) for sign in " ".join(printable(text).split()))


def to_json(table: ResultsTable) -> str:
    """Write a table as JSON, as ``--json`` does."""
    return json.dumps(table.to_json(), indent=1, ensure_ascii=False) + "\n"


FORMS: Mapping[Form, Callable[[ResultsTable], str]] = {
    "latex": to_latex,
    "markdown": to_markdown,
    "csv": to_csv,
    "json": to_json,
}
"""What writes a table in each form but the printed one."""
