"""Sentences: the first of a text, which is what methods keep of a generation, or all, to cut documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

from core.errors import ConfigError

Splitter = Literal["rules", "spacy"]

# A closing mark, perhaps a quote or bracket after it, then white space and what can open a sentence.
# Nothing is tried twice (++), so a line of dots or a megabyte without a space takes no longer than any other.
_BOUNDARY = re.compile(r"(?<![.!?])(?P<mark>[.!?]++)[\"'”’)\]]*+(?=\s++[\"'“‘(\[]*+[^\s\"'“‘(\[a-z])")
# Chinese and Japanese marks end a sentence without white space.
_FULL_WIDTH_END = re.compile(r"(?<=[。！？｡])(?![。！？｡」』”’）])")
_LONGEST_WORD = 40  # what stands before a mark: no abbreviation is longer
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


def split_sentences(text: str) -> Iterator[str]:
    """Split a text into its sentences, by the rules of :func:`first_sentence`; a line break always ends one.

    >>> list(split_sentences("Mr. Smith left. Did he?"))
    ['Mr. Smith left.', 'Did he?']
    """
    for line in text.split("\n"):
        start = 0
        for boundary in _BOUNDARY.finditer(line):
            if not _goes_on(line, boundary, start):
                yield from _full_width(line[start : boundary.end()])
                start = boundary.end()
        yield from _full_width(line[start:])


def _full_width(sentence: str) -> Iterator[str]:
    return (part.strip() for part in _FULL_WIDTH_END.split(sentence) if part.strip())


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


def _goes_on(line: str, boundary: re.Match[str], start: int = 0) -> bool:
    """Whether a full stop belongs to an abbreviation, an initial, or the number of a list's item.

    ``start``: where the sentence begins that the boundary may end.
    """
    if boundary["mark"] != ".":
        return False
    before = line[max(start, boundary.start() - _LONGEST_WORD) : boundary.start()]
    begins_here = boundary.start() - start < _LONGEST_WORD
    if begins_here and boundary[0] == "." and _LIST_NUMBER.fullmatch(before.lstrip()):
        return True
    word = before.split()[-1].lstrip("\"'“‘([") if before[-1:].strip() else ""
    initial = re.fullmatch(r"[A-Z]", word) is not None
    if not initial and word.lower() in _BEFORE_NUMBERS:  # "P." is somebody's name far more often than a page
        return line[boundary.end() : boundary.end() + _LONGEST_WORD].lstrip()[:1].isdigit()
    inner_dots = re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", word) is not None  # U.S, i.e, J.R.R
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
