"""Search-o1's texts: queries and results between tags, the answer in a box, and what the reader of documents
sees and says.
"""

from __future__ import annotations

import re

from core.text import extract_answer

BEGIN_QUERY, END_QUERY = "<|begin_search_query|>", "<|end_search_query|>"
BEGIN_RESULT, END_RESULT = "<|begin_search_result|>", "<|end_search_result|>"
# inserted, in the released code too, when the documents do not help
NOTHING_HELPFUL = "No helpful information found."
REPEATED = "This query has been searched before: see the result above."
LIMIT_REACHED = "No more searches are allowed: go on with what is known."
_HEADER = re.compile(r"final information[*_: \t]*", re.IGNORECASE)
BOX = r"\boxed{"
_WRAPPED = re.compile(r"\s*\\(?:text|textbf|mathrm|mbox)\{(.*)\}\s*", re.DOTALL)


def asked_query(turn: str) -> str | None:
    """Return the query that a turn ends with, None without one.

    The tag that closes it is where generation stopped.

    A query of several lines is returned as "": it was never closed, and the reasoning went on after it.

    >>> asked_query("I need the author. <|begin_search_query|> author of Emma ")
    'author of Emma'
    """
    _, tag, query = turn.rpartition(BEGIN_QUERY)
    query = query.strip()
    return None if not tag else "" if "\n" in query else query


def inserted(result: str) -> str:
    """Write a search result, or a note in its place, as it goes on with the reasoning."""
    return f"\n\n{BEGIN_RESULT}{result}{END_RESULT}\n\n"


def boxed(text: str) -> str:
    r"""Return what the last non-empty ``\boxed{...}`` holds, "" if there is none.

    Braces are paired; a box that is never closed reaches to the end of its line. A ``\text{...}`` around the
    content goes.

    >>> boxed(r"So \boxed{A_{1}} or rather \boxed{\text{Issel}}. \boxed{}")
    'Issel'
    """
    start = len(text)
    while (start := text.rfind(BOX, 0, start)) >= 0:
        content = _closed(text[start + len(BOX) :])
        if wrapped := _WRAPPED.fullmatch(content):
            content = wrapped[1]
        if content.strip():
            return content.strip()
    return ""


def forced(reply: str) -> str:
    r"""Return the answer of a reply whose box was opened for the model.

    >>> forced(r"\text{Issel}} is the river.")
    'Issel'
    """
    return extract_answer(boxed(BOX + reply))


def _closed(text: str) -> str:
    """Return the text up to the brace that closes what was open before it."""
    depth = 1
    for place, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if not depth:
            return text[:place]
    return text.split("\n", 1)[0]


def refined(reply: str) -> str:
    r"""Return what a reader of documents puts under its last "Final Information" header, in one paragraph.

    >>> refined("The first page says so.\n**Final Information**\nEmma is by\nJane Austen.")
    'Emma is by Jane Austen.'
    """
    headers = list(_HEADER.finditer(reply))
    found = " ".join(reply[headers[-1].end() :].strip("` \n").split()) if headers else ""
    return found or NOTHING_HELPFUL


def outlined(reasoning: str) -> str:
    r"""Number the lines of a reasoning and keep the first, the last four, and those with a query or a result.

    "..." for others.

    >>> outlined("a\n\nb\nc\nd\ne\nf")
    'Step 1: a\n\n...\n\nStep 3: c\n\nStep 4: d\n\nStep 5: e\n\nStep 6: f'
    """
    lines = [line for line in reasoning.split("\n") if line.strip()]
    kept: list[str] = []
    for number, line in enumerate(lines, 1):
        if number == 1 or number > len(lines) - 4 or BEGIN_QUERY in line or BEGIN_RESULT in line:
            kept.append(f"Step {number}: {line.strip()}")
        elif kept[-1] != "...":
            kept.append("...")
    return "\n\n".join(kept)
