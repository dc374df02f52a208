"""What a training prints when it has finished: its figures, and the command that asks what was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from shlex import join
from typing import Any

from corag.chains.taught import Teaching, option_arguments
from corag.generation.adapters import TRAINING
from eval.experiment.registry import METHODS
from training.config import ProgramOptions
from training.row_tasks import ROW_TASKS


def with_usage(
    config: ProgramOptions, summary: str, settings: Mapping[str, Any], index: Sequence[str]
) -> str:
    """Return lines on what a training made, and how to use it. All figures are in its manifest.

    ``settings`` and ``index``: as for :func:`usage`.
    """
    return (
        f"{config.out}: {summary} (all figures: {config.out}/{TRAINING})\n"
        f"Use it: {join(usage(config, settings, index))}\n"
        "That asks for questions; for a file of them: corag run --questions FILE with the same options."
    )


def usage(config: ProgramOptions, settings: Mapping[str, Any], index: Sequence[str]) -> list[str]:
    """Return the command that asks what was trained as it was taught.

    ``settings``: of the training's manifest. ``index``: what the chains were sampled with, none if that is
    not noted; the command then names none.
    """
    if (training_options := Teaching.read(settings)) is not None:
        method, arguments = "corag", training_options.arguments()
    else:
        method, arguments = _of_thoughts(settings.get("rows", ()))
    model_arguments = ["--model.adapter", config.out]
    if config.tuning == "full":
        model_arguments = ["--model.name", config.out]
    elif config.model != "default":
        model_arguments = ["--model.name", config.model, *model_arguments]
    index_arguments = ["--retriever.index", ",".join(index) or "INDEX"]
    return ["corag", "ask", "--method", method, *index_arguments, *arguments, *model_arguments]


def _of_thoughts(rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Return the method that rows made of IRCoT's thoughts teach, and its options as words."""
    records = [chain["options"]["ircot"] for each in rows for chain in each["chains"]]
    methods = {ROW_TASKS[task].method for each in rows for task in each["rows"]["tasks"]}
    method = next((name for name in ("ircot", *sorted(methods)) if name in methods), "corag")
    if not records or method == "corag":
        return method, []
    kind = METHODS[method].config
    record = records[-1] | {"k": records[-1].get("k_per_step")}  # one_step reads what IRCoT's first step does
    return method, option_arguments(method, kind, record, [each.name for each in fields(kind)])


def summary_line(result: dict[str, Any]) -> str:
    """Write a training's steps, seconds and mean loss, of the figures in its manifest."""
    loss = "" if result["train_loss"] is None else f", mean loss {result['train_loss']:.3f}"
    memory = f", {result['peak_memory_gb']:.1f} GB of memory" if "peak_memory_gb" in result else ""
    return f"{result['steps']} steps, {result['epochs']:.2f} epochs, {result['seconds']:.0f} s{memory}{loss}"
