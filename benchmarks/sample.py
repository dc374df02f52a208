"""Sampling chains for training with gold scores by forced decoding, against scores by prompt_logprobs.

Both sample the same questions of the embedded world with the same seeds on one engine, whose prefix cache is
emptied in between, behind request caches of their own: only the way of scoring differs.
prompt_logprobs passes by the prefix cache, and multiplies every token of the prompt with the whole
vocabulary, normalises and ranks these rows and carries them over as Python objects, which on a CPU costs more
than reading the prompt. Forced decoding makes such rows for the answer's tokens only. Sub-queries and
sub-answers cost both the same, so the scores of the finished run are also timed by themselves, all at once
and with a cold cache. And every gold answer is scored after every hop: the world's questions have one or two,
while 1,000 of PopQA's have 4.5 on average. ``answers`` gives each question so many, made up, to measure what
such a set costs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.decode import SlowScores
from benchmarks.replay import Recorder, open_world
from corag.chains.config import CoRAGConfig
from corag.core.gather import gather
from corag.core.protocols import Generator, Retriever, Score, ScoreRequest
from corag.core.runner import answer_all, answer_question
from corag.core.runs.rows import Row
from corag.core.tools import Tools
from corag.core.types import Question
from corag.generation.cached import CachedGenerator
from corag.generation.config import ModelConfig
from corag.generation.vllm_engine import VllmGenerator
from eval.datasets import load_questions
from training.sampling import SampleConfig, SampledChains, sample_chains

CORAG = CoRAGConfig(preset="small_model")


async def main(
    questions: int = 4, chains: int = 16, max_hops: int = 5, adapter: str = "", answers: int = 0
) -> dict[str, float]:
    """Return chains per second of both, ``speedup``, ``memo_share`` and ``score_speedup``.

    ``answers``: gold answers of each question at least.

    ``memo_share``: of the generations and scores that were asked for, sampled ones included, the share that
    the request cache saved. ``adapter``: of the model, in both.
    """
    config = SampleConfig(chains=chains, max_hops=max_hops)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        retriever = await open_world(root, dev=1, test=questions)
        warm_up, test_questions = (
            load_questions(str(root / f"world/{name}.jsonl")) for name in ("dev", "test")
        )
        test_questions = [with_answers(question, answers) for question in test_questions]
        engine = VllmGenerator.open(ModelConfig(adapter=adapter))
        fast, slow = Recorder(engine), SlowScores(engine)
        try:
            for generator in (fast, slow):
                few = SampleConfig(chains=min(4, chains), max_hops=min(2, max_hops))
                await sample(warm_up, CachedGenerator(generator), retriever, few)
            await fast.start_over()
            ours, seconds = await sample(test_questions, CachedGenerator(fast), retriever, config)
            engine_requests = list(fast.requests)
            await fast.start_over()
            theirs, reference_seconds = await sample(test_questions, CachedGenerator(slow), retriever, config)

            scores = [request for request in engine_requests if isinstance(request, ScoreRequest)]
            await fast.start_over()
            values, score_seconds = await score(scores, engine.score)
            await fast.start_over()
            reference_values, reference_score_seconds = await score(scores, engine.score_by_prompt_logprobs)
        finally:
            await engine.close()
            await retriever.close()
    hop_counts, reference_hop_counts = _chains(ours), _chains(theirs)
    speed, reference_speed = len(hop_counts) / seconds, len(reference_hop_counts) / reference_seconds
    calls = sum(row.total_usage.calls for row in ours)
    apart = [abs(one.mean - other.mean) for one, other in zip(values, reference_values, strict=True)]
    return {
        "questions": len(test_questions),
        "gold_answers": statistics.fmean(len(question.answers) for question in test_questions),
        "chains": len(hop_counts),
        "hops": sum(hop_counts),
        "reference_hops": sum(reference_hop_counts),
        "seconds": seconds,
        "reference_seconds": reference_seconds,
        "chains_per_second": speed,
        "reference_chains_per_second": reference_speed,
        "speedup": speed / reference_speed,
        "requests": calls,
        "memo_share": 1 - len(engine_requests) / calls,
        "scores": len(scores),
        "score_prompt_tokens": statistics.fmean(value.usage.prompt for value in values),
        "score_seconds": score_seconds,
        "reference_score_seconds": reference_score_seconds,
        "score_speedup": reference_score_seconds / score_seconds,
        "score_mean_abs_diff": statistics.fmean(apart),
        "failed": sum(bool(row.error) for row in [*ours, *theirs]),
    }


def with_answers(question: Question, count: int) -> Question:
    """Return a question with so many gold answers, the further ones as long as its first and never given.

    >>> with_answers(Question("q", "Where?", ("Oslo",)), 2).answers
    ('Oslo', 'Oslo of 0001')
    """
    further = (f"{question.answers[0]} of {number:04d}" for number in range(len(question.answers), count))
    return replace(question, answers=(*question.answers, *further))


async def sample(
    questions: Sequence[Question], generator: Generator, retriever: Retriever, config: SampleConfig
) -> tuple[list[Row], float]:
    """Sample chains for all questions at the same time; return what was found, and the seconds."""
    rows: list[Row] = []
    method = partial(sample_chains, config=config, corag=CORAG)

    async def sample_one(question: Question) -> Row:
        return await answer_question(question, method, Tools(question, generator, retriever))

    start = time.perf_counter()
    await answer_all(questions, sample_one, rows.append, in_flight=len(questions))
    return rows, time.perf_counter() - start


async def score(
    requests: Sequence[ScoreRequest], way: Callable[[ScoreRequest], Awaitable[Score]]
) -> tuple[list[Score], float]:
    """Score all requests at once; return the scores and the seconds."""

    async def score_one(request: ScoreRequest) -> Score:
        return await way(request)

    start = time.perf_counter()
    scores = await gather(score_one(request) for request in requests)
    return scores, time.perf_counter() - start


def _chains(rows: Sequence[Row]) -> list[int]:
    """Hops of every chain that was sampled."""
    return [
        len(chain.hops)
        for row in rows
        if isinstance(row.answer, SampledChains)
        for chain in row.answer.chains
    ]
