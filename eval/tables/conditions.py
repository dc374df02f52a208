"""What a reader must know beside a table's figures, from the runs' manifests.

That is questions, model, retriever, corpus and prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corag.core.runs.manifest import Manifest
from eval.datasets.corpora import PAGED_FORMATS, PAGES, index_manifest
from eval.scoring.rows import FURTHER_MEASURES
from eval.tables.adapters import UntrainedRuns, find_untrained
from eval.tables.cautions import confounding_note, variation_note
from eval.tables.columns import Summary


@dataclass(frozen=True, slots=True)
class Conditions:
    """The sentences that hold for all runs, and by run what tells it from others, its prompts always.

    ``untrained_runs``: the runs that were asked with other prompts than their model was trained for.
    ``confounding``: what else than the method may make a difference between them; "" for nothing.
    ``variation``: which of them would differ if they were made again; "" for none.
    """

    common_lines: Sequence[str]
    lines_by_run: Mapping[str, str]
    untrained_runs: UntrainedRuns = field(default_factory=UntrainedRuns)
    confounding: str = ""
    variation: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return them as a JSON object."""
        return {
            "shared": list(self.common_lines),
            "own": dict(self.lines_by_run),
        } | self.untrained_runs.to_json()


def describe_conditions(manifests: Mapping[str, Manifest]) -> Conditions:
    """Return what runs were made with, by their names."""
    parts = {
        "Questions": {name: _questions(each) for name, each in manifests.items()},
        "Model": {name: _model(manifest) for name, manifest in manifests.items()},
        "Retriever": {
            name: f"{each.settings.get('trec') or each.last.searched_sources} ({each.retriever})"
            for name, each in manifests.items()
            if each.searches
        },
        "Corpus": {
            name: each.last.corpus or "not known here" for name, each in manifests.items() if each.searches
        },
    }
    # By path, which has the dataset's name: those of another than the questions' are a question of their own.
    if demonstrations := {name: text for name, each in manifests.items() if (text := _demonstrations(each))}:
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
    lines_by_run = {name: "; ".join(sentences) for name, sentences in run_lines.items()}
    return Conditions(
        common_lines,
        lines_by_run,
        find_untrained(manifests),
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
    if "trec" in manifest.settings:
        return "none"
    adapter = f" with adapter {manifest.last.adapter}" if manifest.last.adapter else ""
    return f"{manifest.last.model}{adapter} ({manifest.model})"


def remarks(summary: Summary) -> list[str]:
    """Return what must be known of a run's figures: what is not scored, failed, or was never asked."""
    sentences = []
    if summary.unscored_count:
        scored_count = summary.n - summary.unscored_count
        sentences.append(
            f"{summary.unscored_count:,} of {summary.n:,} questions have no gold answers: "
            + (
                f"EM and F1 are of the other {scored_count:,}."
                if scored_count
                else "nothing to score EM and F1 by."
            )
        )
    for measure, n in summary.measured_on_fewer.items():
        title = FURTHER_MEASURES.get(measure, measure)
        sentences.append(f"{title} is of {n} of {summary.n} questions, which can be measured by it.")
    answered_count = summary.n - summary.failure_count
    if (
        summary.recall is not None
        and answered_count
        and (often := summary.searches * summary.n / answered_count) < 1
    ):
        # Of a method that searches. A model that cannot keep to its form may still answer, by luck.
        times = f"only {often:.2f} times a question" if often else "not once"
        sentences.append(f"it searched {times}: the model did not do what the method asks of it.")
    if summary.has_estimates:
        sentences.append(
            "~ before its tokens: not all were counted, so they are estimated, one for four bytes of text ("
            + "'model.tokenizer' counts a server's, count_tokens those of an own model)."
        )
    if summary.computed_answers:
        sentences.append(
            f"rules computed {summary.computed_answers:,} of {summary.n:,} answers (compare rules); "
            f"{summary.computed_right:,} of these are right (EM)."
        )
    if summary.thoughts_cut:
        sentences.append(
            f"{summary.thoughts_cut:,} of the model's thoughts reached the end of their budget, and were "
            "ended there: 'model.max_thinking_tokens' gives more, model.thinking=off none."
        )
    if summary.unasked_count:
        sentences.append(
            f"the budget allowed no call of the model for {summary.unasked_count:,} of {summary.n:,} "
            "questions: " + "give more tokens with 'budget'."
        )
    if summary.failure_count:
        reasons = (f"  {line}" for line in summary.failures.commonest())
        sentences.append("\n".join([f"{summary.failure_count} failed:", *reasons]))
    return sentences
