"""Real models that many tests share: loading one takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from hypothesis import settings

from corag.generation.config import ModelConfig
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator
from tests.llama_cpp import write_gguf
from tests.scheduling import (
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_handlecrashitem,
    pytest_xdist_make_scheduler,
)
from tests.serving import served_default_model, served_llama_cpp
from tests.tiny import save_tiny_model

# The processes of pytest-xdist say 80 columns: tables are tested at the widths that tests ask for.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# A push is judged by the same random cases each time; scripts/test.sh --all looks for others.
settings.register_profile("same", derandomize=True, database=None)
if "CORAG_FUZZ" not in os.environ:
    settings.load_profile("same")

# Hooks that pytest finds here.
__all__ = [
    "pytest_collection_finish", "pytest_collection_modifyitems", "pytest_handlecrashitem",
    "pytest_xdist_make_scheduler",
]  # fmt: skip


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_generator() -> AsyncIterator[VllmGenerator]:
    """The default model in vLLM, in float32, for tests marked asyncio(loop_scope="session")."""
    generator = VllmGenerator.open(ModelConfig(dtype="float32", max_context=2048, kv_cache_gb=1.0))
    yield generator
    await generator.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hf_generator() -> AsyncIterator[TransformersGenerator]:
    """The default model in transformers, in float32, with the same window."""
    generator = TransformersGenerator.open(
        ModelConfig(backend="transformers", dtype="float32", max_context=2048)
    )
    yield generator
    await generator.close()


@pytest.fixture(scope="session")
def vllm_server() -> Iterator[str]:
    """The address of a vLLM server with the same model, precision and window."""
    with served_default_model() as url:
        yield url


@pytest.fixture(scope="session")
def llama_cpp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a llama.cpp server with the same weights, in float32, and the same window."""
    pytest.importorskip("xllamacpp")
    file = write_gguf(tmp_path_factory.mktemp("gguf") / "default.gguf")
    with served_llama_cpp(file) as url:
        yield url


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a Llama of two layers with random weights and the default model's tokenizer."""
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", seed=0)
