"""Searching until the model has enough: recursive RAG's modes "multi_hop" and "self_query".

Both look at the passages after each round of searches. "multi_hop" asks for the one thing to look for next;
"self_query" asks for all gaps and searches for them at the same time.
"""

from __future__ import annotations

from typing import Literal

from baselines.recursive_concluding import searches, to_hold_back
from baselines.recursive_config import RecursiveConfig
from baselines.recursive_replies import Verdict, parse_verdict
from baselines.recursive_trail import Trail
from core.errors import BudgetExhaustedError
from core.prompting.render import render_passages
from core.tools import Tools
from core.types import Question


async def search_in_rounds(
    mode: Literal["multi_hop", "self_query"],
    question: Question,
    trail: Trail,
    tools: Tools,
    config: RecursiveConfig,
) -> str:
    """Search for the question, then for what the model says is missing, and so on. Return why it ended.

    The model is not asked after the last round, since nothing could follow.
    """
    rounds, limit = (
        (config.max_hops, 1) if mode == "multi_hop" else (config.max_iterations, config.max_follow_ups)
    )
    queries = [question.text]
    while True:
        await trail.search(queries, config.k_per_step, tools)
        if trail.steps >= rounds:
            return "max_steps"
        if trail.full:
            return "max_documents"
        try:
            verdict = await judge(mode, question, trail, tools, config)
        except BudgetExhaustedError:
            return "budget"
        if verdict.malformed:
            trail.malformed += 1
            return "malformed"
        if verdict.enough:
            return "sufficient"
        wanted = verdict.queries if mode == "multi_hop" else verdict.queries or verdict.gaps
        if not wanted:
            return "no_query"
        queries = trail.fresh(wanted, limit)
        if not queries:
            return "repeated_query"


async def judge(
    mode: Literal["multi_hop", "self_query"],
    question: Question,
    trail: Trail,
    tools: Tools,
    config: RecursiveConfig,
) -> Verdict:
    """Ask whether the passages are enough, and what is missing.

    What reading them will cost is held back meanwhile.
    """
    template = config.prompt("hop" if mode == "multi_hop" else "gaps")
    passages = trail.shown(tools.count_tokens)
    prompt = template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first="first"),
            "hops": searches(trail, template),
            "limit": str(config.max_follow_ups),
        }
    )
    with tools.holding(to_hold_back(question, trail, tools, config)):
        reply = await tools.generate(
            prompt, role="judge", max_tokens=config.max_step_tokens, path=f"step {trail.steps}"
        )
    return parse_verdict(prompt.prefix + reply.text)
