"""A run of IRCoT in a process of its own, over a scripted model and an index of four passages.

    python -m tests.drills.answering OUT [--questions 40] [--pause 0.005] [--search URL,URL] [--workers 2]

It opens, answers, resumes and fails as 'corag run' does, for it calls what that calls, but starts in half a
second. A :class:`CoragError` is printed and ends it with status 2.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from corag.core.errors import CoragError
from corag.core.protocols import GenerateRequest, ScoreRequest
from corag.core.types import Question
from eval.experiment.executor import LocalExecutor
from eval.experiment.run import RunConfig, answer_with
from eval.experiment.workers.config import ray_workers
from eval.experiment.workers.ray_pool import ray_pool
from ircot.method import IRCoTConfig
from retrieval.config import RetrieverConfig
from retrieval.search.pipeline import open_retriever
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import WORLD
from tests.worker_engines import open_scripted, reply

METHOD = "ircot"
CONFIG = IRCoTConfig(
    reasoning_prompt="THINK {query}\n{paragraphs}\n{cot_history}", qa_prompt="READ {query}\n{paragraphs}",
    max_steps=3, k_per_step=1, strip_question_words=False,
)  # fmt: skip
ROOT = Path(__file__).parents[2]


def questions(count: int) -> list[Question]:
    return [Question(f"q{n}", f"Who wrote The Glass Orchard, part {n}?", (f"A{n}",)) for n in range(count)]


async def answer(out: Path, count: int, pause: float, search: str, workers: int = 0) -> Path:
    async def wait(_: GenerateRequest | ScoreRequest) -> None:
        await asyncio.sleep(pause * random.random())

    retriever: Any = WordRetriever(WORLD)
    if search and not workers:
        retriever = await open_retriever(RetrieverConfig(url=search.split(","), timeout_s=1, retries=1))
    where = RetrieverConfig(url=search.split(",")) if search else RetrieverConfig()
    config = RunConfig(
        questions="drill", method=[METHOD], out=str(out), batch_size=4, retriever=where, **{METHOD: CONFIG}
    )  # type: ignore[arg-type]
    if workers:
        engine = partial(open_scripted, pause)
        async with ray_pool(ray_workers(count=workers), engine, [where], in_flight=4) as pool:
            return await answer_with(config, METHOD, questions(count), pool.executor(where))
    return await answer_with(
        config, METHOD, questions(count), LocalExecutor(ScriptedGenerator(reply, wait), retriever)
    )


def started(out: Path, *more: object, **options: Any) -> subprocess.Popen[str]:
    """Start such a process; ``options`` go to Popen."""
    command = [sys.executable, "-m", "tests.drills.answering", str(out), *map(str, more)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **(pipes | options))


def ended(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str]:
    """Wait for it; return its status and what it said, which is never a traceback."""
    said = "".join(process.communicate(timeout=seconds))
    assert "Traceback" not in said, said
    return process.returncode, said


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.005)
    parser.add_argument("--search", default="")
    parser.add_argument("--workers", type=int, default=0)
    given = parser.parse_args()
    try:
        asyncio.run(answer(given.out, given.questions, given.pause, given.search, given.workers))
    except CoragError as error:
        print(f"corag: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
