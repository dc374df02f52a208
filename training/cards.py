"""The card of what is shared: written from its records, as others may read them, and from its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import Any, Literal

import yaml

from corag.chains.taught import Teaching
from corag.core.options.shared_values import NOT_SHARED, shared_error
from corag.core.pace import clock
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import Manifest
from corag.core.web.hub_files import PREFIX
from corag.generation.adapters import MERGED_TRAINING, TRAINING
from eval.tables.conditions import describe_conditions
from eval.tables.formats import to_markdown
from eval.tables.results import table_of_runs
from training.chains import describe, read_chains
from training.sft import ask_command
from training.shared_records import DEFAULT_ON_HUB, run_options, shared_manifest


def model_card(
    name: str,
    licence: str,
    made: Literal["adapter", "model", "merged"],
    base: str,
    training: Mapping[str, Any] | None,
    results: Mapping[str, Path],
) -> str:
    """Write the card of an adapter or a model.

    Args:
        name: OWNER/NAME on the hub.
        licence: of what is shared, "" for none.
        made: an adapter, a model that was trained whole, or one into which an adapter was folded.
        base: the base model's name there.
        training: how it was made, as :func:`training.shared_records.shared_training` returns it.
        results: finished runs by name, for a table.
    """
    is_adapter = made == "adapter"
    head = _front(
        licence, library_name="peft" if is_adapter else "transformers", base_model=base,
        pipeline_tag="text-generation",
        tags=[
            "corag", *["lora"] * is_adapter, "retrieval-augmented-generation", "multi-hop-question-answering"
        ],
    )  # fmt: skip
    settings = training["settings"] if training else {}
    model = [] if is_adapter and base == DEFAULT_ON_HUB else ["--model.name", base if is_adapter else name]
    model += ["--model.adapter", PREFIX + name] if is_adapter else []
    purpose = (
        "chains of retrieval (CoRAG, Wang et al., 2025)"
        if Teaching.read(settings)
        else "retrieval-augmented answers"
    )
    lines = [
        *_title(name),
        f"{_MADE[made].format(f'[{base}](https://huggingface.co/{base})')}, trained with corag for "
        f"{purpose}.",
        "",
        *_block(join(ask_command(settings, model, ["--retriever.index", "INDEX"]))),
        *_training_lines(training, TRAINING if made != "merged" else MERGED_TRAINING),
    ]
    if results:
        lines += ["## Results", "", _table(results), "Made with these options of `corag run`:", ""]
        for folder in results.values():
            options = yaml.safe_dump(run_options(Manifest.read(folder)), sort_keys=False)
            lines += _block(options.rstrip(), language="yaml")
    return head + "\n".join(lines).rstrip() + "\n"


_MADE = {
    "adapter": "A LoRA adapter for {}",
    "model": "All weights of {}",
    "merged": "{} with a LoRA adapter folded into its weights",
}


def _training_lines(manifest: Mapping[str, Any] | None, record: str) -> list[str]:
    if manifest is None:
        return [f"How it was trained is not recorded (no {record}).", ""]
    options, result = manifest["settings"].get("options", {}), manifest["result"] or {}
    rows, seconds = manifest["settings"].get("rows", ()), result.get("seconds")
    figures = {
        "rows of": ", ".join(sorted({task for each in rows for task in each["rows"]["tasks"]})),
        "questions": sum(each.get("questions") or 0 for each in rows),
        "tokens of the rows": sum(each.get("tokens") or 0 for each in rows),
        "tokens read in training": result.get("tokens_read"),
        "epochs": result.get("epochs", options.get("epochs")),
        "training time": clock(seconds) if seconds else None,
        "rank": None if options.get("tuning") == "full" else (options.get("lora") or {}).get("rank"),
        "mean loss": result.get("train_loss"),
        "trained further from": (options.get("adapter") or {}).get("name"),
    }
    lines = [f"| {name} | {_figure(value)} |" for name, value in figures.items() if value]
    return [
        "## Training",
        "",
        "| | |",
        "| --- | --- |",
        *lines,
        "",
        f"All settings and figures: `{record}`.",
        "",
    ]


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def chains_card(name: str, licence: str, folder: Path, lacking: int) -> str:
    """Write the card of sampled chains. ``lacking``: questions that were asked and are not in the folder."""
    manifest = shared_manifest(Manifest.read(folder))
    rows = [replace(each, error=shared_error(each.error)) for each in read_chains([folder])]
    head = _front(licence, tags=["corag", "chain-of-retrieval"], task_categories=["question-answering"])
    of_all = f" of {len(rows) + lacking:,}" if lacking else ""
    lines = [
        *_title(name),
        f"Chains of sub-queries and sub-answers for {len(rows):,}{of_all} questions ({_source(manifest)}), "
        f"sampled with corag{', which has not finished' if lacking else ''}.",
        "",
        *_block(*describe(rows).lines()),
        "Training rows from them, with the index that they were sampled with:",
        "",
        *_block(f"corag rows {PREFIX}{name} --retriever.index INDEX --out rows"),
    ]
    return head + "\n".join(lines) + "\n"


def run_card(name: str, licence: str, folder: Path) -> str:
    """Write the card of a run."""
    manifest = shared_manifest(Manifest.read(folder))
    head = _front(licence, tags=["corag", "run"], task_categories=["question-answering"])
    address, bare_name = PREFIX + name, name.partition("/")[2]
    service_line = (
        f"{len(read_rows(folder)):,} questions that a service was asked." if manifest.is_served else ""
    )
    lines = [
        *_title(name),
        f"Answers of the method `{manifest.method}` to questions of {_source(manifest)}, with every step "
        "that led to them, made with corag.",
        "",
        service_line or _table({manifest.method: folder}),
        "",
        "Read it, compare your own run with it, run it again:",
        "",
        *_block(
            f"corag table {address}",
            f"corag table {address} YOUR_RUN --baseline {bare_name}",
            f"corag run --config {address} --questions FILE --retriever.index INDEX",
        ),
    ]
    return head + "\n".join(lines) + "\n"


def _table(folders: Mapping[str, Path]) -> str:
    """Return the table of some runs. Settings stand as others may read them."""
    manifests = {name: shared_manifest(Manifest.read(folder)) for name, folder in folders.items()}
    table = table_of_runs(folders)
    summaries = [
        replace(each, reasons={NOT_SHARED: each.failure_count} if each.failure_count else {})
        for each in table.summaries
    ]
    table = replace(table, summaries=summaries, conditions=describe_conditions(manifests))
    return to_markdown(table)


def _source(manifest: Manifest) -> str:
    """Return the questions' data set; of a file in our own format, which may hold any, the file's name."""
    file_name = manifest.last.questions if manifest.dataset == "jsonl" else ""
    return file_name or manifest.dataset


def _front(licence: str, **fields: Any) -> str:
    """Return the card's head, which the hub reads."""
    head = {"license": licence} if licence else {}
    return f"---\n{yaml.safe_dump({**head, **fields}, sort_keys=False)}---\n\n"


def _title(name: str) -> list[str]:
    return [f"# {name.partition('/')[2]}", ""]


def _block(*lines: str, language: str = "") -> Sequence[str]:
    return [f"```{language}", *lines, "```", ""]
