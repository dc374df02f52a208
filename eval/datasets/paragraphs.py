"""The paragraphs that come with questions of HotpotQA, 2WikiMultihopQA, MuSiQue and PopQA, and their pool.

A corpus pooled from them is small, so recall on it is far higher than on open Wikipedia: write
"pooled-distractor" beside every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.core.errors import DataError
from corag.core.types import Passage, passage_id
from corag.data.fields import Record, distinct, name_record, unpacked
from corag.data.records import FileReader, Note, OddRecordError, read_records
from corag.data.records import Record as FileRecord
from retrieval.corpora.passages import CorpusItem, Reading


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a question's own context; ``gold`` if the dataset marks it as needed for the answer."""

    passage: Passage
    gold: bool


def read_pooled(
    paths: Sequence[str | Path],
    reading: Reading,
    paragraphs: Callable[[Record, str], list[Paragraph]],
    read_file: FileReader = read_records,
) -> Iterator[CorpusItem]:
    """Stream the union of the paragraphs of all questions, each passage once, in order of first appearance.

    ``paragraphs`` and ``read_file`` are those of a :class:`eval.datasets.dataset.Dataset`. A record that is
    not of this dataset is an odd one, with file, record and field.
    """
    ids: set[str] = set()
    for path in paths:
        repeats = 0
        for record in read_file(path, encoding=reading.encoding, delimiter=reading.delimiter):
            if not isinstance(record, FileRecord):
                yield record
                continue
            try:
                record_paragraphs = paragraphs(record.fields, record.where)
            except DataError as error:
                yield OddRecordError(record.where, "without paragraphs that can be read", error)
                continue
            for paragraph in record_paragraphs:
                if paragraph.passage.id in ids:
                    repeats += 1
                else:
                    ids.add(paragraph.passage.id)
                    yield paragraph.passage
        if repeats:
            yield Note(
                f"{path}: {repeats:,} paragraphs come with several questions, and are one passage each"
            )


def context_paragraphs(record: Record, where: str) -> list[Paragraph]:
    """Return the paragraphs of a HotpotQA or 2WikiMultihopQA record, in the record's order.

    ``where`` names the record in errors, such as ``"dev.json, record 3"``. Records have a ``context`` of
    ``[[title, [sentence, ...]], ...]`` or ``{"title": [...], "sentences": [[...], ...]}`` and
    ``supporting_facts``, or ``paragraphs`` as in :func:`listed_paragraphs`. A field may also hold its value
    as JSON or Python text.

    No paragraph is gold where the dataset hides it (test splits), nor where a gold one is absent because the
    context was retrieved (HotpotQA's fullwiki files): recall of the others would be a different measure.
    """
    if "paragraphs" in record:
        return listed_paragraphs(record, where)
    return _from_context(record, name_record(record, where))


def listed_paragraphs(record: Record, where: str) -> list[Paragraph]:
    """Return the paragraphs of a MuSiQue or PopQA record, in the record's order.

    ``paragraphs`` are objects with title, text (or paragraph_text) and is_supporting (or is_gold).
    """
    record_name = name_record(record, where)
    return [_from_object(row, record_name) for row in paragraph_rows(record, record_name)]


def optional_paragraphs(
    record: Record, where: str, paragraphs: Callable[[Record, str], list[Paragraph]]
) -> list[Paragraph]:
    """Return a record's paragraphs; [] for one without, which is for use with an open corpus."""
    return paragraphs(record, where) if "context" in record or "paragraphs" in record else []


def gold_ids(paragraphs: Sequence[Paragraph]) -> tuple[str, ...]:
    """Return the ids of the gold paragraphs, without repeats."""
    return distinct(*(paragraph.passage.id for paragraph in paragraphs if paragraph.gold))


def gold_titles(paragraphs: Sequence[Paragraph]) -> tuple[str, ...]:
    """Return the titles of the gold paragraphs, without repeats."""
    return distinct(*(each.passage.title for each in paragraphs if each.gold and each.passage.title))


def fact_titles(record: Record, where: str) -> tuple[str, ...]:
    """Return the titles of a record's supporting facts, without repeats, whatever its context holds."""
    return distinct(*(" ".join(title.split()) for title, _ in supporting_facts(record, where)))


def paragraph_rows(record: Record, where: str) -> list[Record]:
    """Return a record's ``paragraphs`` as objects with all their fields, however they are stored."""
    return _rows(_field(record, "paragraphs", where), "paragraphs", where)


def _field(record: Record, field: str, where: str) -> Any:
    if field not in record:
        raise DataError(
            f"{where}: field '{field}' is missing; the record has "
            f"{', '.join(map(repr, record)) or 'no fields'}."
        )
    return unpacked(record, field, where)


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
    facts = unpacked(record, "supporting_facts", where)
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
