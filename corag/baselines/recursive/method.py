"""Recursive RAG, after the tutorial code "Recursive Retrieval for Complex RAG Queries".

On michaeljohnpena.com, 30 October 2023. Four ways of searching more than once, and a choice between them. The
reader at the end is the one that all methods share, but for sub-questions: a prompt with their answers takes
its place, so that a chain of thought and demonstrations have no effect. Defaults are the tutorial's (depth 3,
10 documents, 5 references, 3 hops, 3 iterations, top 5 or 3).

Differences, and why:

- The defects of that code are mended (tests/baselines/test_recursive_defects.py has a test for each). Among
  others: no query is searched for twice (but sub-questions of "decompose" that turn out alike), replies are
  read whatever marks and case they have, passages are shown whole instead of cut at a character.
- "auto" asks the model which mode to take; the tutorial's rule by words of the question is
  ``choose_by="words"``.
- "decompose" is a mode; there, it is a retriever that searches for each sub-question, follows references and
  answers it, but that nothing calls. References are followed here with ``follow_references``, which the
  preset "tutorial" has. In a sub-question "#1" stands for another one's answer, as in MuSiQue (Trivedi et
  al., TACL 2022); independent ones are searched for and answered at the same time.
- "multi_hop" and "self_query" do not judge after their last search, and ``max_documents`` holds in every
  mode.
- Documents that are referred to are searched for by the words of the reference; what "self_query" misses, all
  at the same time, in queries of the judgement's own reply. The preset "tutorial" has one query for the first
  gap, as there, where another call words it.
- Prompts show the newest passages where not all may be shown, and the answer is short; the preset "tutorial"
  keeps the earliest, as the tutorial's cuts do, and all of a long answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from corag.baselines.recursive.config import DEFAULT_MODE, Mode, RecursiveConfig
from corag.baselines.recursive.final_answer import (
    combine_prompt,
    final_answer,
    final_prompt,
    short_answer,
)
from corag.baselines.recursive.replies import (
    Gaps,
    Plan,
    SubQuestion,
    find_references,
    parse_gaps,
    parse_mode,
    parse_plan,
)
from corag.baselines.recursive.trail import AnsweredSubQuestion, Outcome, PathSearch, Reference, Trail, Why
from corag.core.errors import BudgetExhaustedError
from corag.core.gather import gather
from corag.core.method import Method
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.render import render_passages
from corag.core.reader import reader_prompt
from corag.core.text import is_nothing
from corag.core.tools import Tools
from corag.core.types import Answer, Passage, Question
from corag.core.words import count_words


@dataclass(frozen=True, slots=True)
class RecursiveAnswer(Answer):
    """Recursive RAG's result.

    Attributes:
        steps: rounds of searches.
        stopped: "read" (mode simple), "max_depth", "max_documents", "no_references", "sufficient",
            "max_steps", "no_query" (something is missing, but nothing is named to search for),
            "repeated_query" (only what was searched before), "malformed" (a judgement that cannot be read),
            "plan" (all sub-questions were asked), "fallback" (the plan was refused) or "budget".
        mode: the one that was taken.
        queries: all that was searched for.
        findings: sub-questions with their answers.
        plan_problem: why a plan was refused, "malformed", "unknown_reference" or "cycle".
        malformed: replies, and lines of a plan, that could not be read.
        fallbacks: times that mode "simple" or the bare question was taken instead.
        repeats: queries dropped as repeats.
        left_out: collected passages that the final prompt did not show, for the sake of ``context_tokens``,
            the budget or the window.
        retrieval_path: every search, with what it was for and what it was the first to find. This name and
            the next three are the tutorial's.
        references_found: where references are followed, which passage gave which, by what words, and what
            became of it.
        depth: the deepest round of searches; each sub-question begins at 1.
        context_length: characters of all collected passages, titles and texts, before anything is left out.
        note: which part of the reply the text is; "" if it is all of it, or what it states as the answer.
    """

    mode: str = ""
    queries: tuple[str, ...] = ()
    findings: tuple[AnsweredSubQuestion, ...] = ()
    plan_problem: str = ""
    malformed: int = 0
    fallbacks: int = 0
    repeats: int = 0
    left_out: int = 0
    retrieval_path: tuple[PathSearch, ...] = ()
    references_found: tuple[Reference, ...] = ()
    depth: int = 0
    context_length: int = 0
    note: str = ""


async def recursive(question: Question, tools: Tools, config: RecursiveConfig) -> RecursiveAnswer:
    """Answer one question: choose a mode, search by it, read what was found."""
    trail = Trail(tools, config)

    # 1. Choose how to search.
    mode = await choose_mode(question, trail) if config.mode == "auto" else config.mode

    # 2. Search, in rounds, until there is enough or no more.
    match mode:
        case "simple":
            await trail.search([question.text], config.k, "question")
            stop_reason = "read"
        case "recursive":
            stop_reason = await follow_references(question.text, trail, k=config.k)
        case "multi_hop" | "self_query":
            stop_reason = await search_in_rounds(mode, question, trail)
        case "decompose":
            stop_reason = await answer_sub_questions(question, trail)

    # 3. Read what was found.
    reading = await final_answer(question, trail)
    return RecursiveAnswer(
        text=reading.text,
        passage_ids=tuple(passage.id for passage in trail.passages),
        steps=trail.steps,
        stopped=stop_reason if reading.affordable else "budget",
        mode=mode,
        queries=tuple(trail.queries),
        findings=tuple(trail.findings),
        plan_problem=trail.plan_problem,
        malformed=trail.malformed,
        fallbacks=trail.fallbacks,
        repeats=trail.repeats,
        left_out=reading.left_out,
        retrieval_path=tuple(trail.path),
        references_found=tuple(trail.references),
        depth=trail.depth,
        context_length=sum(len(passage.contents) for passage in trail.passages),
        note=reading.note,
    )


# Choosing the mode

# The tutorial's rule. Its "how does ... affect" never fires, for it compares capitals with a lower-cased
# question.
_CHAIN_WORDS = re.compile(
    r"\brelationship between\b|\bcompar(?:e|es|ed|ing|ison)\b|\bwhat led to\b"
    r"|\bhow (?:does|do|did) .+ affect\b",
    re.I,
)
_LONG = 20  # words
_QUESTION_MARK = re.compile("[?？؟]")
_CHOICE_TOKENS = 16  # ours: a mode's name, and a word or two before it


async def choose_mode(question: Question, trail: Trail) -> Mode:
    """Return the mode for a question; a choice that cannot be read, or afforded, is the default."""
    config, tools = trail.config, trail.tools
    if config.choose_by == "words":
        return mode_by_words(question.text)
    prompt = config.prompt("mode").render({"query": question.text})
    try:
        with tools.reserve(final_prompt(question, trail), config.max_answer_tokens):
            reply = await tools.generate(prompt, role="mode", max_tokens=_CHOICE_TOKENS, path="mode")
    except BudgetExhaustedError:
        trail.fallbacks += 1
        return DEFAULT_MODE
    mode = parse_mode(reply.text)
    if mode is None:
        trail.malformed += 1
        trail.fallbacks += 1
    return mode or DEFAULT_MODE


def mode_by_words(text: str) -> Mode:
    """Choose as the tutorial does: phrases of comparison or cause, over 20 words, more than one "?".

    >>> mode_by_words("How does Rainfall affect Wheat?")
    'multi_hop'
    """
    if _CHAIN_WORDS.search(text):
        return "multi_hop"
    if count_words(text) > _LONG:
        return "recursive"
    return "self_query" if len(_QUESTION_MARK.findall(text)) > 1 else "simple"


# Searching in rounds: following references, or asking the model what is missing


async def follow_references(query: str, trail: Trail, *, k: int, first: Why = "question") -> str:
    """Search for a query, then for what the new passages refer to, and so on. Return why it ended.

    A reference is searched for once, and a passage taken once, so passages that refer to each other come to
    an end. ``k``: passages of each search. ``first``: what the query is.
    """
    queries, why = [query], first
    while True:
        passages = await trail.search(queries, k, why)
        references = [(passage.id, *pair) for passage in passages for pair in find_references(passage.text)]
        outcomes: Sequence[Outcome] = ["max_documents"] * len(references)
        if not trail.full:
            outcomes = trail.outcomes([text for _, text, _ in references], trail.config.max_references)
        ends = trail.steps >= trail.config.max_depth
        queries, why = [], "reference"
        for (name, text, words), outcome in zip(references, outcomes, strict=True):
            if outcome == "followed":
                queries.append(text)
            what_became: Outcome = "max_depth" if ends and outcome == "followed" else outcome
            trail.references.append(Reference(name, text, words, trail.steps, what_became))
        if trail.full:
            return "max_documents"
        if not queries:
            return "no_references"
        if ends:
            return "max_depth"


async def search_in_rounds(mode: Literal["multi_hop", "self_query"], question: Question, trail: Trail) -> str:
    """Search for the question, then for what the model says is missing, and so on. Return why it ended.

    The model is not asked after the last round, since nothing could follow.
    """
    config = trail.config
    rounds, limit = (
        (config.max_hops, 1) if mode == "multi_hop" else (config.max_iterations, config.max_follow_ups)
    )
    queries: list[str] = [question.text]
    why: Why = "question"
    while True:
        await trail.search(queries, config.k_per_step, why)
        if trail.steps >= rounds:
            return "max_steps"
        if trail.full:
            return "max_documents"
        try:
            judgement = await ask_for_gaps(mode, question, trail)
        except BudgetExhaustedError:
            return "budget"
        if judgement.malformed:
            trail.malformed += 1
            return "malformed"
        if judgement.enough:
            return "sufficient"
        # A gap is searched for in its own words where the model names no query; "multi_hop" names one by its
        # form.
        why = "next_query" if mode == "multi_hop" else "follow_up"
        next_queries = judgement.queries if mode == "multi_hop" else judgement.queries or judgement.gaps
        if not next_queries:
            return "no_query"
        queries = trail.fresh(next_queries, limit)
        if not queries:
            return "repeated_query"


async def ask_for_gaps(mode: Literal["multi_hop", "self_query"], question: Question, trail: Trail) -> Gaps:
    """Ask whether the passages are enough, and what is missing."""
    config, tools = trail.config, trail.tools
    template = config.prompt("hop" if mode == "multi_hop" else "gaps")
    prompt = template.render(
        {
            "query": question.text,
            "paragraphs": trail.render(template, trail.prompt_passages()),
            "hops": template.items("hop", [{"sub_query": query} for query in trail.queries]),
            "limit": str(config.max_follow_ups),
        }
    )
    with tools.reserve(final_prompt(question, trail), config.max_answer_tokens):
        reply = await tools.generate(
            prompt, role="judge", max_tokens=config.max_step_tokens, path=f"step {trail.steps}"
        )
    return parse_gaps(prompt.prefix + reply.text)


# Sub-questions


async def answer_sub_questions(question: Question, trail: Trail) -> str:
    """Plan sub-questions, then search and answer them, wave by wave. Return why it ended.

    A plan that cannot be followed is refused: the question is searched for as it stands.
    """
    config, tools = trail.config, trail.tools
    # 1. Plan, keeping enough of the budget to read the question at least.
    try:
        with tools.reserve(reader_prompt(question, (), config), config.max_answer_tokens):
            plan = await make_plan(question, tools, config)
    except BudgetExhaustedError:
        await trail.search([question.text], config.k, "question")
        return "budget"
    trail.malformed += plan.ignored + (plan.problem == "malformed")
    if plan.problem:
        trail.plan_problem = plan.problem
        trail.fallbacks += 1
        await search_for(question.text, trail, k=config.k, why="question")
        return "fallback"

    # 2. Answer wave by wave, keeping what the final answer will cost without passages, about: each sub-answer
    #    stands in its own line of that prompt, and in other sub-questions.
    lines = [AnsweredSubQuestion(each.number, each.text, "", "") for each in plan.sub_questions]
    most = config.max_answer_tokens + 2 * len(lines) * config.max_sub_answer_tokens
    answers: dict[int, str] = {}
    with tools.reserve(combine_prompt(question, lines, (), trail), most):
        for wave in plan.waves:
            trail.steps += 1
            for finding, own_trail in await answer_wave(wave, answers, tools, config):
                trail.join(own_trail)
                trail.findings.append(finding)
                # One without an answer is known to later ones by its own words.
                answers[finding.number] = finding.sub_answer or finding.sub_question
            if any(finding.status == "budget" for finding in trail.findings):
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
    trails = [Trail(tools, config, path) for path in paths]
    k = config.k if config.follow_references else config.k_per_step  # each is then a question of "recursive"
    await gather(
        search_for(query, trail, k=k, why="sub_question")
        for query, trail in zip(queries, trails, strict=True)
    )
    prompts = [
        sub_answer_prompt(query, trail.passages, config) for query, trail in zip(queries, trails, strict=True)
    ]
    limit = config.max_sub_answer_tokens

    async def sub_answer(index: int, branch: Tools) -> tuple[int, tuple[str, str]]:
        reply = await branch.generate(prompts[index], role="sub_answer", max_tokens=limit, path=paths[index])
        answer, note = short_answer(reply.text)
        return index, ("", "") if is_nothing(answer) else (answer, note)

    waiting = [index for index, trail in enumerate(trails) if trail.passages]
    replies = dict(
        await tools.fan_out_certain(waiting, sub_answer, lambda index: tools.cost(prompts[index], limit))
    )
    findings = []
    for index, (sub_question, query, trail) in enumerate(zip(wave, queries, trails, strict=True)):
        answer, note = replies.get(index, ("", ""))
        if index in replies:
            status = "answered" if answer else "unknown"
        else:
            status = "budget" if trail.passages else "nothing_found"
        findings.append((AnsweredSubQuestion(sub_question.number, query, answer, status, note), trail))
    return findings


async def search_for(query: str, trail: Trail, *, k: int, why: Why) -> None:
    """Search for a sub-question and, if that is wanted, for what the passages refer to."""
    if trail.config.follow_references:
        await follow_references(query, trail, k=k, first=why)
    else:
        await trail.search([query], k, why)


def sub_answer_prompt(query: str, passages: Sequence[Passage], config: RecursiveConfig) -> Prompt:
    """Ask a sub-question with what was found for it; a long prompt loses the worst passages first.

    Those that references led to count as worse than what the sub-question's own search found.
    """
    template = config.prompt("sub_answer")
    paragraphs = render_passages(passages, template, config.max_shown_words, goes_first="last")
    return template.render({"query": query, "paragraphs": paragraphs})


METHOD = Method(
    recursive,
    RecursiveConfig,
    "follow references, ask what is missing, or decompose; the model chooses (a tutorial, 2023)",
    published="2023-12",
)
