"""Answering a question by its parts: recursive RAG's mode "decompose".

Stands apart from ``method``, its one importer, because planning and answering in waves is a small method of
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from baselines.recursive.config import RecursiveConfig
from baselines.recursive.replies import Plan, SubQuestion, parse_plan
from baselines.recursive.trail import AnsweredPart, Trail, combine_prompt
from core.errors import BudgetExhaustedError
from core.gather import gather
from core.prompting.prompt import Prompt
from core.prompting.render import render_passages
from core.reader import reader_prompt
from core.text import extract_answer, is_nothing
from core.tools import Tools
from core.types import Hit, Question


async def answer_parts(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> str:
    """Plan sub-questions, then search and answer them, wave by wave. Return why it ended.

    A plan that cannot be followed is refused: the question is searched for as it stands.
    """
    # 1. Plan, keeping enough of the budget to read the question at least.
    try:
        with tools.hold_back(reader_prompt(question, (), config), config.max_answer_tokens):
            plan = await make_plan(question, tools, config)
    except BudgetExhaustedError:
        await trail.search([question.text], config.k, tools)
        return "budget"
    trail.malformed += plan.ignored + (plan.problem == "malformed")
    if plan.problem:
        trail.plan_problem = plan.problem
        trail.fallbacks += 1
        await trail.search([question.text], config.k, tools)
        return "fallback"

    # 2. Answer wave by wave, keeping what the final answer will cost without passages, about: each sub-answer
    #    stands in its own line of that prompt, and in other sub-questions.
    lines = [AnsweredPart(part.number, part.text, "", "") for part in plan.parts]
    most = config.max_answer_tokens + 2 * len(lines) * config.max_sub_answer_tokens
    answers: dict[int, str] = {}
    with tools.hold_back(combine_prompt(question, lines, (), config), most):
        for wave in plan.waves:
            trail.steps += 1
            for answered, hits in await answer_wave(wave, answers, tools, config):
                trail.add(answered.sub_question, hits)
                trail.findings.append(answered)
                # One without an answer is known to later ones by its own words.
                answers[answered.number] = answered.sub_answer or answered.sub_question
            if any(answered.status == "budget" for answered in trail.findings):
                return "budget"
    return "plan"


async def make_plan(question: Question, tools: Tools, config: RecursiveConfig) -> Plan:
    """Ask for sub-questions and what they depend on."""
    prompt = config.prompt("plan").render({"query": question.text, "limit": str(config.max_sub_questions)})
    reply = await tools.generate(prompt, role="plan", max_tokens=config.max_step_tokens, path="plan")
    return parse_plan(prompt.prefix + reply.text, config.max_sub_questions)


async def answer_wave(
    wave: Sequence[SubQuestion], answers: Mapping[int, str], tools: Tools, config: RecursiveConfig
) -> list[tuple[AnsweredPart, tuple[Hit, ...]]]:
    """Search for the sub-questions of a wave at the same time, and answer them at the same time.

    What the budget is not certain to allow waits for the others, so that it does not matter which is there
    first. Where nothing was found, the model is not asked.
    """
    queries = [part.with_answers(answers) for part in wave]
    paths = [f"sub-question {part.number}" for part in wave]
    found = await gather(
        tools.search(query, k=config.k_per_step, path=path)
        for query, path in zip(queries, paths, strict=True)
    )
    prompts = [sub_answer_prompt(query, hits, config) for query, hits in zip(queries, found, strict=True)]
    limit = config.max_sub_answer_tokens

    async def sub_answer(place: int, branch: Tools) -> tuple[int, str]:
        reply = await branch.generate(prompts[place], role="sub_answer", max_tokens=limit, path=paths[place])
        answer = extract_answer(reply.text)
        return place, "" if is_nothing(answer) else answer

    waiting = [place for place, hits in enumerate(found) if hits]
    told = dict(
        await tools.fan_out_certain(waiting, sub_answer, lambda place: tools.cost(prompts[place], limit))
    )
    parts = []
    for place, (part, query, hits) in enumerate(zip(wave, queries, found, strict=True)):
        answer = told.get(place)
        status = (
            "answered" if answer else "unknown" if answer == "" else "budget" if hits else "nothing_found"
        )
        parts.append((AnsweredPart(part.number, query, answer or "", status), hits))
    return parts


def sub_answer_prompt(query: str, hits: Sequence[Hit], config: RecursiveConfig) -> Prompt:
    """Ask a sub-question with what was found for it; a long prompt loses the worst passages first."""
    template, passages = config.prompt("sub_answer"), (hit.passage for hit in hits)
    shown = render_passages(passages, template, config.max_shown_words, goes_first="last")
    return template.render({"query": query, "paragraphs": shown})
