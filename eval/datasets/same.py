"""Whether two files hold the same questions: those that are measured on must not be trained or chosen on."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from corag.core.language.text import normalize_answer
from corag.core.types import Question


def in_common(some: Sequence[Question], others: Sequence[Question], *, is_published: bool) -> list[Question]:
    """Return the questions of ``some`` that are among ``others``.

    Questions are the same by their texts, however these are typed (see :func:`same_words`), and by their ids
    where both are of one published dataset, as ``is_published`` says. In files of one's own an id such as "1"
    may be anything's, so there a question of the same id is the same if they have a gold answer and half of
    their words in common.
    """
    texts = {same_words(question.text) for question in others}
    by_id: dict[str, list[Question]] = {}
    for question in others:
        by_id.setdefault(question.id, []).append(question)

    def is_shared(question: Question) -> bool:
        if same_words(question.text) in texts or (is_published and question.id in by_id):
            return True
        return any(_is_same(question, each) for each in by_id.get(question.id, ()))

    return [each for each in some if is_shared(each)]


def _is_same(one: Question, other: Question) -> bool:
    answers = {same_words(answer) for answer in one.answers}
    words, others = (set(normalize_answer(each.text).split()) for each in (one, other))
    have_common_answer = not answers.isdisjoint(map(same_words, other.answers))
    return have_common_answer and 2 * len(words & others) >= min(len(words), len(others))


def same_words(text: str) -> str:
    """Return what is left of a text that two files may hold in different typing: its letters and digits.

    Neither case, punctuation, the kind or place of spaces, full-width and other forms of a character (NFKC),
    nor articles make another question.

    >>> same_words("Who wrote\u00a0the Co-op\uff1f") == same_words("who wrote  Coop?")
    True
    """
    # Letters, marks, numbers and symbols stay; of what is left the answers' rule drops articles.
    normalized_text = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(each if unicodedata.category(each)[0] in "LMNS" else " " for each in normalized_text)
    return normalize_answer(words).replace(" ", "")
