"""Recursive RAG, after the tutorial code "Recursive Retrieval for Complex RAG Queries".

On michaeljohnpena.com, 30 October 2023. Four ways of searching more than once, and a choice between them by
words of the question. The reader at the end is the one that all methods share, but for sub-questions: a
prompt with their answers takes its place, so that a chain of thought and demonstrations have no effect.
Defaults are the tutorial's (depth 3, 10 documents, 5 references, 3 hops, 3 iterations, top 5 or 3).

Differences, and why:

- The defects of that code are mended (tests/baselines/test_recursive_defects.py has a test for each). Among
  others: no query is searched for twice (but sub-questions of "decompose" that turn out alike), replies are
  read whatever marks and case they have, passages are shown whole instead of cut at a character.
- "decompose" is a mode; there, it is a retriever that searches for each sub-question, follows references and
  answers it, but that nothing calls. References are followed here with ``follow_references``, which the
  preset "tutorial" has. In a sub-question "#1" stands for another one's answer, as in MuSiQue (Trivedi et
  al., TACL 2022); independent ones are searched for and answered at the same time.
- "multi_hop" and "self_query" do not judge after their last search, and ``max_documents`` holds in every
  mode.
- Documents that are referred to are searched for by the words of the reference; what "self_query" misses, all
  at the same time, in queries of the judgement's own reply. The preset "tutorial" has one query for the first
  gap, as there, where another call words it.
- Answers are short; a ``qa_prompt`` of yours may ask for long ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.recursive.replies import (
    Gaps,
    Plan,
    SubQuestion,
    find_references,
    parse_gaps,
    parse_plan,
)
from corag.baselines.recursive.trail import AnsweredSubQuestion, PathSearch, Reference, Trail, Why
from corag.baselines.shared import PROMPTS
from corag.core.errors import BudgetExhaustedError, ConfigError
from corag.core.gather import gather
from corag.core.method import Method
from corag.core.option_names import NameOrPath
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template, load_prompt
from corag.core.reader import ReaderConfig, generate_answer, reader_prompt
from corag.core.text import extract_answer, is_nothing
from corag.core.tools import Tools
from corag.core.types import Answer, Passage, Question
from corag.core.words import count_words

Mode = Literal["simple", "recursive", "multi_hop", "self_query", "decompose"]
PromptName = Literal["hop", "gaps", "plan", "sub_answer", "combine"]

_OF_MODES: dict[str, tuple[PromptName, ...]] = {
    "multi_hop": ("hop",),
    "self_query": ("gaps",),
    "decompose": ("plan", "sub_answer", "combine"),
    "auto": ("hop", "gaps"),
}


@dataclass(frozen=True)
class RecursiveConfig(ReaderConfig, section="recursive"):
    """Options of recursive RAG, beside those of its reader. Numbers are the tutorial's where it has any.

    Passages are shown whole unless ``max_shown_words`` is lowered. After sub-questions a prompt with their
    answers asks for the answer: ``reader`` "cot" and demonstrations have no effect then.
    """

    preset: Literal["default", "tutorial"] = "default"
    """values for the other options: "default", or "tutorial" (a judgement is followed by one search, for the
    first gap; sub-questions follow references)."""

    mode: Literal[Mode, "auto"] = "auto"
    """"simple" searches once; "recursive" follows references in passages; "multi_hop" asks after each search
    what to look for next; "self_query" asks for gaps and searches for all of them; "decompose" plans
    sub-questions and answers them in the order of their dependencies; "auto" takes one of the first four, by
    words of the question."""

    k: Annotated[int, Ge(1)] = 5
    """passages of each search of "simple" and "recursive" (also ``top_k``), and of sub-questions that follow
    references."""

    k_per_step: Annotated[int, Ge(1)] = 3
    """passages of each search of the other modes."""

    follow_references: bool = False
    """"decompose" follows references from what it finds for a sub-question, as "recursive" does for the
    question: each sub-question has its own ``max_depth`` rounds and ``max_documents``."""

    max_documents: Annotated[int, Ge(1)] = 10
    """most passages collected; further ones are refused."""

    max_depth: Annotated[int, Ge(1)] = 3
    """rounds of searches of "recursive"; the question's own search is the first."""

    max_references: Annotated[int, Ge(1)] = 5
    """references followed in each further round."""

    max_hops: Annotated[int, Ge(1)] = 3
    """searches of "multi_hop"."""

    max_iterations: Annotated[int, Ge(1)] = 3
    """rounds of searches of "self_query"."""

    max_follow_ups: Annotated[int, Ge(1)] = 3
    """searches in each further round of "self_query"."""

    max_sub_questions: Annotated[int, Ge(1)] = 5
    """sub-questions of "decompose"; further ones are ignored, and counted as malformed lines."""

    max_step_tokens: Annotated[int, Ge(1)] = 256
    """most tokens of a judgement or a plan."""

    max_sub_answer_tokens: Annotated[int, Ge(1)] = 64
    """most tokens of a sub-answer."""

    max_shown_words: Annotated[int, Ge(1)] = 100_000  # in effect no limit: a cut may take the line that tells
    plan_prompt: NameOrPath = "recursive_plan"
    """asks for sub-questions: a shipped name, a file, or a text with {query} and {limit}."""

    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {"top_k": "k"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "tutorial": {"max_follow_ups": 1, "follow_references": True},
    }

    def __post_init__(self) -> None:
        if self.reader == "none":
            raise ConfigError("recursive has no answer of its own to give: set reader to 'direct' or 'cot'.")

    def prompt(self, name: PromptName) -> Template:
        """Load one of the prompts."""
        shipped_name = f"recursive_{name}"
        return load_prompt(self.plan_prompt if name == "plan" else shipped_name, shipped_name, PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that the mode may use."""
        return (*map(self.prompt, _OF_MODES.get(self.mode, ())), *super().templates())


@dataclass(frozen=True, slots=True)
class RecursiveAnswer(Answer):
    """Recursive RAG's result.

    Attributes:
        steps: rounds of searches.
        stopped: "read" (mode simple), "max_depth", "max_documents", "no_references", "sufficient",
            "max_steps", "no_query" (something is missing, but nothing is named to search for),
            "repeated_query" (only what was searched before), "malformed" (a judgement or a plan that cannot
            be read), "unknown_reference" or "cycle" (a plan that cannot be followed; after a refused plan the
            question is searched for as it stands), "plan" (all sub-questions were asked) or "budget".
        mode: the one that was taken.
        findings: sub-questions with their answers.
        malformed: replies, and lines of a plan, that could not be read.
        retrieval_path: every search, with what it was for and what it was the first to find. This name and
            the next three are the tutorial's.
        references_found: where references are followed, which passage gave which, by what words, and whether
            it was searched for.
        depth: the deepest round of searches; each sub-question begins at 1.
        context_length: characters of all collected passages, titles and texts, before anything is left out.
    """

    mode: str = ""
    findings: tuple[AnsweredSubQuestion, ...] = ()
    malformed: int = 0
    retrieval_path: tuple[PathSearch, ...] = ()
    references_found: tuple[Reference, ...] = ()
    depth: int = 0
    context_length: int = 0


async def recursive(question: Question, tools: Tools, config: RecursiveConfig) -> RecursiveAnswer:
    """Answer one question: choose a mode, search by it, read what was found."""
    trail = Trail(tools, config.max_documents)

    # 1. Choose how to search.
    mode = mode_by_words(question.text) if config.mode == "auto" else config.mode

    # 2. Search, in rounds, until there is enough or no more.
    match mode:
        case "simple":
            await trail.search([question.text], config.k, "question")
            stop_reason = "read"
        case "recursive":
            stop_reason = await follow_references(question.text, trail, config)
        case "multi_hop" | "self_query":
            stop_reason = await search_in_rounds(mode, question, trail, config)
        case "decompose":
            stop_reason = await answer_sub_questions(question, trail, config)

    # 3. Read what was found.
    answer, is_affordable = await final_answer(question, trail, config)
    return RecursiveAnswer(
        text=answer,
        passage_ids=tuple(passage.id for passage in trail.passages),
        steps=trail.steps,
        stopped=stop_reason if is_affordable else "budget",
        mode=mode,
        findings=tuple(trail.findings),
        malformed=trail.malformed,
        retrieval_path=tuple(trail.path),
        references_found=tuple(trail.references),
        depth=max((search.depth for search in trail.path), default=0),
        context_length=sum(len(passage.contents) for passage in trail.passages),
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


async def follow_references(
    query: str, trail: Trail, config: RecursiveConfig, first: Why = "question"
) -> str:
    """Search for a query, then for what the new passages refer to, and so on. Return why it ended.

    A reference is searched for once, and a passage taken once, so passages that refer to each other come to
    an end. ``first``: what the query is.
    """
    queries, why = [query], first
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
    with trail.tools.reserve(final_prompt(question, trail, config), config.max_answer_tokens):
        reply = await trail.tools.generate(
            prompt, role="judge", max_tokens=config.max_step_tokens, path=f"step {trail.steps}"
        )
    return parse_gaps(prompt.prefix + reply.text)


# Sub-questions


async def answer_sub_questions(question: Question, trail: Trail, config: RecursiveConfig) -> str:
    """Plan sub-questions, then search and answer them, wave by wave. Return why it ended.

    A plan that cannot be followed is refused: the question is searched for as it stands.
    """
    tools = trail.tools
    # 1. Plan, keeping enough of the budget to read the question at least.
    try:
        with tools.reserve(reader_prompt(question, (), config), config.max_answer_tokens):
            plan = await make_plan(question, tools, config)
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
    with tools.reserve(combine_prompt(question, lines, (), config), most):
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
        return index, "" if is_nothing(answer) else answer

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


# The answer, from all that was found


async def final_answer(question: Question, trail: Trail, config: RecursiveConfig) -> tuple[str, bool]:
    """Return the answer, and whether the budget allowed all passages; where it does not, the oldest go first.

    If it is too small even without passages, the last sub-answer has to do, or an empty answer.
    """
    whole = final_prompt(question, trail, config)
    prompt = trail.tools.afford(whole, config.max_answer_tokens)
    template = config.prompt("combine") if trail.findings else config.qa_template()
    try:
        reply = await generate_answer(
            prompt, config.max_answer_tokens, trail.tools, path="end", is_answer=template.whole
        )
    except BudgetExhaustedError:
        answers = [finding.sub_answer for finding in trail.findings if finding.sub_answer]
        return answers[-1] if answers else "", False
    return template.read_answer(reply.text), prompt == whole


def final_prompt(question: Question, trail: Trail, config: RecursiveConfig) -> Prompt:
    """Ask the reader that all methods share; after sub-questions, ask with their answers."""
    if trail.findings:
        return combine_prompt(question, trail.findings, trail.passages, config)
    return reader_prompt(question, trail.passages, config)


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


METHOD = Method(
    recursive,
    RecursiveConfig,
    "follow references, ask what is missing, or decompose the question (a tutorial, 2023)",
    published="2023-12",
)
