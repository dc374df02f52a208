"""The final answer of recursive RAG: one reader call over what was found, within the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baselines.recursive_config import RecursiveConfig
from baselines.recursive_trail import Finding, Trail
from core.errors import BudgetExhaustedError
from core.prompting.prompt import Prompt, Segment
from core.prompting.render import render_passages
from core.prompting.shorten import affordable, count_segments, reserve
from core.prompting.template import Template
from core.reader import generate_answer, reader_prompt
from core.text import extract_answer
from core.tools import Tools
from core.types import Passage, Question


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The answer.

    ``left_out``: collected passages that its prompt did not show. ``affordable``: whether the budget allowed
    the call as it was meant to be, with nothing left out for its sake.
    """

    text: str
    left_out: int
    affordable: bool


async def conclude(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> Conclusion:
    """Answer the question from what was found.

    The oldest passages are left out if the budget is too small for all.

    If it is too small even without passages, the last sub-answer has to do, or an empty answer.
    """
    whole = final_prompt(question, trail, tools, config)
    prompt = affordable(whole, config.max_answer_tokens, tools)
    try:
        reply = await generate_answer(prompt, config.max_answer_tokens, tools, path="end")
    except BudgetExhaustedError:
        answers = [finding.sub_answer for finding in trail.findings if finding.sub_answer]
        return Conclusion(answers[-1] if answers else "", len(trail.passages), affordable=False)
    shown = count_segments(prompt, "passage") - reply.shortening.count("passage")
    return Conclusion(extract_answer(reply.text), len(trail.passages) - shown, affordable=prompt == whole)


def final_prompt(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> Prompt:
    """Ask the reader that all methods share; after sub-questions, ask with their answers."""
    passages = trail.shown(tools.count_tokens)
    if trail.findings:
        return combine_prompt(question, trail.findings, passages, config)
    return reader_prompt(question, passages, config)


def combine_prompt(
    question: Question, findings: Sequence[Finding], passages: Sequence[Passage], config: RecursiveConfig
) -> Prompt:
    """Ask for the answer with sub-questions, their answers, and passages."""
    template = config.prompt("combine")
    items = [
        {"sub_query": found.sub_question, "sub_answer": found.sub_answer or "unknown"} for found in findings
    ]
    return template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first="first"),
            "hops": template.items("hop", items),
        }
    )


def searches(trail: Trail, template: Template) -> list[Segment]:
    """Write the searches so far as the prompt says."""
    return template.items("hop", [{"sub_query": query} for query in trail.queries])


def to_hold_back(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> int:
    """Return the tokens to hold back so that what was found can still be read; 0 without a budget."""
    return reserve(final_prompt(question, trail, tools, config), config.max_answer_tokens, tools)
