"""Following references from passage to passage: recursive RAG's mode "recursive"."""

from __future__ import annotations

import re

from baselines.recursive_config import RecursiveConfig
from baselines.recursive_trail import Trail
from core.sentences import first_sentence
from core.tools import Tools
from core.types import Question

# Markdown; not images
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]\n]+)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s[^()]*)?\)")
_PHRASE = re.compile(
    r"\b(?:for (?:more |further )?(?:information|details?),?\s+(?:please\s+)?(?:see|read)(?:\s+also)?|see also"
    r"|refer(?:s|ring)?\s+to|as described in)\b\s*:?\s*",
    re.IGNORECASE,
)
_BREAK = re.compile(r"[;\n]")
_SHORTEST = 4  # characters


async def follow_references(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> str:
    """Search for the question, then for what the new passages refer to, and so on. Return why it ended.

    A reference is searched for once, and a passage taken once, so passages that refer to each other come to
    an end.
    """
    queries = [question.text]
    while True:
        passages = await trail.search(queries, config.k, tools)
        if trail.full:
            return "max_documents"
        found = [reference for passage in passages for reference in references(passage.text)]
        queries = trail.fresh(found, config.max_references)
        if not queries:
            return "no_references"
        if trail.steps >= config.max_depth:
            return "max_depth"


def references(text: str) -> list[str]:
    """Return what a text refers to, in order of appearance, without repeats.

    That is what follows "see also", "refer to", "as described in" or "for more information see" up to the end
    of the sentence, and the texts of Markdown links; where links follow such words, they alone count. Less
    than four characters is no reference.

    >>> references("It is a novel ([film](film.md)). See also Mara Velden. For details, see the list of U.S. rivers.")
    ['film', 'Mara Velden', 'the list of U.S. rivers']
    """
    found = [(link.start(), link["text"]) for link in _LINK.finditer(text)]
    for phrase in _PHRASE.finditer(text):
        named = first_sentence(_BREAK.split(text[phrase.end() :], maxsplit=1)[0])
        if not _LINK.search(named):
            found.append((phrase.start(), named))
    cleaned = [
        " ".join(reference.split()).strip(" *_`\"'“”:,").rstrip(".!?") for _, reference in sorted(found)
    ]
    return list(dict.fromkeys(reference for reference in cleaned if len(reference) >= _SHORTEST))
