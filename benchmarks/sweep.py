"""A sweep against its cells run each alone: how many tokens the engine has to compute.

The cells are nested in two ways, in chains (best of 8 contains best of 4) and in hops (six contain four).
Alone, a cell begins with an empty request cache and an empty prefix cache, as if it were run by itself;
what it shares within itself, it keeps. The sweep carries both over from cell to cell.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.replay import open_world
from corag.chains.config import CoRAGConfig
from corag.core.protocols import Generator
from corag.core.runs.folder import read_rows
from corag.core.runs.rows import SavedRow
from corag.core.types import TokenUsage
from corag.generation.cached import CachedGenerator
from corag.generation.config import ModelConfig
from corag.generation.vllm_engine import VllmGenerator
from eval.experiment.executor import LocalExecutor
from eval.experiment.run import RunConfig
from eval.sweeps.cells import read_cells
from eval.sweeps.sweep import answer_group
from retrieval.config import RetrieverConfig

GRID = """[
  {corag.strategy: greedy, corag.max_hops: [1, 2, 4, 6]},
  {corag.strategy: best_of_n, corag.chains: [2, 4, 8], corag.max_hops: [2, 4, 6]},
]"""
CORAG = CoRAGConfig(preset="small_model")


async def main(questions: int = 4, adapter: str = "") -> dict[str, float]:
    """Return tokens and seconds of both ways, and ``computed_token_ratio``, of alone to together."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        retriever = await open_world(root, dev=1, test=questions)
        index = RetrieverConfig(index=[str(root / "bm25")])
        base = RunConfig(
            questions=str(root / "world/test.jsonl"), method=["corag"], corag=CORAG, retriever=index
        )
        cells = [replace(cell, questions=base.load()) for cell in read_cells(base, "", GRID)]
        engine = VllmGenerator.open(ModelConfig(adapter=adapter))

        async def answer(
            way: str, cache_of: Callable[[], Awaitable[Generator]]
        ) -> tuple[list[SavedRow], float]:
            """Answer all cells, each with the request cache it is given; return the rows and the seconds."""
            rows: list[SavedRow] = []
            start = time.perf_counter()
            for cell in cells:
                here = replace(cell, config=replace(cell.config, out=str(root / way)))
                await answer_group([here], [LocalExecutor(await cache_of(), retriever)])
                rows += sorted(read_rows(here.folder).values(), key=lambda row: row.question.id)
            return rows, time.perf_counter() - start

        async def empty() -> Generator:
            await engine.reset_prefix_cache()
            return CachedGenerator(engine)

        try:
            alone, alone_seconds = await answer("alone", empty)
            shared_cache = await empty()

            async def shared_engine() -> Generator:
                return shared_cache

            together, together_seconds = await answer("together", shared_engine)
        finally:
            await engine.close()
            await retriever.close()
    apart, joint = (sum((row.total_usage for row in rows), TokenUsage()) for rows in (alone, together))
    return {
        "questions": questions,
        "cells": len(cells),
        "alone_tokens": apart.total,
        "tokens": joint.total,
        "alone_computed_tokens": apart.computed,
        "computed_tokens": joint.computed,
        "computed_token_ratio": apart.computed / joint.computed,
        "alone_seconds": alone_seconds,
        "seconds": together_seconds,
        "same_answers": sum(map(_same, alone, together)) / len(alone),
        "failed": sum(bool(row.error) for row in [*alone, *together]),
    }


def _same(one: SavedRow, other: SavedRow) -> bool:
    """Whether a question was answered alike; if not, the engine's last digits fell otherwise."""
    return (one.answer and one.answer.text) == (other.answer and other.answer.text)
