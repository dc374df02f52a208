"""Supervised fine-tuning on rows of chains, with TRL.

    accelerate launch training/sft.py --config training/configs/cpu.yaml --rows ROWS --out FOLDER

On several devices accelerate has options of its own (--config_file training/configs/accelerate_8gpu.yaml).

The loss is of the completions alone. The folder gets the adapter, ``training.json``, which says how it was
made, and ``metrics.jsonl`` with what was logged. The same command goes on from the last checkpoint, or does
nothing if it had finished.

This is a program of its own, not a command: accelerate starts it once per device, each with its own rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from corag.core.errors import DataError
from corag.generation.models import context_window, model_folder
from corag.generation.trained_for import join_prompts, trained_for
from training.checks import check_length, check_packages, check_training
from training.columns import learned, lengths, with_labels
from training.config import SftConfig
from training.model_setup import load_model, load_padding_tokenizer, resolve_batching, save_model
from training.program import (
    check_tokenizer,
    run_training,
    start_program,
    train_or_resume,
    training_identity,
    warn_of_test_questions,
)
from training.rows import RowsReport, read_report
from training.trl_arguments import build_trl_arguments
from training.usage import summary_line, with_usage


def main(config: SftConfig) -> dict[str, Any]:
    """Train, save the adapter or model with its manifest, and return the manifest.

    Raises :class:`ConfigError` or :class:`DataError` for rows that do not suit the model or the options,
    before anything is trained.
    """
    check(config)
    folder = model_folder(config.model)
    rows = load_rows(config, folder)
    return run_training(
        config,
        training_settings(config, folder),
        f"model {config.model} and {len(rows['train'])} rows",
        lambda: make_trainer(config, folder, rows),
        lambda trainer: train(trainer, config, rows),
    )


def check(config: SftConfig) -> None:
    """Refuse what cannot be trained, before torch is loaded.

    Raises as :func:`training.checks.check_training` does; :class:`DataError` also for rows that are missing,
    named twice or too long.
    """
    check_packages(config)
    if len({Path(each).resolve() for each in config.rows}) < len(config.rows):
        raise DataError(f"'rows' names a folder twice: {', '.join(config.rows)}. Name each once.")
    reports = {name: load_report(name) for name in config.rows}
    check_training(config, identify_rows(reports.values()))
    for name, report in reports.items():
        longest = max((each.longest for each in report.lengths.values()), default=0)
        most = report.settings["rows"]["max_length"]
        check_length(f"a row of '{name}'", longest, config, most, "'corag rows' and a 'rows.max_length'")


def train(trainer: Any, config: SftConfig, rows: Any) -> dict[str, Any]:
    """Train from the last checkpoint on, evaluate, save, and return figures for the manifest.

    ``row_tokens`` are those of all rows, ``tokens_read`` what the model read of them in all steps, prompts
    too. All figures are of the whole training, whatever it was resumed from.
    """
    summary = train_or_resume(trainer, config)
    figures = trainer.evaluate() if "validation" in rows else {}
    save_model(trainer, config, Path(config.out))
    losses = {f"eval_{task}_loss" for task in set(rows["validation"]["task"])} if figures else set()
    tokens = int(lengths(rows["train"]).sum())
    return {
        "steps": summary.steps,
        "epochs": summary.epochs,
        "train_loss": summary.loss,
        "first_loss": summary.first_loss,
        "evaluation": {name: value for name, value in figures.items() if name in losses},
        "row_tokens": tokens,
        "tokens_read": summary.tokens,
        "seconds": summary.seconds,
        "resumed_from": summary.resumed_from,
        "tokens_per_second": summary.tokens / summary.seconds if summary.tokens else None,
        "trained_for": join_prompts(
            [
                trained_for(config.adapter, config.model),
                *(load_report(each).trained_for for each in config.rows),
            ]
        ),
    }


def summarise(config: SftConfig, manifest: dict[str, Any]) -> str:
    """Return lines on what a training made, and how to use it. All figures are in its manifest."""
    result = manifest["result"]
    losses = "".join(f", {name} {value:.3f}" for name, value in result["evaluation"].items())
    indexes = [load_report(each).index for each in config.rows]
    return with_usage(
        config, summary_line(result) + losses, manifest["settings"], next(filter(None, indexes), [])
    )


def load_rows(config: SftConfig, folder: str) -> Any:
    """Load the rows that suit the model in ``folder``, by split, each within the limits.

    Raises as :func:`load_row_folder` does.
    """
    import datasets

    folders = [load_row_folder(each, config, folder) for each in config.rows]
    splits = dict.fromkeys(split for rows in folders for split in rows)
    return datasets.DatasetDict(
        {
            split: datasets.concatenate_datasets([rows[split] for rows in folders if split in rows])
            for split in splits
        }
    )


def load_row_folder(name: str, config: SftConfig, folder: str) -> Any:
    """Load one folder of rows, each with something to learn and within the limits.

    Raises :class:`ConfigError` for rows of another tokenizer, :class:`DataError` naming the row that does not
    fit: it would be cut without a word, and its end is what is learned.
    """
    import datasets

    report = load_report(name)
    check_tokenizer(f"the rows in '{name}'", report.settings, config, folder, "corag rows")
    warn_of_test_questions(name, report)
    rows = {split: with_labels(part) for split, part in datasets.load_from_disk(name).items()}
    limit = config.max_length or report.settings["rows"]["max_length"]
    window = context_window(folder) or limit
    for split in rows:
        sizes, learns = lengths(rows[split]), learned(rows[split])
        for number in np.flatnonzero((sizes > min(limit, window)) | (learns == 0))[:1].tolist():
            fault = (
                f"has {sizes[number]} tokens, more than max_length {limit}: training would cut off its reply"
                if sizes[number] > limit
                else f"has {sizes[number]} tokens, but '{config.model}' was made to read {window} at once"
                if sizes[number] > window
                else "has no token to learn"
            )
            row = rows[split][number]
            raise DataError(
                f"row {number} of '{name}/{split}' ({row['task']} of question '{row['question_id']}') "
                f"{fault}. Make the rows again with 'corag rows', with a 'rows.max_length' that suits."
            )
    return rows


def load_report(name: str) -> RowsReport:
    """Return the report of a folder of rows. Raises :class:`DataError` if it is none."""
    report = read_report(Path(name))
    if report is None:
        raise DataError(f"'{name}' is no folder of rows: make them with 'corag rows'.")
    return report


def identify_rows(reports: Iterable[RowsReport]) -> dict[str, Any]:
    """Return what identifies the rows that are learned from."""
    rows = [report.settings | {"questions": report.questions, "tokens": report.tokens} for report in reports]
    return {"rows": rows}


def training_settings(config: SftConfig, folder: str) -> dict[str, Any]:
    """Return everything that the result depends on, as it stands in training.json."""
    rows = identify_rows(map(load_report, config.rows))
    return training_identity(config, folder, resolve_batching(config), rows)


def make_trainer(config: SftConfig, folder: str, rows: Any) -> Any:
    """Build TRL's trainer."""
    from training.trainer import CompletionTrainer, prepare_trainer

    # TRL would tokenise the texts again, and not as decoding does: it gets tokens and labels alone.
    columns = ["input_ids", "labels"]
    validation = rows.get("validation")
    tasks = np.array(validation["task"]) if validation else np.array([])
    evaluation = {
        task: validation.select(np.flatnonzero(tasks == task), keep_in_memory=True).select_columns(columns)
        for task in sorted(set(tasks.tolist()))
    }
    # Before the model: it starts the process group.
    arguments = build_arguments(config, evaluates=bool(evaluation))
    model, peft_config = load_model(config, folder)
    trainer = CompletionTrainer(
        model=model,
        args=arguments,
        train_dataset=rows["train"].select_columns(columns),
        eval_dataset=evaluation or None,
        processing_class=load_padding_tokenizer(folder),
        peft_config=peft_config,
    )
    return prepare_trainer(trainer, Path(config.out))


def build_arguments(config: SftConfig, *, evaluates: bool) -> Any:
    """Build TRL's training arguments, whose own defaults cut rows at 1,024 tokens and pad at random."""
    from trl import SFTConfig

    batching = resolve_batching(config)
    values = {
        "max_length": None,  # too long rows were refused
        "completion_only_loss": True,
        "padding_free": batching == "padding_free",
        # Rows behind one another have neither padding nor a mask.
        "include_num_input_tokens_seen": "all" if batching == "padding_free" else "non_padding",
        "train_sampling_strategy": "group_by_length" if batching == "by_length" else "random",
    }
    return build_trl_arguments(SFTConfig, config, values, evaluates=evaluates)


if __name__ == "__main__":
    start_program(SftConfig, check, main, summarise, "training/sft.py", "fine-tune a model on training rows")
