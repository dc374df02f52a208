"""Files that stand beside what docling exported of them: each is read once, from the export."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from retrieval.documents.readers import docling

_HASHED = (1 << 64) - 1  # docling keeps these bits of a SHA-256


def find_originals(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the originals of docling's exports among some files, by name: each with a note on its export.

    ``files``: by their names, relative and with "/". An export's original has the name that the export
    states, and the content whose hash it states; if there is no such file, the one of that name in the
    export's folder.
    """
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name in files:
        by_name[PurePosixPath(name).name].append(name)
    originals: dict[str, str] = {}
    for export, path in files.items():
        origin = docling.read_origin(path) if export.lower().endswith(docling.ENDING) else None
        if origin is None:
            continue
        filename, stated = origin
        others = [name for name in by_name[filename] if name != export]
        same = [name for name in others if stated is not None and _hash(files[name]) == stated]
        beside = [name for name in others if PurePosixPath(name).parent == PurePosixPath(export).parent]
        changed = "" if same or stated is None else "; it has changed since then: convert it again"
        originals |= dict.fromkeys(same or beside, f"{export}{changed}")
    return originals


def _hash(file: Path) -> int | None:
    try:
        with file.open("rb") as stream:
            return int(hashlib.file_digest(stream, "sha256").hexdigest(), 16) & _HASHED
    except OSError:  # reading it would tell why
        return None
