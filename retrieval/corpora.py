"""Read corpora as a stream of passages, whatever the layout of their files.

``FORMATS`` says which layouts there are. Those of no dataset in particular are here; who owns a dataset adds
its own (:func:`register_format`) from a floor above.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from core.errors import ConfigError, DataError, nearest
from core.files import open_text, read_records
from core.types import Passage
from retrieval.documents.files import ENDINGS, RECORDS
from retrieval.documents.reading import DocumentCorpus
from retrieval.sifting import CorpusReport, passage_from_record, sift

CorpusReader = Callable[[Sequence[str | Path]], Iterator[Passage]]

AUTO, JSONL, DOCUMENTS = "auto", "jsonl", "documents"
_RECORD_ENDINGS = ("", ".jsonl", ".json", ".gz")


def read_corpus(paths: Sequence[str | Path], format: str, report: CorpusReport) -> Iterator[Passage]:
    """Stream the passages of corpus files, counting into ``report``.

    Dropped: passages without text, and all but the first of those that share an id, or title and text (spaces
    squeezed). Raises :class:`DataError` naming the file and line of a broken record, or an unknown format;
    documents that cannot be read are told in ``report.files`` instead.
    """
    format = format_of(paths, format)
    if format not in FORMATS:
        raise DataError(_unknown(format))
    passages = _documents(paths, report) if format == DOCUMENTS else FORMATS[format](paths)
    yield from sift(passages, report, f"{', '.join(map(str, paths))} (read as '{format}')")


def format_of(paths: Sequence[str | Path], format: str = AUTO) -> str:
    """Return the format of a corpus: the one that is named or, for "auto", what folders and endings tell.

    A folder or a document among the files makes them documents. Raises :class:`DataError` for a path that is
    not there, :class:`ConfigError` for an ending that tells nothing.
    """
    if not paths:
        raise DataError("no corpus file was given: name at least one.")
    if format != AUTO:
        return format
    if missing := [path for path in map(Path, paths) if not path.exists()]:
        raise DataError(f"there is no file or folder '{missing[0]}': check the path.")
    files = [path for path in map(Path, paths) if not path.is_dir()]
    kinds = [ENDINGS.get(file.suffix.lower(), "") for file in files]
    if len(files) < len(paths) or any(kind and kind != RECORDS for kind in kinds):
        return DOCUMENTS
    if strange := [file for file in files if file.suffix.lower() not in _RECORD_ENDINGS]:
        known = ", ".join(name for name in sorted(FORMATS) if name != DOCUMENTS)
        raise ConfigError(
            f"the ending of '{strange[0]}' does not tell what it is. Documents end in {', '.join(ENDINGS)}; "
            f"for a file of passages name its format: --format {known}."
        )
    return JSONL


def _documents(paths: Sequence[str | Path], report: CorpusReport) -> Iterator[Passage]:
    return DocumentCorpus(paths).passages(report)


def read_passage_records(paths: Sequence[str | Path]) -> Iterator[Passage]:
    """Read files whose records are passages as they stand (see :func:`passage_from_record`)."""
    for path in paths:
        for number, record in enumerate(read_records(path), 1):
            yield passage_from_record(record, f"{path}, record {number}")


def read_dpr(paths: Sequence[str | Path]) -> Iterator[Passage]:
    """Read DPR's tables (also wiki18): tab-separated id, text, title.

    The header line is optional, texts may be quoted as in CSV.
    """
    csv.field_size_limit(sys.maxsize)  # the csv module refuses fields beyond 128 kB otherwise
    for path in paths:
        with open_text(path) as lines:
            rows = csv.reader(lines, delimiter="\t")
            for row in rows:
                if len(row) != 3:
                    where = f"{path}, line {rows.line_num}"
                    raise DataError(f"{where}: expected 3 columns (id, text, title), found {len(row)}.")
                if not row[0].strip():
                    raise DataError(f"{path}, line {rows.line_num}: the id, in the first column, is empty.")
                if row != ["id", "text", "title"]:
                    yield Passage(id=row[0], title=row[2], text=row[1])


FORMATS: dict[str, CorpusReader] = {
    JSONL: read_passage_records,
    "hippo": read_passage_records,
    "dpr": read_dpr,
    DOCUMENTS: lambda paths: _documents(paths, CorpusReport()),
}


def register_format(name: str, reader: CorpusReader) -> None:
    """Make a layout known under a name, in this process.

    ``reader`` streams the passages of some files, and raises :class:`DataError` naming the file and record
    that it cannot read. Repeats and empty passages are dropped after it.
    """
    FORMATS[name] = reader


def check_format(name: str) -> None:
    """Raise :class:`ConfigError` if no layout has this name, and it is not "auto"."""
    if name not in FORMATS and name != AUTO:
        raise ConfigError(_unknown(name))


def _unknown(name: str) -> str:
    return f"unknown corpus format '{name}': {nearest(name, [AUTO, *FORMATS])}"
