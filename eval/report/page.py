"""A report as one HTML file that loads nothing, asks nobody and runs no script but its own.

All figures are in the page itself and need no script; the questions and their chains are packed.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from corag.core.errors import ConfigError
from corag.core.files import write_atomically
from corag.core.own_objects import is_user_object
from corag.core.protocols import Retriever
from corag.core.types import Question
from eval.datasets.corpora import index_aliases
from eval.report.markup import Markup, joined
from eval.report.packing import Chunks, block, pack, pack_chunks
from eval.report.sections import sections, title_of
from eval.report.traces import Passages, gold, trace
from eval.scoring.gold import FoundGold, find_gold
from eval.tables.means import find_repeats
from eval.tables.results import TableView, find_baseline, score_view, table_of_scored
from eval.tables.runs import Run, ScoredRuns

ASSETS = Path(__file__).parent / "assets"
STYLES = ("report.css", "explorer.css")
# One script in the page, in this order: a file uses what those before it define.
SCRIPTS = ("elements.js", "data.js", "trace.js", "questions.js")
TEXTS_PER_BLOCK = 200  # passages: unpacked in a few milliseconds, and many enough to compress well


@dataclass(frozen=True, slots=True)
class Report:
    """A report but for the texts of passages, which :func:`text_blocks` adds.

    Attributes:
        runs: what it is about.
        sections: what needs no script.
        passages: the passages that its traces name.
        blocks: the script elements of what is unpacked later.
    """

    runs: ScoredRuns
    sections: Markup
    passages: Passages
    blocks: Sequence[str]


@dataclass(frozen=True, slots=True)
class TextBlocks:
    """The texts of a report's passages as script elements; ``count`` of them were in the index."""

    blocks: Sequence[str] = ()
    count: int = 0


def make_report(scored_runs: ScoredRuns, baseline: str = "") -> Report:
    """Write down what runs came to and pack their traces. ``baseline``: the run whose tests are unfolded."""
    results = table_of_scored(
        scored_runs, over=find_repeats({run.name: run.manifest.settings for run in scored_runs.runs})
    )
    runs, questions = scored_runs.runs, scored_runs.questions
    passages = Passages()
    found = [_found_gold(run, scored_runs.recall_at) for run in runs]
    traces = [_traces(run, questions, passages, each) for run, each in zip(runs, found, strict=True)]
    places = {
        each.id: [name for by_id in found if each.id in by_id for name in by_id[each.id].places]
        for each in questions
    }
    gold_chunks = pack_chunks((gold(each, places[each.id], passages) for each in questions), passages)
    index = _index(questions, runs, traces) | {"gold": gold_chunks.starts}
    blocks = [block("index", pack(orjson.dumps(index))), *gold_chunks.blocks("gold")]
    for number, chunks in enumerate(traces):
        blocks += chunks.blocks(f"run-{number}")
    shown = sections(results, scored_runs, baseline or runs[0].name)
    return Report(scored_runs, shown, passages, blocks)


async def fetch_texts(report: Report, retriever: Retriever | None, names: Sequence[str] = ()) -> TextBlocks:
    """Fetch the passages' texts from an index, if there is one; ``names``: of what it searches.

    One of the user's own knows the passages that it has returned since it was opened. If none are among them,
    the page goes without texts, and a line says so. Raises :class:`ConfigError` if any other has none.
    """
    if retriever is None:
        return TextBlocks()
    texts = await text_blocks(report, retriever)
    ids, user_indexes = report.passages.ids, list(filter(is_user_object, names))
    if texts.count or not ids:
        return texts
    if not user_indexes:
        raise ConfigError(
            f"the index has none of the {len(ids):,} passages that these runs name, such as '{ids[0]}': give "
            "the 'retriever' options that the runs were made with."
        )
    note = (
        f"corag: the report has no texts of passages: {', '.join(user_indexes)} looks none up by id, and has "
        "returned none of these since it was opened. Give what open_index returned and run searched."
    )
    Console(stderr=True, highlight=False).print(note, soft_wrap=True, markup=False)
    return TextBlocks()


async def text_blocks(report: Report, retriever: Retriever) -> TextBlocks:
    """Fetch title and text of every passage that a report names, as far as the index has them."""
    ids = report.passages.ids
    blocks = []
    count = 0
    for number, start in enumerate(range(0, len(ids), TEXTS_PER_BLOCK)):
        part = ids[start : start + TEXTS_PER_BLOCK]
        passages = {passage.id: passage for passage in await retriever.passages(part)}
        count += len(passages)
        texts = [[passages[name].title, passages[name].text] if name in passages else None for name in part]
        blocks.append(block(f"texts-{number}", pack(orjson.dumps(texts))))
    return TextBlocks(blocks, count)


async def write_report(
    runs: Mapping[str, Path],
    out: Path,
    index: Retriever | None = None,
    scorer: str = "auto",
    recall_at: int = 0,
    baseline: str = "",
    names: Sequence[str] = (),
    questions: Sequence[Question] | None = None,
) -> tuple[Report, TextBlocks]:
    """Write the page of finished runs by name to ``out``, with passages' texts if there is an ``index``.

    ``baseline``: the run whose tests are unfolded, as :func:`find_baseline` reads it; "" for the first.
    ``names``: of what the index searches. ``questions``: those to keep to. Return what is on it. Raises
    :class:`ConfigError` as :func:`find_baseline`, :func:`score_view` and :func:`fetch_texts` do.
    """
    base_run = find_baseline(runs, baseline)
    report = make_report(score_view(runs, TableView(scorer, recall_at), questions), base_run)
    texts = await fetch_texts(report, index, names)
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_atomically(out, html_page(report, texts, date))
    return report, texts


def html_page(report: Report, texts: TextBlocks, date: str) -> str:
    """Return the whole page. ``date``: when it was made, as the page writes it."""
    # The policy names the two hashes: even if a text broke out of its element, a browser would not run it.
    style = "\n".join(map(_file, STYLES))
    script = '(() => {\n"use strict";\n' + "\n".join(map(_file, SCRIPTS)) + "\n})();\n"
    facts = {
        "runs": [run.name for run in report.runs.runs],
        "recall_at": report.runs.recall_at,
        "texts_per_block": TEXTS_PER_BLOCK if texts.count else 0,
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
        "blocks": "".join([*report.blocks, *texts.blocks]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda field: values[field[1]], _file("template.html"))


def _traces(
    run: Run, questions: Sequence[Question], passages: Passages, found: Mapping[str, FoundGold]
) -> Chunks:
    """Pack the traces of a run. Of a question that it was not asked the trace is empty."""
    refusal = run.manifest.options.get("refusal", "")
    rows = (run.rows.get(question.id) for question in questions)
    return pack_chunks(
        (trace(row, passages, refusal, found.get(row.question.id)) if row else {} for row in rows), passages
    )


def _found_gold(run: Run, recall_at: int) -> dict[str, FoundGold]:
    """Return what a run found of the gold passages of its questions, by question id; as its recall counts."""
    aliases = index_aliases(run.manifest.last.index)
    rows = run.rows if run.manifest.searches else {}
    found = {name: find_gold(row, aliases, recall_at) for name, row in rows.items()}
    return {name: each for name, each in found.items() if each}


def _index(questions: Sequence[Question], runs: Sequence[Run], traces: Sequence[Chunks]) -> dict[str, Any]:
    """Return what the list of questions needs: searching and sorting look at every question."""
    return {
        "ids": [question.id for question in questions],
        "texts": [question.text for question in questions],
        "answers": [question.answers for question in questions],
        "kinds": [question.kind for question in questions],
        "hops": [question.hops for question in questions],
        "runs": [
            {"rows": _rows(run, questions), "starts": chunks.starts}
            for run, chunks in zip(runs, traces, strict=True)
        ],
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
