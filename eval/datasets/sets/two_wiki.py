"""2WikiMultihopQA (Ho et al. 2020), in its official files, and its file of answer aliases.

Test splits hide their answers: a record whose ``answer`` is absent, None or "" has none, and is not scored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from corag.core.files import read_records
from corag.core.text import mentions
from corag.core.types import GoldHop, Question
from eval.datasets.dataset import Aliases, Dataset
from eval.datasets.fields import (
    Record,
    distinct,
    gold_answer,
    list_field,
    name_record,
    require_id,
    text_field,
    texts_field,
)
from eval.datasets.paragraphs import (
    context_paragraphs,
    fact_titles,
    gold_ids,
    gold_titles,
    optional_paragraphs,
)


def parse(record: Record, where: str) -> Question:
    """Read a record.

    ``hops`` counts the evidence triples, which a comparison takes side by side. Sub-questions (``qa_pairs``)
    exist in a decomposed release only, which answers them in sentences; the short answer is taken from the
    evidence triples where one fits. They do not say which passage answers them.
    """
    record_name = name_record(record, where)
    paragraphs = optional_paragraphs(record, where, context_paragraphs)
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=gold_answer(record, where),
        supporting=gold_ids(paragraphs),
        kind=str(record.get("type") or ""),
        hops=len(list_field(record, "evidences", record_name)),
        decomposition=tuple(
            _parse_hop(index, pair, list_field(record, "evidences", record_name), record_name)
            for index, pair in enumerate(list_field(record, "qa_pairs", record_name))
        ),
        titles=fact_titles(record, record_name) or gold_titles(paragraphs),
    )


def _parse_hop(index: int, pair: Record, evidences: list[Any], record_name: str) -> GoldHop:
    """Return a sub-question with the object of the (subject, relation, object) that its sentence states.

    If no triple fits, the sentence is the answer.
    """
    # Sub-questions mostly stand in the order of the triples, so that of the same place is tried first. A date
    # may be written in two ways: then the subject tells. What the sub-question itself names, such as the
    # subject that its sentence repeats, is not its answer.
    question, sentence = text_field(pair, "question", record_name), text_field(pair, "answer", record_name)
    triples = [triple for triple in evidences if isinstance(triple, list | tuple) and len(triple) == 3]
    candidates = triples[index : index + 1] + triples
    new = [triple for triple in candidates if not mentions([question], [str(triple[2])])]
    in_sentence = [triple for triple in new if mentions([sentence], [str(triple[2])])]
    about = [triple for triple in candidates if mentions([question], [str(triple[0])])]
    fitting = [triple for triple in in_sentence if triple in about] or in_sentence or about
    answer = str(fitting[0][2]) if fitting else sentence
    return GoldHop(question, answer, says=sentence if mentions([sentence], [answer]) else "")


def read_aliases(path: str) -> Aliases:
    """Read 2WikiMultihopQA's ``id_aliases.json``: from Wikidata id to aliases and demonyms."""
    aliases = {}
    for number, record in enumerate(read_records(path), 1):
        where = f"{path}, record {number}"
        aliases[text_field(record, "Q_id", where)] = (
            *texts_field(record, "aliases", where),
            *texts_field(record, "demonyms", where),
        )
    return aliases


def add_aliases(question: Question, record: Record, aliases: Aliases) -> Question:
    """Add the aliases of the record's ``answer_id`` to the gold answers, as 2Wiki's scorer v1.1 does."""
    names = aliases.get(str(record.get("answer_id")), ())
    return replace(question, answers=distinct(*question.answers, *names))


DATASETS = (
    Dataset(
        "2wikimultihopqa",
        "2WikiMultihopQA, official files (and 'aliases')",
        parse,
        marks=frozenset(("question", "supporting_facts", "evidences")),
        scorer="2wikimultihopqa",
        paragraphs=context_paragraphs,
        optional=("context", "paragraphs", "supporting_facts", "evidences", "qa_pairs"),
        read_aliases=read_aliases,
        add_aliases=add_aliases,
    ),
)
