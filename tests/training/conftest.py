"""A tiny real model, and real training rows made of chains written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from corag.chains.chain import Hop
from corag.chains.config import CoRAGConfig
from corag.core.runs.folder import RunFolder
from corag.core.runs.manifest import CHAINS
from corag.core.runs.rows import Row
from corag.core.types import Passage, Question
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from tests.fakes import WordRetriever, passage
from tests.tiny import save_tiny_model
from training.config import LoraOptions, SftConfig
from training.data import RowsConfig
from training.rows import write_rows
from training.sampling import SampleConfig, SampledChain, SampledChains

TOWNS = ("Arlen", "Bost", "Corvane", "Dulle", "Estrel", "Fenwick", "Garrow", "Hollin")
PASSAGES = [
    each
    for number, town in enumerate(TOWNS)
    for each in (
        passage(f"Mayor of {town}", f"The mayor of {town} is Mara Velden the {number}th. " * (number + 1)),
        passage(
            f"Mara Velden the {number}th", f"Mara Velden the {number}th was born in the year {1900 + number}."
        ),
    )
]
"""Two passages per town, of very different length."""


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a model that differs from the tiny one in its weights alone."""
    return save_tiny_model(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> str:
    """Return a folder of rows: three tasks, eight questions, some of them set aside."""
    return make_rows(tmp_path_factory.mktemp("rows"), tiny_model)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory, tiny_model: str, rows: str) -> str:
    """Return an adapter of the tiny model to start from."""
    out = str(tmp_path_factory.mktemp("start") / "adapter")
    from training.sft import main as fine_tune

    fine_tune(
        SftConfig(
            rows=[rows],
            out=out,
            model=tiny_model,
            precision="float32",
            batch_size=4,
            max_steps=3,
            learning_rate=5e-3,
            lora=LoraOptions(rank=4),
            save_precision="float32",
        )
    )
    return out


@pytest.fixture
def options(rows: str, tiny_model: str, tmp_path: Path) -> Callable[..., SftConfig]:
    """Return a maker of options for a quick training of the tiny model into a folder of the test's own."""

    def make(**changes: Any) -> SftConfig:
        quick = {
            "rows": [rows], "out": str(tmp_path / "adapter"), "model": tiny_model, "precision": "float32",
            "batch_size": 4,
            "max_steps": 3, "learning_rate": 5e-3, "logging_steps": 1, "warmup": 0.0,
        }  # fmt: skip
        return SftConfig(**(quick | changes))

    return make


def make_rows(
    folder: Path,
    model: str,
    passages: Sequence[Passage] = PASSAGES,
    start: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> str:
    """Write chains of two hops for a question about every town as a run of 'corag sample', and make rows of
    them. ``start``: what the run notes of its start.
    """
    config = CoRAGConfig(passages_per_hop=2, context_passages=3)
    settings = {
        "method": CHAINS,
        "options": {"sample": asdict(SampleConfig()), "corag": asdict(config)},
        "prompts": [template.identity for template in config.templates()],
        "questions": {"source": "by hand"},
        "model": "by hand",
        "retriever": WordRetriever.fingerprint,
        "seed": 0,
    }
    with RunFolder(folder / "chains", settings, dict(start)) as run:
        for number, town in enumerate(TOWNS):
            run.append(Row(_question(number, town), _chains(number, town), (), {}, 0.0))
    renderer = Renderer.load(model)
    chosen = RowsConfig(**({"ratio": 1.0, "validation": 0.3} | options))
    asyncio.run(write_rows([folder / "chains"], folder / "rows", WordRetriever(passages), renderer, chosen))
    return str(folder / "rows")


def _question(number: int, town: str) -> Question:
    gold = (f"mayor of {town.lower()}", f"mara velden the {number}th")
    text = f"When was the mayor of {town} born?"
    return Question(f"q{number}", text, (str(1900 + number),), supporting=gold, hops=2)


def _chains(number: int, town: str) -> SampledChains:
    mayor = f"Mara Velden the {number}th"
    found = (f"mayor of {town.lower()}", mayor.lower())
    hops = (
        Hop(f"Who is the mayor of {town}?", mayor, False, found),
        Hop(f"When was {mayor} born?", str(1900 + number), False, found[::-1]),
    )
    chain = SampledChain(hops, (-2.0, -0.1), (-8.0, -0.4), 2, "length")
    return SampledChains("", found, 2, "length", found, (chain,), 0, "")


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    """The default model's prompts and tokens."""
    return Renderer.load(model_folder("default", weights=False))
