"""Citations in an answer: each sentence names passages by number, and quotes them as they are written.

What is checked is what comparing strings can tell. Whether a passage says what a sentence says in other words
is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from corag.core.language.sentences import sentence_spans
from corag.core.types import Passage

REFUSAL = "The documents do not answer this."
"""What the prompts for documents have a model reply where nothing answers."""
_NUMBERS = re.compile(r"\[(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\]")
_BEHIND = re.compile(rf"([.!?])([\"”»]*)((?:\s*{_NUMBERS.pattern})+)")  # a citation behind its full stop
_SPACED = "[0-9a-z\u00df-\u052f]"  # what words and numbers are made of where spaces part them
_QUOTED = re.compile(r"(?<!\w)[\"“„«]([^\"“”„«»\n]+)[\"“”»]")


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of an answer. ``numbers``: of the passages that it cites; ``fault``: "" without one."""

    text: str
    numbers: tuple[int, ...]
    fault: str = ""


def check_citations(answer: str, passages: Sequence[Passage]) -> list[Claim]:
    """Return the sentences of an answer with what is wrong with their citations; none of a refusal.

    A fault is: no citation at all, the number of no passage, or quoted words that stand in no cited passage
    (white space, case and the form of quotation marks aside). ``passages``: number 1 first.

    >>> leave = Passage("1", "Leave", "Staff have thirty days of leave.")
    >>> [claim.fault for claim in check_citations('It is "thirty days" [1]. Ask your manager.', [leave])]
    ['', 'it cites no passage']
    """
    if is_refusal(answer):
        return []
    moved = _BEHIND.sub(r"\2\3\1", answer)
    # A quotation of several sentences belongs to one claim; its last one may end it.
    masked = _QUOTED.sub(lambda quotation: re.sub(r"[.!?](?![\"”»])", ",", quotation[0]), moved)
    return [_claim(moved[start:end], passages) for start, end in sentence_spans(masked)]


def is_refusal(answer: str) -> bool:
    """Whether an answer says no more than that nothing answers; small models add "question" to it."""
    return _plain(answer).removesuffix(" question") == _plain(REFUSAL)


def _claim(sentence: str, passages: Sequence[Passage]) -> Claim:
    lists = _NUMBERS.findall(sentence)
    numbers = tuple(dict.fromkeys(int(number) for each in lists for number in re.findall(r"\d+", each)))
    cited_texts = [
        _plain(f"{passages[number - 1].title} {passages[number - 1].text}")
        for number in numbers
        if 0 < number <= len(passages)
    ]
    quotes = [quote for quote in _QUOTED.findall(sentence) if any(map(str.isalnum, quote))]
    missing = [quote for quote in quotes if not any(_stands_in(_plain(quote), text) for text in cited_texts)]
    if not numbers:
        fault = "it cites no passage"
    elif len(cited_texts) < len(numbers):
        fault = "it cites a passage that was not shown"
    else:
        fault = f'the passage that it cites does not have the words "{missing[0]}"' if missing else ""
    return Claim(sentence.strip(), numbers, fault)


def _stands_in(quote: str, text: str) -> bool:
    """Whether a text has a quote, of whole words and numbers: "5 days" does not stand in "15 days"."""
    before, behind = rf"(?<!{_SPACED})(?<!\d[.,])", rf"(?!{_SPACED})(?![.,]\d)"
    start = before if re.match(_SPACED, quote) else ""
    end = behind if re.match(_SPACED, quote[-1:]) else ""
    return re.search(f"{start}{re.escape(quote)}{end}", text) is not None


def _plain(text: str) -> str:
    """Return a text by which quotes are compared."""
    return " ".join(re.sub(r"[\"“”„«»'‘’]", "", text).casefold().split()).strip(" .,;:")
