"""Make multi-hop questions, with answers and gold passages, from an index of your own documents.

    corag questions indexes/mine --out made.jsonl --limit 50 --model.name Qwen/Qwen3-8B
    corag run --questions made.jsonl --retriever.index indexes/mine --method one_step,corag

Each question uses two passages: the first mentions the title of the second, and only the second contains the
answer. A question is kept if the model answers it with both passages, but not without any, with the first
alone, or with the second among others. Records, runs and tables mark the questions as synthetic: read some
before you trust figures on them.
"""

from __future__ import annotations

import asyncio

from corag.cli.result import CommandResult
from eval.making.run import PAIRS_PER_QUESTION, MakingConfig, make_questions


def main(config: MakingConfig) -> CommandResult:
    """Make the questions and print what came of the pairs. The status is 1 if none was kept."""
    result = asyncio.run(make_questions(config))
    for line in result.lines():
        print(line)
    kept_count = len(result.questions)
    if kept_count < config.limit:
        used_up = result.pair_count < config.limit * PAIRS_PER_QUESTION
        why = (
            "the pairs are used up"
            if used_up
            else f"no more than {PAIRS_PER_QUESTION} pairs for each are tried"
        )
        print(f"Fewer than {config.limit}: {why}. A larger model keeps more of them.")
    print(f"Synthetic questions: {config.out}. All pairs, with reasons if left out: {config.folder}")
    record = {
        "questions": config.out,
        "kept": kept_count,
        "tried": result.pair_count,
        "left_out": dict(result.left_out),
    }
    return CommandResult(int(not kept_count), [record | {"synthetic": config.origin}], result.failures)
