"""The modes of recursive RAG that search in rounds: "recursive", "multi_hop" and "self_query".

"recursive" follows references from passage to passage, without asking the model. The other two look at the
passages after each round: "multi_hop" asks for the one thing to look for next, "self_query" for all gaps, and
searches for them at the same time. ``method`` alone imports these; they stand apart because each mode is a
loop of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from baselines.recursive.config import RecursiveConfig
from baselines.recursive.replies import Gaps, parse_gaps
from baselines.recursive.trail import Outcome, Reference, Trail, Why, final_prompt
from core.errors import BudgetExhaustedError
from core.prompting.render import render_passages
from core.sentences import first_sentence
from core.tools import Tools
from core.types import Question


async def follow_references(
    query: str, trail: Trail, tools: Tools, config: RecursiveConfig, *, k: int, first: Why = "question"
) -> str:
    """Search for a query, then for what the new passages refer to, and so on. Return why it ended.

    A reference is searched for once, and a passage taken once, so passages that refer to each other come to
    an end. ``k``: passages of each search. ``first``: what the query is.
    """
    queries, why = [query], first
    outcome: Outcome
    while True:
        passages = await trail.search(queries, k, tools, why)
        found = [(passage.id, *named) for passage in passages for named in found_references(passage.text)]
        outcomes: Sequence[Outcome] = ["max_documents"] * len(found)
        if not trail.full:
            outcomes = trail.outcomes([text for _, text, _ in found], config.max_references)
        ends = trail.steps >= config.max_depth
        queries, why = [], "reference"
        for (name, text, words), said in zip(found, outcomes, strict=True):
            if said == "followed":
                queries.append(text)
            outcome = "max_depth" if ends and said == "followed" else said
            trail.references.append(Reference(name, text, words, trail.steps, outcome))
        if trail.full:
            return "max_documents"
        if not queries:
            return "no_references"
        if ends:
            return "max_depth"


async def search_in_rounds(
    mode: Literal["multi_hop", "self_query"],
    question: Question,
    trail: Trail,
    tools: Tools,
    config: RecursiveConfig,
) -> str:
    """Search for the question, then for what the model says is missing, and so on. Return why it ended.

    The model is not asked after the last round, since nothing could follow.
    """
    rounds, limit = (
        (config.max_hops, 1) if mode == "multi_hop" else (config.max_iterations, config.max_follow_ups)
    )
    queries: list[str] = [question.text]
    why: Why = "question"
    while True:
        await trail.search(queries, config.k_per_step, tools, why)
        if trail.steps >= rounds:
            return "max_steps"
        if trail.full:
            return "max_documents"
        try:
            said = await ask_for_gaps(mode, question, trail, tools, config)
        except BudgetExhaustedError:
            return "budget"
        if said.malformed:
            trail.malformed += 1
            return "malformed"
        if said.enough:
            return "sufficient"
        # A gap is searched for in its own words where the model names no query; "multi_hop" names one by its
        # form.
        why = "next_query" if mode == "multi_hop" else "follow_up"
        wanted = said.queries if mode == "multi_hop" else said.queries or said.gaps
        if not wanted:
            return "no_query"
        queries = trail.fresh(wanted, limit)
        if not queries:
            return "repeated_query"


async def ask_for_gaps(
    mode: Literal["multi_hop", "self_query"],
    question: Question,
    trail: Trail,
    tools: Tools,
    config: RecursiveConfig,
) -> Gaps:
    """Ask whether the passages are enough, and what is missing."""
    template = config.prompt("hop" if mode == "multi_hop" else "gaps")
    passages = trail.shown(tools.count_tokens)
    prompt = template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(
                passages, template, config.max_shown_words, goes_first=config.goes_first
            ),
            "hops": template.items("hop", [{"sub_query": query} for query in trail.queries]),
            "limit": str(config.max_follow_ups),
        }
    )
    with tools.hold_back(final_prompt(question, trail, tools, config), config.max_answer_tokens):
        reply = await tools.generate(
            prompt, role="judge", max_tokens=config.max_step_tokens, path=f"step {trail.steps}"
        )
    return parse_gaps(prompt.prefix + reply.text)


# What passages refer to

# Markdown, not images; an address may hold one pair of brackets, as Wikipedia's do.
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]\n]+)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s[^()]*)?\)")
_PHRASE = re.compile(
    r"\b(?:for (?:more |further )?(?:information|details?),?\s+(?:please\s+)?(?:see|read)(?:\s+also)?"
    r"|see also|refer(?:s|ring)?\s+to|as described in)\b\s*:?\s*",
    re.IGNORECASE,
)
_BREAK = re.compile(r"[;\n]")
_SHORTEST = 4  # characters; the tutorial drops references of three or less


def found_references(text: str) -> list[tuple[str, str]]:
    """Return what a text refers to, in order of appearance, without repeats.

    That is what follows "see also", "refer to", "as described in" or "for more information see" up to the end
    of the sentence, and the texts of Markdown links; where links follow such words, they alone count. Less
    than four characters is no reference. Each comes with the words that make it one, or "link".

    >>> found_references("A ([film](f.md)). See also Mara Velden. For details, see the list of U.S. towns.")
    [('film', 'link'), ('Mara Velden', 'see also'), ('the list of U.S. towns', 'for details, see')]
    """
    found = [(link.start(), link["text"], "link") for link in _LINK.finditer(text)]
    for phrase in _PHRASE.finditer(text):
        named = first_sentence(_BREAK.split(text[phrase.end() :], maxsplit=1)[0])
        if not _LINK.search(named):
            found.append((phrase.start(), named, " ".join(phrase[0].lower().split()).rstrip(" :")))
    cleaned: dict[str, str] = {}
    for _, reference, words in sorted(found):
        cleaned.setdefault(" ".join(reference.split()).strip(" *_`\"'“”:,").rstrip(".!?"), words)
    return [(reference, words) for reference, words in cleaned.items() if len(reference) >= _SHORTEST]
