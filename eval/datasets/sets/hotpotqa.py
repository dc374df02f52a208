"""HotpotQA (Yang et al. 2018), in its official files and those of the Hugging Face hub.

Test splits hide their answers: a record whose ``answer`` is absent, None or "" has none, and is not scored.
"""

from __future__ import annotations

from corag.core.types import Question
from corag.data.fields import Record, gold_answer, name_record, require_id, text_field
from eval.datasets.dataset import Dataset
from eval.datasets.paragraphs import (
    context_paragraphs,
    fact_titles,
    gold_ids,
    gold_titles,
    optional_paragraphs,
)


def parse(record: Record, where: str) -> Question:
    """Read a record. ``kind`` is bridge or comparison."""
    paragraphs = optional_paragraphs(record, where, context_paragraphs)
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=gold_answer(record, where),
        supporting=gold_ids(paragraphs),
        kind=str(record.get("type") or ""),
        titles=fact_titles(record, name_record(record, where)) or gold_titles(paragraphs),
    )


DATASETS = (
    Dataset(
        "hotpotqa",
        "HotpotQA, official files",
        parse,
        marks=frozenset(("question", "answer", "type", "level", "supporting_facts")),
        scorer="hotpotqa",
        paragraphs=context_paragraphs,
    ),
)
