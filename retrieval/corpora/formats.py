"""Read corpora as a stream of passages, whatever the layout of their files.

``FORMATS`` lists the layouts of records. Those of no dataset in particular are here; who owns a dataset
adds its own (:func:`register_format`) from a package above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from corag.core.errors import ConfigError, DataError, nearest
from corag.core.types import Passage
from corag.data.packed import content_ending
from corag.data.records import Record, is_table
from retrieval.corpora.passages import CorpusItem, Reading, read_file, read_passages
from retrieval.corpora.sifting import CorpusReport, sift
from retrieval.documents.files import ENDINGS, is_document
from retrieval.documents.reading import DocumentCorpus
from retrieval.documents.unread import advise

CorpusReader = Callable[[Sequence[str | Path], Reading], Iterator[CorpusItem]]

AUTO, JSONL, TABLE, DPR, DOCUMENTS = "auto", "jsonl", "table", "dpr", "documents"
_RECORD_ENDINGS = ("", ".jsonl", ".ndjson", ".json")
_DPR = ("id", "text", "title")  # the order of its columns
_OF_RECORDS = (JSONL, TABLE, DPR)
"""Formats whose records may call their fields as they like."""


def read_corpus(
    paths: Sequence[str | Path],
    format: str,
    report: CorpusReport,
    reading: Reading | None = None,
    *,
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
        reading: names of fields, encoding and delimiter, where they are unusual.
        strict: refuse the first odd record.
        keep_all: a passage for each record, repeats and empty ones too; odd ones are refused.

    Raises:
        ConfigError: for an unknown format.
        DataError: if there is no passage in the files; naming the file and line of an odd record, with
            ``strict``. Documents that cannot be read stand in ``report.files`` instead.
    """
    format, reading = detect_format(paths, format), reading or Reading()
    check_format(format)
    items = DocumentCorpus(paths).passages(report) if format == DOCUMENTS else FORMATS[format](paths, reading)
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
    others = [file for file in files if content_ending(file) not in _RECORD_ENDINGS]
    if unknown := [file for file in others if not is_table(content_ending(file))]:
        record_formats = ", ".join(sorted(FORMATS))
        raise ConfigError(
            f"the ending of '{unknown[0]}' does not tell what it is: "
            f"{advise(content_ending(unknown[0]))}. Documents end in {', '.join(ENDINGS)}; for a file of "
            f"passages name its format: format={record_formats}."
        )
    return TABLE if len(others) == len(files) else JSONL


def _read_table(paths: Sequence[str | Path], reading: Reading) -> Iterator[CorpusItem]:
    """Read tables, also under an ending that does not tell."""
    for path in paths:
        is_told = reading.delimiter or is_table(content_ending(path))
        yield from read_passages([path], reading if is_told else replace(reading, delimiter="\t"))


def read_dpr(paths: Sequence[str | Path], reading: Reading) -> Iterator[CorpusItem]:
    """Read DPR's tables (also wiki18), whose columns are id, text, title unless a header says otherwise."""
    return read_passages(paths, replace(reading, names=_DPR))


FORMATS: dict[str, CorpusReader] = {
    JSONL: read_passages,
    TABLE: _read_table,
    DPR: read_dpr,
}

_MARKS: dict[str, frozenset[str]] = {}


def has_links(format: str) -> bool:
    """Whether a passage of this format is a record of its own, so may state its links."""
    return format in (JSONL, TABLE)


def check_columns(format: str, reading: Reading) -> None:
    """Raise :class:`ConfigError` if columns are named for a format whose fields have names of their own.

    The same for the encoding or the delimiter of documents, each of which tells its own.
    """
    if reading.columns and format not in (AUTO, *_OF_RECORDS):
        raise ConfigError(
            f"columns is for records whose fields may have any name ({', '.join(_OF_RECORDS)}), but the "
            f"corpus is read as '{format}': leave it out."
        )
    if format == DOCUMENTS and (reading.encoding or reading.delimiter):
        raise ConfigError(
            "encoding and delimiter are for files of passages, but the corpus is read as 'documents': leave "
            "them out, or name the format of the files, such as format=table."
        )


def register_format(name: str, reader: CorpusReader, marks: frozenset[str] = frozenset()) -> None:
    """Make a layout known under a name, in this process.

    ``reader`` streams the passages of some files. For a record that it cannot read it yields an
    :class:`corag.data.records.OddRecordError`; whatever it raises refuses the corpus. Repeats and empty
    passages are dropped after it. ``marks``: fields by which a record of it is known, if it has such.
    """
    FORMATS[name] = reader
    if marks:
        _MARKS[name] = marks


def refuse_other_records(paths: Sequence[str | Path], reading: Reading) -> None:
    """Raise :class:`ConfigError` if the first record of a file has the fields of a layout with a name.

    Read as a passage, a question with ten paragraphs would be one of ten in one.
    """
    for path in paths:
        record = next((each for each in read_file(path, reading) if isinstance(each, Record)), None)
        for name, marks in _MARKS.items():
            if record is not None and marks <= record.fields.keys():
                raise ConfigError(
                    f"'{path}' has the fields of {name}, whose records are no passages: add format={name}, "
                    f"which takes the passages in them (or format={JSONL}, for each record as one passage)."
                )


def check_format(name: str) -> None:
    """Raise :class:`ConfigError` if no layout has this name, and it is not "auto"."""
    names = [AUTO, DOCUMENTS, *FORMATS]
    if name not in names:
        raise ConfigError(f"unknown corpus format '{name}': {nearest(name, names)}")
