"""Files that stand beside what docling exported of them: each is read once, from the better of the two."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from retrieval.documents.readers import READERS, docling

_HASH_BITS = (1 << 64) - 1  # docling keeps these bits of a SHA-256


def find_originals(files: Mapping[str, Path]) -> dict[str, str]:
    """Return which of some files are not read, by name: each with the name of what is read, and a note.

    These are the originals of docling's exports; and exports of files that have changed since then, or
    without any text, where the file itself can be read. An export's original has the name that the export
    states, and the content whose hash it states; if there is no such file, the one of that name in the
    export's folder. Another export is none.

    Args:
        files: by their names, relative and with "/".
    """
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    origins = {}
    for name, path in files.items():
        is_json = name.lower().endswith(docling.ENDING)
        if is_json and (origin := docling.read_origin(path)) is not None:
            origins[name] = origin
        elif not is_json:
            by_name[PurePosixPath(name).name].append(name)
    unread: dict[str, str] = {}
    for export, (filename, file_hash) in origins.items():
        same = [
            name for name in by_name[filename] if file_hash is not None and _hash(files[name]) == file_hash
        ]
        folder = PurePosixPath(export).parent
        beside = [name for name in by_name[filename] if PurePosixPath(name).parent == folder]
        originals = same or beside
        has_changed = bool(beside) and not same and file_hash is not None
        if not originals or not (has_changed or not _has_text(files[export])):
            unread |= dict.fromkeys(originals, export)
        elif any(_has_text(files[name]) for name in originals):
            why = "the file has changed since its export" if has_changed else "its export gives no text"
            unread[export] = f"{originals[0]} itself is read, since {why}: convert it again"
        else:
            note = "; it has changed since then: convert it again" if has_changed else ""
            unread |= dict.fromkeys(originals, f"{export}{note}")
    return unread


def _has_text(path: Path) -> bool:
    reader = READERS.get(path.suffix.lower())
    try:
        return reader is not None and bool(reader.parse(path.read_bytes(), "").blocks)
    except Exception:  # noqa: BLE001 - a broken file fails anywhere in its format's library
        return False


def _hash(file: Path) -> int | None:
    try:
        with file.open("rb") as stream:
            return int(hashlib.file_digest(stream, "sha256").hexdigest(), 16) & _HASH_BITS
    except OSError:  # reading it would tell why
        return None
