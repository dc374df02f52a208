"""CoRAG's best-of-4 against the way the released code goes about it, on an engine of the same size.

The released code takes a question's chains one after another in 32 worker threads, keeps no prefix cache,
remembers no reply and scores by prompt_logprobs. Both answer the same questions with the same seeds. The
replay puts our very requests to the bare engine, all known in advance, so that the difference is what the
chains' waiting, searching and bookkeeping cost.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.replay import Recorder, open_world
from corag.chains.chain import Chain
from corag.chains.config import CoRAGConfig
from corag.chains.decode import decode_chain
from corag.chains.final_answer import final_answer, retrieve_context
from corag.chains.method import corag
from corag.chains.rank import rank, score
from corag.core.protocols import Generator, Retriever, Score, ScoreRequest
from corag.core.runner import answer_all, answer_question
from corag.core.runs.rows import Row
from corag.core.tools import Tools
from corag.core.types import Answer, Question
from corag.generation.cached import CachedGenerator
from corag.generation.config import ModelConfig
from corag.generation.vllm_engine import VllmGenerator
from eval.datasets import load_questions

CONFIGS = {
    "paper": CoRAGConfig(
        strategy="best_of_n", chains=4, max_hops=3, passages_per_hop=5, context_passages=5,
        max_sub_query_tokens=32, max_sub_answer_tokens=32, max_answer_tokens=16,
    ),
    "small_model": CoRAGConfig(preset="small_model", strategy="best_of_n", chains=4, max_hops=3),
}  # fmt: skip
"""Best of 4 with the paper's five passages per hop, or with the three that the shipped adapter learned
from.
"""


class SlowScores(Recorder):
    """The engine, scoring by prompt_logprobs."""

    async def score(self, request: ScoreRequest) -> Score:
        """Compute the whole prompt again."""
        return await self.engine.score_by_prompt_logprobs(request)


async def one_after_another(question: Question, tools: Tools, config: CoRAGConfig) -> Answer:
    """Best-of-N as the released code does it: chain after chain, then score after score."""
    context = await retrieve_context(tools, config)
    ratios = []
    for number in range(1, config.chains + 1):
        path = f"chain {number}"
        chain = await decode_chain(
            Chain(), config.max_hops, tools, config, temperature=config.temperature, path=path
        )
        ratios.append(await score(chain, path, tools, config, context))
    chain = rank(ratios).best.chain
    return Answer((await final_answer(chain, context, tools, config)).text, context.gather_ids(chain, config))


async def main(questions: int = 16, adapter: str = "", preset: str = "paper") -> dict[str, float]:
    """Return seconds and tokens of both, ``speedup`` and ``replay_ratio``.

    Both have the same ``adapter`` and ``preset`` ("paper" or "small_model").
    """
    config = CONFIGS[preset]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        retriever = await open_world(root, dev=4, test=questions)
        warm_up, test_questions = (
            load_questions(str(root / f"world/{name}.jsonl")) for name in ("dev", "test")
        )

        answer = partial(answer_all_with, retriever=retriever, config=config)
        recorder = Recorder(VllmGenerator.open(ModelConfig(adapter=adapter)))
        await answer(warm_up, corag, CachedGenerator(recorder))
        await recorder.start_over()
        ours, seconds = await answer(test_questions, corag, CachedGenerator(recorder))
        replay_seconds = await recorder.replay()
        await recorder.close()

        slow_model = ModelConfig(adapter=adapter, engine={"enable_prefix_caching": False})
        slow = SlowScores(VllmGenerator.open(slow_model))
        await answer(warm_up, one_after_another, slow)
        theirs, reference_seconds = await answer(test_questions, one_after_another, slow)
        await slow.close()
        await retriever.close()
    return {
        "questions": questions,
        "seconds": seconds,
        "reference_seconds": reference_seconds,
        "speedup": reference_seconds / seconds,
        "requests": len(recorder.requests),
        "replay_seconds": replay_seconds,
        "replay_ratio": seconds / replay_seconds,
        "tokens_per_question": _mean_tokens(ours),
        "reference_tokens_per_question": _mean_tokens(theirs),
        "computed_tokens_per_question": _mean_computed(ours),
        "reference_computed_tokens_per_question": _mean_computed(theirs),
        "failed": sum(bool(row.error) for row in [*ours, *theirs]),
    }


async def answer_all_with(
    questions: Sequence[Question],
    method: Callable[..., Awaitable[Answer]],
    generator: Generator,
    retriever: Retriever,
    config: CoRAGConfig,
) -> tuple[list[Row], float]:
    """Answer all questions, 32 at the same time as the released code's threads do."""
    rows: list[Row] = []

    async def answer_one(question: Question) -> Row:
        tools = Tools(question, generator, retriever)
        return await answer_question(question, partial(method, config=config), tools)

    start = time.perf_counter()
    await answer_all(questions, answer_one, rows.append, in_flight=32)
    return rows, time.perf_counter() - start


def _mean_tokens(rows: Sequence[Row]) -> float:
    return statistics.fmean(row.total_usage.total for row in rows)


def _mean_computed(rows: Sequence[Row]) -> float:
    return statistics.fmean(row.total_usage.computed for row in rows)
