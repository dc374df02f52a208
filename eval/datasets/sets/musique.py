"""MuSiQue-Answerable (Trivedi et al. 2022), in its official files.

Test splits hide their answers: a record whose ``answer`` is absent, None or "" has none, and is not scored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from corag.core.errors import DataError
from corag.core.types import GoldHop, Question
from corag.data.fields import (
    Record,
    distinct,
    gold_answer,
    list_field,
    name_record,
    require_id,
    text_field,
    texts_field,
)
from eval.datasets.dataset import Dataset
from eval.datasets.paragraphs import (
    Paragraph,
    gold_ids,
    gold_titles,
    listed_paragraphs,
    optional_paragraphs,
    paragraph_rows,
)


def parse(record: Record, where: str) -> Question:
    """Read a record. ``kind`` is the shape of reasoning, such as "3hop1".

    Sub-questions are kept as written: ``#1`` stands for the answer of the first. Unanswerable questions (of
    MuSiQue-Full) are refused, because no scorer here rewards abstaining.
    """
    record_name = name_record(record, where)
    if record.get("answerable") is False:
        raise DataError(
            f"{record_name}: this question is unanswerable (MuSiQue-Full); use the answerable release, "
            "'musique_ans'."
        )
    paragraphs = optional_paragraphs(record, where, listed_paragraphs)
    numbered = dict(numbered_paragraphs(record, where)) if paragraphs else {}
    identity = require_id(record, where)
    steps = list_field(record, "question_decomposition", record_name)
    if not all(isinstance(step, Mapping) for step in steps):
        raise DataError(f"{record_name}: field 'question_decomposition' must be a list of objects.")
    shape = re.match(r"(\d+)hop\d*(?=__)", identity)  # ids begin so, as in 3hop1__136129_...
    return Question(
        id=identity,
        text=text_field(record, "question", where),
        answers=distinct(*gold_answer(record, where), *texts_field(record, "answer_aliases", record_name)),
        supporting=gold_ids(paragraphs),
        kind=shape.group() if shape else "",
        hops=int(shape.group(1)) if shape else len(steps),
        decomposition=tuple(_parse_hop(step, numbered, record_name) for step in steps),
        titles=gold_titles(paragraphs),
    )


def numbered_paragraphs(record: Record, where: str) -> list[tuple[int, Paragraph]]:
    """Return a MuSiQue question's paragraphs with the numbers (``idx``) that the gold ones are named by.

    A paragraph without a number has that of its place. Raises :class:`DataError` if there are no paragraphs,
    or a number is none.
    """
    record_name = name_record(record, where)
    if not record.get("paragraphs"):
        raise DataError(
            f"{record_name}: the question comes without paragraphs, which MuSiQue's predicted_support_idxs "
            "number: name the official file with 'questions'."
        )
    paragraphs = listed_paragraphs(record, where)
    numbers = [row.get("idx") for row in paragraph_rows(record, record_name)]
    try:
        indices = [index if number is None else int(number) for index, number in enumerate(numbers)]
    except (TypeError, ValueError):
        raise DataError(
            f"{record_name}: the field 'idx' of each of 'paragraphs' must be a number, but they are "
            f"{numbers!r:.60}."
        ) from None
    return list(zip(indices, paragraphs, strict=True))


def _parse_hop(step: Record, numbered: Mapping[int, Paragraph], record_name: str) -> GoldHop:
    index = step.get("paragraph_support_idx")
    if not numbered or index is None:
        passage = ""
    elif isinstance(index, int) and index in numbered:
        passage = numbered[index].passage.id
    else:
        raise DataError(
            f"{record_name}: paragraph_support_idx is {index!r}, but there are {len(numbered)} paragraphs."
        )
    return GoldHop(
        text_field(step, "question", record_name), text_field(step, "answer", record_name), passage
    )


DATASETS = (
    Dataset(
        "musique",
        "MuSiQue-Answerable, official files",
        parse,
        marks=frozenset(("question", "paragraphs", "question_decomposition")),
        scorer="musique",
        paragraphs=listed_paragraphs,
    ),
)
