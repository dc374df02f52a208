"""Two workers with the small model itself, an index that Ray serves to them, and deaths of three kinds."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from corag.core.runs.folder import TRACES, read_rows
from corag.generation.config import ModelConfig
from eval.datasets.world import write_world
from eval.experiment.open_executor import start_workers
from eval.experiment.run import RunConfig, answer_dataset, answer_with
from eval.experiment.workers.config import ray_workers
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from tests.drills.test_runs import ids, told
from tests.drills.test_workers import Watched

pytest.importorskip("ray", reason="Ray is an extra: pip install 'corag[ray]'")
pytestmark = pytest.mark.slow


async def test_the_real_model_in_two_workers_says_what_it_says_in_one_process_whoever_dies(
    tmp_path: Path,
) -> None:
    import ray

    from corag.baselines.one_step import OneStepConfig

    world, index = tmp_path / "world", str(tmp_path / "bm25")
    write_world(world, passages=500, train=1, dev=1, test=40)
    build_index(IndexConfig([str(world / "corpus.jsonl")], index), lambda _: None)
    # One sequence at a time, in float32: what is computed beside it cannot change a reply.
    model = ModelConfig(
        backend="transformers", dtype="float32", batch_size=1, max_context=1024, remember=False
    )
    config = RunConfig(
        questions=str(world / "test.jsonl"), method=["one_step"], model=model,
        retriever=RetrieverConfig([index], cache_size=0), out=str(tmp_path / "alone"),
        one_step=OneStepConfig(k=1, max_answer_tokens=6),
    )  # fmt: skip
    questions = config.load()
    alone = read_rows((await answer_dataset(config, questions))["one_step"])
    async with start_workers(ray_workers(count=2), model, [config.retriever], 4) as pool:
        first, second = pool.workers
        server = ray.get(pool.servers.actors[0].process.remote())
        events = {
            6: lambda: os.kill(first.place.process, signal.SIGKILL),
            12: lambda: os.kill(server, signal.SIGKILL),
            18: lambda: ray.kill(second.actor, no_restart=False),
        }
        executor = Watched(pool, config.retriever, events)
        folder = await answer_with(
            RunConfig(**{**vars(config), "out": str(tmp_path / "workers")}), "one_step", questions, executor
        )
        assert [first.deaths, second.deaths] == [1, 1]
    assert sorted(ids(folder / TRACES)) == sorted(alone) and len(alone) == 40
    assert told(read_rows(folder)) == told(alone)
