"""Recursive RAG, after the tutorial code "Recursive Retrieval for Complex RAG Queries" (michaeljohnpena.com,
30 October 2023).

Four ways of searching more than once, and a choice between them; the reader at the end is the one that all
methods share, but for sub-questions: a prompt with their answers takes its place, so that a chain of thought
and demonstrations have no effect. Defaults are the tutorial's (depth 3, 10 documents, 5 references, 3 hops, 3
iterations, top 5 or 3). What differs:

- The defects of that code are mended (tests/methods/test_recursive_defects.py has a test for each). Among
  others: no query is
  searched for twice (but sub-questions of "decompose" that turn out alike), replies are read whatever marks
  and case they have, passages are shown whole instead of cut at a character.
- "auto" asks the model which mode to take; the tutorial's rule by words of the question is
  ``choose_by="words"``.
- "decompose" is a mode: there, planned sub-questions are never searched for. In a sub-question "#1" stands
  for another one's
  answer, as in MuSiQue (Trivedi et al., TACL 2022).
- "multi_hop" and "self_query" do not judge after their last search, and ``max_documents`` holds in every
  mode.
- Documents that are referred to are searched for by the words of the reference; what "self_query" misses, all
  at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from baselines.recursive_choice import choose_mode
from baselines.recursive_concluding import conclude
from baselines.recursive_config import RecursiveConfig
from baselines.recursive_parts import answer_parts
from baselines.recursive_references import follow_references
from baselines.recursive_rounds import search_in_rounds
from baselines.recursive_trail import Finding, Trail
from core.tools import Tools
from core.types import Answer, Question


@dataclass(frozen=True, slots=True)
class RecursiveAnswer(Answer):
    """Recursive RAG's result.

    ``steps``: rounds of searches. ``stopped``: "read" (mode simple), "max_depth", "max_documents",
    "no_references", "sufficient", "max_steps", "no_query" (something is missing, but nothing is named to
    search for), "repeated_query" (only what was searched before), "malformed" (a judgement that cannot be
    read), "plan" (all sub-questions were asked), "fallback" (the plan was refused) or "budget". ``mode``: the
    one that was taken. ``queries``: all that was searched for. ``findings``: sub-questions with their
    answers. ``plan_problem``: why a plan was refused, "malformed", "unknown_reference" or "cycle".
    ``malformed``: replies, and lines of a plan, that could not be read. ``fallbacks``: times that
    ``default_mode`` or the bare question was taken instead. ``repeats``: queries dropped as repeats.
    ``left_out``: collected passages that the final prompt did not show, for the sake of ``context_tokens``,
    the budget or the window.
    """

    mode: str = ""
    queries: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    plan_problem: str = ""
    malformed: int = 0
    fallbacks: int = 0
    repeats: int = 0
    left_out: int = 0


async def recursive(question: Question, tools: Tools, config: RecursiveConfig) -> RecursiveAnswer:
    """Answer one question: choose a mode, search by it, read what was found."""
    trail = Trail(config)

    # 1. Choose how to search.
    mode = await choose_mode(question, trail, tools, config) if config.mode == "auto" else config.mode

    # 2. Search, in rounds, until there is enough or no more.
    match mode:
        case "simple":
            await trail.search([question.text], config.k, tools)
            stopped = "read"
        case "recursive":
            stopped = await follow_references(question, trail, tools, config)
        case "multi_hop" | "self_query":
            stopped = await search_in_rounds(mode, question, trail, tools, config)
        case "decompose":
            stopped = await answer_parts(question, trail, tools, config)

    # 3. Read what was found.
    conclusion = await conclude(question, trail, tools, config)
    return RecursiveAnswer(
        text=conclusion.text,
        passage_ids=tuple(passage.id for passage in trail.passages),
        steps=trail.steps,
        stopped=stopped if conclusion.affordable else "budget",
        mode=mode,
        queries=tuple(trail.queries),
        findings=tuple(trail.findings),
        plan_problem=trail.plan_problem,
        malformed=trail.malformed,
        fallbacks=trail.fallbacks,
        repeats=trail.repeats,
        left_out=conclusion.left_out,
    )
