"""Whether questions that a model is measured on were trained on: then their figures would say nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from core.text import normalize_answer
from core.types import Question

_HELD_OUT = re.compile(r"(?:^|[^a-z])(test|dev|valid|validation|eval)(?:[^a-z]|$)")


class MadeOfChains(Protocol):
    """A report of what was made of chains: which they were, and for which question files."""

    @property
    def settings(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def files(self) -> list[str]: ...  # noqa: D102


def held_out_named(report: MadeOfChains) -> list[str]:
    """Return the question files and splits of some rows that are for testing by their names.

    Names are all that there is to go by: of questions from Hugging Face the split that was loaded, of files
    what they are called, since what a file is for stands nowhere in it. A test set called questions.jsonl is
    not noticed. ('corag rounds' compares the questions themselves with those of its option ``test``.)

    >>> from types import SimpleNamespace
    >>> settings = {"chains": [{"questions": {"split": "validation"}}]}
    >>> held_out_named(SimpleNamespace(settings=settings, files=["x/dev.json"]))
    ['dev.json', 'validation']
    """
    splits = [chains.get("questions", {}).get("split", "") for chains in report.settings["chains"]]
    names = [*(Path(file).name for file in report.files), *splits]
    return [name for name in dict.fromkeys(names) if _HELD_OUT.search(name.lower())]


def trained_on(tests: Sequence[Question], trained: Sequence[Question], *, published: bool) -> list[Question]:
    """Return the questions of ``tests`` that are among ``trained``.

    Questions are the same by their texts, however these are typed (see :func:`same_words`), and by their ids
    where both are of one published dataset, as ``published`` says. In files of one's own an id such as "1"
    may be anything's, so there a question of the same id is the same if they have a gold answer and half of
    their words in common.
    """
    texts = {same_words(question.text) for question in trained}
    by_id: dict[str, list[Question]] = {}
    for question in trained:
        by_id.setdefault(question.id, []).append(question)

    def known(test: Question) -> bool:
        if same_words(test.text) in texts or (published and test.id in by_id):
            return True
        return any(_alike(test, each) for each in by_id.get(test.id, ()))

    return [each for each in tests if known(each)]


def _alike(one: Question, other: Question) -> bool:
    answers = {same_words(answer) for answer in one.answers}
    words, others = (set(normalize_answer(each.text).split()) for each in (one, other))
    answered_alike = not answers.isdisjoint(map(same_words, other.answers))
    return answered_alike and 2 * len(words & others) >= min(len(words), len(others))


def same_words(text: str) -> str:
    """Return what is left of a text that two files may hold in different typing: its letters and digits.

    Neither case, punctuation, the kind or place of spaces, full-width and other forms of a character (NFKC),
    nor articles make another question.

    >>> same_words("Who wrote\u00a0the Co-op\uff1f") == same_words("who wrote  Coop?")
    True
    """
    # Letters, marks, numbers and symbols stay; of what is left the answers' rule drops articles.
    typed = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(each if unicodedata.category(each)[0] in "LMNS" else " " for each in typed)
    return normalize_answer(words).replace(" ", "")
