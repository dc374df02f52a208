"""The table of engines: what a back end is called, what its options may be, what the rest may know of it."""

from __future__ import annotations

import subprocess
import sys

from corag.core.errors import ConfigError
from corag.generation.config import ModelConfig
from corag.generation.engines import ENGINES
from tests.messages import raises_message


def test_each_file_is_a_choice_of_the_back_end() -> None:
    for name, engine in ENGINES.items():
        options = {"urls": ("http://localhost:1",)} if engine.takes_urls else {}
        assert ModelConfig(backend=name, **options).engine_kind is engine  # type: ignore[arg-type]
        with raises_message(ConfigError):
            ModelConfig(backend=name, urls=() if engine.takes_urls else ("http://localhost:1",))
    with raises_message(ConfigError):
        ModelConfig(backend="vlm")


def test_what_is_left_open_is_a_server_with_addresses_and_vllm_without() -> None:
    assert ModelConfig(backend="auto").engine_kind.name == "vllm"
    assert ModelConfig(backend="auto", urls=("http://localhost:1",)).engine_kind.name == "server"


def test_the_table_imports_nothing_big() -> None:
    code = (
        "import sys; import corag.generation.config; "
        "sys.exit(', '.join({'torch', 'vllm', 'transformers', 'httpx'} & {*sys.modules}) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
