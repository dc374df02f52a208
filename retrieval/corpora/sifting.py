"""What all corpora share: repeats and odd records left out with a count, ids made, a report of it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from corag.core.errors import DataError
from corag.core.types import Passage, passage_id
from corag.data.records import Note, OddRecordError
from retrieval.corpora.passages import CorpusItem

_MOST_NAMES = 5  # ids, and odd records, that a sentence names

NUMBER_SIGN = "#"
"""Between an id that several passages share and the number that tells them apart."""


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
        left_out: what was seen in it and is in no passage, by kind, such as "navigation".
        shared: how many passages have an id that was made, since an earlier one has theirs.
    """

    file: str
    hash: str
    passages: int = 0
    dropped: int = 0
    refused: str = ""
    note: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    shared: int = 0


@dataclass
class CorpusReport:
    """What reading a corpus kept and dropped; filled while the passages stream by.

    Every record is a passage that was kept or is counted in :attr:`dropped`.

    Attributes:
        passages: how many were kept.
        empty: records without text.
        repeated_texts: records with a title and text already seen.
        odd: records that are no passages, by reason.
        joined_ids: passages whose id spanned lines, which were joined.
        shared_ids: passages that were kept under an id made of one already taken ("doc#2").
        first_repeated_ids: a few ids that several records have, for messages.
        first_odd: what is wrong with the first odd records.
        notes: sentences on what was guessed of the files.
        files: what became of each file, where they are documents.
        same_as: (id, row) of each dropped id whose passage was kept under another id, in the row of that
            number; complete when the stream has ended.
    """

    passages: int = 0
    empty: int = 0
    repeated_texts: int = 0
    odd: Counter[str] = field(default_factory=Counter)
    joined_ids: int = 0
    shared_ids: int = 0
    first_repeated_ids: list[str] = field(default_factory=list)
    first_odd: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: list[FileReport] = field(default_factory=list)
    same_as: list[tuple[str, int]] = field(default_factory=list)

    @property
    def dropped(self) -> int:
        """All that was not kept."""
        return self.empty + self.repeated_texts + self.odd.total()

    @property
    def records(self) -> int:
        """All that was read."""
        return self.passages + self.dropped

    @property
    def refused(self) -> list[FileReport]:
        """Documents that could not be read."""
        return [file for file in self.files if file.refused]

    def __str__(self) -> str:
        files = f"{len(self.files) - len(self.refused):,} of {len(self.files):,} files read, "
        counts = {
            "empty": self.empty,
            "with a title and text already seen": self.repeated_texts,
            **self.odd,
        }
        parts = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        summary = f"{files if self.files else ''}{self.passages:,} passages kept"
        return f"{summary}; dropped: {parts}" if parts else summary

    def sentences(self) -> list[str]:
        """Return all that a user should know, a sentence each: the counts first."""
        sentences = [f"{self}."]
        if self.odd:
            more = self.odd.total() - len(self.first_odd)
            examples = [f"\n  {each}" for each in self.first_odd]
            examples += [f"\n  and {more:,} more"] if more else []
            count = f"{self.odd.total():,} odd record(s) are left out (strict refuses them):"
            sentences.append(count + "".join(examples))
        if self.shared_ids:
            sentences.append(
                f"{self.shared_ids:,} passages share an id with an earlier one "
                f"({self._list_repeated_ids()}): the first keeps it, the others are called ID#2, ID#3, ..."
            )
        if self.joined_ids:
            sentences.append(f"{self.joined_ids:,} ids spanned lines: they are written on one.")
        return sentences + [f"{note}." for note in self.notes]

    def add_odd(self, record: OddRecordError) -> None:
        """Count a record that is no passage."""
        self.odd[record.reason] += 1
        if len(self.first_odd) < _MOST_NAMES:
            self.first_odd.append(_storable(str(record)))

    def add_shared(self, identifier: str) -> None:
        """Count a passage whose id is already taken, and that gets another."""
        self.shared_ids += 1
        if len(self.first_repeated_ids) < _MOST_NAMES and identifier not in self.first_repeated_ids:
            self.first_repeated_ids.append(identifier)

    def _list_repeated_ids(self) -> str:
        more = self.shared_ids > len(self.first_repeated_ids)
        return ", ".join([*self.first_repeated_ids, *["..."] * more])


def sift(
    items: Iterable[CorpusItem],
    report: CorpusReport,
    what: str,
    *,
    strict: bool = False,
    keep_all: bool = False,
) -> Iterator[Passage]:
    """Pass passages on but for empty ones and repeats, counting into ``report``.

    Of passages that share an id the first keeps it, and the others are called ID#2, ID#3 and so on: mostly
    they are chunks that have their document's id. Passages with the same title and text (spaces squeezed) are
    one, whatever their ids.

    Args:
        items: what a reader yields.
        report: where it is counted.
        what: what the items are read from.
        strict: refuse the first record that is no passage, and the first id of several.
        keep_all: keep empty passages and repeats, and refuse the first record that is none: each has a vector
            of its row.

    Raises:
        DataError: if there is no passage, or with ``strict`` for an odd record or an id of several.
    """
    # Two hashes of 8 bytes per passage, not the passages: a corpus may have tens of millions.
    ids: set[int] = set()
    texts: dict[int, None] = {}  # in the order of the rows, so that a text's row is known at the end
    repeats: list[tuple[str, int]] = []  # ids that were dropped, and their texts
    counts: dict[int, int] = {}  # how many passages have an id, where several have
    for item in items:
        if isinstance(item, Passage):
            passage = item
        elif isinstance(item, Note):
            report.notes.append(_storable(item.text))
            continue
        elif strict or keep_all:
            raise item
        else:
            report.add_odd(item)
            continue
        key = int(passage_id(passage.title, passage.text), 16)
        if not passage.id.isprintable() and passage.id.splitlines() != [passage.id]:
            # Lists of ids have one per line, here and in Pyserini.
            report.joined_ids += 1
            passage = replace(passage, id=" ".join(passage.id.split()) or f"{key:016x}")
        id_hash = hash(passage.id)
        if not keep_all and not passage.text.strip():
            report.empty += 1
        elif not keep_all and key in texts:  # first: where ids are made of texts, a repeat has both
            report.repeated_texts += 1
            if id_hash not in ids:
                repeats.append((passage.id, key))
        elif id_hash in ids and strict and not keep_all:
            raise DataError(f"{what}: the id '{passage.id}' has several passages: give each its own.")
        else:
            if id_hash in ids:
                report.add_shared(passage.id)
                passage = _with_free_id(passage, ids, counts)
                id_hash = hash(passage.id)
            ids.add(id_hash)
            if not keep_all:
                texts[key] = None
            report.passages += 1
            yield passage
    _resolve(repeats, texts, ids, report)
    if not report.passages:
        why = [f"\n  {file.file}: {file.refused}" for file in report.refused]
        why += [f"\n  {odd}" for odd in report.first_odd]
        raise DataError(f"no passage was found in {what}: {report}.{''.join(why)}")


def _storable(text: str) -> str:
    """Return a text that quotes a file's name, whose bytes need not be UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _with_free_id(passage: Passage, ids: set[int], counts: dict[int, int]) -> Passage:
    """Return the passage under the first id of ID#2, ID#3, ... that is free."""
    key = hash(passage.id)
    while True:
        counts[key] = counts.get(key, 1) + 1
        if hash(name := f"{passage.id}{NUMBER_SIGN}{counts[key]}") not in ids:
            return replace(passage, id=name)


def _resolve(
    repeats: list[tuple[str, int]], texts: dict[int, None], ids: set[int], report: CorpusReport
) -> None:
    """Note for each dropped id that no passage has the row of the passage with the same text."""
    keys = {key for _, key in repeats}
    rows = {key: row for row, key in enumerate(texts) if key in keys} if keys else {}
    report.same_as += [(name, rows[key]) for name, key in repeats if hash(name) not in ids]
