"""A report as one HTML file that loads nothing, asks nobody and runs no script but its own.

Figures stand in the page as JSON. Traces and texts, which are large, are packed in pieces: gzipped JSON in
base64, so that nothing in them can end a script element. A piece is unpacked when a reader looks at it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from corag.core.errors import ConfigError
from corag.core.files import write_atomically
from corag.core.own_objects import is_user_object
from corag.core.protocols import Retriever
from corag.core.runs.folder import read_lines
from corag.core.types import Question
from eval.datasets.corpora import index_aliases
from eval.report.overview import Overview, ReportRuns, describe, read_report_runs
from eval.report.traces import Passages, gold, trace
from eval.scoring.gold import FoundGold, find_gold
from eval.tables.formats import to_latex, to_markdown
from eval.tables.records import to_csv
from eval.tables.results import find_baseline
from eval.tables.runs import Run

ASSETS = Path(__file__).parent / "assets"
STYLES = ("report.css", "explorer.css")
# One script in the page, in this order: a file uses what those before it define, and start.js draws at once.
_FILES = "elements kit results conditions scaling groups passages steps trace questions start"
SCRIPTS = tuple(f"{name}.js" for name in _FILES.split())
CHUNK_BYTES = 200_000  # of JSON: unpacked in a few milliseconds, and large enough to compress well
TEXTS_PER_BLOCK = 200  # passages, for the same reasons


@dataclass(frozen=True, slots=True)
class Report:
    """A report but for the texts of passages, which :func:`text_blocks` adds.

    Attributes:
        overview: what is shown at once.
        passages: the passages that its traces name.
        blocks: the script elements of what is unpacked later.
    """

    overview: Overview
    passages: Passages
    blocks: Sequence[str]


@dataclass(frozen=True, slots=True)
class TextBlocks:
    """The texts of a report's passages as script elements; ``count`` of them were in the index."""

    blocks: Sequence[str] = ()
    count: int = 0


def make_report(runs: ReportRuns) -> Report:
    """Test some runs and pack their traces."""
    scored_runs, questions = runs.scored_runs.runs, runs.scored_runs.questions
    passages = Passages()
    recall_at = runs.scored_runs.recall_at
    found = [_found_gold(run, recall_at) for run in scored_runs]
    traces = [_traces(run, questions, passages, each) for run, each in zip(scored_runs, found, strict=True)]
    gold_chunks = pack_chunks(
        (
            gold(
                each,
                (name for by_id in found if each.id in by_id for name in by_id[each.id].places),
                passages,
            )
            for each in questions
        ),
        passages,
    )
    index = _index(questions, scored_runs, traces, gold_chunks)
    contents = describe(runs)
    downloads = [
        {"csv": to_csv(table), "tex": to_latex(table), "md": to_markdown(table)} for table in contents.tables
    ]
    blocks = [
        element("index", pack(orjson.dumps(index))),
        element("tables", pack(orjson.dumps(downloads))),
        *gold_chunks.elements("gold"),
    ]
    for number, chunks in enumerate(traces):
        blocks += chunks.elements(f"run-{number}")
    return Report(contents.overview, passages, blocks)


async def fetch_texts(report: Report, retriever: Retriever | None, names: Sequence[str] = ()) -> TextBlocks:
    """Fetch the passages' texts from an index, if there is one; ``names``: of what it searches.

    One of the user's own knows the passages that it has returned since it was opened. If none are among them,
    the page goes without texts, and a line says so. Raises :class:`ConfigError` if any other has none.
    """
    if retriever is None:
        return TextBlocks()
    texts = await text_blocks(report, retriever)
    if not texts.count and report.passages.ids:
        if user_indexes := list(filter(is_user_object, names)):
            Console(stderr=True, highlight=False).print(
                f"corag: the report has no texts of passages: {', '.join(user_indexes)} looks none up by id, "
                "and has returned none of these since it was opened. Give what open_index returned and run "
                "searched.",
                soft_wrap=True,
                markup=False,
            )
            return TextBlocks()
        raise ConfigError(
            f"the index has none of the {len(report.passages.ids):,} passages that these runs name, such as "
            f"'{report.passages.ids[0]}': give the 'retriever' options that the runs were made with."
        )
    return texts


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
        blocks.append(element(f"texts-{number}", pack(orjson.dumps(texts))))
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

    ``baseline``: the run that it opens with as the baseline, as :func:`find_baseline` reads it; "" for the
    first. ``names``: of what the index searches. ``questions``: those to keep to. Return what is on it.
    Raises :class:`ConfigError` as :func:`find_baseline`, :func:`read_report_runs` and :func:`fetch_texts` do.
    """
    base_run = find_baseline(runs, baseline)
    report = make_report(read_report_runs(runs, scorer, recall_at, questions))
    if base_run:
        report = replace(report, overview=replace(report.overview, baseline=list(runs).index(base_run)))
    texts = await fetch_texts(report, index, names)
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_atomically(out, html_page(report, texts, date))
    return report, texts


def html_page(report: Report, texts: TextBlocks, date: str) -> str:
    """Return the whole page. ``date``: when it was made, as the page writes it."""
    # The policy names the two hashes: even if a text broke out of its element, a browser would not run it.
    style = "\n".join(map(_file, STYLES))
    script = '(() => {\n"use strict";\n' + "\n".join(map(_file, SCRIPTS)) + "\n})();\n"
    per_block = TEXTS_PER_BLOCK if texts.count else 0
    overview = asdict(report.overview) | {"made": date, "texts_per_block": per_block}
    values = {
        "policy": f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}",
        "style": style,
        # In JSON "<" only occurs in texts, where it may be written so: no text can end the element.
        "overview": orjson.dumps(overview).decode().replace("<", "\\u003c"),
        "script": script,
        "blocks": "".join([*report.blocks, *texts.blocks]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda field: values[field[1]], _file("template.html"))


def pack(data: bytes) -> str:
    """Compress and write in base64; equal data give equal text, since no time is written (``mtime=0``)."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


def element(name: str, block: str) -> str:
    """Return the script element that holds a block; browsers do not run its type."""
    return f'<script type="application/octet-stream" id="{name}">{block}</script>\n'


@dataclass(frozen=True, slots=True)
class Chunks:
    """A list in packed pieces. ``starts``: the place of each piece's first item."""

    blocks: tuple[str, ...]
    starts: tuple[int, ...]

    def elements(self, name: str) -> Iterator[str]:
        """Return the script elements, called ``name``-0 and so on."""
        return (element(f"{name}-{number}", block) for number, block in enumerate(self.blocks))


def pack_chunks(items: Iterable[Any], passages: Passages) -> Chunks:
    """Pack items, made one by one, in pieces ``{"passages": [[number, id, title], ...], "items": [...]}``.

    A piece has the passages that its items name, so it can be shown without another one.
    """
    blocks: list[str] = []
    starts: list[int] = []
    waiting: list[bytes] = []

    def flush() -> None:
        blocks.append(
            pack(b'{"passages":%b,"items":[%b]}' % (orjson.dumps(passages.take_named()), b",".join(waiting)))
        )
        waiting.clear()

    passages.take_named()  # forget what was named before: by another run's pieces
    size = 0
    for number, item in enumerate(items):
        if not waiting:
            starts.append(number)
            size = 0
        waiting.append(orjson.dumps(item))
        size += len(waiting[-1])
        if size >= CHUNK_BYTES:
            flush()
    if waiting:
        flush()
    return Chunks(tuple(blocks), tuple(starts))


def _traces(
    run: Run, questions: Sequence[Question], passages: Passages, found: Mapping[str, FoundGold]
) -> Chunks:
    """Pack the traces of a run: whole rows are read again one by one, for those of ``run`` have no steps.

    Of a question that the run was not asked it is empty.
    """
    lines = read_lines(run.folder)
    refusal = run.manifest.options.get("refusal", "")
    rows = (run.rows.get(question.id) for question in questions)
    full_rows = (row and replace(lines[row.question.id].parse(), question=row.question) for row in rows)
    return pack_chunks(
        (trace(row, passages, refusal, found.get(row.question.id)) if row else {} for row in full_rows),
        passages,
    )


def _found_gold(run: Run, recall_at: int) -> dict[str, FoundGold]:
    """Return what a run found of the gold passages of its questions, by question id; as its recall counts."""
    aliases = index_aliases(run.manifest.last.index)
    rows = run.rows if run.manifest.searches else {}
    found = {name: find_gold(row, aliases, recall_at) for name, row in rows.items()}
    return {name: each for name, each in found.items() if each}


def _index(
    questions: Sequence[Question], runs: Sequence[Run], traces: Sequence[Chunks], gold_chunks: Chunks
) -> dict[str, Any]:
    """Return what the list of questions needs, in columns: searching and sorting look at every question."""
    return {
        "ids": [question.id for question in questions],
        "texts": [question.text for question in questions],
        "answers": [question.answers for question in questions],
        "kinds": [question.kind for question in questions],
        "hops": [question.hops for question in questions],
        "gold": gold_chunks.starts,
        "runs": [_columns(run, questions, chunks) for run, chunks in zip(runs, traces, strict=True)],
    }


def _columns(run: Run, questions: Sequence[Question], chunks: Chunks) -> dict[str, Any]:
    by_id = {each.row.question.id: each for each in run.scored_rows}
    every = [by_id.get(question.id) for question in questions]
    rows, scores = [each and each.row for each in every], [each and each.scores for each in every]
    return {
        "asked": None if all(every) else [int(each is not None) for each in every],
        "em": [round(score.em, 4) if score and score.is_scored else None for score in scores],
        "f1": [round(score.f1, 4) if score and score.is_scored else None for score in scores],
        "recall": [round(each.recall, 4) if each and each.recall is not None else None for each in scores],
        "failed": [int(row is not None and row.answer is None) for row in rows],
        "predictions": [row.text if row else "" for row in rows],
        "tokens": [row.total_usage.total if row else 0 for row in rows],
        "seconds": [round(row.seconds, 2) if row else 0 for row in rows],
        "starts": chunks.starts,
    }


def _file(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return a content security policy's name for an inline script or style."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
