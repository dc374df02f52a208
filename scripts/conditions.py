"""What a reader must know beside a table's figures: questions, model, retriever, corpus and prompts, from the runs' manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import CoragError
from retrieval.manifest import read_manifest as read_index_manifest

Manifest = Mapping[str, Any]


def conditions(manifests: Mapping[str, Manifest]) -> tuple[list[str], dict[str, str]]:
    """Return the sentences that hold for all runs, and by run what tells it from the others, prompts always."""
    parts = {
        "Questions": {name: _questions(manifest) for name, manifest in manifests.items()},
        "Model": {name: _model(manifest) for name, manifest in manifests.items()},
        "Retriever": {name: _retriever(manifest) for name, manifest in manifests.items() if _searches(manifest)},
        "Corpus": {name: _corpus(manifest) for name, manifest in manifests.items() if _searches(manifest)},
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
        own[name].append(f"prompts: {', '.join(dict.fromkeys(manifest['settings']['prompts']))}")
    return shared, {name: "; ".join(said) for name, said in own.items()}


def corpus_of(indexes: Sequence[str]) -> str:
    """Name the corpora of some indexes with their numbers of passages, "" if none of them is a folder that tells."""
    named = []
    for index in indexes:
        try:
            manifest = read_index_manifest(Path(index))
        except CoragError:  # the index has been damaged since; that is no reason to withhold a table
            continue
        if manifest is not None:
            files = ", ".join(Path(file.path).name for file in manifest.settings.corpus)
            named.append(f"{files} ({manifest.passages:,} passages)")
    return " and ".join(dict.fromkeys(named))


def _questions(manifest: Manifest) -> str:
    return f"{manifest['starts'][-1]['questions']} ({manifest['settings']['questions']['dataset']})"


def _model(manifest: Manifest) -> str:
    model = manifest["starts"][-1]["model"]
    adapter = f" with adapter {model['adapter']}" if model.get("adapter") else ""  # older runs do not say
    return f"{model['name']}{adapter} ({manifest['settings']['model']})"


def _searches(manifest: Manifest) -> bool:
    return bool(manifest["settings"]["retriever"])


def _retriever(manifest: Manifest) -> str:
    searched = manifest["starts"][-1]["retriever"]
    return f"{', '.join(searched['index'] or searched['url'])} ({manifest['settings']['retriever']})"


def _corpus(manifest: Manifest) -> str:
    start = manifest["starts"][-1]
    return start.get("corpus") or corpus_of(start["retriever"]["index"]) or "not known here"  # older runs do not say
