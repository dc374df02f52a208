"""Whether the weights of a LoRA adapter fit a model by name and shape, before any of the model is read.

PEFT leaves aside what it cannot place, and starts anew what it does not get: an adapter of another model then
answers as the base model does, without a word. vLLM checks the last part of a name alone.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from corag.core.errors import ConfigError
from corag.core.system.installation import require
from corag.core.web.hugging_face import reading_weights

CONFIG = "adapter_config.json"
WEIGHTS, PICKLE = "adapter_model.safetensors", "adapter_model.bin"
_MOST_NAMES = 3  # names in a message


def check_weights(adapter: str, folder: str) -> None:
    """Raise :class:`ConfigError` unless all weights of an adapter fit the model in ``folder``, and no more.

    PEFT puts the adapter on the model as the configuration describes it, without memory for its weights
    (torch's "meta" device, about a second). So a model in 4 or 8 bits is compared as what it was made from.
    Of an architecture that transformers does not know nothing is checked.
    """
    require(f"the adapter '{adapter}'", "peft")
    weights = read_shapes(adapter)
    if (model := _without_memory(folder)) is None:
        return
    total = len(weights)
    extra_names, missing = _compare(model, adapter, weights)
    if not extra_names and not missing:
        return
    if extra_names:
        raise ConfigError(
            f"{total - len(extra_names)} of the {total} weights of the adapter '{adapter}' fit the model in "
            f"'{folder}': it has no place of that name and shape for {_some(extra_names)}. They would be "
            "left out, and the base model would answer: choose the model that the adapter was trained for."
        )
    raise ConfigError(
        f"the adapter '{adapter}' lacks {len(missing)} weights that its {CONFIG} has for the model in "
        f"'{folder}': {_some(missing)}. These layers would answer as the base model does: copy or fetch its "
        "files again."
    )


def read_shapes(adapter: str) -> dict[str, Any]:
    """Return an adapter's weights as tensors without memory, of safetensors by the header alone.

    Raises :class:`ConfigError` if there are none, or they are damaged.
    """
    import torch

    folder = Path(adapter)
    with reading_weights(f"the adapter '{adapter}'"):
        if (folder / WEIGHTS).is_file():
            from safetensors import safe_open

            with safe_open(folder / WEIGHTS, "pt") as file:
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        elif (folder / PICKLE).is_file():
            weights = torch.load(folder / PICKLE, map_location="meta", weights_only=True)
            shapes = {name: weight.shape for name, weight in weights.items()}
        else:
            raise ConfigError(
                f"the adapter '{adapter}' has no weights (no {WEIGHTS}): copy or fetch its files again."
            )
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


def _without_memory(folder: str) -> Any:
    """Return the model that a folder's configuration describes, on no device; None if it is not known."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder)
        if hasattr(config, "quantization_config"):
            del config.quantization_config  # the layers as they were before
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except (ValueError, KeyError, ImportError):
        return None


def _compare(model: Any, adapter: str, weights: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of an adapter's weights that a model has no place for, and of those that it lacks."""
    import torch
    from peft import PeftConfig, get_peft_model
    from peft.utils.save_and_load import get_peft_model_state_dict

    # A weight of the model itself has its place, too: embeddings that were saved with the adapter.
    places = {f"base_model.model.{name}": weight for name, weight in model.state_dict().items()}
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # of the base model's name
            expected = get_peft_model_state_dict(get_peft_model(model, PeftConfig.from_pretrained(adapter)))
    except (ValueError, TypeError) as error:  # no layer has such a name, or the configuration is damaged
        raise ConfigError(
            f"0 of the {len(weights)} weights of the adapter '{adapter}' fit the model: {error}"
        ) from error
    places |= expected
    foreign = [
        name for name, each in weights.items() if name not in places or places[name].shape != each.shape
    ]
    return foreign, [name for name in expected if name not in weights]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(f"'{name}'" for name in sorted(names)[:_MOST_NAMES]) + more


def check_for_vllm(adapter: str) -> int:
    """Return the rank of an adapter, the greatest if layers differ; 0 if its configuration has none.

    Raises :class:`ConfigError` for one that vLLM does not serve beside its base model, by vLLM's own rules:
    weight-decomposed ones (DoRA), modules that are trained whole, biases, and others.
    """
    from vllm.lora.peft_helper import PEFTHelper

    try:
        helper = PEFTHelper.from_local_dir(adapter, None)
        rank = max([helper.r, *helper.rank_pattern.values()])
        helper.validate_legal(SimpleNamespace(max_lora_rank=rank))  # the rank is the caller's question
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"vLLM does not serve the adapter '{adapter}' beside its base model: {str(error).rstrip('.')}. "
            f"{merge_instead(adapter)}"
        ) from error
    return int(rank)


def merge_instead(adapter: str) -> str:
    """Return a sentence on what to do with an adapter that an engine cannot serve."""
    return f"Fold it into the model: corag merge {adapter} --out MODEL, then model.name=MODEL."
