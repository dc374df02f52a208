"""The model that is trained: loaded with its adapter, in which arithmetic, and saved again."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.system.files import atomic_replace, write_atomically
from corag.core.tokenizer import load_tokenizer
from corag.core.web.hugging_face import reading_weights
from corag.generation.adapter_weights import CONFIG, WEIGHTS, check_weights
from corag.generation.adapters import adapter_folder, check_adapter
from corag.generation.models import folder_digest, model_folder, name_ends
from corag.generation.rendering import Renderer
from training.config import LoraOptions, ProgramOptions
from training.program import has_gpu, resolve_precision


def load_model(config: ProgramOptions, folder: str) -> tuple[Any, Any]:
    """Load the base model; return it with the options of a new adapter, if there is to be one."""
    import torch
    from transformers import BitsAndBytesConfig

    precision = resolve_precision(config)
    # Frozen weights may be coarse; trained ones are kept in float32, as small updates would be lost.
    options: dict[str, Any] = {
        "dtype": torch.float32 if config.tuning == "full" else getattr(torch, precision)
    }
    if config.tuning == "qlora":
        # 4-bit normal floats, their scales quantised too (Dettmers et al. 2023).
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=options["dtype"],
        )
    model = load_causal_model(config, folder, options)
    name_ends(model, Renderer.load(folder).stop_ids)
    if config.tuning == "full":
        return model, None
    if config.adapter:
        return load_adapter(model, config, folder, is_trainable=True), None
    return model, new_adapter(config, model)


def load_causal_model(config: ProgramOptions, folder: str, options: dict[str, Any]) -> Any:
    """Load a model with the attention of a training. ``options``: further ones of transformers."""
    from transformers import AutoModelForCausalLM

    if (attention := resolve_attention(config, folder)) != "auto":
        options = options | {"attn_implementation": attention}
    with reading_weights(f"the model in '{folder}'"):
        return AutoModelForCausalLM.from_pretrained(folder, **options)


def load_adapter(model: Any, config: ProgramOptions, folder: str, *, is_trainable: bool) -> Any:
    """Put the adapter that is trained further on its base model, in ``folder``."""
    from peft import PeftModel

    adapter = adapter_folder(config.adapter)
    if line := check_adapter(adapter, folder)[1]:
        sys.stderr.write(f"corag: {line}\n")
    check_weights(adapter, folder)
    with reading_weights(f"the adapter '{adapter}'"):
        peft_model = PeftModel.from_pretrained(
            model, adapter, is_trainable=is_trainable, torch_device=str(model.device)
        )
    # It names its base as its trainer did ("default"), where PEFT would look for a configuration.
    peft_model.peft_config["default"].base_model_name_or_path = folder
    return peft_model


def new_adapter(config: ProgramOptions, model: Any) -> Any:
    """Return PEFT's options of a new adapter."""
    from peft import LoraConfig

    # PEFT takes "all-linear" as a word, and names of layers as a list.
    targets = config.lora.targets[0] if config.lora.targets == ("all-linear",) else list(config.lora.targets)
    fixed = {
        "r": config.lora.rank,
        "lora_alpha": config.lora.alpha,
        "lora_dropout": config.lora.dropout,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
    }
    try:
        return LoraConfig(**fixed, **{"exclude_modules": outside_text_layers(model)} | config.lora.more)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"PEFT does not take lora.more={config.lora.more}: {error}") from error


def outside_text_layers(model: Any) -> str | None:
    """Return a pattern of what of a model is not for text, as PEFT reads it; None if all is.

    A vision tower has layers of the same names, which rows of text never reach: they would be trained on
    nothing, and vLLM does not serve adapters of them.
    """
    if model.config.get_text_config() is model.config:
        return None
    names = {id(module): name for name, module in model.named_modules()}
    parts = [
        names[id(each)] for each in (model.get_decoder(), model.get_output_embeddings()) if id(each) in names
    ]
    return rf"(?!(?:{'|'.join(map(re.escape, parts))})(?:\.|$)).*"


def adapter_identity(config: ProgramOptions, folder: str) -> dict[str, Any]:
    """Return what identifies the adapter that is trained further, and its size; nothing without one.

    Raises :class:`ConfigError` if the options name another rank.
    """
    if not config.adapter:
        return {}
    own, _ = check_adapter(adapter_folder(config.adapter), folder)
    if config.lora.rank not in (own["r"], LoraOptions().rank):
        raise ConfigError(
            f"lora.rank is {config.lora.rank}, but the adapter '{config.adapter}' that is trained on has "
            f"{own['r']}, which it keeps: leave lora.rank out."
        )
    digest = folder_digest(adapter_folder(config.adapter), weights_only=True)
    size = {"rank": own["r"], "alpha": own["lora_alpha"]}
    return {"lora": size, "adapter": {"name": config.adapter, "digest": digest}}


def load_padding_tokenizer(folder: str) -> Any:
    """Load a tokenizer that can pad."""
    tokenizer = load_tokenizer(folder)
    # Collators want some token to pad with; which one does not matter, as padding is never looked at.
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def resolve_batching(config: ProgramOptions) -> str:
    """Return how rows are put into batches."""
    if config.batching != "auto":
        return config.batching
    # Rows behind one another waste nothing, but only FlashAttention keeps them apart: other kernels would let
    # a row look at the ones before it.
    keeps_apart = (
        importlib.util.find_spec("flash_attn") is not None
        if config.attention == "auto"
        else "flash" in config.attention.lower()
    )
    return "padding_free" if has_gpu() and keeps_apart else "by_length"


def resolve_attention(config: ProgramOptions, folder: str) -> str:
    """Return the name of the attention; "auto" leaves it to transformers, or is ours on a CPU without AMX."""
    import torch
    from transformers import AutoConfig

    from training import attention

    if config.attention != "auto":
        return config.attention
    if resolve_batching(config) == "padding_free":
        return "flash_attention_2"
    is_fast = has_gpu() or torch.cpu._is_amx_tile_supported()
    if is_fast or not attention.suits(AutoConfig.from_pretrained(folder)):
        return "auto"
    attention.register()
    return attention.NAME


def save_model(trainer: Any, config: ProgramOptions, out: Path) -> None:
    """Write adapter or model. An adapter names its base model as the user did, so that PEFT opens it.

    The bundled one, which has a name here only, goes by its folder.
    """
    # What was saved is rounded, not the model: while it is spread over GPUs (FSDP) its weights keep the
    # precision in which they were trained, whatever one sets them to.
    if trainer.is_fsdp_enabled:  # checkpoints may be in shards, of which transformers would write no model
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model(str(out))
    if not trainer.is_world_process_zero():
        return
    # Neither TRL's card nor PEFT's has more than places to fill in; 'corag push' writes one.
    (out / "README.md").unlink(missing_ok=True)
    if config.tuning == "full":
        round_model(out, config.save_precision)
        return
    round_weights(out / WEIGHTS, config.save_precision)
    # Not before: PEFT looks for the base model's configuration when it saves, on the network if the name
    # is no folder.
    settings = json.loads((out / CONFIG).read_text(encoding="utf-8"))
    base = model_folder(config.model) if config.model == "default" else config.model
    write_atomically(out / CONFIG, json.dumps(settings | {"base_model_name_or_path": base}, indent=2) + "\n")


def round_model(out: Path, precision: str) -> None:
    """Write a whole model again in this precision."""
    import torch
    from transformers import AutoModelForCausalLM

    if precision != "float32":
        AutoModelForCausalLM.from_pretrained(out, dtype=getattr(torch, precision)).save_pretrained(out)


def round_weights(file: Path, precision: str) -> None:
    """Write an adapter's weights again in this precision."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = {name: weight.to(getattr(torch, precision)) for name, weight in load_file(file).items()}
    with atomic_replace(file) as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})
