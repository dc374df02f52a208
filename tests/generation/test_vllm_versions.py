"""Which releases of vLLM are installed, and what differs between them."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from corag.core.errors import RequestRefusedError
from corag.generation import vllm_engine

ROOT = Path(__file__).parents[2]


def test_the_extra_takes_the_release_that_was_tried_and_no_later_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (vllm,) = (each for each in map(Requirement, extras["vllm"]) if each.name == "vllm")
    assert vllm.specifier.contains("0.32.0")
    assert not vllm.specifier.contains("0.33.0") and not vllm.specifier.contains("0.26.0")


def test_a_request_is_refused_by_a_release_that_has_only_pythons_own_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0.26.0 has no VLLMClientError: every request ended in an ImportError."""
    exceptions = pytest.importorskip("vllm.exceptions")
    pytest.importorskip("vllm.lora.request")
    monkeypatch.delattr(exceptions, "VLLMClientError")

    async def refuse(*_: Any, **__: Any) -> AsyncIterator[None]:
        raise ValueError("The prompt is longer than the model reads.")
        yield

    model = SimpleNamespace(max_model_len=64, original_max_model_len=64, head_dtype="", dtype="")
    engine = SimpleNamespace(model_config=model, generate=refuse)
    generator = vllm_engine.VllmGenerator(engine, SimpleNamespace(about=(), way="", thinking=None), "weights")  # type: ignore[arg-type]
    with pytest.raises(RequestRefusedError):
        asyncio.run(generator._generate_ids([1], None, 0))
