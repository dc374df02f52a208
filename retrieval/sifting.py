"""What every reader of passages shares: a record as a passage, repeats dropped, a report of what was kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from core.errors import DataError
from core.types import Passage, passage_id

_NAMED = 5  # ids that a sentence names


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

    ``taken_ids``: the first few of the repeated ids. ``files``: what became of each file, where they are
    documents.
    """

    kept: int = 0
    empty: int = 0
    repeated_ids: int = 0
    repeated_texts: int = 0
    taken_ids: list[str] = field(default_factory=list)
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
            f"with an id already taken ({self._taken()})": self.repeated_ids,
            "with a title and text already seen": self.repeated_texts,
        }
        parts = ", ".join(f"{count:,} {what}" for what, count in dropped.items() if count)
        told = f"{files if self.files else ''}{self.kept:,} passages kept"
        return f"{told}; dropped: {parts}" if parts else told

    def repeats(self, identifier: str) -> None:
        """Count a passage whose id is already taken."""
        self.repeated_ids += 1
        if len(self.taken_ids) < _NAMED:
            self.taken_ids.append(identifier)

    def _taken(self) -> str:
        return ", ".join([*self.taken_ids, *["..."] * (self.repeated_ids > len(self.taken_ids))])


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
        elif key in texts:  # first: where ids are made of texts, a repeat has both
            report.repeated_texts += 1
        elif hash(passage.id) in ids:
            report.repeats(passage.id)
        else:
            ids.add(hash(passage.id))
            texts.add(key)
            report.kept += 1
            yield passage
    if not report.kept:
        why = "".join(f"\n  {file.file}: {file.refused}" for file in report.refused)
        raise DataError(f"no passage was found in {what}: {report}.{why}")


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
    identifier = next(
        (record[name] for name in ("id", "_id", "docid") if record.get(name) not in (None, "")), None
    )
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
