"""Read corpora as a stream of passages, whatever the layout of their files.

``FORMATS`` lists the layouts that there are. Those of no dataset in particular are here; who owns a dataset
adds its own (:func:`register_format`) from a package above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from corag.core.compression import open_bytes
from corag.core.errors import ConfigError, DataError, nearest
from corag.core.installation import require
from corag.core.types import Passage
from retrieval.corpora.record_files import (
    CorpusItem,
    Record,
    read_passage_records,
    read_record_file,
    read_records_and_passages,
)
from retrieval.corpora.records import NO_COLUMNS, Columns
from retrieval.corpora.sifting import CorpusReport, sift
from retrieval.corpora.tables import ARROW_TABLES, is_table
from retrieval.documents.files import ENDINGS, content_ending, is_document
from retrieval.documents.reading import DocumentCorpus

CorpusReader = Callable[[Sequence[str | Path]], Iterator[CorpusItem]]

AUTO, JSONL, TABLE, DOCUMENTS = "auto", "jsonl", "table", "documents"
_RECORD_ENDINGS = ("", ".jsonl", ".ndjson", ".json")
_DPR = ("id", "text", "title")  # the order of its columns


def read_corpus(
    paths: Sequence[str | Path],
    format: str,
    report: CorpusReport,
    *,
    columns: Columns = NO_COLUMNS,
    strict: bool = False,
    keep_all: bool = False,
) -> Iterator[Passage]:
    """Stream the passages of corpus files, counting into ``report`` what is kept and what is not.

    Left out are records without text, all but the first of those that share title and text (spaces squeezed),
    and odd ones, which are no passages. See :func:`retrieval.corpora.sifting.sift`.

    Args:
        paths: files, or folders of documents.
        format: the layout, "auto" to go by the endings.
        report: filled while the passages stream by.
        columns: what names the fields or columns of records have.
        strict: refuse the first odd record.
        keep_all: a passage for each record, repeats and empty ones too; odd ones are refused.

    Raises:
        ConfigError: for an unknown format, or ``columns`` for one whose fields have their names.
        DataError: if there is no passage in the files; naming the file and line of an odd record, with
            ``strict``. Documents that cannot be read stand in ``report.files`` instead.
    """
    format = detect_format(paths, format)
    if format not in FORMATS:
        raise DataError(_describe_unknown(format))
    if format == DOCUMENTS:
        items = _documents(paths, report)
    elif columns != NO_COLUMNS:
        check_columns(format)
        items = _COLUMN_READERS[format](paths, columns)
    else:
        items = FORMATS[format](paths)
    what = f"{', '.join(map(str, paths))} (read as '{format}')"
    yield from sift(items, report, what, strict=strict, keep_all=keep_all)


def detect_format(paths: Sequence[str | Path], format: str = AUTO) -> str:
    """Return the format of a corpus: the one that is named or, for "auto", that of the folders and endings.

    A folder or a document among the files makes them documents, tables too. Raises :class:`DataError` for a
    path that is not there, :class:`ConfigError` for an ending that no format has.
    """
    if not paths:
        raise DataError("no corpus file was given: name at least one.")
    if format != AUTO:
        return format
    if missing := [path for path in map(Path, paths) if not path.exists()]:
        raise DataError(f"there is no file or folder '{missing[0]}': check the path.")
    files = [path for path in map(Path, paths) if not path.is_dir()]
    if len(files) < len(paths) or any(map(is_document, files)):
        return DOCUMENTS
    tables = [file for file in files if is_table(content_ending(file))]
    if other_files := [
        file for file in files if file not in tables and content_ending(file) not in _RECORD_ENDINGS
    ]:
        record_formats = ", ".join(name for name in sorted(FORMATS) if name != DOCUMENTS)
        raise ConfigError(
            f"the ending of '{other_files[0]}' does not tell what it is. Documents end in "
            f"{', '.join(ENDINGS)}; for a file of passages name its format: format={record_formats}."
        )
    return TABLE if len(tables) == len(files) else JSONL


def check_packages(paths: Sequence[str | Path]) -> None:
    """Raise :class:`ConfigError` if a package that reads one of the files is not installed."""
    for path in map(Path, paths):
        if not path.is_file():  # a folder's files are looked at when they are listed
            continue
        if content_ending(path) in ARROW_TABLES:
            require(f"'{path}'", "pyarrow", otherwise="write the file as JSONL")
        open_bytes(path).close()  # asks for what unpacks it


def _documents(paths: Sequence[str | Path], report: CorpusReport) -> Iterator[CorpusItem]:
    return DocumentCorpus(paths).passages(report)


def read_dpr(paths: Sequence[str | Path], columns: Columns = NO_COLUMNS) -> Iterator[CorpusItem]:
    """Read DPR's tables (also wiki18), whose columns are id, text, title unless a header says otherwise."""
    records = read_records_and_passages(paths, columns, table=True, order=_DPR)
    return (item for _, item in records)


ColumnReader = Callable[[Sequence[str | Path], Columns], Iterator[CorpusItem]]
# Formats whose records may call their fields as they like.
_COLUMN_READERS: dict[str, ColumnReader] = {
    JSONL: read_passage_records,
    TABLE: partial(read_passage_records, table=True),
    "hippo": read_passage_records,
    "dpr": read_dpr,
}
FORMATS: dict[str, CorpusReader] = {
    JSONL: read_passage_records,
    TABLE: partial(read_passage_records, table=True),
    "hippo": read_passage_records,
    "dpr": read_dpr,
    DOCUMENTS: lambda paths: _documents(paths, CorpusReport()),
}

_MARKS: dict[str, frozenset[str]] = {}


def has_columns(format: str) -> bool:
    """Whether the records of a format may call their fields as they like."""
    return format in _COLUMN_READERS


def has_links(format: str) -> bool:
    """Whether a passage of this format is a record of its own, so may state its links."""
    return format in _COLUMN_READERS and format != "dpr"


def check_columns(format: str) -> None:
    """Raise :class:`ConfigError` if the fields of a format have names of their own."""
    if format != AUTO and not has_columns(format):
        formats = ", ".join(filter(has_columns, FORMATS))
        raise ConfigError(
            f"columns is for records whose fields may have any name ({formats}), but the corpus is read as "
            f"'{format}': leave it out."
        )


def register_format(name: str, reader: CorpusReader, marks: frozenset[str] = frozenset()) -> None:
    """Make a layout known under a name, in this process.

    ``reader`` streams the passages of some files. For a record that it cannot read it yields an
    :class:`OddRecordError`; whatever it raises refuses the corpus. Repeats and empty passages are dropped
    after it. ``marks``: fields by which a record of it is known, if it has such.
    """
    FORMATS[name] = reader
    if marks:
        _MARKS[name] = marks


def refuse_other_records(paths: Sequence[str | Path]) -> None:
    """Raise :class:`ConfigError` if the first record of a file has the fields of a layout with a name.

    Read as a passage, a question with ten paragraphs would be one of ten in one.
    """
    for path in paths:
        record = next((each for each in read_record_file(path) if isinstance(each, Record)), None)
        for name, marks in _MARKS.items():
            if record is not None and marks <= record.fields.keys():
                raise ConfigError(
                    f"'{path}' has the fields of {name}, whose records are no passages: add format={name}, "
                    f"which takes the passages in them (or format={JSONL}, for each record as one passage)."
                )


def check_format(name: str) -> None:
    """Raise :class:`ConfigError` if no layout has this name, and it is not "auto"."""
    if name not in FORMATS and name != AUTO:
        raise ConfigError(_describe_unknown(name))


def _describe_unknown(name: str) -> str:
    return f"unknown corpus format '{name}': {nearest(name, [AUTO, *FORMATS])}"
