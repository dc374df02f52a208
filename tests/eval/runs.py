"""Run folders made without a model, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from corag.core.prompting.prompt import NOTHING_LEFT_OUT
from corag.core.runs.folder import RunFolder
from corag.core.runs.rows import Row, SavedRow
from corag.core.tools import GenerateStep, ScoreStep, SearchStep
from corag.core.types import Answer, Hit, Passage, Question, TokenUsage
from retrieval.index.manifest import IndexSettings, write_manifest

SETTINGS = {
    "method": "one_step",
    "options": {"k": 5, "demonstrations": "", "demonstration_ids": []},
    "prompts": ["layout v1 0123456789abcdef"],
    "demonstrations": {},
    "questions": {"source": "abc", "dataset": "jsonl", "split": "", "subset": ""},
    "model": "scripted",
    "retriever": "words",
    "seed": 0,
    "budget": 0,
}
START = {
    "model": {"name": "model"}, "retriever": {"index": ["indexes/none"], "url": []},
    "questions": "q.jsonl", "scorer": "auto", "recall_at": 5,
}  # fmt: skip


def make_run(folder: Path, rows: Iterable[Row], settings: Mapping[str, Any] = {}, **start: Any) -> Path:
    """Write a run with these rows; ``settings`` and ``start`` replace values of the usual ones."""
    with RunFolder(folder, SETTINGS | dict(settings), START | start) as run:
        for row in rows:
            run.append(row)
    return folder


def searched(folder: Path, form: str) -> dict[str, Any]:
    """What a start says of the index that it searched: one of a corpus read in this format, of which little
    more than the manifest is there.
    """
    folder.mkdir()
    (folder / "segments").write_text("x")  # no index is without files
    write_manifest(folder, IndexSettings("bm25", (), (("format", form),)), 0, ())
    return {"index": [str(folder)], "url": []}


def row(question: Question, text: str | None, passages: Iterable[str] = ()) -> Row:
    """A finished question, or a failed one if ``text`` is None.

    Its one search found the passages, its answer cost 12 tokens.
    """
    ids = tuple(passages)
    hits = tuple(
        Hit(Passage(name, f"About {name}", f"Text of {name}."), 1.0 / rank)
        for rank, name in enumerate(ids, 1)
    )
    usage = TokenUsage(1, 10, 2, 10, 2)
    steps = (
        SearchStep(question.text, "", 5, hits, 0.1),
        GenerateStep("reader", "", (text or "",), ("stop",), usage, NOTHING_LEFT_OUT, 0.2),
        ScoreStep("score", "", -1.5, 3, TokenUsage(), NOTHING_LEFT_OUT, 0.1),
    )
    done = None if text is None else Answer(text, ids, 1, "read")
    return Row(question, done, steps, {"reader": usage}, 0.5, "" if done else "SearchFailedError: it failed")


def saved(question: Question, text: str | None, passages: Iterable[str] = ()) -> SavedRow:
    """The same, read back."""
    return SavedRow.from_json(json.loads(row(question, text, passages).to_json()))


QUESTIONS = [Question(str(n), f"Where was {n} born?", (f"Town {n}",), (f"p{n}",)) for n in range(24)]


def run_of(
    folder: Path,
    right: Collection[int],
    settings: Mapping[str, Any] = {},
    found: Callable[[int], bool] = lambda n: True,
    **start: Any,
) -> Path:
    """A run that answers the ``QUESTIONS`` of these numbers right, and finds the passages that ``found``
    says.
    """
    rows = [
        row(question, f"Town {n}" if n in right else "Nowhere", [f"p{n}" if found(n) else "other"])
        for n, question in enumerate(QUESTIONS)
    ]
    return make_run(folder, rows, settings, **start)
