"""What a reader must know beside a table's figures, from the runs' manifests.

That is questions, model, retriever, corpus and prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import CoragError
from core.runs.manifest import Manifest, Start
from eval.datasets.corpora import PAGED_FORMATS, PAGES
from retrieval.index_manifest import IndexManifest
from retrieval.index_manifest import read_manifest as read_index_manifest


def conditions(manifests: Mapping[str, Manifest]) -> tuple[list[str], dict[str, str]]:
    """Return the sentences that hold for all runs, and by run what tells it from others, prompts always."""
    parts = {
        "Questions": {name: f"{each.last.questions} ({each.dataset})" for name, each in manifests.items()},
        "Model": {name: _model(manifest) for name, manifest in manifests.items()},
        "Retriever": {
            name: f"{each.last.searched} ({each.retriever})"
            for name, each in manifests.items()
            if each.searches
        },
        "Corpus": {
            name: corpus_searched(each.last) or "not known here"
            for name, each in manifests.items()
            if each.searches
        },
    }
    shared = []
    own: dict[str, list[str]] = {name: [] for name in manifests}
    for part, values in parts.items():
        if len(set(values.values())) < 2:
            shared.append(f"{part}: {next(iter(values.values()), 'none (no method searches)')}.")
        else:
            for name, value in values.items():
                own[name].append(f"{part.lower()}: {value}")
    for name, manifest in manifests.items():
        own[name].append(f"prompts: {', '.join(dict.fromkeys(manifest.prompts))}")
    return shared, {name: "; ".join(said) for name, said in own.items()}


def conditions_record(manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    """Write what :func:`conditions` returns as JSON."""
    shared, own = conditions(manifests)
    return {"shared": shared, "own": own}


def corpus_of(indexes: Sequence[str]) -> str:
    """Name the corpora of some indexes with their numbers of passages; "" if no folder tells."""
    named = []
    for manifest in filter(None, map(_index_manifest, indexes)):
        files = ", ".join(Path(file.path).name for file in manifest.settings.corpus)
        named.append(f"{files} ({manifest.passages:,} passages)")
    return " and ".join(dict.fromkeys(named))


def corpus_searched(start: Start) -> str:
    """Name the corpora that a start searched, "" if they are not known: older versions did not note them."""
    return start.corpus or corpus_of(start.index)


def index_formats(manifest: Manifest) -> set[str]:
    """Return the formats ('corag index --format') of the corpora that a run searched, "" if unknown here."""
    if not manifest.searches:
        return set()
    indexes = [index for start in manifest.starts for index in start.index or [""]]
    found = [_index_manifest(index) if index else None for index in dict.fromkeys(indexes)]
    return {"" if index is None else index.settings.detail("format") for index in found}


def pages_note(manifests: Iterable[Manifest]) -> str:
    """Say when measures by Wikipedia page are right; "" if the corpora of these runs are such."""
    return PAGES if any(index_formats(manifest) - PAGED_FORMATS for manifest in manifests) else ""


def _index_manifest(index: str) -> IndexManifest | None:
    try:
        return read_index_manifest(Path(index))
    except CoragError:
        # The index has been damaged since; that is no reason to withhold a table.
        return None


def _model(manifest: Manifest) -> str:
    adapter = f" with adapter {manifest.last.adapter}" if manifest.last.adapter else ""
    return f"{manifest.last.model}{adapter} ({manifest.model})"
