"""The table of engines: what a back end is called, what its options may be, what the rest may know of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from corag.core.errors import ConfigError
from corag.generation.config import Backend, ModelConfig
from corag.generation.engines import ENGINES, engine_of
from tests.messages import raises_message


def test_each_entry_is_a_choice_of_the_back_end() -> None:
    for name, engine in ENGINES.items():
        urls = () if engine.loads_adapters or name == "python" else ("http://localhost:1",)
        assert engine_of(ModelConfig(backend=name, urls=urls)) is engine  # type: ignore[arg-type]
        with raises_message(ConfigError):
            ModelConfig(backend=name, urls=() if urls else ("http://localhost:1",))  # type: ignore[arg-type]
    assert ("auto", *ENGINES) == get_args(Backend)
    with raises_message(ConfigError):
        ModelConfig(backend="vlm")


def test_what_is_left_open_is_a_server_with_addresses_and_vllm_without() -> None:
    assert engine_of(ModelConfig(backend="auto")).name == "vllm"
    assert engine_of(ModelConfig(backend="auto", urls=("http://localhost:1",))).name == "server"


async def test_an_own_model_refuses_options_that_it_is_not_given(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def answer(prompt): return 'Ada'\n")
    for options in ({"adapter": "wikipedia"}, {"template_args": {"reasoning_effort": "low"}}, {"chat": "no"}):
        config = ModelConfig(name=f"{tmp_path / 'm.py'}:answer", **options)  # type: ignore[arg-type]
        with raises_message(ConfigError):
            await engine_of(config).open(config)
