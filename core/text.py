"""The one answer normaliser of the house (SQuAD's rule), shared by stopping rules and scorers."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower-case, delete ASCII punctuation, drop a/an/the, squeeze spaces, in that order (Rajpurkar et al. 2016).

    Punctuation outside ASCII stays, as in the official scripts of HotpotQA, 2WikiMultihopQA and MuSiQue.

    >>> normalize_answer("The U.S.  Open")
    'us open'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether the normalised prediction equals any normalised answer."""
    wanted = normalize_answer(prediction)
    return any(wanted == normalize_answer(answer) for answer in answers)
