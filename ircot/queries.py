"""From generated thoughts to the next search query (IRCoT, released code)."""

from __future__ import annotations

import re
from collections.abc import Sequence

_INFERENCE_STARTS = ("thus ", "thus,", "so ", "so,", "that is,", "therefore", "hence")
_NUMBER = r"(?:\d[\d,]*\.?\d+|\d+)"
_ARITHMETIC = re.compile(rf"{_NUMBER} [+-] {_NUMBER} = {_NUMBER}")


def is_inference(sentence: str) -> bool:
    """Whether a sentence concludes or calculates, and so names nothing worth looking up."""
    return sentence.lower().startswith(_INFERENCE_STARTS) or _ARITHMETIC.search(sentence) is not None


def next_query(question: str, thoughts: Sequence[str]) -> str:
    """Return the last thought that is not an inference; the question if there is none or it is blank.

    >>> next_query("Where was the author of Emma born?", ["Emma was written by Jane Austen.", "So we need her birthplace."])
    'Emma was written by Jane Austen.'
    """
    usable = [thought for thought in thoughts if not is_inference(thought)]
    return usable[-1] if usable and usable[-1].strip() else question
