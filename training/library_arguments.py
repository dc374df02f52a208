"""Arguments of trainers and of PEFT's adapters that are passed through as they are.

``--trainer '{optim: paged_adamw_8bit, max_grad_norm: 0.5}'`` reaches the fields of TRL's SFTConfig, or of
sentence-transformers' arguments, of these names, ``--lora.more '{use_dora: true}'`` those of PEFT's
LoraConfig. What is an option here, or what a training here rests on, is refused.

Their names are read from the libraries' sources: importing them takes seconds, and loads torch before it is
known which GPUs it may see.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from corag.core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from training.config import LoopOptions, TuningOptions

_TRAINER = (
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("transformers", "training_args.py", "TrainingArguments"),
)
_SENTENCES = (
    ("sentence_transformers", "base/training_args.py", "BaseTrainingArguments"),
    ("transformers", "training_args.py", "TrainingArguments"),
)
_CLASSES = {
    "SentenceTransformerTrainingArguments": _SENTENCES,
    "CrossEncoderTrainingArguments": _SENTENCES,
    "SFTConfig": (("trl", "trainer/sft_config.py", "SFTConfig"), *_TRAINER),
    "LoraConfig": (
        ("peft", "tuners/lora/config.py", "LoraConfig"),
        ("peft", "config.py", "PeftConfig"),
        ("peft", "config.py", "PeftConfigMixin"),
    ),
}
"""The classes of arguments, each with those that it inherits from: package, file and name."""

_FIXED_ARGUMENTS = {
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
    "task_type": "models here write",
    "peft_type": "adapters here are LoRA",
    "inference_mode": "it is trained",
    "base_model_name_or_path": "write --model",
}
"""Why an argument is refused that has no option of its name."""


def check_library_arguments(config: TuningOptions) -> None:
    """Raise :class:`ConfigError` for a name that TRL or PEFT do not have, or that is not free."""
    check_trainer_arguments(config)
    _check("--lora.more", config.lora.more, "LoraConfig", config)
    if config.lora.more and config.tuning == "full":
        raise ConfigError("tuning 'full' has no adapter: leave out lora.more.")


def check_trainer_arguments(config: LoopOptions) -> None:
    """Raise :class:`ConfigError` for a name that a trainer's arguments do not have, or that is not free."""
    _check("--trainer", config.trainer, config.ARGUMENTS_CLASS, config)


def _check(option: str, arguments: Mapping[str, object], kind: str, config: LoopOptions) -> None:
    """Raise as :func:`check_library_arguments` does, for the arguments of one class."""
    reasons = {each.name: f"write --{each.name}" for each in fields(config)} | _FIXED_ARGUMENTS
    pointers: Mapping[str, str] = getattr(config, "POINTERS", {})
    reasons |= {name: text.rstrip(".") for name, text in pointers.items()}
    reasons |= {"r": "write --lora.rank"}
    for name in arguments:
        if name in reasons:
            raise ConfigError(f"{option} has '{name}', which is not free: {reasons[name]}.")
        if name not in (names := argument_names(kind)):
            raise ConfigError(f"{option} has '{name}', which {kind} does not: {nearest(name, names)}")


@lru_cache(maxsize=8)
def argument_names(kind: str) -> tuple[str, ...]:
    """Return the names of the fields of a class of arguments, as the installed packages have them."""
    names: set[str] = set()
    for package, file, name in _CLASSES[kind]:
        spec = find_spec(package)
        (folder,) = spec.submodule_search_locations or [""] if spec else [""]
        tree = ast.parse((Path(folder) / file).read_text(encoding="utf-8"))
        (class_node,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
        names |= {
            line.target.id
            for line in class_node.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        }
    return tuple(sorted(each for each in names if not each.startswith("_")))
