"""Read corpora as a stream of passages, whatever the layout of their files.

``FORMATS`` says which layouts there are. Those of no dataset in particular are here; who owns a dataset adds
its own (:func:`register_format`) from a floor above.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError, nearest
from core.files import open_text, read_records
from core.types import Passage, passage_id
from retrieval.documents.files import ENDINGS, RECORDS

CorpusReader = Callable[[Sequence[str | Path]], Iterator[Passage]]

AUTO, JSONL, DOCUMENTS = "auto", "jsonl", "documents"
_RECORD_ENDINGS = ("", ".jsonl", ".json", ".gz")


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of a document.

    Attributes:
        file: its name, relative to what was given.
        hash: of name and content.
        passages: how many of it were kept.
        dropped: how many were not, as repeats for the most part.
        refused: why it could not be read, "" if it could.
        note: what a user should know of the reading, "" for nothing.
    """

    file: str
    hash: str
    passages: int = 0
    dropped: int = 0
    refused: str = ""
    note: str = ""


@dataclass
class CorpusReport:
    """What reading a corpus kept and dropped; filled while the passages stream by.

    ``files``: what became of each file, where they are documents.
    """

    kept: int = 0
    empty: int = 0
    repeated_ids: int = 0
    repeated_texts: int = 0
    files: list[FileReport] = field(default_factory=list)

    @property
    def dropped(self) -> int:
        """All that was not kept."""
        return self.empty + self.repeated_ids + self.repeated_texts

    @property
    def refused(self) -> list[FileReport]:
        """Documents that could not be read."""
        return [file for file in self.files if file.refused]

    def __str__(self) -> str:
        files = f"{len(self.files) - len(self.refused):,} of {len(self.files):,} files read, "
        dropped = {
            "empty": self.empty,
            "with an id already taken": self.repeated_ids,
            "with a title and text already seen": self.repeated_texts,
        }
        parts = ", ".join(f"{count:,} {what}" for what, count in dropped.items() if count)
        told = f"{files if self.files else ''}{self.kept:,} passages kept"
        return f"{told}; dropped: {parts}" if parts else told


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


def sift(passages: Iterable[Passage], report: CorpusReport, what: str) -> Iterator[Passage]:
    """Pass passages on but for empty ones and repeats, counting into ``report``.

    ``what`` they are read from. Raises :class:`DataError` if there is none in it.
    """
    # Two hashes of 8 bytes per passage, not the passages: a corpus may have tens of millions.
    ids: set[int] = set()
    texts: set[int] = set()
    for passage in passages:
        key = int(passage_id(passage.title, passage.text), 16)
        if not passage.text.strip():
            report.empty += 1
        elif hash(passage.id) in ids:
            report.repeated_ids += 1
        elif key in texts:
            report.repeated_texts += 1
        else:
            ids.add(hash(passage.id))
            texts.add(key)
            report.kept += 1
            yield passage
    if not report.kept:
        why = "".join(f"\n  {file.file}: {file.refused}" for file in report.refused)
        raise DataError(f"no passage was found in {what}: {report}.{why}")


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
    # Not at the top: it reads records by this very module.
    from retrieval.documents.reading import DocumentCorpus

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


def passage_from_record(record: dict[str, Any], where: str) -> Passage:
    """Read one JSON record: ``id``, ``_id`` or ``docid``; ``title`` and ``text``, or Pyserini's ``contents``.

    Contents are title, newline, text, or the text alone beside a ``title``. A record without an id gets one
    derived from title and text. ``source`` (text) is taken over, with ``page`` (a number); anything else that
    goes by these names is the corpus's own affair. Raises :class:`DataError` starting with ``where``.
    """
    text, title = record.get("text"), record.get("title")
    if text is None and isinstance(record.get("contents"), str):
        first, newline, rest = record["contents"].partition("\n")
        # A first line is the title only if no other title is given: corpora with both may put the text alone
        # here. Pyserini's wiki18 quotes the title.
        if newline and (not title or title in (first, first.strip('"'))):
            title, text = title or first.strip('"'), rest
        else:
            text = record["contents"]
    if not isinstance(text, str) or not isinstance(title or "", str):
        raise DataError(
            f"{where}: expected the fields 'id', 'title' and 'text' (or 'id' and 'contents') as strings, but "
            f"found: {', '.join(sorted(record)) or 'nothing'}."
        )
    identifier = next((record[name] for name in ("id", "_id", "docid") if record.get(name) is not None), None)
    source, page = record.get("source"), record.get("page")
    if not isinstance(source, str):
        source, page = "", 0
    return Passage(
        passage_id(title or "", text) if identifier is None else str(identifier),
        title or "",
        text,
        source,
        page if isinstance(page, int) and page > 0 else 0,
    )
