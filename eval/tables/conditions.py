"""What a reader must know beside a table's figures, from the runs' manifests.

That is questions, model, retriever, corpus and prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corag.core.runs.manifest import Manifest
from eval.datasets.corpora import PAGED_FORMATS, PAGES, index_manifest
from eval.tables.cautions import MARK, confounding_note, find_untrained, training_note, variation_note


@dataclass(frozen=True, slots=True)
class Conditions:
    """The sentences that hold for all runs, and by run what tells it from others, its prompts always.

    ``untrained``: the runs that were asked with other prompts than their model was trained for, each with
    the methods that it was trained for; ``training_note``: a sentence about these, "" for none.
    ``confounding``: what else than the method may make a difference between runs; "" for nothing.
    ``variation``: which of them would differ if they were made again; "" for none.
    """

    common_lines: Sequence[str]
    lines_by_run: Mapping[str, str]
    untrained: Mapping[str, Sequence[str]] = field(default_factory=dict)
    training_note: str = ""
    confounding: str = ""
    variation: str = ""

    def mark_name(self, name: str) -> str:
        """Return a run's name, with a mark if its model was trained for other prompts."""
        return f"{name} {MARK}" if name in self.untrained else name

    def to_json(self) -> dict[str, Any]:
        """Return them as a JSON object."""
        record: dict[str, Any] = {"shared": list(self.common_lines), "own": dict(self.lines_by_run)}
        if self.untrained:
            trained_for = {name: list(methods) for name, methods in self.untrained.items()}
            record |= {"trained_for_others": trained_for, "training_note": self.training_note}
        return record


def describe_conditions(manifests: Mapping[str, Manifest]) -> Conditions:
    """Return what runs were made with, by their names."""
    parts = {
        "Questions": {name: _questions(each) for name, each in manifests.items()},
        "Model": {name: _model(manifest) for name, manifest in manifests.items()},
        "Retriever": {
            name: f"{each.last.searched_sources} ({each.retriever})"
            for name, each in manifests.items()
            if each.searches
        },
        "Corpus": {
            name: each.last.corpus or "not known here" for name, each in manifests.items() if each.searches
        },
    }
    # By path, which has the dataset's name: those of another than the questions' are a question of their own.
    demonstrations = {name: _demonstrations(each) or "none" for name, each in manifests.items()}
    if set(demonstrations.values()) != {"none"}:
        parts["Demonstrations"] = demonstrations
    common_lines = []
    run_lines: dict[str, list[str]] = {name: [] for name in manifests}
    for part, values in parts.items():
        if len(set(values.values())) < 2:
            common_lines.append(f"{part}: {next(iter(values.values()), 'none (no method searches)')}.")
        else:
            for name, value in values.items():
                run_lines[name].append(f"{part.lower()}: {value}")
    for name, manifest in manifests.items():
        if manifest.prompts:  # a method of the user's own has none that are known
            run_lines[name].append(f"prompts: {', '.join(dict.fromkeys(manifest.prompts))}")
    untrained = find_untrained(manifests)
    return Conditions(
        common_lines,
        {name: "; ".join(sentences) for name, sentences in run_lines.items()},
        untrained,
        training_note(untrained, manifests),
        confounding_note(manifests),
        variation_note(manifests),
    )


def index_formats(manifest: Manifest) -> set[str]:
    """Return the formats ('corag index --format') of the corpora that a run searched, "" if unknown here."""
    if not manifest.searches:
        return set()
    indexes = [index for start in manifest.starts for index in start.index or [""]]
    manifests = [index_manifest(index) if index else None for index in dict.fromkeys(indexes)]
    return {"" if each is None else each.settings.detail("format") for each in manifests}


def pages_note(manifests: Iterable[Manifest]) -> str:
    """Return when measures by Wikipedia page are right; "" if the corpora of these runs are such."""
    return PAGES if any(index_formats(manifest) - PAGED_FORMATS for manifest in manifests) else ""


def _demonstrations(manifest: Manifest) -> str:
    """Return the files of a run's worked examples with hashes, and how many were chosen; "" for none."""
    options = manifest.settings.get("options", {})
    if not (options.get("demonstrations") or options.get("reader_demonstrations")):
        return ""
    files = manifest.settings["demonstrations"].items()
    ids = options.get("demonstration_ids")
    file_names = ", ".join(f"{file} ({digest[:8]})" for file, digest in files)
    return file_names + (f", {len(ids)} of them chosen by id" if ids else "")


def _questions(manifest: Manifest) -> str:
    synthetic = f"synthetic, {manifest.last.synthetic}: " if manifest.last.synthetic else ""
    return f"{synthetic}{manifest.last.questions} ({manifest.dataset})"


def _model(manifest: Manifest) -> str:
    adapter = f" with adapter {manifest.last.adapter}" if manifest.last.adapter else ""
    return f"{manifest.last.model}{adapter} ({manifest.model})"
