"""PopQA (Mallen et al. 2023), single-hop: the official table, or with paragraphs as collections add them."""

from __future__ import annotations

from corag.core.types import Question
from corag.data.fields import Record, distinct, name_record, require_id, text_field, texts_field
from eval.datasets.dataset import Dataset
from eval.datasets.paragraphs import gold_ids, gold_titles, listed_paragraphs, optional_paragraphs


def parse(record: Record, where: str) -> Question:
    """Read a record. ``kind`` is the relation asked for, such as "occupation"."""
    paragraphs = optional_paragraphs(record, where, listed_paragraphs)
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=distinct(*texts_field(record, "possible_answers", name_record(record, where))),
        supporting=gold_ids(paragraphs),
        kind=str(record.get("prop") or ""),
        titles=gold_titles(paragraphs),
    )


DATASETS = (
    Dataset(
        "popqa",
        "PopQA, official table",
        parse,
        paragraphs=listed_paragraphs,
        marks=frozenset(("question", "possible_answers", "prop", "subj")),
        gold="possible_answers",
    ),
)
