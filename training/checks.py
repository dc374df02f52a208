"""What is wrong with a training's options, said within seconds: before torch is loaded or a process started.

The training programs and 'corag train' check the same; so does 'corag rounds', whose training comes hours
after its start. Nothing here imports torch or transformers.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError, nearest
from corag.core.folder_lock import refuse_if_locked
from corag.core.installation import require
from corag.core.json_types import to_json_types
from corag.core.option_names import Mark, marked_options
from corag.core.runs.provenance import Provenance
from corag.generation.adapters import adapter_folder, check_adapter, read_manifest
from corag.generation.models import default_model_file, default_model_folder, folder_digest, model_folder
from training.config import WATCHING_OPTIONS, LoopOptions, LoraOptions, ProgramOptions, TuningOptions
from training.launched import is_first

_DESTINATIONS = {
    "azure_ml": "azureml", "clearml": "clearml", "codecarbon": "codecarbon", "comet_ml": "comet_ml",
    "dagshub": "dagshub", "dvclive": "dvclive", "flyte": "flytekit", "kubeflow": "kubeflow",
    "mlflow": "mlflow", "neptune": "neptune", "swanlab": "swanlab", "tensorboard": "tensorboard",
    "trackio": "trackio", "wandb": "wandb",
}  # fmt: skip
"""What transformers can report to, each with the package that it wants."""


def check_training(config: ProgramOptions, sources: Mapping[str, Any]) -> None:
    """Refuse what cannot be done.

    ``sources``: as for :func:`training.program.training_identity`.

    Raises:
        ConfigError: for a package or base model that is missing, an adapter that does not fit, or a folder
            that another process is at work in or that was begun with other settings.
        DataError: for a folder that cannot be written.
    """
    check_packages(config)
    out = Path(config.out)
    if is_first():  # which locks it for all: the others may look when it has
        refuse_if_locked(out)
    check_writable(out)
    folder = folder_at_hand(config.model)
    if folder is None:
        return  # it is downloaded or unpacked first
    identity = requested_identity(config, folder, sources)
    if (earlier := read_manifest(out)) is not None:
        settings = {name: value for name, value in earlier["settings"].items() if name != "resolved"}
        Provenance(identity).refuse_other(f"'{out}'", Provenance(settings))


def check_packages(config: TuningOptions) -> None:
    """Raise :class:`ConfigError` if a training wants a package that is not there."""
    require("fine-tuning", "torch", "transformers", "accelerate", "peft", "trl", "datasets")
    if config.lora.more and config.tuning == "full":
        raise ConfigError("tuning 'full' has no adapter: leave out lora.more.")
    check_destinations(config)
    packages = [("tuning", "qlora", "bitsandbytes")] if config.tuning == "qlora" else []
    _require_packages([*packages, *_flash_packages(config)])


def check_destinations(config: LoopOptions) -> None:
    """Raise :class:`ConfigError` if a training is to report to what is unknown, or not installed."""
    for name in config.report_to:
        if name not in (*_DESTINATIONS, "none", "all"):
            raise ConfigError(f"option 'report_to' is '{name}': {nearest(name, _DESTINATIONS)}")
    _require_packages(
        [("report_to", name, _DESTINATIONS[name]) for name in config.report_to if name in _DESTINATIONS]
    )


def _require_packages(packages: Sequence[tuple[str, str, str]]) -> None:
    """Raise :class:`ConfigError` for the first (option, value, package) whose package is not there."""
    for option, value, package in packages:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"{option}={value} needs the package {package.replace('_', '-')}, which is not installed: "
                "install it, or leave the option out."
            )


def is_flash(attention: str) -> bool:
    """Whether an implementation of attention, by its name in transformers, is one of FlashAttention."""
    return "flash" in attention.lower()


def _flash_packages(config: TuningOptions) -> list[tuple[str, str, str]]:
    """Return the package that FlashAttention wants, with the option that asks for it; none without.

    Raises :class:`ConfigError` for rows behind one another under an attention that lets each see the others.
    """
    attention = config.attention
    if config.batching == "padding_free" and attention != "auto" and not is_flash(attention):
        raise ConfigError(
            f"batching padding_free wants FlashAttention, but attention is '{attention}', under which a row "
            "would look at those before it: leave one of them out."
        )
    if "/" in attention:  # a repository of compiled kernels
        return [("attention", attention, "kernels")]
    # transformers takes it from the package kernels, ready-made, where flash_attn is not installed.
    if attention == "flash_attention_2" and importlib.util.find_spec("kernels") is None:
        return [("attention", attention, "flash_attn")]
    needs_flash = config.batching == "padding_free" and attention == "auto"
    return [("batching", config.batching, "flash_attn")] if needs_flash else []


def check_writable(out: Path) -> None:
    """Raise :class:`DataError` if a training's folder cannot be written; nothing is made."""
    folder = next(each for each in (out, *out.absolute().parents) if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        problem = "may not be written to" if folder.is_dir() else "is a file"
        raise DataError(f"cannot train into '{out}': '{folder}' {problem}. Choose another 'out'.")


def folder_at_hand(model: str) -> str | None:
    """Return a model's folder if it lies on this machine, None if it must be downloaded or unpacked first.

    Raises :class:`ConfigError` for a folder that is not there, or holds no model.
    """
    if model == "default":
        folder = default_model_folder()
        if folder.is_dir():
            return str(folder)
        default_model_file()  # what it is unpacked from is here, or there is a sentence
        return None
    is_hub_name = not Path(model).is_dir() and not model.startswith((".", "/", "~")) and model.count("/") == 1
    return None if is_hub_name else model_folder(model)


def check_length(what: str, longest: int, config: ProgramOptions, most: int, remake: str) -> None:
    """Raise :class:`DataError` if something is longer than a training takes, or than its model reads at once.

    Args:
        what: it, for the message, such as "a row of 'rows/mine'".
        longest: its tokens.
        config: the training's options.
        most: tokens that it was made for.
        remake: how to make it anew.
    """
    limit = config.max_length or most
    if longest > limit:
        raise DataError(
            f"{what} has {longest} tokens, more than max_length {limit}: training would cut off its reply. "
            f"Give max_length={longest}, or make them again with {remake} that suits."
        )
    folder = folder_at_hand(config.model)
    window = stated_window(folder) if folder else None
    if window and longest > window:
        raise DataError(
            f"{what} has {longest} tokens, but '{config.model}' was made to read {window} at once: make them "
            f"again with {remake} that suits."
        )


def stated_window(folder: str) -> int | None:
    """Return how many tokens a model was made to read at once, by its config.json; None if that is silent."""
    try:
        record = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        window = (record | record.get("text_config", {})).get("max_position_embeddings")
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return window if isinstance(window, int) and window > 0 else None


def requested_identity(config: ProgramOptions, folder: str, sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a training's result depends on, but for what "auto" comes to on a machine.

    Weights are known by their digests, wherever they lie. ``sources``: what a program notes by itself,
    in the place of the options that are places.
    """
    names_left_out = (*marked_options(type(config), Mark.PLACE, Mark.PRIVATE), *WATCHING_OPTIONS, "launch")
    options = {name: value for name, value in asdict(config).items() if name not in names_left_out}
    options["lora"] = resolve_adapter_size(config, folder)
    if config.adapter:
        options["adapter"] = {
            "name": config.adapter,
            "digest": folder_digest(adapter_folder(config.adapter), weights_only=True),
        }
    base = {"name": config.model, "digest": folder_digest(folder, weights_only=True)}
    settings: dict[str, Any] = to_json_types({"base": base, "options": options, **sources})
    return settings


def resolve_adapter_size(config: ProgramOptions, folder: str) -> dict[str, Any]:
    """Return the size of the adapter that is trained: of the one that is trained further, else the options'.

    Raises :class:`ConfigError` if the options name another size than that of the adapter trained further.
    """
    options = asdict(config.lora)
    if not config.adapter:
        return options
    settings, _ = check_adapter(adapter_folder(config.adapter), folder)
    targets = settings.get("target_modules") or ()  # a pattern in some adapters from elsewhere
    start: dict[str, Any] = {
        "rank": settings.get("r"),
        "alpha": settings.get("lora_alpha"),
        "dropout": settings.get("lora_dropout"),
        "targets": [targets] if isinstance(targets, str) else sorted(targets),
        "more": {},  # whatever it is, the adapter keeps it
    }
    default = asdict(LoraOptions())
    for name, size in start.items():
        option = sorted(options[name]) if name == "targets" else options[name]
        # A default value was probably not chosen, so it gives way to the adapter's own.
        if option != size and options[name] != default[name]:
            raise ConfigError(
                f"lora.{name} is {options[name]}, but the adapter '{config.adapter}' that is trained on has "
                f"{size}: leave lora.{name} out, or adapter for a new one."
            )
    return start
