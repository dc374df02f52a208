"""A table in the forms that papers take, LaTeX and Markdown, and what writes a table in each form.

They have what is printed in papers: scores in percent with their intervals, tokens, the tests against a
baseline, and what must be known beside these. Questions that runs disagree on are in none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corag.core.language.text import printable
from eval.scoring.rows import MEASURES, measure_title
from eval.statistics.comparisons import LEVEL, Against
from eval.statistics.intervals import Interval, Spread
from eval.tables.cautions import MARK, figure_remarks, group_remarks
from eval.tables.columns import in_percent
from eval.tables.records import Form, check_form, to_csv
from eval.tables.results import ResultsTable
from eval.tables.verdicts import count_questions

_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "†": r"$^{\dagger}$", "≈": r"$^{\approx}$", "Δ": r"$\Delta$", "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Score:
    """A measure of a run as text.

    ``mark``: "best", "even" (not significantly worse than the best) or "". ``between``: the interval of the
    difference. It, ``interval``, ``difference`` and ``p``: "" where there is none.
    """

    mean: str = ""
    interval: str = ""
    mark: str = ""
    difference: str = ""
    between: str = ""
    p: str = ""


@dataclass(frozen=True, slots=True)
class _Paper:
    """What papers print of a table: by run its scores, in the order of ``measures``, and its tokens.

    ``sizes``: of how many questions each measure is, in words.
    """

    measures: Sequence[str]
    titles: Sequence[str]
    tested_measures: Sequence[str]
    lines: Mapping[str, tuple[Sequence[_Score], str]]
    sizes: Sequence[str]


def _measures(table: ResultsTable) -> list[str]:
    """Return the measures that some run has, of those that are shown."""
    return [
        name
        for name in dict.fromkeys([*MEASURES, *(name for each in table.summaries for name in each.measures)])
        if table.shows(name) and any(each.measures.get(name) for each in table.summaries)
    ]


def _paper(table: ResultsTable, measures: Sequence[str]) -> _Paper:
    """Return these measures as text."""
    averaged = {run: each for run, each in table.means.items() if each["tokens"].n > 1}
    lines = {}
    for each in table.summaries:
        scores = [_score(each.measures.get(name)) for name in measures]
        if each.method not in averaged:
            scores = _with_tests(table, each.method, measures, scores)
        lines[each.method] = scores, f"{each.tokens:.0f}"
    for run, means in averaged.items():  # what is tested is the mean
        scores = _with_tests(table, run, measures, [_score(means.get(name)) for name in measures])
        lines[f"{run}, mean of {means['tokens'].n}"] = scores, f"{means['tokens'].mean:.0f}"
    tested_measures = [name for name in measures if any(one.measure == name for one in table.against)]
    titles = [measure_title(name, table.recall_at) for name in measures]
    sizes = [
        _questions(value.n for each in table.summaries if (value := each.measures.get(name)))
        for name in measures
    ]
    return _Paper(measures, titles, tested_measures, lines, sizes)


def _questions(counts: Iterable[int]) -> str:
    """Write how many questions some figures of the runs are of."""
    numbers = list(counts)
    return count_questions(min(numbers), max(numbers))


def _score(value: Interval | Spread | None) -> _Score:
    return _Score() if value is None else _Score(*in_percent(value))


def _with_tests(
    table: ResultsTable, run: str, measures: Sequence[str], scores: Sequence[_Score]
) -> list[_Score]:
    """Return a run's scores with how they compare to the best and to the baseline."""
    tests = {one.measure: one for one in table.against if one.run == run}
    return [
        replace(each, mark=_mark(table, run, name), **_test(tests.get(name)))
        for name, each in zip(measures, scores, strict=True)
    ]


def _mark(table: ResultsTable, run: str, measure: str) -> str:
    leading = table.leaders.get(measure)
    if leading is None or not (leading.worse or leading.even):
        return ""
    return "best" if run in leading.best else "even" * (run in leading.even)


def _test(test: Against | None) -> dict[str, str]:
    if test is None:
        return {}
    points, p = f"{100 * test.comparison.difference.mean:+.1f}", test.p_holm
    return {
        "difference": "0.0" if points == "-0.0" else points,
        "between": in_percent(test.comparison.difference)[1],
        "p": "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}",
    }


def _caption(table: ResultsTable, paper: _Paper, untrained_note: str) -> str:
    """Return the sentences below a table. ``untrained_note``: on the runs with a mark."""
    n = _questions(each.n for each in table.summaries)
    pairs = zip(paper.titles, paper.sizes, strict=True)
    if set(paper.sizes) <= {n}:
        parts = [f"{', '.join(paper.titles)} in percent, 95% intervals, {n}; tokens per question."]
    else:
        titles = ", ".join(f"{title} ({size})" for title, size in pairs)
        parts = [f"{titles} in percent, 95% intervals; tokens per question ({n})."]
    if not paper.titles:
        parts = [f"Tokens per question, {n}."]
    marks = {each.mark for scores, _ in paper.lines.values() for each in scores}
    if "best" in marks:
        parts.append("Bold: the highest.")
    if "even" in marks:
        parts.append(f"≈: not significantly lower (paired sign-flip tests, Holm, level {LEVEL:g}).")
    if paper.tested_measures:
        tests = sum(one.p_holm is not None for one in table.against)
        parts.append(f"Δ: points above {table.baseline}; p: paired sign-flip tests, Holm over {tests}.")
    if table.means:
        parts.append(f"±: standard deviation (n - 1) over runs that differ in their {table.over} only.")
    # What a reader of the figures must not miss.
    for remark, names in group_remarks(table.summaries, figure_remarks).items():
        parts.append(f"{names}: {remark.splitlines()[0]}")
    return " ".join(filter(None, [*parts, untrained_note]))


def _notes(table: ResultsTable) -> Iterator[str]:
    """Yield all that must be known beside the figures and what a caption says."""
    yield f"Scorer: {table.scoring}."
    yield from table.conditions.common_lines
    yield from (
        f"{name}: {conditions}" for name in table.runs if (conditions := table.conditions.lines_by_run[name])
    )
    yield from (each for each in table.sentences if each != table.conditions.training_note)


def to_markdown(table: ResultsTable) -> str:
    """Write a table as Markdown: scores in percent with intervals, the best in bold, and all notes below.

    Raises :class:`ConfigError` for a table that lists disagreements.
    """
    check_form("markdown", table.disagreements)
    paper = _paper(table, _measures(table))
    heads = ["method"]
    for name, title in zip(paper.measures, paper.titles, strict=True):
        heads += [title, *([f"Δ {title}", "p"] if name in paper.tested_measures else [])]
    lines = [[*heads, "tokens"], [":--", *["--:"] * len(heads)]]
    for run, (scores, tokens) in paper.lines.items():
        line = [_markdown(table.conditions.mark_name(run))]
        for name, score in zip(paper.measures, scores, strict=True):
            mean = f"**{score.mean}**" if score.mark == "best" else score.mean + "≈" * (score.mark == "even")
            line.append(" ".join(filter(None, [mean, score.interval])))
            if name in paper.tested_measures:
                between = " ".join(filter(None, [score.difference, score.between]))
                line += [between, score.p.replace("<", "&lt;")]
        lines.append([*line, f"{int(tokens):,}"])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    caption = _caption(table, paper, table.conditions.training_note)
    verdict = [table.verdict] if table.verdict else []
    notes = "\n".join(f"- {_markdown(each)}" for each in _notes(table))
    return "\n\n".join([text, *map(_markdown, [caption, *verdict]), notes]) + "\n"


def _markdown(text: str) -> str:
    """Write a text so that it is no markup."""
    line = " ".join(printable(text).split())
    return "".join(f"\\{char}" if char in r"\`*_|<[]" else char for char in line)


def to_latex(table: ResultsTable) -> str:
    r"""Write a table as LaTeX with booktabs and siunitx: the best in bold, runs that may be as good marked.

    Each score has a column of numbers (``S``) and one of intervals, and, with a baseline, one of differences
    and one of p-values; where one measure is shown there is room for the intervals of the differences, too.
    Unless measures are named there are EM and F1 alone, which fit a page. All else that must be known stands
    in comments.

    Raises :class:`ConfigError` for a table that lists disagreements.
    """
    check_form("latex", table.disagreements)
    measures, untrained = _measures(table), table.conditions.untrained
    answers = [name for name in measures if name in ("em", "f1")]
    paper = _paper(table, measures if table.measures or not answers else answers)
    spec, heads, rules, below = _latex_head(paper)
    lines = []
    for run, (scores, tokens) in paper.lines.items():
        cells = [_tex(run) + r"$^{\dagger}$" * (run in untrained)]
        for name, score in zip(paper.measures, scores, strict=True):
            cells += _latex_cells(
                score, is_tested=name in paper.tested_measures, is_only=len(paper.measures) == 1
            )
        # Without the {} a name in brackets, or a star, would be an argument of \midrule or \\ before it.
        lines.append(f"    {{}}{' & '.join([*cells, tokens])} \\\\")
    note = f"{MARK}: its model was not trained for its prompts." if untrained else ""
    caption = _tex(_caption(table, paper, note)).replace("Bold:", r"\textbf{Bold}:", 1)
    left_out = [measure_title(name, table.recall_at) for name in measures if name not in paper.measures]
    # Across both columns of a page that has two; where it has one, the star changes nothing.
    environment = "table*" if paper.tested_measures or len(paper.measures) > 2 else "table"
    comments = [table.verdict, table.conditions.training_note, *_notes(table)]
    head = [
        r"% In the preamble: \usepackage{booktabs,siunitx}",
        *(
            [f"% Not shown: {', '.join(left_out)}. Name what to show: measures=em,recall."]
            if left_out
            else []
        ),
        *(f"% {' '.join(printable(each).split())}" for each in comments if each),
    ]
    return "\n".join(
        [
            *head,
            f"\\begin{{{environment}}}[t]",
            r"  \centering",
            r"  \footnotesize",
            r"  \sisetup{detect-weight=true, mode=text, retain-explicit-plus=true, group-separator={,}, "
            r"group-minimum-digits=4}",
            r"  \setlength{\tabcolsep}{3pt}",
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
            f"\\end{{{environment}}}",
            "",
        ]
    )


def _latex_head(paper: _Paper) -> tuple[str, list[str], list[str], list[str]]:
    """Return the columns' types, the heads, the rules below them, and a second line of heads."""
    spec, heads, rules, below = "@{}l", ["Method"], [], [""]
    column = 2
    for number, (name, title) in enumerate(zip(paper.measures, paper.titles, strict=True)):
        scores = [scores[number] for scores, _ in paper.lines.values()]
        spec += f" S[table-format={_format(each.mean for each in scores)}]@{{\\,}}l"
        between = len(paper.measures) == 1
        width = 4 + between if name in paper.tested_measures else 2
        if width > 2:
            spec += f" S[table-format=+{_format(each.difference.lstrip('+-') for each in scores)}]"
            spec += r"@{\,}l r" if between else " r"
            rules.append(f"\\cmidrule(lr){{{column}-{column + width - 1}}}")
            delta = r"\multicolumn{2}{c}{$\Delta$}" if between else r"{$\Delta$}"
            below += [r"\multicolumn{2}{c}{\%}", delta, r"\multicolumn{1}{c}{$p$}"]
        else:
            below += [r"\multicolumn{2}{c}{\%}"]
        heads.append(f"\\multicolumn{{{width}}}{{c}}{{{_tex(title)}}}")
        column += width
    digits = max(len(tokens) for _, tokens in paper.lines.values())
    return f"{spec} S[table-format={digits}.0]@{{}}", [*heads, "{Tokens}"], rules, [*below, ""]


def _format(numbers: Iterator[str] | Any) -> str:
    """Return siunitx's format for the widest of some numbers with one decimal."""
    return f"{max((len(each.partition('.')[0]) for each in numbers if each), default=1)}.1"


def _latex_cells(score: _Score, *, is_tested: bool, is_only: bool) -> Iterator[str]:
    """Yield the cells of a score, empty where there is none. ``is_only``: it is the only one of its row."""
    yield (r"\bfseries " * (score.mark == "best") + score.mean) if score.mean else "{--}"
    yield _TEX["≈"] * (score.mark == "even") + _small(score.interval)
    if is_tested:
        yield score.difference or "{--}"
        if is_only:
            yield _small(score.between)
        yield score.p.replace("<", "$<$") or "--"


def _small(interval: str) -> str:
    return f"{{\\scriptsize {_tex(interval)}}}" if interval else ""


def _tex(text: str) -> str:
    """Write a text so that it is no command, and with the quotes of print."""
    line = re.sub(r"""(?<!\w)(['"])([^'"]*)\1(?!\w)""", _quoted, " ".join(printable(text).split()))
    return "".join(_TEX.get(char, char) for char in line)


def _quoted(quotation: re.Match[str]) -> str:
    mark = quotation[1]
    return f"`{quotation[2]}'" if mark == "'" else f"``{quotation[2]}''"


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
