"""Reading what the model replied to recursive RAG's prompts: labelled lines, with the marks that models put
around them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.text import is_nothing, normalize_answer

MARKS = r"[\s>*_`#•·–-]*"  # bullets, quotations, bold type and headings before a label, or around its colon

_LABELS = {
    "enough": r"answerable|sufficient",
    "gap": r"missing|gaps?",
    "query": r"next[ _-]?quer(?:y|ies)|follow[ _-]?ups?(?:[ _-]?quer(?:y|ies))?",
}
_ANY_LABEL = "|".join(f"(?P<{name}>{pattern})" for name, pattern in _LABELS.items())
_LINE = re.compile(
    rf"^{MARKS}(?:\d+[.)]{MARKS})?(?:{_ANY_LABEL})[ _-]*\d*{MARKS}[:=](?P<value>.*)$", re.IGNORECASE
)
_WITHIN_A_LINE = re.compile(r"\s+(?=(?:ANSWERABLE|MISSING|NEXT_QUERY|SUFFICIENT|GAPS?|FOLLOW_UP)\s*\d*\s*:)")
_ITEM = re.compile(r"^\s*(?:[-*•·–]|\d+[.)])\s+(?P<value>.*)$")
_YES_OR_NO = re.compile(r"\W*(?:(?P<yes>yes|true)|no|not|false|partly|partially)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the model says about the passages. ``enough``: None if it says neither yes nor no."""

    enough: bool | None
    gaps: tuple[str, ...]
    queries: tuple[str, ...]

    @property
    def malformed(self) -> bool:
        """Whether nothing could be read."""
        return self.enough is None and not self.gaps and not self.queries


def parse_verdict(reply: str) -> Verdict:
    r"""Read a judgement: labels in any case, bulleted, bold, or several in a line.

    A list may follow its label.

    Yes or no is the first word after the label. Items are separated by lines or semicolons, never by commas.

    >>> parse_verdict("- **Sufficient:** no\nGAPS:\n- people of Paris, Texas\nFOLLOW_UP: none")
    Verdict(enough=False, gaps=('people of Paris, Texas',), queries=())
    """
    pairs: list[tuple[str, str]] = []
    for line in _WITHIN_A_LINE.sub("\n", reply).splitlines():
        if match := _LINE.match(line):
            pairs.append((next(name for name in _LABELS if match[name]), clean(match["value"])))
        elif pairs and line.strip():
            item = _ITEM.match(line)
            # an item of the list under a label, or the value that its line lacked
            if item or not pairs[-1][1]:
                pairs.append((pairs[-1][0], clean(item["value"] if item else line)))
    said = [says_yes(value) for name, value in pairs if name == "enough"]
    return Verdict(
        next((word for word in said if word is not None), None), _items(pairs, "gap"), _items(pairs, "query")
    )


def _items(pairs: Sequence[tuple[str, str]], label: str) -> tuple[str, ...]:
    items = [clean(item) for name, value in pairs if name == label for item in value.split(";")]
    return tuple(item for item in items if not is_nothing(item) and normalize_answer(item) != "no")


def says_yes(value: str) -> bool | None:
    """Return whether a value begins with yes, None if it begins with neither yes nor no."""
    match = _YES_OR_NO.match(value)
    return None if match is None else match["yes"] is not None


def clean(value: str) -> str:
    """Take off white space, marks and one pair of quotation marks around a value."""
    value = value.strip().strip("*_`").strip()
    quoted = len(value) >= 2 and value[0] + value[-1] in ('""', "''", "“”")
    return value[1:-1].strip() if quoted else value
