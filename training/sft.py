"""Supervised fine-tuning on rows of chains, with TRL.

    accelerate launch training/sft.py --config training/configs/cpu.yaml --rows ROWS --out FOLDER

On several devices accelerate has options of its own (--config_file training/configs/accelerate_8gpu.yaml).

The loss is of the completions alone. The folder gets the adapter, ``training.json``, which says how it was
made, and ``metrics.jsonl`` with what was logged. The same command goes on from the last checkpoint, or does
nothing if it had finished.

This is a program of its own, not a command: accelerate starts it once per device, each with its own rank.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from shlex import join
from typing import Any, Literal

import numpy as np

from corag.chains.taught import Teaching, option_arguments
from corag.core.errors import ConfigError, DataError
from corag.core.system.installation import require
from corag.generation.models import context_window, model_folder
from corag.generation.rendering import Renderer
from corag.generation.thinking import ThinkingOptions
from corag.generation.trained_for import join_prompts, trained_for
from eval.experiment.registry import METHODS
from training.columns import learned, lengths
from training.config import ProgramOptions, SftConfig
from training.model_setup import (
    adapter_identity,
    load_model,
    load_padding_tokenizer,
    resolve_batching,
    save_model,
)
from training.program import (
    build_arguments,
    finish,
    finished_manifest,
    has_gpu,
    loading,
    start_program,
    summary_line,
    train_or_resume,
    training_folder,
    training_settings,
)
from training.row_tasks import ROW_TASKS
from training.rows import load_report


def main(config: SftConfig) -> dict[str, Any]:
    """Train, save the adapter or model with its manifest, and return the manifest.

    Raises :class:`ConfigError` or :class:`DataError` for rows that do not suit the model or the options,
    before anything is trained.
    """
    require("fine-tuning", "torch", "transformers", "accelerate", "peft", "trl", "datasets")
    rows = load_rows(config, folder := model_folder(config.model))
    settings = lm_settings(config, folder, {"batching": resolve_batching(config)})
    if (manifest := finished_manifest(config.out, settings)) is not None:
        return manifest
    out = Path(config.out)
    with training_folder(out, settings) as manifest:
        with loading(out, f"model {config.model} and {describe_rows(rows['train'])}"):
            trainer = make_trainer(config, folder, rows)
        return finish(trainer, out, manifest, train(trainer, config, rows))


# ---- rows


def load_rows(config: ProgramOptions, folder: str) -> Any:
    """Load the rows that suit the model in ``folder``, by split, each within the limits.

    Raises as :func:`load_row_folder` does.
    """
    import datasets

    folders = [load_row_folder(each, config, folder) for each in config.rows]
    splits = dict.fromkeys(split for rows in folders for split in rows)
    joined = {
        split: datasets.concatenate_datasets([rows[split] for rows in folders if split in rows])
        for split in splits
    }
    questions = [set(rows["question_id"]) for rows in joined.values()]
    if len(set().union(*questions)) < sum(map(len, questions)):
        raise DataError(
            "the same questions are for training in one folder of rows, and for validation in another: make "
            "the rows with the same 'rows.seed' and 'rows.validation'."
        )
    return datasets.DatasetDict(joined)


def load_row_folder(name: str, config: ProgramOptions, folder: str) -> Any:
    """Load one folder of rows, each with something to learn and within the limits.

    Raises :class:`ConfigError` for rows of another tokenizer, :class:`DataError` naming the row that does not
    fit: it would be cut without a word, and its end is what is learned.
    """
    import datasets

    report = load_report(name)
    check_tokenizer(name, report.settings, config, folder)
    rows: dict[str, Any] = dict(datasets.load_from_disk(name))
    limit = config.max_length or report.settings["rows"]["max_length"]
    limit = min(limit, context_window(folder) or limit)
    for split in rows:
        sizes, learns = lengths(rows[split]), learned(rows[split])
        for number in np.flatnonzero((sizes > limit) | (learns == 0))[:1].tolist():
            fault = (
                f"has {sizes[number]} tokens, more than max_length or '{config.model}' reads ({limit})"
                if sizes[number] > limit
                else "has no token to learn"
            )
            row = rows[split][number]
            raise DataError(
                f"row {number} of '{name}/{split}' ({row['task']} of question '{row['question_id']}') "
                f"{fault}. Make the rows again with 'corag rows', with a 'rows.max_length' that suits."
            )
    return rows


def check_tokenizer(name: str, settings: Mapping[str, Any], config: ProgramOptions, folder: str) -> None:
    """Raise :class:`ConfigError` for rows of another tokenizer or chat template than the model's."""
    fingerprint = settings["tokenizer"]
    options = ThinkingOptions("auto", settings.get("template_args", {}))
    chat: Literal["auto", "no"] = "no" if _is_without_chat(fingerprint) else "auto"
    if Renderer.load(folder, chat, options).fingerprint != fingerprint:
        raise ConfigError(
            f"the rows in '{name}' were written with another tokenizer or chat template than that of "
            f"'{config.model}': make them again with 'corag rows --model {config.model}'."
        )


def describe_rows(rows: Any) -> str:
    """Say how many rows there are of each task, and their tokens."""
    tasks = ", ".join(f"{task} {count:,}" for task, count in sorted(Counter(rows["task"]).items()))
    return f"{len(rows):,} rows ({tasks}; {int(lengths(rows).sum()):,} tokens)"


def lm_settings(
    config: ProgramOptions, folder: str, resolved: Mapping[str, Any], **overrides: Any
) -> dict[str, Any]:
    """Return everything that the result depends on, as it stands in training.json.

    ``resolved``, ``overrides``: as for :func:`training_settings`.
    """
    reports = map(load_report, config.rows)
    rows = [each.settings | {"questions": each.questions, "tokens": each.tokens} for each in reports]
    overrides = adapter_identity(config, folder) | overrides
    return training_settings(config, (config.model, folder), {"rows": rows}, resolved, **overrides)


# ---- the trainer


def make_trainer(config: SftConfig, folder: str, rows: Any) -> Any:
    """Build TRL's trainer."""
    from training import trainer as trainers

    # TRL would tokenise the texts again, and not as decoding does: it gets tokens and labels alone.
    columns = ["input_ids", "labels"]
    train_rows = rows["train"].select_columns(columns)
    if config.task_weights:  # of what is learned: evaluated are the losses of each task by itself
        weights = [config.task_weights.get(task, 1.0) for task in rows["train"]["task"]]
        train_rows = train_rows.add_column("weight", weights)
    evaluation = by_task(rows["validation"], columns) if "validation" in rows else {}
    # Before the model: it starts the process group.
    arguments = build_sft_arguments(config)
    model, peft_config = load_model(config, folder)
    tokenizer = load_padding_tokenizer(folder)
    collator = None
    if config.task_weights:
        collator = trainers.WeightingCollator(tokenizer.pad_token_id, padding_free=arguments.padding_free)
    trainer = trainers.CompletionTrainer(
        model=model,
        args=arguments,
        data_collator=collator,
        train_dataset=train_rows,
        eval_dataset=evaluation or None,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    if not has_gpu():  # there TRL's fused output layer has kernels, which compute learned positions only
        trainers.compute_learned_positions_only(trainers.base_of(trainer.model))
    if config.task_weights:
        trainers.weigh_tokens(trainers.base_of(trainer.model))
    return trainers.in_float32(trainer)


def by_task(rows: Any, columns: list[str]) -> dict[str, Any]:
    """Return rows by task, with some columns."""
    tasks = np.array(rows["task"])
    return {
        task: rows.select(np.flatnonzero(tasks == task), keep_in_memory=True).select_columns(columns)
        for task in sorted(set(tasks.tolist()))
    }


def build_sft_arguments(config: SftConfig) -> Any:
    """Build TRL's training arguments, whose own defaults cut rows at 1,024 tokens and pad at random."""
    from trl import SFTConfig

    batching = resolve_batching(config)
    values = {
        "max_length": None,  # too long rows were refused
        "completion_only_loss": True,
        "assistant_only_loss": False,
        "dataset_kwargs": None,  # rows are tokens already
        "remove_unused_columns": False,
        "padding_free": batching == "padding_free",
        # Rows behind one another have neither padding nor a mask.
        "include_num_input_tokens_seen": "all" if batching == "padding_free" else "non_padding",
        "train_sampling_strategy": "group_by_length" if batching == "by_length" else "random",
    }
    return build_arguments(SFTConfig, config, values | storage(config), out=config.out)


def storage(config: ProgramOptions) -> dict[str, Any]:
    """Return the trainer's arguments of what is kept, in memory and on disk."""
    # The last may be half written when the power fails; whole models are too large to keep two.
    kept = 1 if config.tuning == "full" else 2
    return {"gradient_checkpointing": resolve_checkpointing(config), "save_total_limit": kept}


def resolve_checkpointing(config: ProgramOptions) -> bool:
    """Whether activations are computed again: TRL does everywhere; on a CPU memory is seldom short."""
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing == "yes"
    by_fsdp = os.environ.get("FSDP_ACTIVATION_CHECKPOINTING", "").lower() == "true"
    return has_gpu() and not by_fsdp


# ---- training, and what it made


def train(trainer: Any, config: SftConfig, rows: Any) -> dict[str, Any]:
    """Train from the last checkpoint on, evaluate, save, and return figures for the manifest.

    ``row_tokens`` are those of all rows, ``tokens_read`` what the model read of them in all steps, prompts
    too. All figures are of the whole training, whatever it was resumed from.
    """
    summary = train_or_resume(trainer, Path(config.out))
    figures = trainer.evaluate() if "validation" in rows else {}
    save_model(trainer, config, Path(config.out))
    losses = {f"eval_{task}_loss" for task in set(rows["validation"]["task"])} if figures else set()
    read = summary["tokens_read"]
    return summary | {
        "evaluation": {name: value for name, value in figures.items() if name in losses},
        "row_tokens": int(lengths(rows["train"]).sum()),
        "tokens_per_second": read / summary["seconds"] if read else None,
        "trained_for": prompts_taught(config),
    }


def prompts_taught(config: ProgramOptions) -> dict[str, list[str]]:
    """Return the prompts that were learned, by the method that asks them: name, version and hash."""
    reports = [load_report(each).trained_for for each in config.rows]
    return join_prompts([trained_for(config.adapter, config.model), *reports])


def summarise(config: ProgramOptions, manifest: dict[str, Any]) -> str:
    """Return lines on what a training made, and the commands that use, compare and share it."""
    result = manifest["result"]
    losses = "".join(f", {name} {value:.3f}" for name, value in result["evaluation"].items())
    use = usage(config, manifest["settings"])
    method, rest = use[3], use[4:]
    taught = _taught_by_thoughts(manifest["settings"].get("rows", ()))
    rest += [word for name, words in taught.items() if name != method for word in words]
    methods = ",".join(dict.fromkeys([method, *taught, "one_step"]))
    return (
        f"{summary_line(config.out, result, losses)}\n"
        f"Use it: {join(use)}\n"
        f"Compare: corag run --questions FILE --method {methods} {join(rest)} --out runs/mine; "
        "corag table runs/mine\n"
        f"Share: corag push {config.out} OWNER/NAME"
    )


def usage(config: ProgramOptions, settings: Mapping[str, Any]) -> list[str]:
    """Return the command that asks what was trained as it was taught. ``settings``: of its manifest."""
    model_arguments = ["--model.adapter", config.out]
    if config.tuning == "full":
        model_arguments = ["--model.name", config.out]
    elif config.model != "default":
        model_arguments = ["--model.name", config.model, *model_arguments]
    search: list[str] = next(filter(None, (load_report(each).search for each in config.rows)), [])
    return ask_command(settings, model_arguments, search or ["--retriever.index", "INDEX"])


def ask_command(settings: Mapping[str, Any], model: Sequence[str], search: Sequence[str]) -> list[str]:
    """Return the command that asks a model as a training taught it. ``settings``: of that one's manifest."""
    rows = settings.get("rows", ())
    if (teaching := Teaching.read(settings)) is not None:
        method, arguments = "corag", teaching.arguments()
    else:
        method, arguments = next(iter(_taught_by_thoughts(rows).items()), ("corag", []))
    if rows and all(_is_without_chat(each.get("tokenizer", "")) for each in rows):
        arguments = [*arguments, "--model.chat", "no"]
    return ["corag", "ask", "--method", method, *search, *arguments, *model]


def _is_without_chat(tokenizer: str) -> bool:
    """Whether rows were written without the chat template, by the fingerprint of what wrote them."""
    return tokenizer.endswith("no chat")


def _taught_by_thoughts(rows: Any) -> dict[str, list[str]]:
    """Return the methods that rows made of IRCoT's thoughts teach, and the options of each as words."""
    chains = [chain["options"] for each in rows for chain in each["chains"]]
    records = [each["ircot"] for each in chains if "ircot" in each]
    methods = {ROW_TASKS[task].method for each in rows for task in each["rows"]["tasks"]}
    taught: dict[str, list[str]] = {}
    for method in ("ircot", "one_step", "closed_book") if records else ():
        if method in methods:
            kind = METHODS[method].config
            # one_step reads what IRCoT's first step does.
            record = records[-1] | {"k": records[-1].get("k_per_step")}
            if method != "ircot":
                record.pop("preset", None)
            taught[method] = option_arguments(method, kind, record, [each.name for each in fields(kind)])
    return taught


if __name__ == "__main__":
    start_program(SftConfig, main, summarise, "training/sft.py", "fine-tune a model on training rows")
