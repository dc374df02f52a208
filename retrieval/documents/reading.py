"""A folder of documents as a stream of passages: what is broken is told and passed over, the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import orjson

from core.errors import DataError, reason
from core.files import read_jsonl, write_atomically
from core.types import Passage
from retrieval.documents.document import Document, title_of_file
from retrieval.documents.files import (
    ENDINGS,
    HTML,
    MARKDOWN,
    PDF,
    RECORDS,
    TEXT,
    WORD,
    DocumentFile,
    find_documents,
)
from retrieval.documents.passages import Cutting, cut
from retrieval.index_manifest import CorpusFile, hash_documents
from retrieval.sifting import CorpusReport, FileReport, passage_from_record
from retrieval.store import STORE_FILES, PassageStore

READING = "2"
"""To be counted up when the same file comes to give other passages: then every index is read anew."""

FILES = "documents.jsonl"
"""In an index folder, what became of each file, one in a line."""

_TELL_EVERY_S = 10.0
_NAMED = 5  # files that a sentence names
_LISTED = 20  # files that a list names, a line each


class DocumentCorpus:
    """The documents of folders and files.

    Raises :class:`DataError` for a path that is not there, or if there is no document at all.
    """

    def __init__(self, paths: Sequence[str | Path], cutting: Cutting | None = None) -> None:
        self._cutting = cutting or Cutting()
        self.found = find_documents(paths)
        if not self.found.files:
            left_out = f" ({self.found.left_out()})" if self.found.left_out() else ""
            raise DataError(
                f"there is no document in {', '.join(map(str, paths))}{left_out}: they end in "
                f"{', '.join(ENDINGS)}."
            )
        self.hashes = hash_documents((file.path, file.name) for file in self.found.files)

    def passages(
        self,
        report: CorpusReport,
        earlier: Earlier | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Passage]:
        """Stream the passages, file by file; who takes one counts it into ``report`` before taking the next.

        ``report.files`` tells what became of each file. What ``earlier`` has of a file is not read again.
        """
        files, told = self.found.files, time.monotonic()
        for number, (file, hashed) in enumerate(zip(files, self.hashes, strict=True)):
            if time.monotonic() - told > _TELL_EVERY_S:
                told = time.monotonic()
                tell(f"{number:,} of {len(files):,} files read")
            kept, dropped = report.kept, report.dropped
            refused, notes = "", ""
            if earlier and (known := earlier.file(hashed)):
                notes = known.note
                yield from earlier.passages(hashed)
            else:
                read, notes, refused = self._read(file)
                yield from read
            report.files.append(
                FileReport(
                    file.name, hashed.hash, report.kept - kept, report.dropped - dropped, refused, notes
                )
            )

    def has_passages(self, known: Collection[str]) -> bool:
        """Whether any file can be read; ``known``: hashes of those that could."""
        return any(file.hash in known for file in self.hashes) or any(
            self._read(file)[0] for file in self.found.files
        )

    def _read(self, file: DocumentFile) -> tuple[Sequence[Passage], str, str]:
        """Return a file's passages, notes on the reading, and why it cannot be read."""
        try:
            return (*read_file(file, self._cutting), "")
        except DataError as error:
            refused = str(error)
        except Exception as error:  # noqa: BLE001 - a broken file fails anywhere in its format's library
            refused = f"it cannot be read as {file.path.suffix}: {type(error).__name__}, {reason(error)}"
        # A reason may quote the file's path, whose bytes need not be UTF-8.
        return (), "", refused.encode("utf-8", "replace").decode()

    def notes(self, report: CorpusReport) -> list[str]:
        """Tell what could not be read, what was read with doubt, and what was left out."""
        notes = []
        if refused := report.refused:
            notes.append(f"{len(refused):,} file(s) could not be read:{_listed(refused)}")
        if noted := [file for file in report.files if file.note]:
            notes.append(f"notes on {len(noted):,} file(s):{_listed(noted)}")
        return notes + ([f"{left_out}."] if (left_out := self.found.left_out()) else [])


def _listed(files: Sequence[FileReport]) -> str:
    lines = [f"\n  {file.file}: {file.refused or file.note}" for file in files[:_LISTED]]
    if len(files) > _LISTED:
        lines.append(f"\n  and {len(files) - _LISTED:,} more: {FILES} in the index's folder has them all")
    return "".join(lines)


def read_file(file: DocumentFile, cutting: Cutting) -> tuple[Sequence[Passage], str]:
    """Return a file's passages, and what a user should know of the reading.

    Raises :class:`DataError` with the reason why there are none; a file that is broken raises whatever its
    format's library does.
    """
    if not file.kind:
        raise DataError(f"its ending is none of {', '.join(sorted(ENDINGS))}.")
    try:
        data = file.path.read_bytes()
    except OSError as error:
        raise DataError(f"it cannot be opened: {error.strerror}.") from None
    if not data.strip():
        raise DataError("it is empty.")
    if file.kind == RECORDS:
        return list(_records(file)), ""
    document = _reader(file.kind)(data, title_of_file(file.name))
    if not document.blocks:
        raise DataError("there is no text in it.")
    return list(cut(document, file.name, cutting)), "; ".join(document.notes)


def _reader(kind: str) -> Callable[[bytes, str], Document]:
    # Loaded when a file of that kind is met: a library each.
    if kind == PDF:
        from retrieval.documents.pdf import read_pdf

        return read_pdf
    if kind == WORD:
        from retrieval.documents.word import read_docx

        return read_docx
    if kind == TEXT:
        from retrieval.documents.plain import read_text

        return read_text
    from retrieval.documents.markup import read_html, read_markdown

    return {HTML: read_html, MARKDOWN: read_markdown}[kind]


def _records(file: DocumentFile) -> Iterator[Passage]:
    for number, record in enumerate(read_jsonl(file.path), 1):
        passage = passage_from_record(record, f"record {number}")
        if passage.id.splitlines() != [passage.id]:
            raise DataError(f"record {number}: the id {passage.id!r} is empty or spans lines.")
        f"{passage.title}{passage.text}".encode()  # half a surrogate pair cannot be stored
        yield passage if passage.source else replace(passage, source=file.name)


class Earlier:
    """What an index that this one takes the place of had read: ``folder`` has its texts and file reports."""

    def __init__(self, folder: Path) -> None:
        self.store = PassageStore(folder)
        self.files = [FileReport(**record) for record in read_jsonl(folder / FILES)]
        self._rows: dict[str, tuple[FileReport, range]] = {}
        end = 0
        for file in self.files:
            start, end = end, end + file.passages
            # Of what was dropped as a repeat the text is gone, and what it repeated may be gone now too.
            if not file.refused and not file.dropped:
                self._rows[file.hash] = file, range(start, end)

    @classmethod
    def of(cls, folder: Path) -> Earlier | None:
        """Open what was put aside; None if there is nothing, or an interruption has torn it."""
        whole = all((folder / name).is_file() for name in (*STORE_FILES, FILES))
        return cls(folder) if whole else None

    def file(self, file: CorpusFile) -> FileReport | None:
        """Return what is known of this very file; None if it is to be read."""
        known = self._rows.get(file.hash)
        return known[0] if known else None

    def passages(self, file: CorpusFile) -> Iterator[Passage]:
        """Stream the passages of a file that is known."""
        rows = self._rows[file.hash][1]
        return self.store.rows(rows.start, rows.stop)

    def changes(self, files: Sequence[CorpusFile]) -> str:
        """Tell in a sentence how these files differ from the earlier ones."""
        before = {file.file: file.hash for file in self.files}
        now = {file.path: file.hash for file in files}
        named = {
            "changed": [name for name in now if name in before and now[name] != before[name]],
            "new": [name for name in now if name not in before],
            "gone": [name for name in before if name not in now],
        }
        parts = [f"{len(names):,} {what} ({_some(names)})" for what, names in named.items() if names]
        same = sum(before.get(name) == hashed for name, hashed in now.items())
        return f"since this index was built: {', '.join(parts) or 'another order'}; unchanged: {same:,}"


def hashes_read(folder: Path) -> set[str]:
    """Return the hashes of the files that an index has passages of."""
    return {record["hash"] for record in read_jsonl(folder / FILES) if record["passages"]}


def write_reports(folder: Path, files: Sequence[FileReport]) -> None:
    """Write what became of each file into an index folder."""
    write_atomically(folder / FILES, b"".join(orjson.dumps(asdict(file)) + b"\n" for file in files).decode())


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
