"""What a hop's search is given, in decoding and in the pairs that a retriever learns from."""

from __future__ import annotations

from typing import Literal

SearchText = Literal["sub_query", "question", "answer"]


def search_text(kind: SearchText, sub_query: str, question: str, last_answer: str = "") -> str:
    """Return what is searched for at a hop.

    Args:
        kind: the "sub_query" alone, or with the "question" or the last sub-"answer" behind it.
        sub_query: of the hop.
        question: that the chain is to answer.
        last_answer: of the hop before, "" at the first.

    >>> search_text("sub_query", "Where was she born?", "Who?", "Mara Velden")
    'Where was she born?'
    >>> search_text("question", "Where was she born?", "Where was its author born?")
    'Where was she born? Where was its author born?'
    >>> search_text("answer", "Where was she born?", "Who?", "Mara Velden")
    'Where was she born? Mara Velden'
    """
    if kind == "question":
        return f"{sub_query} {question}"
    if kind == "answer" and last_answer:
        return f"{sub_query} {last_answer}"
    return sub_query
