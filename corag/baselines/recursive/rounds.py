"""Searching in rounds: what passages refer to, or what the model says is missing, is searched for next."""

from __future__ import annotations

from typing import Literal

from corag.baselines.recursive.config import RecursiveConfig
from corag.baselines.recursive.replies import Gaps, find_references, parse_gaps
from corag.baselines.recursive.trail import Reference, Trail, Why
from corag.core.errors import BudgetExhaustedError
from corag.core.prompting.render import render_passages
from corag.core.reader import reader_prompt
from corag.core.types import Question


async def follow_references(query: str, trail: Trail, config: RecursiveConfig) -> str:
    """Search for a query, then for what the new passages refer to, and so on. Return why it ended.

    A reference is searched for once, and a passage taken once, so passages that refer to each other come to
    an end.
    """
    queries: list[str] = [query]
    why: Why = "question"
    while True:
        passages = await trail.search(queries, config.k, why)
        references = [(passage.id, *pair) for passage in passages for pair in find_references(passage.text)]
        may_follow = not trail.full and trail.steps < config.max_depth
        new = trail.fresh([text for _, text, _ in references], config.max_references)
        queries, why = new if may_follow else [], "reference"
        for name, text, words in references:
            trail.references.append(Reference(name, text, words, trail.steps, text in queries))
        if trail.full:
            return "max_documents"
        if not queries:
            return "max_depth" if new else "no_references"


async def search_in_rounds(
    mode: Literal["multi_hop", "self_query"], question: Question, trail: Trail, config: RecursiveConfig
) -> str:
    """Search for the question, then for what the model says is missing, and so on. Return why it ended.

    The model is not asked after the last round, since nothing could follow.
    """
    is_multi_hop = mode == "multi_hop"
    rounds = config.max_hops if is_multi_hop else config.max_iterations
    queries: list[str] = [question.text]
    why: Why = "question"
    while True:
        await trail.search(queries, config.k_per_step, why)
        if trail.steps >= rounds:
            return "max_steps"
        if trail.full:
            return "max_documents"
        try:
            judgement = await ask_for_gaps(mode, question, trail, config)
        except BudgetExhaustedError:
            return "budget"
        if judgement == Gaps():
            trail.malformed += 1
            return "malformed"
        if judgement.enough:
            return "sufficient"
        # A gap is searched for in its own words where the model names no query; "multi_hop" names one by its
        # form.
        why = "next_query" if is_multi_hop else "follow_up"
        next_queries = judgement.queries or (() if is_multi_hop else judgement.gaps)
        if not next_queries:
            return "no_query"
        queries = trail.fresh(next_queries, 1 if is_multi_hop else config.max_follow_ups)
        if not queries:
            return "repeated_query"


async def ask_for_gaps(
    mode: Literal["multi_hop", "self_query"], question: Question, trail: Trail, config: RecursiveConfig
) -> Gaps:
    """Ask whether the passages are enough, and what is missing."""
    template = config.prompt("hop" if mode == "multi_hop" else "gaps")
    prompt = template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(
                trail.passages, template, config.max_shown_words, goes_first="first"
            ),
            "hops": template.items("hop", [{"sub_query": search.query} for search in trail.path]),
            "limit": str(config.max_follow_ups),
        }
    )
    with trail.tools.reserve(reader_prompt(question, trail.passages, config), config.max_answer_tokens):
        reply = await trail.tools.generate(
            prompt, role="judge", max_tokens=config.max_step_tokens, path=f"step {trail.steps}"
        )
    return parse_gaps(prompt.prefix + reply.text)
