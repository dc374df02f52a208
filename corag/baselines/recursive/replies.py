"""Reading what the model replies to recursive RAG's prompts, and what passages refer to.

Models put bullets, bold type and headings around the labels that they are asked for, so these are read
wherever they stand in a line. The tutorial reads them at the start of a line only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from corag.core.language.sentences import first_sentence
from corag.core.language.text import normalize_answer, says_none

MARKS = r"[\s>*_`#•·–-]*"  # bullets, quotations, bold type and headings before a label, or around its colon


def clean(value: str) -> str:
    """Take off white space, marks and one pair of quotation marks around a value."""
    value = value.strip().strip("*_`").strip()
    has_quotes = len(value) >= 2 and value[0] + value[-1] in ('""', "''", "“”")
    return value[1:-1].strip() if has_quotes else value


# A judgement of what was found

_LABELS = {
    "enough": r"answerable|sufficient",
    "gap": r"missing|gaps?",
    "query": r"next[ _-]?quer(?:y|ies)|follow[ _-]?ups?(?:[ _-]?quer(?:y|ies))?",
}
_ANY_LABEL = "|".join(f"(?P<{name}>{pattern})" for name, pattern in _LABELS.items())
_LINE = re.compile(
    rf"^{MARKS}(?:\d+[.)]{MARKS})?(?:{_ANY_LABEL})[ _-]*\d*{MARKS}[:=](?P<value>.*)$", re.IGNORECASE
)
# Upper case only: "missing:" within a sentence is a word.
_LABEL_WITHIN_A_LINE = re.compile(
    r"\s+(?=(?:ANSWERABLE|MISSING|NEXT_QUERY|SUFFICIENT|GAPS?|FOLLOW_UP)\s*\d*\s*:)"
)
_ITEM = re.compile(r"^\s*(?:[-*•·–]|\d+[.)])\s+(?P<value>.*)$")
# What is sufficient in part is not sufficient.
_YES_OR_NO = re.compile(r"\W*(?:(?P<yes>yes|true)|no|not|false|partly|partially)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the model says about the passages, as far as it could be read.

    ``enough``: None if it says neither yes nor no.
    """

    enough: bool | None = None
    gaps: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()


def parse_gaps(reply: str) -> Gaps:
    r"""Read a judgement: labels in any case, bulleted, bold, or several in a line; a list may follow one.

    Yes or no is the first word after the label. Items are separated by lines or semicolons, never by commas,
    which stand in names ("Paris, Texas").

    >>> parse_gaps("- **Sufficient:** no\nGAPS:\n- people of Paris, Texas\nFOLLOW_UP: none")
    Gaps(enough=False, gaps=('people of Paris, Texas',), queries=())
    """
    pairs: list[tuple[str, str]] = []
    for line in _LABEL_WITHIN_A_LINE.sub("\n", reply).splitlines():
        if match := _LINE.match(line):
            pairs.append((next(name for name in _LABELS if match[name]), clean(match["value"])))
        elif pairs and line.strip():
            item = _ITEM.match(line)
            # An item of the list under a label, or the value that its line lacked.
            if item or not pairs[-1][1]:
                pairs.append((pairs[-1][0], clean(item["value"] if item else line)))
    flags = [says_yes(value) for name, value in pairs if name == "enough"]
    return Gaps(
        next((word for word in flags if word is not None), None),
        _items(pairs, "gap"),
        _items(pairs, "query"),
    )


def _items(pairs: Sequence[tuple[str, str]], label: str) -> tuple[str, ...]:
    items = [clean(item) for name, value in pairs if name == label for item in value.split(";")]
    return tuple(item for item in items if not says_none(item) and normalize_answer(item) != "no")


def says_yes(value: str) -> bool | None:
    """Return whether a value begins with yes, None if it begins with neither yes nor no."""
    match = _YES_OR_NO.match(value)
    return None if match is None else match["yes"] is not None


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


def find_references(text: str) -> list[tuple[str, str]]:
    """Return what a text refers to, in order of appearance, without repeats.

    That is what follows "see also", "refer to", "as described in" or "for more information see" up to the end
    of the sentence, and the texts of Markdown links; where links follow such words, they alone count. Less
    than four characters is no reference. Each comes with the words that make it one, or "link".

    >>> find_references("A ([film](f.md)). See also Mara Velden. For details, see the list of U.S. towns.")
    [('film', 'link'), ('Mara Velden', 'see also'), ('the list of U.S. towns', 'for details, see')]
    """
    references = [(link.start(), link["text"], "link") for link in _LINK.finditer(text)]
    for phrase in _PHRASE.finditer(text):
        phrase_text = first_sentence(_BREAK.split(text[phrase.end() :], maxsplit=1)[0])
        if not _LINK.search(phrase_text):
            references.append((phrase.start(), phrase_text, " ".join(phrase[0].lower().split()).rstrip(" :")))
    references_by_text: dict[str, str] = {}
    for _, reference, words in sorted(references):
        references_by_text.setdefault(" ".join(reference.split()).strip(" *_`\"'“”:,").rstrip(".!?"), words)
    return [
        (reference, words) for reference, words in references_by_text.items() if len(reference) >= _SHORTEST
    ]
