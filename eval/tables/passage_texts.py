"""The texts of the passages that runs collected, read from the stores beside their indexes, or from these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from corag.core.errors import ConfigError, CoragError, DataError, reason
from corag.core.runs.manifest import Manifest, Start
from corag.core.types import Passage
from eval.scoring.rows import PassageTexts
from retrieval.dense.search import PassageSource
from retrieval.search.places import open_passages


def open_passage_texts(
    folders: Mapping[str, Path], manifests: Mapping[str, Manifest]
) -> dict[str, PassageTexts]:
    """Return a reader of passages' texts for each run that searches.

    Raises :class:`ConfigError` as :func:`passage_texts` does.
    """
    return {
        name: passage_texts(folders[name], manifest.last)
        for name, manifest in manifests.items()
        if manifest.searches
    }


def passage_texts(run: Path, start: Start) -> PassageTexts:
    """Return a reader of the texts of the passages that a start of a run searched.

    It reads the store beside the index, which needs no search engine; of plain Lucene indexes and of
    Pyserini's prebuilt ones, the index itself. Raises :class:`ConfigError` if no index of the run has its
    texts here; the reader raises :class:`DataError` for an id that it lacks.
    """
    sources: list[PassageSource] = []
    why = []
    for index in start.index:
        try:
            if source := open_passages(index):
                sources.append(source)
        except CoragError as error:
            why.append(f" ({reason(error).rstrip('.')})")
    if not sources:
        raise ConfigError(
            f"the texts of the passages of '{run}' are not at hand: {start.searched_sources} is neither the "
            f"folder of an index made by 'corag index' nor a Lucene index with its texts{''.join(why[:1])}. "
            "Leave 'answer_recall' out."
        )

    def read_texts(ids: Sequence[str]) -> list[str]:
        passages: dict[str, Passage] = {}
        for source in sources:
            passages |= source.passages([name for name in ids if name not in passages])
        if missing := [name for name in ids if name not in passages]:
            raise DataError(
                f"the index '{start.index[0]}' has no passage '{missing[0]}', which '{run}' found: it was "
                "built anew since."
            )
        return [passages[name].contents for name in ids]

    return read_texts
