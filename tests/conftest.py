"""Real models that many tests share: loading one takes longer than most tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import pytest
import pytest_asyncio
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from generation.config import ModelConfig
from generation.transformers_engine import TransformersGenerator
from generation.vllm_engine import VllmGenerator
from tests.llama_cpp import write_gguf
from tests.serving import served_default_model, served_llama_cpp
from tests.tiny import save_tiny_model

ROOT = Path(__file__).parents[1]


SHARED = 'loop_scope="session"'  # what stands in a file whose tests share the engines below


class ByFile(LoadScopeScheduling):
    """A file's tests run in one process, and so do all files that share the engines below.

    Groups of xdist's own (the mark ``xdist_group``) do nothing under pytest 9.2: items keep no node id there
    that xdist could write a group's name to.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """Return what a test shares its process with."""
    file = nodeid.partition("::")[0]
    return "engines" if SHARED in text(file) else file


@cache
def text(file: str) -> str:
    """Return a test file's text."""
    return (ROOT / file).read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Hand out whole files."""
    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what is slow; the shared engines stay open to the end, so they are opened late."""
    slow = {scope(item.nodeid) for item in items if item.get_closest_marker("slow")}
    order = {"engines": 1}
    items.sort(key=lambda item: order.get(scope(item.nodeid), 0 if scope(item.nodeid) in slow else 2))


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
