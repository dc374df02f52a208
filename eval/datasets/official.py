"""One function per dataset: a raw record of its official release becomes a :class:`Question`.

``where`` names the record in errors. Supporting ids are those that :mod:`eval.datasets.paragraphs` gives to
the same paragraphs. A record without paragraphs (for use with an open corpus) has none. HotpotQA,
2WikiMultihopQA and MuSiQue hide the answers of their test splits: a record whose field ``answer`` is absent,
None or "" has no gold answer, and is not scored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from core.errors import DataError
from core.files import read_records
from core.seeds import stable_hash
from core.text import mentions
from core.types import GoldHop, Question
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
from eval.datasets.paragraphs import Paragraph, paragraph_rows, paragraphs_of


def hotpotqa(record: Record, where: str) -> Question:
    """HotpotQA (Yang et al. 2018). ``kind`` is bridge or comparison."""
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=gold_answer(record, where),
        supporting=_gold(_paragraphs(record, "hotpotqa", where)),
        kind=str(record.get("type") or ""),
    )


def two_wiki(record: Record, where: str) -> Question:
    """2WikiMultihopQA (Ho et al. 2020).

    ``hops`` counts the evidence triples, which a comparison takes side by side. Sub-questions (``qa_pairs``)
    exist in a decomposed release only, which answers them in sentences; the short answer is taken from the
    evidence triples where one fits. They do not say which passage answers them.
    """
    place = name_record(record, where)
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=gold_answer(record, where),
        supporting=_gold(_paragraphs(record, "2wikimultihopqa", where)),
        kind=str(record.get("type") or ""),
        hops=len(list_field(record, "evidences", place)),
        decomposition=tuple(
            _two_wiki_hop(index, pair, list_field(record, "evidences", place), place)
            for index, pair in enumerate(list_field(record, "qa_pairs", place))
        ),
    )


def musique(record: Record, where: str) -> Question:
    """MuSiQue-Answerable (Trivedi et al. 2022). ``kind`` is the shape of reasoning, such as "3hop1".

    Sub-questions are kept as written: ``#1`` stands for the answer of the first. Unanswerable questions (of
    MuSiQue-Full) are refused, because no scorer here rewards abstaining.
    """
    place = name_record(record, where)
    if record.get("answerable") is False:
        raise DataError(
            f"{place}: this question is unanswerable (MuSiQue-Full); use the answerable release, "
            "'musique_ans'."
        )
    paragraphs = _paragraphs(record, "musique", where)
    identity = require_id(record, where)
    steps = list_field(record, "question_decomposition", place)
    if not all(isinstance(step, Mapping) for step in steps):
        raise DataError(f"{place}: field 'question_decomposition' must be a list of objects.")
    shape = re.match(r"(\d+)hop\d*(?=__)", identity)  # ids begin so, as in 3hop1__136129_...
    return Question(
        id=identity,
        text=text_field(record, "question", where),
        answers=distinct(*gold_answer(record, where), *texts_field(record, "answer_aliases", place)),
        supporting=_gold(paragraphs),
        kind=shape.group() if shape else "",
        hops=int(shape.group(1)) if shape else len(steps),
        decomposition=tuple(_musique_hop(step, paragraphs, place) for step in steps),
    )


def numbered_paragraphs(record: Record, where: str) -> list[tuple[int, Paragraph]]:
    """Return a MuSiQue question's paragraphs with the numbers (``idx``) that the gold ones are named by.

    A paragraph without a number has that of its place. Raises :class:`DataError` if there are no paragraphs,
    or a number is none.
    """
    place = name_record(record, where)
    if not record.get("paragraphs"):
        raise DataError(
            f"{place}: the question comes without paragraphs, which MuSiQue's predicted_support_idxs number: "
            "name the official file with --questions."
        )
    paragraphs = paragraphs_of(record, "musique", where)
    numbers = [row.get("idx") for row in paragraph_rows(record, place)]
    try:
        numbered = [index if number is None else int(number) for index, number in enumerate(numbers)]
    except (TypeError, ValueError):
        raise DataError(
            f"{place}: the field 'idx' of each of 'paragraphs' must be a number, but they are "
            f"{numbers!r:.60}."
        ) from None
    return list(zip(numbered, paragraphs, strict=True))


def bamboogle(record: Record, where: str) -> Question:
    """Bamboogle (Press et al. 2023): question and answer, for an open corpus. Ids derive from the text."""
    record = {name.lower(): value for name, value in record.items()}  # the sheet has Question, Answer
    text = text_field(record, "question", where)
    return Question(f"bamboogle-{stable_hash(text)}", text, (text_field(record, "answer", where),))


def popqa(record: Record, where: str) -> Question:
    """PopQA (Mallen et al. 2023), single-hop. ``kind`` is the relation asked for, such as "occupation"."""
    answers = texts_field(record, "possible_answers", name_record(record, where))
    if not answers:
        raise DataError(f"{name_record(record, where)}: field 'possible_answers' is missing or empty.")
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=distinct(*answers),
        supporting=_gold(_paragraphs(record, "popqa", where)),
        kind=str(record.get("prop") or ""),
    )


def read_aliases(path: str) -> dict[str, tuple[str, ...]]:
    """Read 2WikiMultihopQA's ``id_aliases.json``: from Wikidata id to aliases and demonyms."""
    known = {}
    for number, record in enumerate(read_records(path), 1):
        where = f"{path}, record {number}"
        known[text_field(record, "Q_id", where)] = (
            *texts_field(record, "aliases", where),
            *texts_field(record, "demonyms", where),
        )
    return known


def with_aliases(question: Question, record: Record, aliases: Mapping[str, tuple[str, ...]]) -> Question:
    """Add the aliases of the record's ``answer_id`` to the gold answers, as 2Wiki's scorer v1.1 does."""
    names = aliases.get(str(record.get("answer_id")), ())
    return dataclasses.replace(question, answers=distinct(*question.answers, *names))


def _two_wiki_hop(index: int, pair: Record, evidences: list[Any], place: str) -> GoldHop:
    """Return a sub-question with the object of the (subject, relation, object) that its sentence states.

    If no triple fits, the sentence is the answer.
    """
    # Sub-questions mostly stand in the order of the triples, so that of the same place is tried first. A date
    # may be written in two ways: then the subject tells. What the sub-question itself names, such as the
    # subject that its sentence repeats, is not its answer.
    question, sentence = text_field(pair, "question", place), text_field(pair, "answer", place)
    triples = [triple for triple in evidences if isinstance(triple, list | tuple) and len(triple) == 3]
    ordered = triples[index : index + 1] + triples
    new = [triple for triple in ordered if not mentions([question], [str(triple[2])])]
    stated = [triple for triple in new if mentions([sentence], [str(triple[2])])]
    about = [triple for triple in ordered if mentions([question], [str(triple[0])])]
    fitting = [triple for triple in stated if triple in about] or stated or about
    answer = str(fitting[0][2]) if fitting else sentence
    return GoldHop(question, answer, says=sentence if mentions([sentence], [answer]) else "")


def _musique_hop(step: Record, paragraphs: list[Paragraph], place: str) -> GoldHop:
    index = step.get("paragraph_support_idx")
    if not paragraphs or index is None:
        passage = ""
    elif isinstance(index, int) and 0 <= index < len(paragraphs):
        passage = paragraphs[index].passage.id
    else:
        raise DataError(
            f"{place}: paragraph_support_idx is {index!r}, but there are {len(paragraphs)} paragraphs."
        )
    return GoldHop(text_field(step, "question", place), text_field(step, "answer", place), passage)


def _paragraphs(record: Record, dataset: str, where: str) -> list[Paragraph]:
    if "context" not in record and "paragraphs" not in record:
        return []
    return paragraphs_of(record, dataset, where)


def _gold(paragraphs: list[Paragraph]) -> tuple[str, ...]:
    return distinct(*(paragraph.passage.id for paragraph in paragraphs if paragraph.gold))
