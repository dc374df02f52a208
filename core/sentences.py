"""The first sentence of a text: all that methods which write sentence by sentence keep of a generation."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

from core.errors import ConfigError

Splitter = Literal["rules", "spacy"]

# A closing mark, perhaps a quote or bracket after it, then white space and what can open a sentence.
_BOUNDARY = re.compile(
    r"(?P<word>\S*?)(?P<mark>[.!?]+)(?P<close>[\"'”’)\]]*)(?=\s+[\"'“‘(\[]*[^\s\"'“‘(\[a-z])"
)
_BEFORE_NUMBERS = frozenset("no vol pp p fig".split())
_LIST_NUMBER = re.compile(r"(?:step\s+)?\d+", re.IGNORECASE)
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof rev hon st sr jr gen col lt sgt capt cmdr maj gov sen rep pres messrs mt ft vs etc ed "
    "eds al ca c cf inc ltd co corp bros dept univ assn jan feb mar apr jun jul aug sep sept oct nov dec "
    "approx op".split()
)


def first_sentence(text: str, splitter: Splitter = "rules") -> str:
    """Return the first sentence of the stripped text, "" if there is none. A line break always ends it.

    The rules know initials ("J. R. R. Tolkien"), abbreviations ("U.S.", "Mr."), decimals, and marks inside
    quotation marks.

    >>> first_sentence("Mr. J. Smith of the U.S. Army paid 3.5 dollars. Then he left.")
    'Mr. J. Smith of the U.S. Army paid 3.5 dollars.'
    """
    line = text.strip().split("\n", 1)[0].strip()  # models begin the next example on a line of its own
    if splitter == "spacy":
        return _spacy_first(line)
    for boundary in _BOUNDARY.finditer(line):
        if not _goes_on(line, boundary):
            return line[: boundary.end()]
    return line


def sentence_end(text: str, least: int = 1) -> int:
    """Return how many characters the first sentence of a text takes up, with the white space before it.

    0 if there is none. One that ends before ``least`` characters goes on with what follows.

    >>> " Yes. It does. So"[:sentence_end(" Yes. It does. So", 8)]
    ' Yes. It does.'
    """
    end = 0
    while end < least and (rest := text[end:]).strip():
        end += len(rest) - len(rest.lstrip()) + len(first_sentence(rest))
    return end


def _goes_on(line: str, boundary: re.Match[str]) -> bool:
    """Whether a full stop belongs to an abbreviation, an initial, or the number of a list's item."""
    if boundary["mark"] != ".":
        return False
    if _LIST_NUMBER.fullmatch(line[: boundary.end() - 1]):
        return True
    word = boundary["word"].lstrip("\"'“‘([")
    if word.lower() in _BEFORE_NUMBERS:
        return line[boundary.end() :].lstrip()[:1].isdigit()
    inner_dots = re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", word) is not None  # U.S, i.e, J.R.R
    initial = re.fullmatch(r"[A-Z]", word) is not None
    return inner_dots or initial or word.lower() in _ABBREVIATIONS


def _spacy_first(line: str) -> str:
    return next((str(sentence).strip() for sentence in _spacy_pipeline()(line).sents), "")


@lru_cache(maxsize=1)
def _spacy_pipeline() -> Any:
    try:
        import spacy

        return spacy.load("en_core_web_sm")
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"sentence_splitter 'spacy' needs spaCy and its model en_core_web_sm ({error}): install both, or "
            "use 'rules'."
        ) from error
