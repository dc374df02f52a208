"""LoRA adapters on disk: whether a folder is one, and whether it was made for this base model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError, reason
from corag.core.system.files import build_once, cache_folder, parse_json, read_text
from corag.core.system.installation import require
from corag.core.tokenizer import load_tokenizer
from corag.core.web.hub_files import fetch_folder, is_hub_name
from corag.core.web.hugging_face import reading_weights
from corag.generation.adapter_weights import CONFIG, check_weights
from corag.generation.models import folder_digest, name_ends, quantisation
from corag.generation.rendering import Renderer

# What training leaves beside an adapter: how it was made.
TRAINING = "training.json"
# The same beside a model into which an adapter was folded.
MERGED_TRAINING = "merged_training.json"

_FOLDER = Path(__file__).parent / "shipped"
SHIPPED_ADAPTERS = {
    "default": _FOLDER / "corag-world",
    "one_step": _FOLDER / "one-step-world",
    "wikipedia": _FOLDER / "corag-wikipedia",
}
"""Adapters on the default model that come with the package. Two were trained on the same questions of the
embedded world: for CoRAG's prompts by scripts/recipes/train_loop.sh, for one_step's by four_methods.sh beside
it. The third is of questions on Wikipedia: how it came about says its README."""


def adapter_folder(name: str) -> str:
    """Return the folder of an adapter: one of the package's and a shared one (hub:OWNER/NAME), too."""
    if is_hub_name(name):
        return str(fetch_folder(name, "model"))
    return str(SHIPPED_ADAPTERS.get(name, name))


def check_adapter(adapter: str, folder: str) -> tuple[dict[str, Any], str]:
    """Return an adapter's configuration, and a line where it may be of other weights; "" for the same.

    ``folder``: the base model's. Raises :class:`ConfigError` if there is no adapter, or one that was trained
    here for another base model.
    """
    manifest = require_adapter(adapter)
    settings = _read(Path(adapter) / CONFIG)
    return settings, _base_agreement(adapter, manifest, settings, folder)


def require_adapter(adapter: str) -> dict[str, Any] | None:
    """Return how the adapter in a folder was made, None if it does not say.

    Raises :class:`ConfigError` if there is no adapter, or one whose training has not finished.
    """
    manifest = read_manifest(Path(adapter))
    if not (Path(adapter) / CONFIG).is_file():
        is_unfinished = manifest is not None and manifest["result"] is None
        instead = (
            "its training has not finished: give the training command again, which goes on"
            if is_unfinished
            else "name the folder that corag train wrote; a whole model is given as the model's name"
        )
        raise ConfigError(f"'{adapter}' is no LoRA adapter: the folder has no {CONFIG}; {instead}.")
    return manifest


def _base_agreement(
    adapter: str, manifest: Mapping[str, Any] | None, settings: Mapping[str, Any], folder: str
) -> str:
    """Return the line of :func:`check_adapter`.

    Of quantised weights, and of an adapter that was not trained here, the shapes alone are compared
    (:func:`corag.generation.adapter_weights.check_weights`).
    """
    base = manifest["settings"]["base"] if manifest else {"name": settings.get("base_model_name_or_path")}
    if manifest and base["digest"] == folder_digest(folder, weights_only=True):
        return ""
    kind = quantisation(folder)
    if manifest is None or kind:
        return (
            f"the adapter '{adapter}' says that it is for '{base['name']}'. Nothing but its shapes says that "
            f"'{folder}'{f' ({kind})' * bool(kind)} is that: use it if you know that it is."
        )
    raise ConfigError(
        f"the adapter '{adapter}' was trained for the model '{base['name']}' ({base['digest']}), but "
        f"'{folder}' is another: choose that model, or another adapter."
    )


def _read(path: Path) -> dict[str, Any]:
    """Read one of an adapter's files. Raises :class:`DataError` if it holds no JSON object."""
    try:
        value = parse_json(read_text(path))
        if isinstance(value, dict):
            return value
        problem = f"a {type(value).__name__}"
    except ValueError as error:
        problem = reason(error)
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


def with_adapter(model: Any, adapter: str) -> Any:
    """Put a LoRA adapter on a loaded model that it fits (:func:`check_weights`).

    Raises :class:`ConfigError` if it cannot be read.
    """
    require(f"the adapter '{adapter}'", "peft")
    from peft import PeftModel

    try:
        with reading_weights(f"the adapter '{adapter}'"):
            # PEFT itself would read the weights on the thread's current GPU, which is the first.
            return PeftModel.from_pretrained(model, adapter, torch_device=str(model.device)).eval()
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

    check_adapter(adapter, folder)
    if method := quantisation(folder):
        raise ConfigError(
            f"an adapter is folded into whole weights, but those in '{folder}' are quantised ({method}): "
            "name the model that they were made from with 'model'."
        )
    check_weights(adapter, folder)
    logging.disable_progress_bar()
    with reading_weights(f"the model in '{folder}'"):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    merged_model = with_adapter(model, adapter).merge_and_unload()
    name_ends(merged_model, Renderer.load(folder).stop_ids)
    merged_model.to(getattr(torch, dtype)).save_pretrained(out)
    load_tokenizer(folder).save_pretrained(out)


def merged_folder(folder: str, adapter: str, dtype: str) -> str:
    """Return a cached folder with a model and its adapter folded in, written if need be (some seconds)."""
    name = f"{folder_digest(folder, weights_only=True)}-{folder_digest(adapter)}-{dtype}"
    target = cache_folder() / "merged" / name
    if not target.is_dir():
        with build_once(target, "the model with its adapter") as filling:
            merge_adapter(folder, adapter, filling, dtype)
    return str(target)
