"""An index is built beside the one that is searched, in FOLDER.tmp, and renamed when it is complete.

The same command goes on with what an interruption left in FOLDER.tmp. Who has opened an index goes on reading
its files: Lucene, FAISS and the passage store hold them open or in memory maps, which the system keeps when
their folder is removed.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import IndexMismatchError
from corag.core.runs.provenance import Provenance
from retrieval.index.manifest import (
    BUILDING,
    INDEX_FILE,
    SHARDS,
    CorpusFile,
    IndexManifest,
    IndexSettings,
    read_manifest,
)

_OTHER = "Choose another 'out', or replace it with overwrite=true."


@dataclass(frozen=True)
class BuildPlace:
    """Where an index is built.

    Attributes:
        folder: what becomes the index.
        building: the folder beside it to write into.
        earlier: the index in ``folder`` of which files are still of use, None if there is none.
    """

    folder: Path
    building: Path
    earlier: IndexManifest | None = None


def building_folder(folder: Path) -> Path:
    """Return the folder beside an index in which the next one is made."""
    target = folder.resolve()  # of a link, beside where it leads: the link stays
    return target.with_name(f"{target.name}.tmp")


def find_index(folder: Path, settings: IndexSettings) -> IndexManifest | None:
    """Return the manifest of a folder that holds this very index already, else None.

    Raises :class:`IndexMismatchError` for a manifest that cannot be read.
    """
    manifest = read_manifest(folder)
    is_it = manifest and not manifest.settings.provenance.differences(settings.provenance)
    return manifest if is_it else None


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
    building = building_folder(folder)
    for each in (folder, building):
        _refuse_others_folder(each)
    earlier = None if overwrite else read_manifest(folder)
    if earlier:
        _refuse_other_index(folder, earlier, settings, updates)
    provenance, begun = settings.provenance, building / BUILDING
    before = Provenance.read(begun) or Provenance({})
    if before.differences(provenance):
        may_replace = overwrite or (updates and _has_other_corpus(before, provenance))
        if not may_replace and (building / SHARDS).is_dir():
            # Hours of encoding, of other settings.
            what = f"the unfinished index '{folder}'"
            provenance.refuse_other(what, before, advice=_OTHER, error=IndexMismatchError)
        shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True, exist_ok=True)
    provenance.write(begun)
    return BuildPlace(folder, building, earlier)


def _refuse_others_folder(folder: Path) -> None:
    if folder.is_dir() and not is_ours(folder) and any(folder.iterdir()):
        raise IndexMismatchError(
            f"the folder '{folder}' has files in it but is not an index of ours: choose another `out`."
        )


def _refuse_other_index(
    folder: Path, existing: IndexManifest, settings: IndexSettings, updates: bool
) -> None:
    before, after = existing.settings.provenance, settings.provenance
    if updates and _has_other_corpus(before, after):
        _refuse_missing_files(folder, existing.settings.corpus, settings.corpus)
        return
    after.refuse_other(f"the index '{folder}'", before, advice=_OTHER, error=IndexMismatchError)


def _has_other_corpus(before: Provenance, after: Provenance) -> bool:
    """Whether two indexes differ in their corpus, and in nothing else."""
    with_same_corpus = dataclasses.replace(before, inputs={**before.inputs, "corpus": after.inputs["corpus"]})
    return bool(before.differences(after)) and not with_same_corpus.differences(after)


def _refuse_missing_files(folder: Path, here: Sequence[CorpusFile], there: Sequence[CorpusFile]) -> None:
    """Raise :class:`IndexMismatchError` if most files of an index are none of those given now."""
    # By content too: with a further folder, all files are named from what lies above both.
    names, contents = {each.path for each in there}, {each.content for each in there if each.content}
    missing = [each.path for each in here if each.path not in names and each.content not in contents]
    if 2 * len(missing) > len(here):
        raise IndexMismatchError(
            f"of the {len(here):,} files of the index '{folder}' {len(missing):,} are not among those that "
            f"are given now, such as '{missing[0]}': name all folders of the index. If they are to go, "
            "replace it with overwrite=true; else choose another 'out'."
        )


def rename_into_place(place: BuildPlace) -> None:
    """Let a complete index take its place. Raises :class:`OSError` if the folder cannot be renamed."""
    folder = place.folder.resolve()
    replaced = folder.with_name(f".{folder.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if folder.exists():
        folder.rename(replaced)
    place.building.rename(folder)
    (folder / BUILDING).unlink()  # not before: without it the next build would begin anew
    # On NFS, files that somebody reads stay behind under other names: the next update removes them.
    shutil.rmtree(replaced, ignore_errors=True)


def is_ours(folder: Path) -> bool:
    """Whether a folder is an index, finished or not."""
    return (folder / INDEX_FILE).is_file() or was_begun(folder)


def was_begun(folder: Path) -> bool:
    """Whether an index was begun in this folder and not finished."""
    return (folder / BUILDING).is_file()
