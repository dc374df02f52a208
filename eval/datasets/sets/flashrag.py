"""FlashRAG's files of Natural Questions, TriviaQA, PopQA and others.

A JSON object per line with ``id``, ``question``, ``golden_answers`` and, maybe, ``metadata``.
"""

from __future__ import annotations

from corag.core.errors import DataError
from corag.core.types import Question
from eval.datasets.dataset import Dataset
from eval.datasets.fields import (
    Record,
    distinct,
    metadata_field,
    name_record,
    require_id,
    text_field,
    texts_field,
)
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
    metadata = metadata_field(record, record_name)
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
        lists=("golden_answers",),
        gold="golden_answers",
        optional=("metadata",),
    ),
)
