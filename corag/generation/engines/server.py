"""Running vLLM servers."""

from __future__ import annotations

from corag.core.protocols import Generator
from corag.generation.config import ModelConfig
from corag.generation.engine import Engine


async def _open(config: ModelConfig) -> Generator:
    from corag.generation.http.engine import HttpGenerator
    from corag.generation.http.profiles import VLLM

    # The tokenizer is that of the model's folder, so that prompts go as token ids.
    return await HttpGenerator.open(config, tokenizer=config.name, profile=VLLM)


ENGINE = Engine("server", "running vLLM servers", _open, packages=("transformers",), loads_adapters=False)
