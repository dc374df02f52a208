"""What a dataset consists of: how its files are read, what its questions are like, which corpus it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corag.core.types import Question
from eval.datasets.fields import Record
from eval.datasets.paragraphs import Paragraph
from eval.datasets.records import PlacedRecords, read_file_records
from eval.datasets.report import QuestionReport
from retrieval.corpora.record_files import CorpusItem

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
        read_records: streams the raw records of a question file, counting those that it leaves out.
        question: the field that holds the question; "" where ids are made of it anyway.
        texts: fields that hold a text, for which a number may stand.
        marks: fields that together tell a record of this dataset from others'; none if it has no such fields.
        lists: fields that hold a list of texts, for which a single one may stand.
        gold: the field of the gold answers, which strict reading insists on; "" where test splits hide them.
        optional: fields without which a record is still a question: a broken one is left out alone.
        canonical: writes a record with the names and types of our own format, given what notes a remark.
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
    read_records: Callable[[str, QuestionReport], PlacedRecords] = read_file_records
    question: str = "question"
    texts: Sequence[str] = ("answer",)
    marks: frozenset[str] = frozenset()
    lists: Sequence[str] = ()
    gold: str = ""
    optional: Sequence[str] = ()
    canonical: Callable[[Record, Callable[[str], None]], Record] | None = None
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
    read_passages: Callable[[Sequence[str | Path]], Iterator[CorpusItem]]
    has_pages: bool = False
