"""What a dataset consists of: how its files are read, what its questions are like, which corpus it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corag.core.types import Question
from corag.data.fields import Record
from corag.data.records import FileReader, read_records
from eval.datasets.paragraphs import Paragraph
from eval.datasets.records import PlacedRecords
from eval.datasets.report import QuestionReport
from retrieval.corpora.passages import CorpusItem, Reading

Aliases = Mapping[str, tuple[str, ...]]
"""Further spellings of answers, by the id that a record names."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset. A file in ``eval/datasets/sets/`` declares it, and needs no other place.

    Attributes:
        name: what ``--dataset`` calls it.
        title: what its files are, in a line.
        parse: makes a question of a raw record; its second argument names the record in errors.
        scorer: the name of its official rule in :mod:`eval.scoring.scorers`.
        task: what its questions are like, for a prompt's ``{task}``; "" for the prompt's own words.
        read_file: streams the records of a file, where official ones have a shape of their own.
        read_records: streams raw records of question files that are no files of records.
        question: the field that holds the question, of which a missing id is made; "" where records have ids.
        marks: fields that together tell a record of this dataset from others'; none if it has no such fields.
        gold: the field of the gold answers, which strict reading insists on; "" where test splits hide them.
        note_record: returns remarks on a record that was read, such as on fields that are not.
        columns: the names that ``columns`` may give fields; none if that is for other datasets.
        source_files: further files that the questions depend on, given the question file.
        paragraphs: returns the paragraphs that a record brings; None if records bring none. A question file
            with paragraphs is a corpus, too: ``corag index --format NAME`` pools those of all questions.
        read_aliases: reads a file of answer aliases; None if there is no such file.
        add_aliases: adds a record's aliases to its question.
    """

    name: str
    title: str
    parse: Callable[[Record, str], Question]
    scorer: str = "squad"
    task: str = ""
    read_file: FileReader = read_records
    read_records: Callable[[str, QuestionReport], PlacedRecords] | None = None
    question: str = "question"
    marks: frozenset[str] = frozenset()
    gold: str = ""
    note_record: Callable[[Record], Sequence[str]] | None = None
    columns: Sequence[str] = ()
    source_files: Callable[[str], Sequence[Path]] = lambda _: ()
    paragraphs: Callable[[Record, str], list[Paragraph]] | None = None
    read_aliases: Callable[[str], Aliases] | None = None
    add_aliases: Callable[[Question, Record, Aliases], Question] | None = None


@dataclass(frozen=True, slots=True)
class CorpusFormat:
    """A dataset's own layout of a corpus, for ``corag index --format``.

    Attributes:
        name: what ``--format`` calls it.
        read_passages: streams the passages of files.
        has_pages: passage ids begin with the ``wikipedia_id`` of their page.
    """

    name: str
    read_passages: Callable[[Sequence[str | Path], Reading], Iterator[CorpusItem]]
    has_pages: bool = False
