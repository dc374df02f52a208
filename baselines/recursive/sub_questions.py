"""Answering a question by sub-questions: recursive RAG's mode "decompose".

Stands apart from ``method``, its one importer, because planning and answering in waves is a small method of
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from baselines.recursive.config import RecursiveConfig
from baselines.recursive.replies import Plan, SubQuestion, parse_plan
from baselines.recursive.rounds import follow_references
from baselines.recursive.trail import AnsweredSubQuestion, Trail, Why, combine_prompt, short_answer
from core.errors import BudgetExhaustedError
from core.gather import gather
from core.prompting.prompt import Prompt
from core.prompting.render import render_passages
from core.reader import reader_prompt
from core.text import is_nothing
from core.tools import Tools
from core.types import Passage, Question


async def answer_sub_questions(
    question: Question, trail: Trail, tools: Tools, config: RecursiveConfig
) -> str:
    """Plan sub-questions, then search and answer them, wave by wave. Return why it ended.

    A plan that cannot be followed is refused: the question is searched for as it stands.
    """
    # 1. Plan, keeping enough of the budget to read the question at least.
    try:
        with tools.hold_back(reader_prompt(question, (), config), config.max_answer_tokens):
            plan = await make_plan(question, tools, config)
    except BudgetExhaustedError:
        await trail.search([question.text], config.k, tools, "question")
        return "budget"
    trail.malformed += plan.ignored + (plan.problem == "malformed")
    if plan.problem:
        trail.plan_problem = plan.problem
        trail.fallbacks += 1
        await search_for(question.text, trail, tools, config, k=config.k, why="question")
        return "fallback"

    # 2. Answer wave by wave, keeping what the final answer will cost without passages, about: each sub-answer
    #    stands in its own line of that prompt, and in other sub-questions.
    lines = [AnsweredSubQuestion(each.number, each.text, "", "") for each in plan.sub_questions]
    most = config.max_answer_tokens + 2 * len(lines) * config.max_sub_answer_tokens
    answers: dict[int, str] = {}
    with tools.hold_back(combine_prompt(question, lines, (), config), most):
        for wave in plan.waves:
            trail.steps += 1
            for answered, own_trail in await answer_wave(wave, answers, tools, config):
                trail.join(own_trail)
                trail.findings.append(answered)
                # One without an answer is known to later ones by its own words.
                answers[answered.number] = answered.sub_answer or answered.sub_question
            if any(answered.status == "budget" for answered in trail.findings):
                return "budget"
    return "plan"


async def make_plan(question: Question, tools: Tools, config: RecursiveConfig) -> Plan:
    """Ask for sub-questions and what they depend on."""
    prompt = config.prompt("plan").render({"query": question.text, "limit": str(config.max_sub_questions)})
    # After worked examples a model goes on with a question of its own, whose parts are none of this one's.
    stop = ("\nQuestion:",) if prompt.plain else ()
    reply = await tools.generate(
        prompt, role="plan", max_tokens=config.max_step_tokens, stop=stop, path="plan"
    )
    return parse_plan(prompt.prefix + reply.text, config.max_sub_questions)


async def answer_wave(
    wave: Sequence[SubQuestion], answers: Mapping[int, str], tools: Tools, config: RecursiveConfig
) -> list[tuple[AnsweredSubQuestion, Trail]]:
    """Search for the sub-questions of a wave at the same time, and answer them at the same time.

    With ``follow_references`` each search goes on as mode "recursive" does, on a trail of its own. What the
    budget is not certain to allow waits for the others, so that it does not matter which is there first.
    Where nothing was found, the model is not asked.
    """
    queries = [sub_question.with_answers(answers) for sub_question in wave]
    paths = [f"sub-question {sub_question.number}" for sub_question in wave]
    trails = [Trail(config, path) for path in paths]
    await gather(
        search_for(query, trail, tools, config, k=config.k_per_step, why="sub_question")
        for query, trail in zip(queries, trails, strict=True)
    )
    prompts = [
        sub_answer_prompt(query, trail.passages, config) for query, trail in zip(queries, trails, strict=True)
    ]
    limit = config.max_sub_answer_tokens

    async def sub_answer(place: int, branch: Tools) -> tuple[int, tuple[str, str]]:
        reply = await branch.generate(prompts[place], role="sub_answer", max_tokens=limit, path=paths[place])
        answer, note = short_answer(reply.text)
        return place, ("", "") if is_nothing(answer) else (answer, note)

    waiting = [place for place, trail in enumerate(trails) if trail.passages]
    replies = dict(
        await tools.fan_out_certain(waiting, sub_answer, lambda place: tools.cost(prompts[place], limit))
    )
    answered = []
    for place, (sub_question, query, trail) in enumerate(zip(wave, queries, trails, strict=True)):
        answer, note = replies.get(place, ("", ""))
        if place in replies:
            status = "answered" if answer else "unknown"
        else:
            status = "budget" if trail.passages else "nothing_found"
        answered.append((AnsweredSubQuestion(sub_question.number, query, answer, status, note), trail))
    return answered


async def search_for(
    query: str, trail: Trail, tools: Tools, config: RecursiveConfig, *, k: int, why: Why
) -> None:
    """Search for a sub-question and, if that is wanted, for what the passages refer to."""
    if config.follow_references:
        await follow_references(query, trail, tools, config, k=k, first=why)
    else:
        await trail.search([query], k, tools, why)


def sub_answer_prompt(query: str, passages: Sequence[Passage], config: RecursiveConfig) -> Prompt:
    """Ask a sub-question with what was found for it; a long prompt loses the worst passages first.

    Those that references led to count as worse than what the sub-question's own search found.
    """
    template = config.prompt("sub_answer")
    shown = render_passages(passages, template, config.max_shown_words, goes_first="last")
    return template.render({"query": query, "paragraphs": shown})
