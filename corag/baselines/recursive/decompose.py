"""Decomposing a question: a plan of sub-questions, each answered once the answers that it needs are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corag.baselines.recursive.config import RecursiveConfig
from corag.baselines.recursive.replies import Plan, SubQuestion, parse_plan
from corag.baselines.recursive.rounds import follow_references
from corag.baselines.recursive.trail import AnsweredSubQuestion, Trail, Why
from corag.core.errors import BudgetExhaustedError
from corag.core.gather import gather
from corag.core.language.text import extract_answer, says_none
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.render import render_passages
from corag.core.reader import reader_prompt
from corag.core.tools import Tools
from corag.core.types import Passage, Question


async def answer_sub_questions(question: Question, trail: Trail, config: RecursiveConfig) -> str:
    """Plan sub-questions, then search and answer them, wave by wave. Return why it ended.

    A plan that cannot be followed is refused: the question is searched for as it stands. Where the budget
    allows no plan, references are not followed either.
    """
    # 1. Plan, keeping enough of the budget to read the question at least.
    try:
        with trail.tools.reserve(reader_prompt(question, (), config), config.max_answer_tokens):
            plan = await make_plan(question, trail.tools, config)
    except BudgetExhaustedError:
        await trail.search([question.text], config.k, "question")
        return "budget"
    trail.malformed += plan.ignored + (plan.problem == "malformed")
    if plan.problem:
        await search_for(question.text, trail, config.k, "question", config)
        return plan.problem

    # 2. Answer wave by wave, keeping what the final answer will cost without passages, about: each sub-answer
    #    stands in its own line of that prompt, and in other sub-questions.
    lines = [AnsweredSubQuestion(each.number, each.text) for each in plan.sub_questions]
    most = config.max_answer_tokens + 2 * len(lines) * config.max_sub_answer_tokens
    answers: dict[int, str] = {}
    with trail.tools.reserve(combine_prompt(question, lines, (), config), most):
        for wave in plan.waves:
            trail.steps += 1
            findings, is_affordable = await answer_wave(wave, answers, trail, config)
            trail.findings += findings
            # One without an answer is known to later ones by its own words.
            answers |= {each.number: each.sub_answer or each.sub_question for each in findings}
            if not is_affordable:
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
    wave: Sequence[SubQuestion], answers: Mapping[int, str], trail: Trail, config: RecursiveConfig
) -> tuple[list[AnsweredSubQuestion], bool]:
    """Search for the sub-questions of a wave at the same time, and answer them at the same time.

    With ``follow_references`` each search goes on as mode "recursive" does, on a trail of its own. What the
    budget is not certain to allow waits for the others, so that it does not matter which is there first.
    Where nothing was found, the model is not asked. Returns also whether the budget allowed all answers.
    """
    tools, limit = trail.tools, config.max_sub_answer_tokens
    queries = [sub_question.with_answers(answers) for sub_question in wave]
    paths = [f"sub-question {sub_question.number}" for sub_question in wave]
    trails = [Trail(tools, config.max_documents, f"{path}/") for path in paths]
    k = config.k if config.follow_references else config.k_per_step  # each is then a question of "recursive"
    await gather(
        search_for(query, own, k, "sub_question", config) for query, own in zip(queries, trails, strict=True)
    )
    # A long prompt loses the worst passages first: those that references led to, then the search's own.
    template, words = config.prompt("sub_answer"), config.max_shown_words
    prompts = [
        template.render(
            {"query": query, "paragraphs": render_passages(own.passages, template, words, goes_first="last")}
        )
        for query, own in zip(queries, trails, strict=True)
    ]

    async def sub_answer(index: int, branch: Tools) -> tuple[int, str]:
        reply = await branch.generate(prompts[index], role="sub_answer", max_tokens=limit, path=paths[index])
        answer = extract_answer(reply.text)
        return index, "" if says_none(answer) else answer

    waiting = [index for index, own in enumerate(trails) if own.passages]
    replies = dict(
        await tools.fan_out_certain(waiting, sub_answer, lambda index: tools.cost(prompts[index], limit))
    )
    for own in trails:
        trail.join(own)
    findings = [
        AnsweredSubQuestion(sub_question.number, query, replies.get(index, ""))
        for index, (sub_question, query) in enumerate(zip(wave, queries, strict=True))
    ]
    return findings, len(replies) == len(waiting)


async def search_for(query: str, trail: Trail, k: int, why: Why, config: RecursiveConfig) -> None:
    """Search for a sub-question and, if that is wanted, for what the passages refer to."""
    if config.follow_references:
        await follow_references(query, trail, config, why)
    else:
        await trail.search([query], k, why)


def combine_prompt(
    question: Question,
    findings: Sequence[AnsweredSubQuestion],
    passages: Sequence[Passage],
    config: RecursiveConfig,
) -> Prompt:
    """Ask for the answer with sub-questions, their answers, and passages."""
    template = config.prompt("combine")
    items = [
        {"sub_query": each.sub_question, "sub_answer": each.sub_answer or "unknown"} for each in findings
    ]
    return template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first="first"),
            "hops": template.items("hop", items),
        }
    )
