"""Which files there are to read: folders walked in a fixed order, files taken as they are named."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corag.core.errors import DataError
from corag.data.packed import content_ending
from corag.data.records import is_table
from retrieval.documents.exports import find_originals
from retrieval.documents.readers import READERS, docling
from retrieval.index.place import is_ours

RECORDS = ".jsonl"
"""The ending of files whose lines are passages as they stand, not documents."""

ENDINGS = tuple(sorted([*READERS, RECORDS]))
"""Of all files that can be read, in small letters."""


def is_readable(file: Path) -> bool:
    """Whether a file among documents is one, or holds records; of .json files only docling's exports do."""
    ending = content_ending(file)
    return ending in ENDINGS and (ending != docling.ENDING or docling.is_export(file))


def is_document(file: Path) -> bool:
    """Whether a file is a document though it is given alone: tables then hold passages."""
    ending = content_ending(file)
    return ending in READERS and not is_table(ending) and is_readable(file)


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file to read. ``name``: relative to what was given, with "/", wherever that lies."""

    path: Path
    name: str

    @property
    def ending(self) -> str:
        """The ending of its name, in small letters and without that of a compression."""
        return content_ending(self.path)


@dataclass(frozen=True)
class DocumentListing:
    """The files of some folders and files.

    Attributes:
        files: to be read, in order.
        skipped: how many of a folder's files have another ending, by ending.
        hidden: how many files and folders have a name that begins with a dot.
        indexes: how many folders are indexes.
        closed: folders that cannot be opened.
        special: how many are no files to read to an end, such as named pipes.
        originals: files that are read from what docling exported of them, and such exports that are left
            out, each with a note: see :func:`retrieval.documents.exports.find_originals`.
    """

    files: tuple[DocumentFile, ...]
    skipped: Mapping[str, int]
    hidden: int
    indexes: int
    closed: tuple[str, ...] = ()
    special: int = 0
    originals: Mapping[str, str] = field(default_factory=dict)

    def describe_omissions(self) -> str:
        """Return what was left out, "" if nothing was."""
        parts = []
        if self.skipped:
            endings = (f"{count:,} {ending}" for ending, count in self.skipped.items())
            parts.append(f"{sum(self.skipped.values()):,} by their ending ({', '.join(endings)})")
        if self.hidden:
            parts.append(f"{self.hidden:,} hidden")
        if self.indexes:
            parts.append(f"{self.indexes:,} index folder(s)")
        if self.closed:
            parts.append(f"{len(self.closed):,} folder(s) that cannot be opened ({', '.join(self.closed)})")
        if self.special:
            parts.append(f"{self.special:,} pipe(s) or the like")
        return f"left out: {', '.join(parts)}" if parts else ""


def find_documents(paths: Sequence[str | Path]) -> DocumentListing:
    """Find the files of folders, in the order of their names, and files that are named as they are.

    Names that begin with a dot, links to folders, folders that hold an index, and files of which docling's
    export is there are left out. Raises :class:`DataError` for a path that is not there.
    """
    roots = [Path(path) for path in paths]
    for root in roots:
        if not root.exists():
            raise DataError(f"there is no file or folder '{root}': check the path.")
    walk = _FolderWalk()
    files = [file for root in roots for file in (walk.files(root) if root.is_dir() else walk.file(root))]
    # One folder gives its files' names; of several, what leads to them is part of the name.
    above = os.path.commonpath([_absolute(root if root.is_dir() else root.parent) for root in roots])
    by_path = {_absolute(file): DocumentFile(file, _name(file, above)) for file in files}
    skipped_endings = dict(sorted(walk.skipped.items(), key=lambda item: (-item[1], item[0])))
    closed_folders = tuple(sorted(_name(folder, above) for folder in walk.closed))
    originals = find_originals({file.name: file.path for file in by_path.values()})
    document_files = tuple(file for file in by_path.values() if file.name not in originals)
    return DocumentListing(
        document_files,
        skipped_endings,
        walk.hidden,
        walk.indexes,
        closed_folders,
        walk.special,
        dict(sorted(originals.items())),
    )


class _FolderWalk:
    """Goes through folders, counting what it passes by."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.hidden = 0
        self.indexes = 0
        self.closed: list[Path] = []
        self.special = 0

    def file(self, file: Path) -> list[Path]:
        """Return the file, unless reading it may never end."""
        try:
            special = not stat.S_ISREG(file.stat().st_mode)
        except OSError:  # reading it will tell why
            special = False
        self.special += special
        return [] if special else [file]

    def files(self, root: Path) -> list[Path]:
        files = []
        for folder, folders, names in os.walk(root, onerror=self._note_closed):
            visible = [name for name in folders if not name.startswith(".")]
            self.hidden += sum(
                name.startswith(".") and not name.endswith(".lock") for name in (*folders, *names)
            )
            folders[:] = [name for name in visible if not self._is_index(Path(folder, name))]
            for name in names:
                file = Path(folder, name)
                if name.startswith("."):
                    continue
                if is_readable(file):
                    files += self.file(file)
                else:
                    self.skipped[file.suffix.lower() or "without an ending"] += 1
        # Not as the disk has them, and not as a language sorts: the same on every machine.
        return sorted(files, key=lambda file: file.relative_to(root).parts)

    def _is_index(self, folder: Path) -> bool:
        # Its passages are of these documents, or of another corpus: neither is to be read.
        try:
            is_index = is_ours(folder)
        except OSError:  # the walk will find it closed
            return False
        self.indexes += is_index
        return is_index

    def _note_closed(self, error: OSError) -> None:
        self.closed.append(Path(os.fsdecode(error.filename)))


def _absolute(path: Path) -> str:
    return os.path.abspath(path)


def _name(file: Path, above: str) -> str:
    # Bytes that are no UTF-8 and a Mac's decomposed letters would not be the same everywhere.
    name = Path(_absolute(file)).relative_to(above).as_posix()
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "replace"))
