"""FlashRAG's files of Natural Questions, TriviaQA, PopQA and others.

A JSON object per line with ``id``, ``question``, ``golden_answers`` and, maybe, ``metadata``.
"""

from __future__ import annotations

from corag.core.errors import DataError
from corag.core.types import Question
from corag.data.fields import (
    Record,
    distinct,
    name_record,
    object_field,
    require_id,
    text_field,
    texts_field,
)
from eval.datasets.dataset import Dataset
from eval.datasets.paragraphs import fact_titles


def parse(record: Record, where: str) -> Question:
    """Read a record.

    ``kind`` is the metadata's ``type`` or, in PopQA, the relation asked for (``prop``). HotpotQA's and
    2WikiMultihopQA's metadata name the titles of gold passages (``supporting_facts``). Raises
    :class:`DataError` for multiple choice, whose answers are numbers of choices.
    """
    record_name = name_record(record, where)
    if record.get("choices"):
        raise DataError(
            f"{record_name}: this is a multiple-choice question, which no scorer here compares: use a set "
            "with text answers."
        )
    metadata = object_field(record, "metadata", record_name)
    kind = metadata.get("type") or metadata.get("prop")
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=distinct(*texts_field(record, "golden_answers", record_name)),
        kind=kind if isinstance(kind, str) else "",
        titles=fact_titles(metadata, record_name),
    )


DATASETS = (
    Dataset(
        "flashrag",
        "FlashRAG's files: Natural Questions, TriviaQA, PopQA and others",
        parse,
        scorer="flashrag",
        gold="golden_answers",
    ),
)
