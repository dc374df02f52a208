"""Messages name an option by its path, which reads alike from all doors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corag import (
    CoRAGConfig,
    IRCoTConfig,
    ModelConfig,
    OneStepConfig,
    build_index,
    open_index,
    open_model,
    run,
)
from corag.core.errors import ConfigError
from tests.messages import raises_message

ASKED = [("Who wrote Emma?", "Jane Austen")]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda out: CoRAGConfig(max_hop=2),
        lambda out: OneStepConfig(kk=3),
        lambda out: OneStepConfig(zzz=3),
        lambda out: CoRAGConfig(preset="small"),
        lambda out: CoRAGConfig(strategy="adaptive"),
        lambda out: IRCoTConfig(preset="paper"),
        lambda out: ModelConfig(backend="openai"),
        lambda out: open_model(tempurature=0.2),
        lambda out: open_index("indexes/none", urll="http://localhost:1"),
        lambda out: build_index("docs", out=out, overwrit=True),
        lambda out: run(ASKED, ["closed_book"], ModelConfig(), out=out, n=4),
    ],
)
def test_wrong_names_and_values_in_python(wrong: Callable[[Any], object], tmp_path: Path) -> None:
    with raises_message(ConfigError):
        wrong(tmp_path)
