"""A folder of documents as a stream of passages: what is broken is reported, and the rest goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import orjson

from corag.core.errors import DataError, reason
from corag.core.system.files import read_jsonl, write_atomically
from corag.core.system.installation import require
from corag.core.types import Passage
from corag.data.file_types import (
    EPUB,
    EXCEL,
    HTML,
    MHTML,
    OLE,
    PDF,
    POWERPOINT,
    RTF,
    WORD,
    ZIP,
    detect_file_type,
)
from corag.data.packed import content_name, unpack
from corag.data.records import OddRecordError
from retrieval.corpora.passages import CorpusItem, Reading, read_passages
from retrieval.corpora.sifting import CorpusReport, FileReport
from retrieval.documents.document import make_title
from retrieval.documents.files import ENDINGS, RECORDS, DocumentFile, find_documents
from retrieval.documents.left_out import describe_counts
from retrieval.documents.passages import Cutting, cut
from retrieval.documents.quality import describe_quality
from retrieval.documents.readers import READERS
from retrieval.documents.unread import advise, list_unread
from retrieval.index.manifest import CorpusFile, hash_documents
from retrieval.index.store import STORE_FILES, PassageStore

READING = "12"
"""To be counted up when the same file comes to give other passages: then every index is read anew."""

FILES = "documents.jsonl"
"""In an index folder, what became of each file, one in a line."""

_REPORT_EVERY_S = 10.0
_MOST_NAMES = 5  # files that a sentence names
_MOST_LISTED = 20  # files that a list names, a line each
_LARGEST_UNPACKED = 1_000_000_000  # bytes of a document that is compressed
_ENDINGS = {  # of types that are read under any name
    PDF: ".pdf", WORD: ".docx", HTML: ".html", MHTML: ".mht", RTF: ".rtf",
    POWERPOINT: ".pptx", EXCEL: ".xlsx", EPUB: ".epub",
}  # fmt: skip
_ZIP_ENDINGS = (".docx", ".pptx", ".pptm", ".xlsx", ".xlsm", ".epub")


Fit = Callable[[Sequence[CorpusItem]], Iterable[CorpusItem]]


class DocumentCorpus:
    """The documents of folders and files.

    Raises :class:`DataError` for a path that is not there, or if there is no document at all.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        cutting: Cutting | None = None,
        fit: Fit | None = None,
        *,
        main: bool = False,
    ) -> None:
        """Find the files.

        ``fit``: cuts what is still too long of a file's passages; records are taken as they stand. ``main``:
        of web pages the main text alone is read.
        """
        self._cutting = cutting or Cutting()
        self._fit = fit
        self._main = main
        self.listing = find_documents(paths)
        if not self.listing.files:
            counts = describe_counts(self.listing.left_out)
            left_out = f" (left out: {counts})" if counts else ""
            raise DataError(
                f"there is no document in {', '.join(map(str, paths))}{left_out}: they end in "
                f"{', '.join(ENDINGS)}.{list_unread(self.listing.skipped)}"
            )
        for ending, file in {file.ending: file for file in reversed(self.listing.files)}.items():
            if reader := READERS.get(ending):
                require(f"'{file.path}'", *reader.packages, otherwise=f"leave out {ending} files")
        if main:
            require("html 'main'", "trafilatura", otherwise="leave it out")
        self.hashes = hash_documents((file.path, file.name) for file in self.listing.files)

    def passages(
        self,
        report: CorpusReport,
        earlier: EarlierIndex | None = None,
        report_progress: Callable[[str], None] = lambda _: None,
    ) -> Iterator[CorpusItem]:
        """Stream the passages, file by file; the caller counts each into ``report`` before taking the next.

        ``report.files`` gets what became of each file. What ``earlier`` has of a file is not read again.
        """
        files, last_report = self.listing.files, time.monotonic()
        for number, (file, corpus_file) in enumerate(zip(files, self.hashes, strict=True)):
            if time.monotonic() - last_report > _REPORT_EVERY_S:
                last_report = time.monotonic()
                report_progress(f"{number:,} of {len(files):,} files read")
            kept_before, dropped_before, shared_before = report.passages, report.dropped, report.shared_ids
            earlier_report = earlier.file(corpus_file) if earlier else None
            if earlier and earlier_report:
                result = FileReading((), earlier_report.note, earlier_report.left_out)
                yield from earlier.passages(corpus_file)
            else:
                result = self._read(file)
                fit = None if file.ending == RECORDS else self._fit
                yield from fit(result.passages) if fit else result.passages
            report.files.append(
                FileReport(
                    file.name,
                    corpus_file.hash,
                    report.passages - kept_before,
                    report.dropped - dropped_before,
                    result.refused,
                    result.note,
                    result.left_out,
                    report.shared_ids - shared_before,
                )
            )

    def _read(self, file: DocumentFile) -> FileReading:
        try:
            return read_file(file, self._cutting, main=self._main)
        except DataError as error:
            refusal = str(error)
        except Exception as error:  # noqa: BLE001 - a broken file fails anywhere in its format's library
            refusal = f"it cannot be read as {file.path.suffix}: {type(error).__name__}, {reason(error)}"
        # A reason may quote the file's path, whose bytes need not be UTF-8.
        return FileReading(refused=refusal.encode("utf-8", "replace").decode())

    def notes(self, report: CorpusReport) -> list[str]:
        """Return what could not be read, what was read with doubt, and what was left out."""
        notes = []
        if unreadable := report.refused:
            notes.append(f"{len(unreadable):,} file(s) could not be read:{_list_files(unreadable)}")
        if doubtful := [file for file in report.files if file.note]:
            notes.append(f"notes on {len(doubtful):,} file(s):{_list_files(doubtful)}")
        if files := [file for file in report.files if file.left_out]:
            counts = sum((Counter(file.left_out) for file in files), Counter[str]())
            notes.append(
                f"seen in {len(files):,} file(s) and not read: {describe_counts(counts)}; {FILES} has the "
                "counts of each."
            )
        if listing := self.listing.left_out:
            closed = "".join(f"\n  {folder}: it cannot be opened" for folder in self.listing.closed)
            unread = list_unread(self.listing.skipped)
            notes.append(f"left out of the folders: {describe_counts(listing)}.{closed}{unread}")
        return notes


def _list_files(files: Sequence[FileReport]) -> str:
    lines = [f"\n  {file.file}: {file.refused or file.note}" for file in files]
    if len(lines) > _MOST_LISTED:
        more = f"\n  and {len(lines) - _MOST_LISTED:,} more: {FILES} in the index's folder has them all"
        lines[_MOST_LISTED:] = [more]
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class FileReading:
    """A file's passages; see :class:`FileReport` for the rest."""

    passages: Sequence[CorpusItem] = ()
    note: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""


def read_file(file: DocumentFile, cutting: Cutting, *, main: bool = False) -> FileReading:
    """Return a file's passages, and what a user should know of the reading.

    ``main``: of a web page the main text alone.
    Raises :class:`DataError` with the reason why there are none; a file that is broken raises whatever its
    format's library does.
    """
    data, ending, notes = _content(file)
    if ending == RECORDS:
        items, note = _read_records(file)
        return FileReading(items, "; ".join([*notes, *([note] if note else [])]))
    document = READERS[ending].parse(data, make_title(content_name(file.name)), main=main)
    notes += document.notes
    if not document.blocks:
        but = f" but {describe_counts(document.left_out)}" if document.left_out else ""
        raise DataError(f"there is no text in it{but}{''.join(f'; {note}' for note in notes)}.")
    passages = list(cut(document, file.name, cutting))
    notes += describe_quality(block.text for block in document.blocks)
    return FileReading(passages, "; ".join(notes), document.left_out)


def _content(file: DocumentFile) -> tuple[bytes, str, list[str]]:
    if file.ending not in ENDINGS:
        raise DataError(f"its ending is none of {', '.join(sorted(ENDINGS))}: {advise(file.ending)}.")
    try:
        data = file.path.read_bytes()
    except OSError as error:
        raise DataError(f"it cannot be opened: {error.strerror}.") from None
    if not data.strip():
        raise DataError("it is empty.")
    return _look_inside(data, file)


def _look_inside(data: bytes, file: DocumentFile) -> tuple[bytes, str, list[str]]:
    """Return a file's content, the ending of what it is by its first bytes, and notes if that is another.

    Raises :class:`DataError` for what no reader takes, whatever its name.
    """
    notes = []
    content = unpack(data, _LARGEST_UNPACKED)
    if content is not data and content_name(file.path) == str(file.path):
        notes.append("it is compressed with gzip, whatever its ending says: unpacked")
    data = content
    file_type = detect_file_type(data)
    if file_type is None or (file.ending in _ZIP_ENDINGS and file_type in (ZIP, OLE)):
        return data, file.ending, notes  # its reader tells what is wrong with its own kind
    ending = _ENDINGS.get(file_type)
    if ending is None:
        raise DataError(f"it is {file_type}, whatever its ending says: {file_type.advice}.")
    if file.ending == RECORDS or READERS[ending] is not READERS[file.ending]:
        notes.append(f"it is {file_type}, whatever its ending says: read as such")
        return data, ending, notes
    return data, file.ending, notes


def _read_records(file: DocumentFile) -> tuple[list[CorpusItem], str]:
    """Return the records of a file, odd ones included, and a note on those.

    Raises :class:`DataError`, for its first record, if none is a passage.
    """
    items: list[CorpusItem] = []
    odd: list[OddRecordError] = []
    for item in read_passages([file.path], Reading()):
        if isinstance(item, Passage) and not item.source:
            item = replace(item, source=file.name)
        elif isinstance(item, OddRecordError):
            odd.append(item)
        items.append(item)
    if odd and not any(isinstance(item, Passage) for item in items):
        raise odd[0]
    if not odd:
        return items, ""
    first = str(odd[0]).removeprefix(f"{file.path}, ")
    return items, f"{len(odd):,} odd record(s) are left out, the first: {first}"


class EarlierIndex:
    """What an index that this one takes the place of had read: ``folder`` has its texts and file reports."""

    def __init__(self, folder: Path) -> None:
        self.store = PassageStore(folder)
        self.files = [FileReport(**record) for record in read_jsonl(folder / FILES)]
        self._rows: dict[str, tuple[FileReport, range]] = {}
        end = 0
        for file in self.files:
            start, end = end, end + file.passages
            # Of what was dropped as a repeat the text is gone, and what it repeated may be gone now too.
            # And an id that was made since another file has it would be another's by now.
            if not file.refused and not file.dropped and not file.shared:
                self._rows[file.hash] = file, range(start, end)

    @classmethod
    def open(cls, folder: Path) -> EarlierIndex | None:
        """Open an index; None if it has no texts or file reports, as one made of passages has none."""
        whole = all((folder / name).is_file() for name in (*STORE_FILES, FILES))
        return cls(folder) if whole else None

    def file(self, file: CorpusFile) -> FileReport | None:
        """Return the report of this very file; None if it is to be read."""
        entry = self._rows.get(file.hash)
        return entry[0] if entry else None

    def passages(self, file: CorpusFile) -> Iterator[Passage]:
        """Stream the passages of a file that :meth:`file` has a report of."""
        rows = self._rows[file.hash][1]
        return self.store.rows(rows.start, rows.stop)

    def changes(self, files: Sequence[CorpusFile]) -> str:
        """Return in a sentence how these files differ from the earlier ones."""
        before = {file.file: file.hash for file in self.files}
        now = {file.path: file.hash for file in files}
        by_kind = {
            "changed": [name for name in now if name in before and now[name] != before[name]],
            "new": [name for name in now if name not in before],
            "gone": [name for name in before if name not in now],
        }
        parts = [f"{len(names):,} {what} ({_some(names)})" for what, names in by_kind.items() if names]
        same = sum(before.get(name) == file_hash for name, file_hash in now.items())
        return f"since this index was built: {', '.join(parts) or 'another order'}; unchanged: {same:,}"


def write_reports(folder: Path, files: Sequence[FileReport]) -> None:
    """Write what became of each file into an index folder."""
    write_atomically(folder / FILES, b"".join(orjson.dumps(asdict(file)) + b"\n" for file in files).decode())


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
