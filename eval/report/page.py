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

from core.errors import ConfigError
from core.files import write_atomically
from core.protocols import Retriever
from core.runs.folder import read_lines
from core.runs.rows import SavedRow
from eval.report.overview import Overview, Run, common_rows, describe, load_run
from eval.report.traces import Passages, gold, trace
from eval.scoring.rows import Scores
from eval.scoring.scorers import Scorer
from eval.tables.conditions import corpus_searched
from eval.tables.results import baseline_of
from eval.tables.runs import check_same_file, common_questions, manifest_of_answers, scoring_of

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
    """The texts of a report's passages as script elements; ``found`` of them were in the index."""

    blocks: Sequence[str] = ()
    found: int = 0


def make_report(runs: Sequence[Run], questions: Sequence[str], scorer: Scorer, recall_at: int) -> Report:
    """Score, test and pack some runs.

    Args:
        runs: in the order of the table's lines.
        questions: ids of questions that all the runs have, in the order of the list.
        scorer: the rule that answers are compared by.
        recall_at: recall is over so many different passages, the first ones collected.
    """
    overview, scores = describe(runs, questions, scorer, recall_at)
    rows = common_rows(runs, questions)
    passages = Passages()
    traces = [_traces(run, asked, passages) for run, asked in zip(runs, rows, strict=True)]
    about = chunked((gold(row.question, passages) for row in rows[0]), passages)
    index = _index(rows, scores, traces, about)
    blocks = [element("index", pack(orjson.dumps(index))), *about.elements("gold")]
    for number, chunks in enumerate(traces):
        blocks += chunks.elements(f"run-{number}")
    return Report(overview, passages, blocks)


def report_of(runs: Mapping[str, Path], scorer: str = "auto", recall_at: int = 0) -> Report:
    """Make the report of finished runs by name, over the questions that all of them have.

    ``scorer`` and ``recall_at``: "auto" and 0 take those of the first run. Raises :class:`ConfigError` for
    runs of different question files, folders that hold no answers, or no common question.
    """
    manifests = {name: manifest_of_answers(folder) for name, folder in runs.items()}
    check_same_file(list(manifests.values()))
    loaded = [load_run(name, folder, corpus_searched(manifests[name].last)) for name, folder in runs.items()]
    questions = [question.id for question in common_questions({run.name: run.rows for run in loaded})]
    first = next(iter(manifests.values()))
    return make_report(loaded, questions, *scoring_of(first, scorer, recall_at))


async def texts_of(report: Report, retriever: Retriever | None) -> TextBlocks:
    """Fetch the passages' texts from an index, if there is one.

    Raises :class:`ConfigError` if it has none of them.
    """
    if retriever is None:
        return TextBlocks()
    texts = await text_blocks(report, retriever)
    if not texts.found and report.passages.ids:
        raise ConfigError(
            f"the index has none of the {len(report.passages.ids):,} passages that these runs name, such as "
            f"'{report.passages.ids[0]}': give the --retriever options that the runs were made with."
        )
    return texts


async def text_blocks(report: Report, retriever: Retriever) -> TextBlocks:
    """Fetch title and text of every passage that a report names, as far as the index has them."""
    ids = report.passages.ids
    blocks = []
    found = 0
    for number, start in enumerate(range(0, len(ids), TEXTS_PER_BLOCK)):
        part = ids[start : start + TEXTS_PER_BLOCK]
        known = {passage.id: passage for passage in await retriever.passages(part)}
        found += len(known)
        texts = [[known[name].title, known[name].text] if name in known else None for name in part]
        blocks.append(element(f"texts-{number}", pack(orjson.dumps(texts))))
    return TextBlocks(blocks, found)


async def write_report(
    runs: Mapping[str, Path],
    out: Path,
    index: Retriever | None = None,
    scorer: str = "auto",
    recall_at: int = 0,
    baseline: str = "",
) -> tuple[Report, TextBlocks]:
    """Write the page of finished runs by name to ``out``, with passages' texts if there is an ``index``.

    ``baseline``: the run that it opens with as the baseline, as :func:`baseline_of` reads it; "" for the
    first. Return what is on it. Raises :class:`ConfigError` as that, :func:`report_of` and :func:`texts_of`
    do.
    """
    chosen = baseline_of(runs, baseline)
    report = report_of(runs, scorer, recall_at)
    if chosen:
        report = replace(report, overview=replace(report.overview, baseline=list(runs).index(chosen)))
    texts = await texts_of(report, index)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_atomically(out, html_page(report, texts, made))
    return report, texts


def html_page(report: Report, texts: TextBlocks, made: str) -> str:
    """Return the whole page. ``made``: when it was made, as the page says it."""
    # The policy names the two hashes: even if a text broke out of its element, a browser would not run it.
    style = "\n".join(map(_file, STYLES))
    script = '(() => {\n"use strict";\n' + "\n".join(map(_file, SCRIPTS)) + "\n})();\n"
    shown = asdict(report.overview) | {"made": made, "texts_per_block": TEXTS_PER_BLOCK if texts.found else 0}
    values = {
        "policy": f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}",
        "style": style,
        # In JSON "<" only occurs in texts, where it may be written so: no text can end the element.
        "overview": orjson.dumps(shown).decode().replace("<", "\\u003c"),
        "script": script,
        "blocks": "".join([*report.blocks, *texts.blocks]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda field: values[field[1]], _file("template.html"))


def pack(data: bytes) -> str:
    """Compress and write in base64; equal data give equal text, since no time is written (``mtime=0``)."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


def element(name: str, packed: str) -> str:
    """Return the script element that holds a block; browsers do not run its type."""
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>\n'


@dataclass(frozen=True, slots=True)
class Chunks:
    """A list in packed pieces. ``starts``: the place of each piece's first item."""

    packed: tuple[str, ...]
    starts: tuple[int, ...]

    def elements(self, name: str) -> Iterator[str]:
        """Return the script elements, called ``name``-0 and so on."""
        return (element(f"{name}-{number}", packed) for number, packed in enumerate(self.packed))


def chunked(items: Iterable[Any], passages: Passages) -> Chunks:
    """Pack items, made one by one, in pieces ``{"passages": [[number, id, title], ...], "items": [...]}``.

    A piece has the passages that its items name, so it can be shown without another one.
    """
    packed: list[str] = []
    starts: list[int] = []
    waiting: list[bytes] = []

    def flush() -> None:
        packed.append(
            pack(b'{"passages":%b,"items":[%b]}' % (orjson.dumps(passages.named()), b",".join(waiting)))
        )
        waiting.clear()

    passages.named()  # forget what was named before: by another run's pieces
    size = 0
    for place, item in enumerate(items):
        if not waiting:
            starts.append(place)
            size = 0
        waiting.append(orjson.dumps(item))
        size += len(waiting[-1])
        if size >= CHUNK_BYTES:
            flush()
    if waiting:
        flush()
    return Chunks(tuple(packed), tuple(starts))


def _traces(run: Run, rows: Sequence[SavedRow], passages: Passages) -> Chunks:
    """Pack the traces of a run: whole rows are read again one by one, for ``rows`` have no steps."""
    lines = read_lines(run.folder)
    refusal = run.manifest.options.get("refusal", "")
    whole = (replace(lines[row.question.id].parsed(), question=row.question) for row in rows)
    return chunked((trace(row, passages, refusal) for row in whole), passages)


def _index(
    rows: Sequence[Sequence[SavedRow]],
    scores: Sequence[Sequence[Scores]],
    traces: Sequence[Chunks],
    about: Chunks,
) -> dict[str, Any]:
    """Return what the list of questions needs, in columns: searching and sorting look at every question."""
    asked = [row.question for row in rows[0]]
    return {
        "ids": [question.id for question in asked],
        "texts": [question.text for question in asked],
        "answers": [question.answers for question in asked],
        "kinds": [question.kind for question in asked],
        "hops": [question.hops for question in asked],
        "gold": about.starts,
        "runs": [_columns(*found) for found in zip(rows, scores, traces, strict=True)],
    }


def _columns(rows: Sequence[SavedRow], scores: Sequence[Scores], chunks: Chunks) -> dict[str, Any]:
    return {
        "em": [round(score.em, 4) if score.scored else None for score in scores],
        "f1": [round(score.f1, 4) if score.scored else None for score in scores],
        "recall": [None if score.recall is None else round(score.recall, 4) for score in scores],
        "failed": [int(row.answer is None) for row in rows],
        "predictions": [row.text for row in rows],
        "tokens": [row.total_usage.total for row in rows],
        "seconds": [round(row.seconds, 2) for row in rows],
        "starts": chunks.starts,
    }


def _file(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return a content security policy's name for an inline script or style."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
