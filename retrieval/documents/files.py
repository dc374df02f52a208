"""Which files there are to read: folders walked in a fixed order, files taken as they are named."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import DataError
from corag.data.packed import content_ending
from corag.data.records import is_table
from retrieval.documents.left_out import (
    CLOSED,
    HIDDEN_FILES,
    INDEXES,
    MET_AGAIN,
    OTHER_ENDINGS,
    PIPES,
)
from retrieval.documents.readers import READERS
from retrieval.index.place import is_ours

RECORDS = ".jsonl"
"""The ending of files whose lines are passages as they stand, not documents."""

ENDINGS = tuple(sorted([*READERS, RECORDS]))
"""Of all files that can be read, in small letters."""


def is_document(file: Path) -> bool:
    """Whether a file is a document though it is given alone: tables then hold passages."""
    ending = content_ending(file)
    return ending in READERS and not is_table(ending)


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
        left_out: how many files and folders are not read, by kind.
        skipped: how many of a folder's files have another ending, by ending.
        closed: folders that cannot be opened.
    """

    files: tuple[DocumentFile, ...]
    left_out: Mapping[str, int]
    skipped: Mapping[str, int]
    closed: tuple[str, ...] = ()


def find_documents(paths: Sequence[str | Path]) -> DocumentListing:
    """Find the files of folders, in the order of their names, and files that are named as they are.

    Names that begin with a dot and folders that hold an index are left out. Raises :class:`DataError` for a
    path that is not there.
    """
    roots = [Path(path) for path in paths]
    for root in roots:
        if not root.exists():
            raise DataError(f"there is no file or folder '{root}': check the path.")
    walk = _FolderWalk()
    files = [file for root in roots for file in (walk.files(root) if root.is_dir() else walk.file(root))]
    # One folder gives its files' names; of several, what leads to them is part of the name.
    above = os.path.commonpath([os.path.abspath(root if root.is_dir() else root.parent) for root in roots])
    by_path = {os.path.abspath(file): DocumentFile(file, _name(file, above)) for file in files}
    skipped_endings = dict(sorted(walk.skipped.items(), key=lambda item: (-item[1], item[0])))
    closed_folders = tuple(sorted(_name(folder, above) for folder in walk.closed))
    return DocumentListing(tuple(by_path.values()), +walk.left_out, skipped_endings, closed_folders)


class _FolderWalk:
    """Goes through folders, each once by whatever links lead to it, and counts what it passes by."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.closed: list[Path] = []
        self._entered: set[str] = set()  # by their real paths

    def file(self, file: Path) -> list[Path]:
        """Return the file, unless reading it may never end."""
        try:
            is_special = not stat.S_ISREG(file.stat().st_mode)
        except OSError:  # reading it will tell why
            is_special = False
        self.left_out[PIPES] += is_special
        return [] if is_special else [file]

    def files(self, root: Path) -> list[Path]:
        """Return a folder's files. Links to folders come last, so that most files have their own names."""
        files: list[Path] = []
        waiting = [root]
        while waiting:
            files += self._files_below(waiting.pop(0), waiting)
        # Not as the disk has them, and not as a language sorts: the same on every machine.
        return sorted(files, key=lambda file: file.relative_to(root).parts)

    def _files_below(self, top: Path, links: list[Path]) -> list[Path]:
        """Return the files below a folder; the links to folders that are there go to ``links``."""
        files = []
        for folder, folders, names in os.walk(top, onerror=self._note_closed):
            real_path = os.path.realpath(folder)
            if real_path in self._entered:
                self.left_out[MET_AGAIN] += 1
                folders.clear()
                continue
            self._entered.add(real_path)
            self.left_out[HIDDEN_FILES] += sum(
                name.startswith(".") and not name.endswith(".lock") for name in (*folders, *names)
            )
            below = [Path(folder, name) for name in sorted(folders) if not name.startswith(".")]
            below = [path for path in below if not self._is_index(path)]
            links += [path for path in below if path.is_symlink()]
            folders[:] = [path.name for path in below if not path.is_symlink()]
            for file in (Path(folder, name) for name in names if not name.startswith(".")):
                if content_ending(file) in ENDINGS:
                    files += self.file(file)
                else:
                    self.left_out[OTHER_ENDINGS] += 1
                    ending = content_ending(file) or file.suffix.lower() or "without an ending"
                    self.skipped[ending] += 1
        return files

    def _is_index(self, folder: Path) -> bool:
        # Its passages are of these documents, or of another corpus: neither is to be read.
        try:
            is_index = is_ours(folder)
        except OSError:  # the walk will find it closed
            return False
        self.left_out[INDEXES] += is_index
        return is_index

    def _note_closed(self, error: OSError) -> None:
        self.left_out[CLOSED] += 1
        self.closed.append(Path(os.fsdecode(error.filename)))


def _name(file: Path, above: str) -> str:
    # Bytes that are no UTF-8 and a Mac's decomposed letters would not be the same everywhere.
    name = Path(os.path.abspath(file)).relative_to(above).as_posix()
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "replace"))
