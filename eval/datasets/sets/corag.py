"""corag/multihopqa on the Hugging Face hub: the questions of CoRAG's paper, with its authors' chains.

A record has ``query``, ``query_id``, ``answers``, ``subqueries``, ``subanswers``, ``predictions`` and
``context_doc_ids``. The chains of training splits are those that rejection sampling kept (paper, section
3.1), refused hops among them: 'corag sample --sample.source given' takes them over. Those of the other splits
were decoded by the authors' model. ``context_doc_ids`` are some hundred rows of corag/kilt-corpus.
"""

from __future__ import annotations

from corag.core.errors import DataError
from corag.core.types import GoldHop, Question
from corag.data.fields import (
    Record,
    distinct,
    list_field,
    name_record,
    require_id,
    text_field,
    texts_field,
)
from eval.datasets.dataset import Dataset


def parse(record: Record, where: str) -> Question:
    """Read a record. Its decomposition is the authors' chain, whose sub-answers may be wrong or refusals.

    Raises :class:`DataError` unless there is a sub-answer for each sub-query.
    """
    record_name = name_record(record, where)
    sub_queries, sub_answers = (
        ["" if text is None else str(text).strip() for text in list_field(record, name, record_name)]
        for name in ("subqueries", "subanswers")
    )
    if len(sub_queries) != len(sub_answers):
        raise DataError(
            f"{record_name}: {len(sub_queries)} subqueries and {len(sub_answers)} subanswers; expected one "
            "for each."
        )
    return Question(
        id=require_id(record, where),
        text=text_field(record, "query", where),
        answers=distinct(*texts_field(record, "answers", record_name)),
        decomposition=tuple(map(GoldHop, sub_queries, sub_answers)),
        context_ids=tuple(texts_field(record, "context_doc_ids", record_name)),
    )


DATASETS = (
    Dataset(
        "corag",
        "CoRAG's own questions and chains (corag/multihopqa on the hub)",
        parse,
        marks=frozenset(("query", "subqueries", "subanswers")),
        question="query",
        gold="answers",
    ),
)
