"""LoRA adapters on disk: whether a folder is one, and whether it was made for this base model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError
from corag.core.files import build_once, cache_folder, parse_json, read_text
from corag.core.hugging_face import reading_weights
from corag.core.installation import require
from corag.core.tokenizer import load_tokenizer
from corag.generation.models import DEFAULT_MODEL, folder_digest, name_ends
from corag.generation.rendering import Renderer

CONFIG = "adapter_config.json"
# What training leaves beside an adapter: how it was made.
TRAINING = "training.json"
# The same beside a model into which an adapter was folded.
MERGED_TRAINING = "merged_training.json"
# How copies of a model in 4 or 8 bits are called after it, as unsloth's; an adapter of one fits the model.
_BITS = re.compile(r"(-unsloth)?(-bnb)?-[48]bit$")

_FOLDER = Path(__file__).parent / "shipped"
SHIPPED = {"default": _FOLDER / "corag-world", "one_step": _FOLDER / "one-step-world"}
"""Adapters on the default model that come with the package, trained on the same questions of the embedded
world: for CoRAG's prompts by scripts/recipes/train_loop.sh, for one_step's by four_methods.sh beside it."""


def adapter_folder(name: str) -> str:
    """Return the folder of an adapter: some come with the package, under a name."""
    return str(SHIPPED.get(name, name))


def check_adapter(adapter: str, folder: str) -> dict[str, Any]:
    """Return an adapter's configuration.

    Raises :class:`ConfigError` if the folder holds none, or one that was trained for another base model than
    the one in ``folder``.
    """
    path = Path(adapter) / CONFIG
    manifest = read_manifest(Path(adapter))
    if not path.is_file():
        instead = (
            "its training has not finished: run the same command again"
            if manifest is not None and manifest["result"] is None
            else "it holds a whole model: give it as the model's name"
            if (Path(adapter) / "config.json").is_file()
            else "name the folder that corag train wrote"
        )
        raise ConfigError(f"'{adapter}' is no LoRA adapter: the folder has no {CONFIG}; {instead}.")
    if manifest is not None and (base := manifest["settings"]["base"])["digest"] != folder_digest(
        folder, weights_only=True
    ):
        raise ConfigError(
            f"the adapter '{adapter}' was trained for the model '{base['name']}' ({base['digest']}), but "
            f"'{folder}' is another ({folder_digest(folder, weights_only=True)}): choose that model, or "
            "another adapter."
        )
    settings = _read(path)
    base_name = str(settings.get("base_model_name_or_path") or "")
    if manifest is None and base_name and not _is_base(base_name, folder):
        raise ConfigError(
            f"the adapter '{adapter}' is for the model '{base_name}', says its {CONFIG}, but '{folder}' is "
            f"another: choose that model, or another adapter. If it is the same, write '{folder}' there."
        )
    return settings


def _is_base(base_name: str, folder: str) -> bool:
    """Whether a folder holds the base model: by the weights if ``base_name`` is a folder, else by name."""
    if Path(base_name).is_dir():
        return folder_digest(base_name, weights_only=True) == folder_digest(folder, weights_only=True)
    # What Hugging Face keeps lies in models--ORGANISATION--NAME/snapshots/REVISION.
    here = {_BITS.sub("", part.rpartition("--")[2].casefold()) for part in Path(folder).absolute().parts}
    name = DEFAULT_MODEL if base_name == "default" else Path(base_name).name
    return _BITS.sub("", name.casefold()) in here


def _read(path: Path) -> dict[str, Any]:
    """Read one of an adapter's files. Raises :class:`DataError` if it holds no JSON object."""
    try:
        value = parse_json(read_text(path))
        if isinstance(value, dict):
            return value
        problem = f"a {type(value).__name__}"
    except json.JSONDecodeError as error:
        problem = error.msg
    raise DataError(
        f"'{path}' is not valid JSON ({problem}): restore it, or train again into another folder."
    )


def read_manifest(adapter: Path, name: str = TRAINING) -> dict[str, Any] | None:
    """Read how an adapter was made; None if its folder does not say. ``name``: of the file."""
    path = adapter / name
    if not path.is_file():
        return None
    manifest = _read(path)
    try:
        base = manifest["settings"]["base"]
        _ = manifest["result"], base["name"], base["digest"]
    except (KeyError, TypeError):
        raise DataError(
            f"'{path}' does not say what the adapter was trained for: restore it, or train again into "
            "another folder."
        ) from None
    return manifest


def read_training(adapter: str, model: str) -> dict[str, Any] | None:
    """Return the settings of the training that made an adapter, or else a model; None if nothing says so.

    ``adapter`` and ``model``: as ``--model.adapter`` and ``--model.name`` name them.
    """
    if adapter:
        manifest = read_manifest(Path(adapter_folder(adapter)))
    else:
        files = [Path(model) / TRAINING, Path(model) / MERGED_TRAINING]
        manifest = next((_read(file) for file in files if file.is_file()), None)
    settings = (manifest or {}).get("settings")
    return settings if isinstance(settings, dict) else None


def with_adapter(model: Any, adapter: str, folder: str) -> Any:
    """Put a LoRA adapter on a model loaded from ``folder``.

    Raises :class:`ConfigError` if it does not fit.
    """
    check_adapter(adapter, folder)
    require(f"the adapter '{adapter}'", "peft")
    from peft import PeftModel

    try:
        with reading_weights(f"the adapter '{adapter}'"):
            return PeftModel.from_pretrained(model, adapter).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the adapter '{adapter}' does not fit the model: {error}") from error


def merge_adapter(folder: str, adapter: str, out: Path, dtype: str) -> None:
    """Write a folder's model with an adapter folded in: added in float32, rounded to ``dtype`` once.

    Raises :class:`ConfigError` if it does not fit, or a package is not installed.
    """
    require("folding an adapter into its model", "torch", "transformers", "peft")
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    with reading_weights(f"the model in '{folder}'"):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    merged = with_adapter(model, adapter, folder).merge_and_unload()
    name_ends(merged, Renderer.load(folder).stop_ids)
    merged.to(getattr(torch, dtype)).save_pretrained(out)
    load_tokenizer(folder).save_pretrained(out)


def merged_folder(folder: str, adapter: str, dtype: str) -> str:
    """Return a cached folder with a model and its adapter folded in, written if need be (some seconds)."""
    check_adapter(adapter, folder)
    name = f"{folder_digest(folder, weights_only=True)}-{folder_digest(adapter)}-{dtype}"
    target = cache_folder() / "merged" / name
    if not target.is_dir():
        with build_once(target, "the model with its adapter") as filling:
            merge_adapter(folder, adapter, filling, dtype)
    return str(target)
