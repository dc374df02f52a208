"""The arguments of TRL's trainers, from the options that all programs share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from training.config import LoopOptions, ProgramOptions
from training.model_setup import resolve_precision

CHECKPOINTS = "checkpoints"

_FIXED = {
    "batch_sampler": "no passage may stand in a batch twice",
    "prompts": "texts have the prompts that the model brings",
    "completion_only_loss": "the loss is of the completions alone",
    "assistant_only_loss": "the loss is of the completions alone",
    "dataset_kwargs": "rows are tokens already",
    "remove_unused_columns": "rows have the columns that the trainer reads",
    "train_sampling_strategy": "write --batching",
    "auto_find_batch_size": "the rows of an update are part of what identifies a training",
    "use_cpu": "a training runs on GPUs if there are any; launch it with --launch=--cpu for none",
    "disable_tqdm": "corag prints lines in the place of a bar",
}
"""Why a trainer's argument is refused that has no option of its name."""


def build_trl_arguments(
    kind: type[Any], config: ProgramOptions, values: Mapping[str, Any], *, evaluates: bool
) -> Any:
    """Build the arguments of one of TRL's trainers.

    It comes before the model is loaded, since transformers starts the process group here.

    Args:
        kind: the class of the arguments.
        config: the options that all programs share.
        values: what one program alone sets, by TRL's names.
        evaluates: whether there is something to evaluate on.

    Raises:
        ConfigError: for what the machine does not have or would do wrongly.
    """
    by_fsdp = os.environ.get("FSDP_ACTIVATION_CHECKPOINTING", "").lower() == "true"
    if by_fsdp and config.gradient_checkpointing == "yes":
        raise ConfigError(
            "FSDP computes activations again already (fsdp_activation_checkpointing in accelerate's file): "
            "leave gradient_checkpointing at auto, or take that line out."
        )
    # TRL's default computes activations twice everywhere; on a CPU memory is seldom short, and time is.
    checkpointing = (
        _on_gpu() and not by_fsdp
        if config.gradient_checkpointing == "auto"
        else config.gradient_checkpointing == "yes"
    )
    # The last may be half written when the power fails; whole models are too large to keep two.
    loop_values = loop_arguments(
        config, config.out, evaluates=evaluates, checkpoints_kept=1 if config.writes_model else 2
    )
    return build_arguments(kind, config, {**values, **loop_values, "gradient_checkpointing": checkpointing})


def build_arguments(kind: type[Any], config: LoopOptions, values: Mapping[str, Any]) -> Any:
    """Build the arguments of a trainer: ``values``, and what the option ``trainer`` has.

    Raises :class:`ConfigError` for what it does not take, what is set here, or several GPUs in one process.
    """
    for name in config.trainer:
        if name in values or name in _FIXED:
            reason = _FIXED.get(name, "an option of corag sets it, see --help")
            raise ConfigError(f"trainer has '{name}', which is not free: {reason}.")
    try:
        arguments = kind(**{**values, **config.trainer})
    except (ValueError, TypeError, ImportError) as error:
        if not config.trainer:
            raise
        raise ConfigError(f"{kind.__name__} does not take trainer={config.trainer}: {error}") from error
    check_one_gpu(arguments)
    return arguments


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def loop_arguments(
    config: LoopOptions, out: str, *, evaluates: bool, checkpoints_kept: int
) -> dict[str, Any]:
    """Return what every trainer of transformers gets, by its own names.

    Args:
        config: the options that all trainings share.
        out: folder of the result, whose checkpoints lie within it.
        evaluates: whether there is something to evaluate on.
        checkpoints_kept: checkpoints that are kept.
    """
    return {
        "output_dir": str(Path(out) / CHECKPOINTS),
        "num_train_epochs": config.epochs,
        "max_steps": config.max_steps or -1,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulation,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if config.schedule == "constant" else config.schedule,
        "warmup_steps": config.warmup,
        "weight_decay": config.weight_decay,
        "bf16": resolve_precision(config) == "bfloat16",
        "use_cpu": not _on_gpu(),
        "eval_strategy": "steps" if evaluates and config.eval_steps else "no",
        "eval_steps": config.eval_steps or None,
        "save_strategy": "steps" if config.save_steps else "no",
        "save_steps": config.save_steps or 500,
        "save_total_limit": checkpoints_kept,
        "logging_steps": config.logging_steps,
        "logging_first_step": True,
        "report_to": list(config.report_to),  # transformers' default is whatever is installed
        "disable_tqdm": True,  # ProgressLines shows the progress
        "seed": config.seed,
        "data_seed": config.seed,
        "dataloader_pin_memory": _on_gpu(),
    }


def check_one_gpu(arguments: Any) -> None:
    """Raise :class:`ConfigError` if transformers would copy the model over several GPUs."""
    if arguments.n_gpu > 1:
        raise ConfigError(
            f"this process sees {arguments.n_gpu} GPUs, over which transformers would copy the model: set "
            "CUDA_VISIBLE_DEVICES to one of them, or start a process for each with corag train "
            f"--launch=--multi_gpu,--num_processes,{arguments.n_gpu} ..."
        )
