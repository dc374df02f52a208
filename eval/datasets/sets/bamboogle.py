"""Bamboogle (Press et al. 2023), the official table."""

from __future__ import annotations

from corag.core.seeds import stable_hash
from corag.core.types import Question
from corag.data.fields import Record, gold_answer, text_field
from eval.datasets.dataset import Dataset


def parse(record: Record, where: str) -> Question:
    """Read a row: question and answer, for an open corpus. Its id derives from the text."""
    record = {name.lower(): value for name, value in record.items()}  # the sheet has Question, Answer
    text = text_field(record, "question", where)
    return Question(f"bamboogle-{stable_hash(text)}", text, gold_answer(record, where))


DATASETS = (Dataset("bamboogle", "Bamboogle, official table", parse, question="", gold="answer"),)
