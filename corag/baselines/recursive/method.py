"""Recursive RAG, after the tutorial code "Recursive Retrieval for Complex RAG Queries".

On michaeljohnpena.com, 30 October 2023. Four ways of searching more than once, and a choice between them by
words of the question. The reader at the end is the one that all methods share. Defaults are the tutorial's
(depth 3, 10 documents, 5 references, 3 hops, 3 iterations, top 5 or 3).

Differences, and why:

- The defects of that code are mended (tests/baselines/test_recursive_defects.py). Among others: no query is
  searched for twice, replies are read whatever marks and case they have, passages are shown whole instead of
  cut at a character.
- "multi_hop" and "self_query" do not judge after their last search, and ``max_documents`` holds in every
  mode.
- Documents that are referred to are searched for by the words of the reference; what "self_query" misses, all
  at the same time, in queries of the judgement's own reply. The preset "tutorial" has one query for the first
  gap, as there, where another call words it.
- Answers are short; a ``qa_prompt`` of yours may ask for long ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from corag.baselines.recursive.config import Mode, RecursiveConfig
from corag.baselines.recursive.rounds import follow_references, search_in_rounds
from corag.baselines.recursive.trail import PathSearch, Reference, Trail
from corag.core.language.words import count_words
from corag.core.method import Method
from corag.core.reader import read_once
from corag.core.tools import Tools
from corag.core.types import Question, ReadAnswer


@dataclass(frozen=True, slots=True)
class RecursiveAnswer(ReadAnswer):
    """Recursive RAG's result.

    Attributes:
        steps: rounds of searches.
        stopped: "read" (mode simple), "max_depth", "max_documents", "no_references", "sufficient",
            "max_steps", "no_query" (something is missing, but nothing is named to search for),
            "repeated_query" (only what was searched before), "malformed" (a judgement that cannot be read) or
            "budget".
        mode: the one that was taken.
        malformed: replies that could not be read.
        retrieval_path: every search, with what it was for and what it was the first to find. This name and
            the next three are the tutorial's.
        references_found: where references are followed, which passage gave which, by what words, and whether
            it was searched for.
        depth: the deepest round of searches.
        context_length: characters of all collected passages, titles and texts, before anything is left out.
    """

    mode: str = ""
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

    # 3. Read what was found.
    answer = await read_once(question, trail.passages, tools, config)
    return RecursiveAnswer(
        text=answer.text,
        passage_ids=tuple(passage.id for passage in trail.passages),
        steps=trail.steps,
        stopped=stop_reason if answer.stopped == "read" else "budget",
        context_ids=answer.shown_ids,
        mode=mode,
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


METHOD = Method(
    recursive,
    RecursiveConfig,
    "follow references, or ask what is missing (a tutorial, 2023)",
    published="2023-12",
)
