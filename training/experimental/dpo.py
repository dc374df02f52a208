"""Direct preference optimisation on pairs of sub-queries, with TRL.

    accelerate launch training/experimental/dpo.py \
        --config training/experimental/configs/dpo_cpu.yaml --pairs PAIRS --out FOLDER

It goes on from an adapter that knows the task, and its reference is that adapter, frozen (Rafailov et al.
2023). The folder gets the adapter, ``training.json``, which says how it was made, and ``metrics.jsonl``. The
same command goes on from the last checkpoint, or does nothing if it had finished.

This is a program of its own, not a command: accelerate starts it once per device, each with its own rank.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corag.core.errors import DataError
from corag.generation.models import context_window, model_folder
from corag.generation.trained_for import trained_for
from training.checks import check_training
from training.experimental.config import DpoConfig
from training.experimental.pairs import PairsReport, read_pairs_report
from training.model_setup import load_model, load_padding_tokenizer, resolve_batching, save_model
from training.program import (
    check_tokenizer,
    run_training,
    start_program,
    train_or_resume,
    training_identity,
    warn_of_test_questions,
)
from training.trl_arguments import build_trl_arguments
from training.usage import summary_line, with_usage

_IDS = ("prompt_ids", "chosen_ids", "rejected_ids")


def main(config: DpoConfig) -> dict[str, Any]:
    """Train, save the adapter with its manifest, and return the manifest.

    Raises :class:`ConfigError` or :class:`DataError` for pairs that do not suit the model or the options,
    before anything is trained.
    """
    check(config)
    folder = model_folder(config.model)
    pairs = load_pairs(config, folder)
    return run_training(
        config,
        training_settings(config, folder),
        f"model {config.model} and {len(pairs['train'])} pairs",
        lambda: make_trainer(config, folder, pairs),
        lambda trainer: train(trainer, config, pairs),
    )


def check(config: DpoConfig) -> None:
    """Refuse what cannot be trained, before torch is loaded.

    Raises as :func:`training.checks.check_training` does; :class:`DataError` also for pairs that are missing.
    """
    check_training(config, identify_pairs(config))


def train(trainer: Any, config: DpoConfig, pairs: Any) -> dict[str, Any]:
    """Train from the last checkpoint on, evaluate, save, and return figures for the manifest.

    Of the pairs set aside: their loss, how often the chosen sub-query gained more than the rejected one
    (``accuracy``), and by how much, in log-likelihood times beta (``margin``).
    """
    summary = train_or_resume(trainer, config)
    figures = trainer.evaluate() if "validation" in pairs else {}
    save_model(trainer, config, Path(config.out))
    names = {"loss": "eval_loss", "accuracy": "eval_rewards/accuracies", "margin": "eval_rewards/margins"}
    return {
        "steps": summary.steps,
        "epochs": summary.epochs,
        "train_loss": summary.loss,
        "first_loss": summary.first_loss,
        "evaluation": {name: figures[key] for name, key in names.items() if key in figures},
        "pairs": len(pairs["train"]),
        "seconds": summary.seconds,
        "resumed_from": summary.resumed_from,
        "trained_for": trained_for(config.adapter, config.model),  # what it went on from was
    }


def summarise(config: DpoConfig, manifest: dict[str, Any]) -> str:
    """Return lines on what a training made, and how to use it."""
    result = manifest["result"]
    figures = ", ".join(f"{name} {value:.3f}" for name, value in result["evaluation"].items())
    summary = summary_line(result) + (f"; of pairs set aside {figures}" if figures else "")
    return with_usage(config, summary, manifest["settings"], [])


def load_pairs(config: DpoConfig, folder: str) -> Any:
    """Load the pairs that suit the model in ``folder``, each within the limits.

    Raises :class:`ConfigError` for pairs of another tokenizer, :class:`DataError` naming the pair that does
    not fit: its end is what is learned.
    """
    import datasets

    report = load_report(config)
    check_tokenizer(f"the pairs in '{config.pairs}'", report.settings, config, folder, "corag pairs")
    warn_of_test_questions(config.pairs, report)
    pairs = datasets.load_from_disk(config.pairs)
    limit = config.max_length or report.settings["pairs"]["max_length"]
    window = context_window(folder) or limit
    for split in pairs:
        for number, pair in enumerate(pairs[split]):
            length = len(pair["prompt_ids"]) + max(len(pair["chosen_ids"]), len(pair["rejected_ids"]))
            fault = (
                f"has {length} tokens, more than max_length {limit}: training would cut off its end"
                if length > limit
                else f"has {length} tokens, but '{config.model}' was made to read {window} at once"
                if length > window
                else ""
            )
            if fault:
                raise DataError(
                    f"pair {number} of '{config.pairs}/{split}' (hop {pair['hop']} of question "
                    f"'{pair['question_id']}') {fault}. Make the pairs again with 'corag pairs', with a "
                    "--pairs.max_length that suits."
                )
    return pairs


def load_report(config: DpoConfig) -> PairsReport:
    """Return the report of the folder of pairs. Raises :class:`DataError` if it is none."""
    report = read_pairs_report(Path(config.pairs))
    if report is None:
        raise DataError(f"'{config.pairs}' is no folder of pairs: make them with 'corag pairs'.")
    return report


def identify_pairs(config: DpoConfig) -> dict[str, Any]:
    """Return what identifies the pairs that are learned from."""
    report = load_report(config)
    return {"pairs": report.settings | {"questions": report.questions, "tokens": report.tokens}}


def training_settings(config: DpoConfig, folder: str) -> dict[str, Any]:
    """Return everything that the result depends on, as it stands in training.json."""
    return training_identity(config, folder, resolve_batching(config), identify_pairs(config))


def make_trainer(config: DpoConfig, folder: str, pairs: Any) -> Any:
    """Build TRL's trainer."""
    from training.experimental.trainers import PairTrainer
    from training.trainer import prepare_trainer

    validation = pairs.get("validation")
    # Before the model: it starts the process group.
    arguments = build_arguments(config, evaluates=validation is not None)
    model, _ = load_model(config, folder)
    trainer = PairTrainer(
        model=model,
        args=arguments,
        train_dataset=pairs["train"].select_columns(list(_IDS)),
        eval_dataset=validation and validation.select_columns(list(_IDS)),
        processing_class=load_padding_tokenizer(folder),
    )
    return prepare_trainer(trainer, Path(config.out))


def build_arguments(config: DpoConfig, *, evaluates: bool) -> Any:
    """Build TRL's training arguments, whose own defaults cut pairs at 1,024 tokens."""
    from trl import DPOConfig

    values = {
        "max_length": None,  # longer ones were refused
        "beta": config.beta,
        "loss_type": [config.loss, "sft"] if config.sft_share else [config.loss],
        "loss_weights": [1.0, config.sft_share] if config.sft_share else None,
        "train_sampling_strategy": "group_by_length" if resolve_batching(config) == "by_length" else "random",
    }
    arguments = build_trl_arguments(DPOConfig, config, values, evaluates=evaluates)
    # TRL's figures of pairs set aside are means over batches, of which the last one may be smaller.
    arguments.per_device_eval_batch_size = 1
    return arguments


if __name__ == "__main__":
    summary = "prefer the sub-queries that helped to those that did not"
    start_program(DpoConfig, check, main, summarise, "training/experimental/dpo.py", summary)
