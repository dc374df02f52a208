"""Where an index lies, by the name that it is given by, and the texts of its passages without an encoder."""

from __future__ import annotations

from pathlib import Path

from corag.core.errors import IndexMismatchError, nearest
from corag.core.own_objects import is_user_object
from corag.core.system.installation import require
from retrieval.config import BM25_PRESETS
from retrieval.index.place import building_folder, is_ours
from retrieval.index.store import PassageStore, has_store
from retrieval.lucene.bm25 import LuceneSearcher, is_lucene_index
from retrieval.lucene.java import java_class


def open_passages(index: str) -> PassageStore | LuceneSearcher | None:
    """Return the texts of an index by its name: from the store beside it, or out of a plain Lucene index.

    None where neither is there, as for a retriever of the user's own. One of Pyserini's prebuilt indexes is
    downloaded where it is not here.

    Raises :class:`IndexMismatchError` if there is no such index.
    """
    if is_user_object(index):
        return None
    folder = find_index_folder(index)
    if has_store(folder):
        return PassageStore(folder)
    return LuceneSearcher(folder, BM25_PRESETS["pyserini"]) if is_lucene_index(folder) else None


def find_index_folder(name: str) -> Path:
    """Return the folder of an index: a path as it is, or one of Pyserini's prebuilt indexes, downloaded."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if is_ours(building_folder(folder)):
        raise IndexMismatchError(
            f"the index '{folder}' was begun and is not finished: run the same `corag index` to go on with "
            "it."
        )
    if folder.is_absolute() or name.startswith((".", "~")) or "/" in name:
        raise IndexMismatchError(
            f"there is no index folder '{name}': check the path, or build it with `corag index` (those of "
            "the guides' examples: `corag quickstart`)."
        )
    require(f"'{name}', which is no folder here and would be one of Pyserini's prebuilt indexes,", "pyserini")
    # Pyserini would start Java itself, in a way that fails without the vector module: start it first.
    java_class("java.lang.Object")
    from pyserini import prebuilt_index_info as prebuilt
    from pyserini.util import download_prebuilt_index

    names = [*prebuilt.TF_INDEX_INFO, *prebuilt.FAISS_INDEX_INFO]
    if name not in names:
        hint = nearest(name, names, otherwise="build it with `corag index`, or check the path.")
        raise IndexMismatchError(
            f"'{name}' is neither a folder here nor one of Pyserini's prebuilt indexes: {hint}"
        )
    try:
        return Path(download_prebuilt_index(name, verbose=False))
    except (ValueError, OSError) as error:
        raise IndexMismatchError(f"the prebuilt index '{name}' cannot be downloaded: {error}") from None
