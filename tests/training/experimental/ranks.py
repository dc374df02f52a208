"""Eight processes of GRPO that open what the reward needs, and print the devices that each asked for.

    python tests/training/experimental/ranks.py OPTIONS.json

There are no GPUs: torch says that there are eight, and moving a module to one is noted and not done.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import sentence_transformers  # noqa: F401 - imported once for all ranks
import torch
import torch.distributed as dist

from corag.generation.config import ModelConfig
from eval.api.background import background
from eval.experiment.questions import FurtherQuestions
from retrieval.config import RetrieverConfig
from training.experimental.config import GrpoConfig
from training.experimental.grpo import open_all
from training.experimental.placement import check_placement

RANKS = 8


def run_rank(rank: int, options: dict[str, Any], meeting: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    asked: list[str] = []

    def note(module: torch.nn.Module, *where: Any, **_: Any) -> torch.nn.Module:
        asked.extend(str(each) for each in where if str(each).startswith("cuda"))
        return module

    torch.cuda.device_count = lambda: RANKS
    torch.cuda.is_available = lambda: True
    torch.nn.Module.to = note  # type: ignore[method-assign, assignment]
    config = GrpoConfig(
        chains=options["chains"],
        retriever=RetrieverConfig(index=options["index"]),
        engine=ModelConfig(backend="transformers", dtype="float32"),
        dev=FurtherQuestions(
            questions=options["questions"], retriever=RetrieverConfig(index=options["dense"])
        ),
        model=options["model"],
        adapter=options["adapter"],
        out="nowhere",
    )
    check_placement(config)
    background().run(open_all(config))
    everything: list[Any] = [None] * RANKS
    dist.all_gather_object(everything, sorted(set(asked)))
    if rank == 0:
        print(json.dumps(everything), flush=True)
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number in range(RANKS):
            if (child := os.fork()) == 0:
                run_rank(number, given, f"{folder}/meeting")
                os._exit(0)
            children.append(child)
        sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children))
