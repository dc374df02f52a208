"""Answering a question by its parts: recursive RAG's mode "decompose"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from baselines.decomposition import Plan, SubQuestion, parse_plan
from baselines.recursive_concluding import combine_prompt
from baselines.recursive_config import RecursiveConfig
from baselines.recursive_trail import Finding, Trail
from core.errors import BudgetExhaustedError
from core.gather import gather
from core.prompting.prompt import Prompt
from core.prompting.render import render_passages
from core.prompting.shorten import reserve
from core.reader import reader_prompt
from core.text import extract_answer, is_nothing
from core.tools import Tools
from core.types import Hit, Question


async def answer_parts(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> str:
    """Plan sub-questions, then search and answer them, those that wait for the same ones at the same time.

    Return why it ended.

    A plan that cannot be followed is refused: the question is searched for as it stands.
    """
    # 1. Plan, keeping enough of the budget to read the question at least.
    try:
        with tools.holding(reserve(reader_prompt(question, (), config), config.max_answer_tokens, tools)):
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

    # 2. Answer wave by wave, keeping what the final answer will need.
    answers: dict[int, str] = {}
    with tools.holding(to_hold_back(question, plan, tools, config)):
        for wave in plan.waves:
            trail.steps += 1
            for finding, hits in await answer_wave(wave, answers, tools, config):
                trail.add(finding.sub_question, hits)
                trail.findings.append(finding)
                # unanswered: its own words
                answers[finding.number] = finding.sub_answer or finding.sub_question
            if any(finding.status == "budget" for finding in trail.findings):
                return "budget"
    return "plan"


async def make_plan(question: Question, tools: Tools, config: RecursiveConfig) -> Plan:
    """Ask for sub-questions and what they depend on."""
    prompt = config.prompt("plan").render({"query": question.text, "limit": str(config.max_sub_questions)})
    reply = await tools.generate(prompt, role="plan", max_tokens=config.max_step_tokens, path="plan")
    return parse_plan(prompt.prefix + reply.text, config.max_sub_questions)


async def answer_wave(
    wave: Sequence[SubQuestion], answers: Mapping[int, str], tools: Tools, config: RecursiveConfig
) -> list[tuple[Finding, tuple[Hit, ...]]]:
    """Search for the sub-questions of a wave at the same time, and answer them at the same time.

    If the budget is not certain to allow all of these answers, as many as it is, then the next ones: so it
    does not matter which is there first. Where nothing was found, the model is not asked.
    """
    asked = [part.asked(answers) for part in wave]
    paths = [f"sub-question {part.number}" for part in wave]
    found = await gather(
        tools.search(query, k=config.k_per_step, path=path) for query, path in zip(asked, paths, strict=True)
    )
    prompts = [sub_answer_prompt(query, hits, config) for query, hits in zip(asked, found, strict=True)]
    findings = [
        Finding(part.number, query, "", "budget" if hits else "nothing_found")
        for part, query, hits in zip(wave, asked, found, strict=True)
    ]
    waiting = [place for place, hits in enumerate(found) if hits]
    while count := affordable_together([prompts[place] for place in waiting], tools, config):
        batch, waiting = waiting[:count], waiting[count:]
        replies = await gather(sub_answer(prompts[place], paths[place], tools, config) for place in batch)
        for place, reply in zip(batch, replies, strict=True):
            findings[place] = Finding(
                wave[place].number, asked[place], reply, "answered" if reply else "unknown"
            )
    return list(zip(findings, found, strict=True))


def affordable_together(prompts: Sequence[Prompt], tools: Tools, config: RecursiveConfig) -> int:
    """Return how many sub-answers, from the first on, the budget is certain to allow at the same time."""
    if tools.left is None:
        return len(prompts)
    costs = accumulate(tools.cost(prompt, config.max_sub_answer_tokens) for prompt in prompts)
    return sum(cost <= tools.left for cost in costs)


async def sub_answer(prompt: Prompt, path: str, tools: Tools, config: RecursiveConfig) -> str:
    """Ask for a sub-answer.

    "" if the passages do not tell, or if the budget proves smaller than was reckoned.
    """
    try:
        reply = await tools.generate(
            prompt, role="sub_answer", max_tokens=config.max_sub_answer_tokens, path=path
        )
    except BudgetExhaustedError:
        return ""
    answer = extract_answer(reply.text)
    return "" if is_nothing(answer) else answer


def sub_answer_prompt(query: str, hits: Sequence[Hit], config: RecursiveConfig) -> Prompt:
    """Ask a sub-question with what was found for it.

    If the prompt is too long, the worst passages are left out first.
    """
    template, passages = config.prompt("sub_answer"), (hit.passage for hit in hits)
    shown = render_passages(passages, template, config.max_shown_words, goes_first="last")
    return template.render({"query": query, "paragraphs": shown})


def to_hold_back(question: Question, plan: Plan, tools: Tools, config: RecursiveConfig) -> int:
    """Return what the final answer will cost without passages, about: an answer stands in its line, and in
    other questions.
    """
    if tools.left is None:
        return 0
    lines = [Finding(part.number, part.text, "", "") for part in plan.parts]
    without_answers = reserve(combine_prompt(question, lines, (), config), config.max_answer_tokens, tools)
    return without_answers + 2 * len(lines) * config.max_sub_answer_tokens
