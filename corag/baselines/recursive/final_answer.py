"""The answer at the end of recursive RAG, from all that was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corag.baselines.recursive.trail import AnsweredSubQuestion, Trail
from corag.core.errors import BudgetExhaustedError
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.shorten import texts_left
from corag.core.reader import generate_answer, reader_prompt
from corag.core.text import extract_answer, stated_answer
from corag.core.types import Passage, Question


@dataclass(frozen=True, slots=True)
class FinalReading:
    """The final answer.

    ``left_out``: collected passages that its prompt did not show. ``affordable``: whether the budget allowed
    the call as it was meant to be, with nothing left out for its sake. ``note``: what of the reply the text
    is, "" if it is all of it or what it states as the answer.
    """

    text: str
    left_out: int
    affordable: bool
    note: str = ""


async def final_answer(question: Question, trail: Trail) -> FinalReading:
    """Answer the question from what was found; passages go by ``context_policy`` if the budget is too small.

    If it is too small even without passages, the last sub-answer has to do, or an empty answer.
    """
    config, tools = trail.config, trail.tools
    whole = final_prompt(question, trail)
    prompt = tools.afford(whole, config.max_answer_tokens)
    try:
        reply = await generate_answer(prompt, config.max_answer_tokens, tools, path="end")
    except BudgetExhaustedError:
        answers = [finding.sub_answer for finding in trail.findings if finding.sub_answer]
        return FinalReading(answers[-1] if answers else "", len(trail.passages), affordable=False)
    passage_count = len(texts_left(prompt, "passage", reply.shortening))
    # A plain prompt ends the reply with its first line, so there "whole" is that line.
    text, note = (reply.text.strip(), "") if config.answer == "whole" else short_answer(reply.text)
    return FinalReading(text, len(trail.passages) - passage_count, prompt == whole, note)


def short_answer(reply: str) -> tuple[str, str]:
    r"""Return the answer that a reply gives, and a note if it is the first of several lines, else "".

    >>> short_answer("Oslo.\nIt lies in Norway.")
    ('Oslo', 'the first of 2 lines of the reply')
    >>> short_answer("It lies in Norway.\nSo the answer is: Oslo.")
    ('Oslo', '')
    """
    lines = [line for line in reply.splitlines() if line.strip()]
    has_only_first = len(lines) > 1 and all(stated_answer(line) is None for line in lines)
    return extract_answer(reply), f"the first of {len(lines)} lines of the reply" if has_only_first else ""


def final_prompt(question: Question, trail: Trail) -> Prompt:
    """Ask the reader that all methods share; after sub-questions, ask with their answers."""
    passages = trail.prompt_passages()
    if trail.findings:
        return combine_prompt(question, trail.findings, passages, trail)
    return reader_prompt(question, passages, trail.config, goes_first=trail.config.goes_first)


def combine_prompt(
    question: Question, findings: Sequence[AnsweredSubQuestion], passages: Sequence[Passage], trail: Trail
) -> Prompt:
    """Ask for the answer with sub-questions, their answers, and passages."""
    template = trail.config.prompt("combine")
    items = [
        {"sub_query": each.sub_question, "sub_answer": each.sub_answer or "unknown"} for each in findings
    ]
    return template.render(
        {
            "query": question.text,
            "paragraphs": trail.render(template, passages),
            "hops": template.items("hop", items),
        }
    )
