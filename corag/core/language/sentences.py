"""Sentences: the first of a text, which is what methods keep of a generation, or all, to cut documents.

The abbreviations are English ones; the marks are those of all scripts, by Unicode's property
``Sentence_Break`` (Standard Annex 29). Thai and Lao mark no sentence: there a line is one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

import regex

from corag.core.language.words import UNSPACED_LETTERS

# A closing mark, perhaps a quote or bracket after it, then white space and what can open a sentence.
# Nothing is tried twice (++), so a line of dots or a megabyte without a space takes no longer than any other.
_BOUNDARY = re.compile(
    r"(?<![.!?])(?P<mark>[.!?]++)[\"'”’“»)\]]*+(?=\s++[\"'“‘(\[]*+[^\s\"'“‘(\[a-zß-öø-ÿά-ώа-џա-և])"
)
_CLOSING = r"\"'”’»)\]」』）】》〉〕］｣"
# Marks of other scripts end a sentence without white space: 。！？, the danda, the Arabic question mark, ...
_OTHER_MARK = "|".join(
    (
        r"[\p{Sentence_Break=STerm}--[!?‼‽⁇⁈⁉⸮]]",
        r"(?<![\d\p{Latin}])．(?!\d)",  # full-width stop, which is also a decimal point
        r"[\u0f0d-\u0f11]",  # Tibetan shad
        r"\u1361\u1361",  # the Ethiopic stop, typed as two word spaces
        r"(?<=\p{Armenian}):(?=\s|$)",  # the Armenian stop, typed as a colon
        r"(?<=\p{Greek});(?=\s|$)",  # the Greek question mark, which NFC makes a semicolon
        rf"(?<=[{UNSPACED_LETTERS}])[!?](?=[{UNSPACED_LETTERS}])",
        r"(?<=[\p{Han}\p{Hiragana}\p{Katakana}])\.(?=[\p{Han}\p{Hiragana}\p{Katakana}])",
    )
)
# Within a quotation or bracket only where white space follows it; not between the marks of a verse's number.
_OTHER_END = regex.compile(
    rf"(?:{_OTHER_MARK})"
    rf"(?:[{_CLOSING}]++(?=\s)|(?![\p{{Sentence_Break=STerm}}．.…{_CLOSING}])(?!\s*+\d++\s*+॥))",
    regex.VERSION1,
)
# Letters and marks of scripts other than Latin: without one, none of these ends needs to be looked for.
_OTHER_SCRIPT = re.compile("[\u0370-\u1dff\u1f00-\u1fff\u2c00-\U0010ffff]")
_NO_STOP = re.compile("[\u0e00-\u0eff]")  # Thai and Lao: a full stop after one of their letters abbreviates
_LONGEST_WORD = 40  # what stands before a mark: no abbreviation is longer
_BEFORE_NUMBERS = frozenset("no vol pp p fig".split())
_LIST_NUMBER = re.compile(r"(?:step\s+)?\d+", re.IGNORECASE)
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof rev hon st sr jr gen col lt sgt capt cmdr maj gov sen rep pres messrs mt ft vs etc ed "
    "eds al ca c cf inc ltd co corp bros dept univ assn jan feb mar apr jun jul aug sep sept oct nov dec "
    "approx op".split()
)


def first_sentence(text: str) -> str:
    """Return the first sentence of the stripped text, "" if there is none. A line break always ends it.

    The rules know initials ("J. R. R. Tolkien"), abbreviations ("U.S.", "Mr."), decimals, marks inside
    quotation marks, and the marks of other scripts.

    >>> first_sentence("Mr. J. Smith of the U.S. Army paid 3.5 dollars. Then he left.")
    'Mr. J. Smith of the U.S. Army paid 3.5 dollars.'
    """
    line = text.strip().split("\n", 1)[0].strip()  # models begin the next example on a line of its own
    return next((line[start:end] for start, end in _spans(line)), "")


def split_sentences(text: str) -> Iterator[str]:
    """Split a text into its sentences, by the rules of :func:`first_sentence`; a line break always ends one.

    >>> list(split_sentences("Mr. Smith left. Did he?"))
    ['Mr. Smith left.', 'Did he?']
    >>> list(split_sentences("长沙是湖南省的省会。它位于湘江边。"))
    ['长沙是湖南省的省会。', '它位于湘江边。']
    """
    return (text[start:end] for start, end in sentence_spans(text))


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each sentence of a text, without the white space around it."""
    offset = 0
    for line in text.split("\n"):
        yield from ((offset + start, offset + end) for start, end in _spans(line))
        offset += len(line) + 1


def _spans(line: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end in _ends(line):
        sentence = line[start:end]
        if text := sentence.strip():
            first = start + len(sentence) - len(sentence.lstrip())
            yield first, first + len(text)
        start = end


def _ends(line: str) -> Iterator[int]:
    """Yield where the sentences of a line end, the last at its end."""
    start = 0
    # All at once: looked for anew after every sentence, a long line would take the square of its length.
    others = deque[int]()
    if _OTHER_SCRIPT.search(line):
        others.extend(match.end() for match in _OTHER_END.finditer(line))
    for boundary in _BOUNDARY.finditer(line):
        if not _goes_on(line, boundary, start):
            while others and others[0] <= boundary.end():
                if (end := others.popleft()) <= boundary.start():
                    yield end
            start = boundary.end()
            yield start
    yield from others
    yield len(line)


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


def _goes_on(line: str, boundary: re.Match[str], start: int) -> bool:
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
    if _NO_STOP.match(word[-1:]):
        return True
    initial = len(word) == 1 and word.isupper()
    if not initial and word.lower() in _BEFORE_NUMBERS:  # "P." is somebody's name far more often than a page
        return line[boundary.end() : boundary.end() + _LONGEST_WORD].lstrip()[:1].isdigit()
    inner_dots = re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", word) is not None  # U.S, i.e, J.R.R
    return inner_dots or initial or word.lower() in _ABBREVIATIONS
