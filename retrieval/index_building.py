"""An index takes the place of another: built beside it, swapped in at once.

FOLDER               the index that is searched, always a whole one
.FOLDER.building     the next one in the making; the same command goes on with what an interruption left
.FOLDER.replaced     the last one, for a moment, where a file system cannot swap two folders

Whoever has opened an index goes on reading its files: Lucene, FAISS and the passage store hold them open or
in memory maps, which the system keeps when their folder is removed. On NFS that holds for the machine that
removes them, and others open the index again.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from corag.core.errors import IndexMismatchError
from corag.core.runs.stamp import Stamp, refuse_differences
from retrieval.index_manifest import (
    BUILDING,
    INDEX_FILE,
    SHARDS,
    CorpusFile,
    IndexManifest,
    IndexSettings,
    read_manifest,
)

Index = TypeVar("Index")

_OTHER = "Choose another --out, or replace it with --overwrite true."
_AT_WORKING_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
# How a file system says that it cannot swap two folders: NFS, Lustre, some of FUSE and overlays.
_CANNOT_SWAP = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV, errno.EPERM}
_TRIES = 5  # of opening an index in whose place another is put meanwhile


@dataclass(frozen=True)
class BuildPlace:
    """Where an index is built.

    Attributes:
        folder: what becomes the index.
        building: the folder beside it to write into.
        earlier: the index in ``folder`` of which files are still of use, None if there is none.
        finished: the manifest of the index in ``building``, if only the swap is missing.
    """

    folder: Path
    building: Path
    earlier: IndexManifest | None = None
    finished_manifest: IndexManifest | None = None


def building_folder(folder: Path) -> Path:
    """Return the folder beside an index in which the next one is made."""
    return _beside(folder, "building")


def _beside(folder: Path, what: str) -> Path:
    target = folder.resolve()  # of a link, beside where it leads: the link stays
    return target.with_name(f".{target.name}.{what}")


def is_beside_an_index(name: str) -> bool:
    """Whether a hidden file or folder is called as those beside an index are.

    >>> is_beside_an_index(".mine.building"), is_beside_an_index(".git")
    (True, False)
    """
    return name.startswith(".") and name.endswith((".building", ".replaced", ".lock"))


def find_index(folder: Path, settings: IndexSettings) -> IndexManifest | None:
    """Return the manifest of a folder that holds this very index already, else None.

    Raises :class:`IndexMismatchError` for a manifest that cannot be read.
    """
    manifest = read_manifest(folder)
    return manifest if manifest and not manifest.settings.stamp.differences(settings.stamp) else None


def begin_build(
    folder: Path, settings: IndexSettings, *, overwrite: bool, updates: bool = False
) -> BuildPlace:
    """Make the folder beside an index ready for a build; the index itself stays as it is.

    What an interrupted build of the same settings left is kept. The caller holds the lock of ``folder``.

    Args:
        folder: what becomes the index.
        settings: of the index to build; another than the one that is in ``folder``.
        overwrite: whatever index is there may be replaced.
        updates: an index that differs in its corpus alone may be replaced, if most of its files are left.

    Raises:
        IndexMismatchError: if the folder has files and is no index of ours, or, naming the difference, holds
            another index, or was built of files most of which are gone.
    """
    _refuse_others_folder(folder)
    _finish_swap(folder)
    place = BuildPlace(folder, building_folder(folder))
    stamp = settings.stamp
    if overwrite:
        _remove(place.building)
    else:
        existing = read_manifest(folder)
        if existing:
            _refuse_other_index(folder, existing, settings, updates)
        place = dataclasses.replace(place, earlier=existing)
        if manifest := _find_finished(place.building, stamp):
            return dataclasses.replace(place, finished_manifest=manifest)
        _keep_or_empty(place, stamp, updates)
    place.building.mkdir(parents=True, exist_ok=True)
    stamp.write(place.building / BUILDING)
    return place


def _refuse_others_folder(folder: Path) -> None:
    if not folder.is_dir():
        return
    if not is_ours(folder) and any(folder.iterdir()):
        raise IndexMismatchError(
            f"the folder '{folder}' has files in it but is not an index of ours: choose another `out`."
        )
    if os.path.ismount(folder.resolve()):
        raise IndexMismatchError(
            f"'{folder}' is a mount point, whose place no other folder can take: choose a folder in it, such "
            f"as --out {folder / 'index'}."
        )


def _refuse_other_index(
    folder: Path, existing: IndexManifest, settings: IndexSettings, updates: bool
) -> None:
    if existing.settings.kind != settings.kind:
        raise IndexMismatchError(
            f"'{folder}' is an index of the kind '{existing.settings.kind}', not '{settings.kind}': add "
            f"--kind {existing.settings.kind} to bring it up to date, or choose another --out."
        )
    before, after = existing.settings.stamp, settings.stamp
    if updates and _has_other_corpus(before, after):
        _refuse_missing_files(folder, existing.settings.corpus, settings.corpus)
        return
    refuse_differences(f"the index '{folder}'", before, after, advice=_OTHER, error=IndexMismatchError)


def _has_other_corpus(before: Stamp, after: Stamp) -> bool:
    """Whether two indexes differ in their corpus, and in nothing else."""
    with_same_corpus = dataclasses.replace(
        before, made_from={**before.made_from, "corpus": after.made_from["corpus"]}
    )
    return bool(before.differences(after)) and not with_same_corpus.differences(after)


def _refuse_missing_files(folder: Path, here: Sequence[CorpusFile], there: Sequence[CorpusFile]) -> None:
    """Raise :class:`IndexMismatchError` if most files of an index, or all, are none of those given now."""
    # By content too: with a further folder, all files are named from what lies above both.
    names, contents = {each.path for each in there}, {each.content for each in there if each.content}
    missing = [each.path for each in here if each.path not in names and each.content not in contents]
    if len(missing) == len(here):
        raise IndexMismatchError(
            f"the index '{folder}' was built of other files: it has none of those that are given now, such "
            f"as '{there[0].path}'. {_OTHER}"
        )
    if 2 * len(missing) > len(here):
        raise IndexMismatchError(
            f"of the {len(here):,} files of the index '{folder}' {len(missing):,} are not among those that "
            f"are given now, such as '{missing[0]}': name all folders of the index. If they are to go, "
            "replace it with --overwrite true; else choose another --out."
        )


def refuse_lost_passages(folder: Path, earlier: IndexManifest, passages: int) -> None:
    """Raise :class:`IndexMismatchError` if an update would lose most of an index's passages.

    So it is where files are still there but can no longer be read: a share that is not mounted, rights that
    were taken away.
    """
    if 2 * passages < earlier.passages:
        raise IndexMismatchError(
            f"{passages:,} passages would take the place of the {earlier.passages:,} of the index "
            f"'{folder}', so it stays as it was. If that is meant, replace it with --overwrite true."
        )


def _find_finished(building: Path, stamp: Stamp) -> IndexManifest | None:
    """Return the manifest of a finished build of these settings that was not swapped in, else None."""
    with suppress(IndexMismatchError):  # one that was being removed
        manifest = read_manifest(building)
        if manifest and not manifest.settings.stamp.differences(stamp):
            return manifest
    return None


def _keep_or_empty(place: BuildPlace, stamp: Stamp, updates: bool) -> None:
    """Keep what an interrupted build of the same settings left; remove anything else.

    Raises :class:`IndexMismatchError` where that would lose vectors of other settings.
    """
    if (place.building / INDEX_FILE).is_file() or not was_begun(place.building):
        _remove(place.building)
        return
    file = place.building / BUILDING
    if not (earlier_stamp := Stamp.read(file)):
        raise IndexMismatchError(
            f"'{file}' does not say what the unfinished index is made of: it is damaged. {_OTHER}"
        )
    if (place.building / SHARDS).is_dir() and not (updates and _has_other_corpus(earlier_stamp, stamp)):
        what = f"the unfinished index '{place.folder}'"
        refuse_differences(what, earlier_stamp, stamp, advice=_OTHER, error=IndexMismatchError)
    elif earlier_stamp.differences(stamp):
        _remove(place.building)


def swap_in(place: BuildPlace) -> None:
    """Let a finished index take its place: whoever opens the folder finds the old one or the new one.

    Raises :class:`OSError` if the folder cannot be renamed.
    """
    folder, building = place.folder.resolve(), place.building
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not folder.exists() or not any(folder.iterdir()):
        building.rename(folder)
    elif not _exchange(building, folder):
        old_folder = _beside(folder, "replaced")
        _remove(old_folder)
        folder.rename(old_folder)
        # Killed here, the index is looked for under its name beside the folder: resolve_index.
        building.rename(folder)
    remove_leftovers(folder)


def has_leftovers(folder: Path) -> bool:
    """Whether a swap was interrupted before all was removed of the index that was replaced."""
    building = building_folder(folder)
    return (
        was_begun(folder)
        or _beside(folder, "replaced").exists()
        or (building.exists() and not was_begun(building))
    )


def remove_leftovers(folder: Path) -> None:
    """Remove what a swap leaves of the index that was replaced. The caller holds the lock of ``folder``."""
    _remove(_beside(folder, "replaced"))
    building = building_folder(folder)
    if building.exists() and (was_begun(folder) or not was_begun(building)):
        _remove(building)
    # Last, since it says that what lies beside the folder is the old index and not the next one.
    (folder / BUILDING).unlink(missing_ok=True)


def _finish_swap(folder: Path) -> None:
    """Finish a swap that was interrupted."""
    actual_folder = resolve_index(folder)
    if actual_folder != folder:
        actual_folder.rename(folder.resolve())
    if (folder / INDEX_FILE).is_file():
        remove_leftovers(folder)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if rename(_AT_WORKING_FOLDER, names[0], _AT_WORKING_FOLDER, names[1], _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_SWAP:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _remove(folder: Path) -> None:
    """Remove what is left of an index, the manifest first: what is left of this is then no index."""
    (folder / INDEX_FILE).unlink(missing_ok=True)
    # On NFS, files that somebody reads stay behind under other names: the next update removes them.
    shutil.rmtree(folder, ignore_errors=True)


def is_ours(folder: Path) -> bool:
    """Whether a folder is an index, finished or not."""
    return (folder / INDEX_FILE).is_file() or was_begun(folder)


def was_begun(folder: Path) -> bool:
    """Whether an index was begun in this folder and not finished."""
    return (folder / BUILDING).is_file()


def resolve_index(folder: Path) -> Path:
    """Return where an index lies: in its folder, or beside it between the two renames of a swap."""
    building = building_folder(folder)
    return folder if folder.exists() or not (building / INDEX_FILE).is_file() else building


def identify_folder(folder: Path) -> tuple[int, int, int]:
    """Return what tells the index in a folder from one that takes its place; zeros if there is none."""
    try:
        state = folder.stat()
    except OSError:
        return 0, 0, 0
    return state.st_dev, state.st_ino, state.st_mtime_ns


def open_unchanged(
    folder: Path, open_index: Callable[[Path], Index], close: Callable[[Index], None] = lambda _: None
) -> Index:
    """Open the files of an index that are all of one: again, if another took its place meanwhile.

    ``close`` is called with what was opened of two. Raises whatever ``open_index`` does, of an index that
    stays.
    """
    for tries_left in reversed(range(_TRIES)):
        before, path = identify_folder(folder), resolve_index(folder)
        try:
            index = open_index(path)
        except Exception:
            if not tries_left or identify_folder(folder) == before:
                raise
            continue
        if identify_folder(folder) == before:
            return index
        close(index)
    raise IndexMismatchError(
        f"the index '{folder}' was replaced {_TRIES} times while it was being opened: try again."
    )
