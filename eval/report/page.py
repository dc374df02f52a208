"""A report as one HTML file that loads nothing, sends nothing and runs no script but its own.

All figures are in the page itself and need no script; the questions and their chains are packed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from corag.core.protocols import Retriever
from corag.core.system.files import write_atomically
from corag.core.types import Question
from eval.datasets.corpora import index_aliases
from eval.report.markup import Markup, joined
from eval.report.sections import sections, title_of
from eval.report.traces import Passages, gold, trace
from eval.scoring.gold import FoundGold, find_gold
from eval.tables.means import find_repeats
from eval.tables.results import PLAIN_VIEW, TableView, find_baseline, score_view, table_of_scored
from eval.tables.runs import Run, ScoredRuns

ASSETS = Path(__file__).parent / "assets"
STYLES = ("report.css", "explorer.css")
# One script in the page, in this order: a file uses what those before it define.
SCRIPTS = ("elements.js", "data.js", "trace.js", "questions.js")
# Unpacked in a few milliseconds, and many enough to compress well.
QUESTIONS_PER_BLOCK, TEXTS_PER_BLOCK = 20, 200


@dataclass(frozen=True, slots=True)
class Report:
    """A report.

    Attributes:
        runs: what it is about.
        sections: what needs no script.
        passages: the passages that its traces name.
        blocks: the script elements of what is unpacked later.
        text_count: how many of the passages have their texts among these; None before :func:`add_texts`.
    """

    runs: ScoredRuns
    sections: Markup
    passages: Passages
    blocks: Sequence[str]
    text_count: int | None = None


def make_report(scored_runs: ScoredRuns, baseline: str = "") -> Report:
    """Write down what runs came to and pack their traces. ``baseline``: the run whose tests are unfolded."""
    results = table_of_scored(
        scored_runs, over=find_repeats({run.name: run.manifest.settings for run in scored_runs.runs})
    )
    runs, questions, passages = scored_runs.runs, scored_runs.questions, Passages()
    found = [_found_gold(run, scored_runs.recall_at) for run in runs]
    blocks = [block("index", _index(questions, runs, found, passages))]
    for number, (run, by_id) in enumerate(zip(runs, found, strict=True)):
        for start in range(0, len(questions), QUESTIONS_PER_BLOCK):
            part = questions[start : start + QUESTIONS_PER_BLOCK]
            traces = [_trace(run, each.id, passages, by_id.get(each.id)) for each in part]
            blocks.append(block(f"run-{number}-{start // QUESTIONS_PER_BLOCK}", traces))
    blocks.append(block("passages", passages.titles))
    shown = sections(results, scored_runs, baseline or runs[0].name)
    return Report(scored_runs, shown, passages, blocks)


async def add_texts(report: Report, retriever: Retriever) -> Report:
    """Add title and text of every passage that a report names, as far as an index has them."""
    ids, blocks, count = [name for name, _ in report.passages.titles], [], 0
    for start in range(0, len(ids), TEXTS_PER_BLOCK):
        part = ids[start : start + TEXTS_PER_BLOCK]
        known = {each.id: (each.title, each.text) for each in await retriever.passages(part)}
        blocks.append(block(f"texts-{start // TEXTS_PER_BLOCK}", [known.get(name) for name in part]))
        count += len(known)
    return replace(report, blocks=[*report.blocks, *blocks], text_count=count)


async def write_report(
    runs: Mapping[str, Path],
    out: Path,
    index: Retriever | None = None,
    view: TableView = PLAIN_VIEW,
    questions: Sequence[Question] | None = None,
) -> Report:
    """Write the page of finished runs by name to ``out``, with passages' texts if there is an ``index``.

    ``view``: scorer, depth of recall and questions; its baseline, by default the first run, is the one whose
    tests are unfolded. ``questions``: those to keep to. Return what is on it. Raises :class:`ConfigError` as
    :func:`find_baseline` and :func:`score_view` do.
    """
    base_run = find_baseline(runs, view.baseline)
    report = make_report(score_view(runs, view, questions), base_run)
    if index is not None:
        report = await add_texts(report, index)
    write_atomically(out, html_page(report, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return report


def html_page(report: Report, date: str) -> str:
    """Return the whole page. ``date``: when it was made, as the page writes it."""
    # The policy names the two hashes: even if a text broke out of its element, a browser would not run it.
    style = "\n".join(map(_file, STYLES))
    script = '(() => {\n"use strict";\n' + "\n".join(map(_file, SCRIPTS)) + "\n})();\n"
    facts = {
        "runs": [run.name for run in report.runs.runs],
        "recall_at": report.runs.recall_at,
        "questions_per_block": QUESTIONS_PER_BLOCK,
        "texts_per_block": TEXTS_PER_BLOCK if report.text_count else 0,
    }
    values = {
        "policy": f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}",
        "title": joined([title_of(report.runs.runs)]),
        "style": style,
        "sections": report.sections,
        "made": date,
        # In JSON "<" only occurs in texts, where it may be written so: no text can end the element.
        "report": orjson.dumps(facts).decode().replace("<", "\\u003c"),
        "script": script,
        "blocks": "".join(report.blocks),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda field: values[field[1]], _file("template.html"))


def block(name: str, value: Any) -> str:
    """Return the script element that holds a value; browsers do not run its type.

    Equal values give equal ones, since no time is written (``mtime=0``).
    """
    packed = base64.b64encode(gzip.compress(orjson.dumps(value), compresslevel=6, mtime=0)).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>\n'


def _trace(run: Run, question: str, passages: Passages, found: FoundGold | None) -> dict[str, Any]:
    """Return the trace of a question; {} where a service was not asked it."""
    row = run.rows.get(question)
    return trace(row, passages, run.manifest.options.get("refusal", ""), found) if row else {}


def _found_gold(run: Run, recall_at: int) -> dict[str, FoundGold]:
    """Return what a run found of the gold passages of its questions, by question id; as its recall counts."""
    aliases = index_aliases(run.manifest.last)
    rows = run.rows if run.manifest.searches else {}
    found = {name: find_gold(row, aliases, recall_at) for name, row in rows.items()}
    return {name: each for name, each in found.items() if each}


def _index(
    questions: Sequence[Question],
    runs: Sequence[Run],
    found: Sequence[Mapping[str, FoundGold]],
    passages: Passages,
) -> dict[str, Any]:
    """Return what the list of questions needs: searching and sorting look at every question."""
    places = {
        each.id: [name for by_id in found if each.id in by_id for name in by_id[each.id].places]
        for each in questions
    }
    return {
        "ids": [question.id for question in questions],
        "texts": [question.text for question in questions],
        "answers": [question.answers for question in questions],
        "kinds": [question.kind for question in questions],
        "hops": [question.hops for question in questions],
        "gold": [gold(question, places[question.id], passages) for question in questions],
        "rows": [_rows(run, questions) for run in runs],
    }


def _rows(run: Run, questions: Sequence[Question]) -> list[dict[str, Any] | None]:
    """Return what the list shows of a run's rows; None where it was not asked, as in runs of a service."""
    rows = {
        row.question.id: {
            "em": round(scores.em, 4) if scores.is_scored else None,
            "f1": round(scores.f1, 4) if scores.is_scored else None,
            "recall": None if scores.recall is None else round(scores.recall, 4),
            "failed": row.answer is None,
            "prediction": row.text,
            "tokens": row.total_usage.total,
        }
        for row, scores in run.scored_rows
    }
    return [rows.get(question.id) for question in questions]


def _file(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return a content security policy's name for an inline script or style."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
