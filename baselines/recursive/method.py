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
from dataclasses import dataclass

from baselines.recursive.config import Mode, RecursiveConfig
from baselines.recursive.replies import parse_mode
from baselines.recursive.rounds import follow_references, search_in_rounds
from baselines.recursive.sub_questions import answer_sub_questions
from baselines.recursive.trail import (
    AnsweredSubQuestion,
    Reference,
    Searched,
    Trail,
    final_answer,
    final_prompt,
)
from core.errors import BudgetExhaustedError
from core.tools import Tools
from core.types import Answer, Question


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
        fallbacks: times that ``default_mode`` or the bare question was taken instead.
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
    retrieval_path: tuple[Searched, ...] = ()
    references_found: tuple[Reference, ...] = ()
    depth: int = 0
    context_length: int = 0
    note: str = ""


async def recursive(question: Question, tools: Tools, config: RecursiveConfig) -> RecursiveAnswer:
    """Answer one question: choose a mode, search by it, read what was found."""
    trail = Trail(config)

    # 1. Choose how to search.
    mode = await choose_mode(question, trail, tools, config) if config.mode == "auto" else config.mode

    # 2. Search, in rounds, until there is enough or no more.
    match mode:
        case "simple":
            await trail.search([question.text], config.k, tools, "question")
            stopped = "read"
        case "recursive":
            stopped = await follow_references(question.text, trail, tools, config, k=config.k)
        case "multi_hop" | "self_query":
            stopped = await search_in_rounds(mode, question, trail, tools, config)
        case "decompose":
            stopped = await answer_sub_questions(question, trail, tools, config)

    # 3. Read what was found.
    reading = await final_answer(question, trail, tools, config)
    return RecursiveAnswer(
        text=reading.text,
        passage_ids=tuple(passage.id for passage in trail.passages),
        steps=trail.steps,
        stopped=stopped if reading.affordable else "budget",
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
_CHAINED = re.compile(
    r"\brelationship between\b|\bcompar(?:e|es|ed|ing|ison)\b|\bwhat led to\b"
    r"|\bhow (?:does|do|did) .+ affect\b",
    re.I,
)
_LONG = 20  # words
_CHOICE_TOKENS = 16  # ours: a mode's name, and a word or two before it


async def choose_mode(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> Mode:
    """Return the mode for a question; a choice that cannot be read, or afforded, is ``default_mode``."""
    if config.choose_by == "words":
        return mode_by_words(question.text)
    prompt = config.prompt("mode").render({"query": question.text})
    try:
        with tools.hold_back(final_prompt(question, trail, tools, config), config.max_answer_tokens):
            reply = await tools.generate(prompt, role="mode", max_tokens=_CHOICE_TOKENS, path="mode")
    except BudgetExhaustedError:
        trail.fallbacks += 1
        return config.default_mode
    mode = parse_mode(reply.text)
    if mode is None:
        trail.malformed += 1
        trail.fallbacks += 1
    return mode or config.default_mode


def mode_by_words(text: str) -> Mode:
    """Choose as the tutorial does: phrases of comparison or cause, over 20 words, more than one "?".

    >>> mode_by_words("How does Rainfall affect Wheat?")
    'multi_hop'
    """
    if _CHAINED.search(text):
        return "multi_hop"
    if len(text.split()) > _LONG:
        return "recursive"
    return "self_query" if text.count("?") > 1 else "simple"
