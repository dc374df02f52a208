"""The paragraphs that come with questions of HotpotQA, 2WikiMultihopQA, MuSiQue and PopQA, and their pool.

A corpus pooled from them is small, so recall on it is far higher than on open Wikipedia: write
"pooled-distractor" beside every figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError, nearest
from core.files import read_records
from core.types import Passage, passage_id
from eval.datasets.fields import Record, name_record, unpack

POOLED_DATASETS = ("hotpotqa", "2wikimultihopqa", "musique", "popqa")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a question's own context; ``gold`` if the dataset marks it as needed for the answer."""

    passage: Passage
    gold: bool


def read_pooled(paths: Sequence[str | Path], dataset: str) -> Iterator[Passage]:
    """Stream the union of the paragraphs of all questions, each passage once, in order of first appearance.

    Raises :class:`DataError` naming file, record and field for a record that is not of this dataset, and
    :class:`ConfigError` for an unknown dataset.
    """
    seen: set[str] = set()
    for path in paths:
        for number, record in enumerate(read_records(path), 1):
            for paragraph in paragraphs_of(record, dataset, f"{path}, record {number}"):
                if paragraph.passage.id not in seen:
                    seen.add(paragraph.passage.id)
                    yield paragraph.passage


def paragraphs_of(record: Record, dataset: str, where: str) -> list[Paragraph]:
    """Return the paragraphs of one raw question record, in the record's order.

    ``where`` names the record in errors, such as ``"dev.json, record 3"``. HotpotQA and 2WikiMultihopQA
    records have a ``context`` of ``[[title, [sentence, ...]], ...]`` or ``{"title": [...], "sentences":
    [[...], ...]}`` and ``supporting_facts``; all four datasets may have ``paragraphs`` of objects with title,
    text (or paragraph_text) and is_supporting (or is_gold). A field may also hold its value as JSON or Python
    text.

    No paragraph is gold where the dataset hides it (test splits), nor where a gold one is absent because the
    context was retrieved (HotpotQA's fullwiki files): recall of the others would be a different measure.
    """
    if dataset not in POOLED_DATASETS:
        raise ConfigError(
            f"'{dataset}' is not a dataset whose questions bring paragraphs: "
            f"{nearest(dataset, POOLED_DATASETS)}"
        )
    where = name_record(record, where)
    if "paragraphs" not in record and dataset in ("hotpotqa", "2wikimultihopqa"):
        return _from_context(record, where)
    return [_from_object(row, where) for row in paragraph_rows(record, where)]


def paragraph_rows(record: Record, where: str) -> list[Record]:
    """Return a record's ``paragraphs`` as objects with all their fields, however they are stored."""
    return _rows(_field(record, "paragraphs", where), "paragraphs", where)


def _field(record: Record, field: str, where: str) -> Any:
    if field not in record:
        raise DataError(
            f"{where}: field '{field}' is missing; the record has "
            f"{', '.join(map(repr, record)) or 'no fields'}."
        )
    return unpack(record[field], field, where)


def _rows(value: object, field: str, where: str) -> list[Record]:
    """Accept a list of objects, or the columns that Hugging Face makes of one."""
    if isinstance(value, Mapping) and all(isinstance(column, list) for column in value.values()):
        if len({len(column) for column in value.values()}) > 1:
            raise DataError(f"{where}: the columns of field '{field}' differ in length.")
        return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
    if isinstance(value, list) and all(isinstance(row, Mapping) for row in value):
        return value
    raise DataError(f"{where}: field '{field}' must be a list of objects, but is {value!r:.60}.")


def _from_object(row: Record, where: str) -> Paragraph:
    # MuSiQue's names come first, then those of collections that were converted to its layout.
    text = row.get("paragraph_text", row.get("text"))
    gold = row.get("is_supporting", row.get("is_gold"))
    title = row.get("title")
    if not isinstance(title, str) or not isinstance(text, str) or not isinstance(gold, bool | None):
        raise DataError(
            f"{where}: each of 'paragraphs' needs a title, a text (or paragraph_text) and, if known, "
            f"is_supporting (or is_gold) true or false, but one is {dict(row)!r:.100}."
        )
    return Paragraph(_passage(title, text), gold is True)


def _from_context(record: Record, where: str) -> list[Paragraph]:
    context = _pairs(_field(record, "context", where), ("title", "sentences"), "context", where)
    gold_titles = {title for title, _ in supporting_facts(record, where)}
    if not gold_titles <= {title for title, _ in context}:
        gold_titles = set()  # a retrieved context: recall of those that happen to be in it means nothing
    paragraphs = []
    for title, sentences in context:
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise DataError(
                f"{where}: the sentences of '{title}' in field 'context' must be a list of texts."
            )
        paragraphs.append(Paragraph(_passage(title, " ".join(sentences)), title in gold_titles))
    return paragraphs


def supporting_facts(record: Record, where: str) -> list[tuple[str, Any]]:
    """Return the (title, number of the sentence) pairs of a record; [] where they are hidden."""
    if record.get("supporting_facts") is None:
        return []
    facts = unpack(record["supporting_facts"], "supporting_facts", where)
    return _pairs(facts, ("title", "sent_id"), "supporting_facts", where)


def _pairs(value: object, columns: tuple[str, str], field: str, where: str) -> list[tuple[str, Any]]:
    """Accept ``[[title, x], ...]``, or Hugging Face's ``{"title": [...], columns[1]: [...]}``."""
    if isinstance(value, Mapping) and set(columns) <= set(value):
        value = [[row[column] for column in columns] for row in _rows(value, field, where)]
    if not isinstance(value, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        raise DataError(
            f"{where}: field '{field}' must be a list of [title, {columns[1]}] pairs, but is {value!r:.60}."
        )
    return [(pair[0], pair[1]) for pair in value]


def _passage(title: str, text: str) -> Passage:
    """Make a passage of one line: HotpotQA's sentences begin with a space, 2WikiMultihopQA's do not."""
    title, text = " ".join(title.split()), " ".join(text.split())
    return Passage(passage_id(title, text), title, text)
