"""Running servers of any kind that speak OpenAI's protocol."""

from __future__ import annotations

from corag.core.protocols import Generator
from corag.generation.config import ModelConfig
from corag.generation.engine import Engine


async def _open(config: ModelConfig) -> Generator:
    from corag.generation.http.engine import HttpGenerator

    return await HttpGenerator.open(config, tokenizer=config.tokenizer)


ENGINE = Engine(
    "openai",
    "running servers that speak OpenAI's protocol: Ollama, LM Studio, llama.cpp, SGLang and others",
    _open,
    loads_adapters=False,
)
