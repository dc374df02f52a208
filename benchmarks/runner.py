"""What the runner adds to the bare engine: IRCoT's questions against a replay of the very same requests.

The replay knows every request in advance and hands them all to the engine at once, so it pays for no search,
no chain of steps that wait for each other, no trace. Both start with an empty prefix cache and without memory
of earlier replies.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.replay import Recorder, open_world
from corag.core.runner import answer_all, answer_question
from corag.core.runs.folder import RunFolder
from corag.core.runs.rows import Row
from corag.core.tools import Tools
from corag.core.types import Question
from corag.generation.config import ModelConfig
from corag.generation.vllm_engine import VllmGenerator
from eval.datasets import load_questions
from ircot.method import IRCoTConfig, ircot


async def main(questions: int = 64) -> dict[str, float]:
    """Return the seconds of run and replay, their ratio (``replay_ratio``), and how much was asked."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        retriever = await open_world(root, dev=10, test=questions)
        recorder = Recorder(VllmGenerator.open(ModelConfig(remember=False)))
        config = IRCoTConfig(preset="paper",
            demonstrations=str(root / "world/demonstrations.txt"),
            demonstration_count=2,
            k_per_step=2, paragraph_budget=6, max_steps=5, max_thought_tokens=40, max_answer_tokens=40,
        )  # fmt: skip

        async def answer_file(name: str) -> float:
            batch = load_questions(str(root / f"world/{name}.jsonl"))
            start = time.perf_counter()
            with RunFolder(root / f"run-{name}", {}, {}) as run:

                async def answer_one(question: Question) -> Row:
                    tools = Tools(question, recorder, retriever)
                    return await answer_question(question, partial(ircot, config=config), tools)

                await answer_all(batch, answer_one, run.append, in_flight=questions)
            return time.perf_counter() - start

        try:
            await answer_file("dev")  # warms up the engine, Lucene and the templates
            await recorder.start_over()
            run_seconds = await answer_file("test")
            requests = len(recorder.requests)
            replay_seconds = await recorder.replay()
        finally:
            await recorder.close()
            await retriever.close()
    return {
        "run_seconds": run_seconds,
        "replay_seconds": replay_seconds,
        "replay_ratio": run_seconds / replay_seconds,
        "questions": questions,
        "requests": requests,
    }
