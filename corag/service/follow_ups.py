"""What is done where a model's rewrite of a follow-up question has lost the question.

Small models reply to "and who leads it?" with "and", or with an answer. What the field then searches with is
the turns themselves, one after the other (Qu et al. 2020: open-retrieval conversational QA): longer than a
rewrite, but nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from corag.core.text import normalize_answer, strip_question_words
from corag.core.words import is_unspaced

_FEWEST_WORDS = 3  # of a question, unless the user's own has fewer
_MOST_TURNS = 3  # of the user's before the last: "and since when?" may follow "and who leads it?"
_MOST_CHARACTERS = 500  # of each of them: a document may be pasted before a question


def has_lost(rewrite: str, question: str, earlier: Sequence[str]) -> bool:
    """Whether a rewrite is no question any more, or is as unclear without the conversation as it was.

    It has lost the question if it has fewer than three words and fewer than the question, if it shares no
    word of meaning with question and conversation, or if it adds nothing to a question that names nothing.

    Args:
        rewrite: the model's, "" for none.
        question: as typed.
        earlier: the texts of the turns before it.

    >>> has_lost("and", "and who leads it?", ["Who makes the Ostra?", "The Petrel team"])
    True
    >>> has_lost("Who leads the Petrel team?", "and who leads it?", ["Who makes it?", "The Petrel team"])
    False
    """
    rewrite_words, question_words = normalize_answer(rewrite).split(), normalize_answer(question).split()
    if len(rewrite_words) < min(_FEWEST_WORDS, len(question_words)):
        return True
    if set(rewrite_words) <= set(question_words):
        return _depends(rewrite)
    known_words = {*question_words, *(word for text in earlier for word in normalize_answer(text).split())}
    return not known_words & _content_words(rewrite)


def join_question(question: str, earlier: Sequence[str]) -> str:
    """Return a question behind the user's turns that it follows, back to one that names something.

    ``earlier``: the user's turns before it, oldest first.

    >>> join_question("and who leads it?", ["Hello.", "Which team makes the Ostra?"])
    'Which team makes the Ostra? and who leads it?'
    """
    turns = [question]
    for text in reversed(earlier[-_MOST_TURNS:]):
        turns.insert(0, " ".join(text[-_MOST_CHARACTERS:].split()))
        if not _depends(text):
            break
    return " ".join(turns)


def _depends(text: str) -> bool:
    """Whether a question names nothing: at most one word of meaning in it, and no name."""
    if any(_is_name(word) or any(map(str.isdigit, word)) for word in text.split()[1:]):
        return False
    return len(_content_words(text)) <= 1


def _content_words(text: str) -> set[str]:
    """Return the words of a text that may mean something: long ones, numbers, and names of any length.

    In scripts without spaces each character counts.
    """
    names = {normalize_answer(word) for word in text.split()[1:] if _is_name(word)}
    words = strip_question_words(normalize_answer(text)).split()
    return {
        word
        for word in words
        if len(word) > 3 or word in names or is_unspaced(word) or any(map(str.isdigit, word))
    }


def _is_name(word: str) -> bool:
    """Whether a word within a question has a capital, perhaps behind a quotation mark."""
    return word.lstrip("\"'(\u201c\u201e\u2018\u00ab")[:1].isupper()
