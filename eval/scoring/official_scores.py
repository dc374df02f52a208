"""The official scores of whole prediction files, supporting facts, evidence and provenance included.

Each function takes what the official script of its dataset takes, already parsed. It returns means over the
gold questions by measure, as fractions and unrounded. What :mod:`eval.datasets.exports` writes is checked
with these. What a gold question lacks, such as the supporting facts in a release without them, is not scored:
the scripts compare with nothing there, and call an empty prediction right.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from corag.core.errors import DataError
from corag.data.fields import Record, distinct, gold_answer, list_field, require_id, texts_field
from eval.datasets.paragraphs import supporting_facts
from eval.datasets.sets import kilt
from eval.datasets.sets.kilt import provenance_pages
from eval.datasets.sets.musique import numbered_paragraphs
from eval.scoring.retrieval_metrics import page_recall, r_precision, with_provenance
from eval.scoring.scorers import NOTHING_RIGHT, SCORERS, ItemScore, harmonic_mean

Predictions = Mapping[str, Mapping[str, Any]]
Parts = Mapping[str, ItemScore | None]
"""A question's scores by part: None for one that the prediction lacks, no entry for one without gold."""
Aliases = Mapping[str, tuple[str, ...]]
"""2WikiMultihopQA's other names of an answer, by its id."""
_NO_ALIASES: Aliases = {}
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def support_score(predictions: Sequence[object], gold: Sequence[object]) -> ItemScore:
    """Compare two lists of facts as sets (HotpotQA's update_sp). When both are empty, EM is 1 and F1 is 0.

    The lists must hold no fact twice: each is counted.
    """
    right = sum(fact in gold for fact in predictions)
    misses = sum(fact not in predictions for fact in gold)
    precision = right / len(predictions) if predictions else 0.0
    recall = right / (right + misses) if right + misses else 0.0
    em = float(right == len(predictions) and not misses)
    return ItemScore(em, harmonic_mean(precision, recall), precision, recall)


def evidence_score(triples: Iterable[Sequence[str]], gold: Sequence[Iterable[Sequence[str]]]) -> ItemScore:
    """Compare triples (2WikiMultihopQA's update_evi). ``gold``: for each triple every way to write it.

    Two predicted ways to write one gold triple both count as right.
    """
    predictions = {_plain(triple) for triple in triples}
    gold_ways = [{_plain(triple) for triple in ways} for ways in gold]
    # Of the predictions, as the script counts: so two ways to write one gold triple are two right ones.
    right = sum(any(triple in ways for ways in gold_ways) for triple in predictions)
    precision = right / len(predictions) if predictions else 0.0
    recall = right / len(gold_ways) if gold_ways else 0.0
    em = float(right == len(predictions) == len(gold_ways))
    return ItemScore(em, harmonic_mean(precision, recall), precision, recall)


def joint_score(parts: Iterable[ItemScore]) -> ItemScore:
    """Multiply the parts' EM, precision and recall; F1 is of the products (HotpotQA, 2WikiMultihopQA)."""
    ems, precisions, recalls = zip(*((part.em, part.precision, part.recall) for part in parts), strict=True)
    precision, recall = math.prod(precisions), math.prod(recalls)
    return ItemScore(math.prod(ems), harmonic_mean(precision, recall), precision, recall)


def hotpotqa_scores(prediction: Predictions, gold: Iterable[Record]) -> dict[str, float]:
    """Score ``{"answer": {id: text}, "sp": {id: [[title, sentence], ...]}}`` by hotpot_evaluate_v1.

    A question whose answer or facts are missing from the prediction scores 0 in these and jointly.
    """
    rows: list[Parts] = []
    for record in gold:
        name = require_id(record, "gold")
        answer, support = prediction["answer"].get(name), prediction["sp"].get(name)
        answers = gold_answer(record, "gold")
        parts = {"answer": None if answer is None else SCORERS["hotpotqa"].score(answer, answers)}
        if facts := _facts(supporting_facts(record, "gold")):
            parts["sp"] = None if support is None else support_score(_facts(support), facts)
        rows.append(_with_joint(parts, 2))
    return _means(rows)


def two_wiki_scores(
    prediction: Predictions, gold: Iterable[Record], aliases: Aliases = _NO_ALIASES
) -> dict[str, float]:
    """Score "answer", "sp" and ``"evidence": {id: [[subject, relation, object], ...]}`` by 2Wiki's v1.1.

    ``aliases``: what ``id_aliases.json`` says; without it the figures are lower. The script prints
    percentages. Titles of facts are compared in lower case, unlike HotpotQA's.
    """
    rows: list[Parts] = []
    for record in gold:
        name = require_id(record, "gold")
        answer, support, evidence = (prediction[part].get(name) for part in ("answer", "sp", "evidence"))
        answers = distinct(*gold_answer(record, "gold"), *aliases.get(str(record.get("answer_id")), ()))
        parts = {"answer": None if answer is None else SCORERS["2wikimultihopqa"].score(answer, answers)}
        if facts := _lower(_facts(supporting_facts(record, "gold"))):
            parts["sp"] = None if support is None else support_score(_lower(_facts(support)), facts)
        if triples := _gold_triples(record, aliases):
            parts["evi"] = None if evidence is None else evidence_score(evidence, triples)
        rows.append(_with_joint(parts, 3))
    return _means(rows)


def musique_scores(predictions: Sequence[Record], gold: Sequence[Record]) -> dict[str, float]:
    """Score lines {"id", "predicted_answer", "predicted_support_idxs", ...} by MuSiQue-Answerable's v1.0.

    Raises :class:`DataError` unless both have the same ids in the same order, as the script wants them.
    """
    if [record["id"] for record in predictions] != [record["id"] for record in gold]:
        raise DataError(
            "MuSiQue's predictions must have the ids of the gold file in its order, but the "
            f"{len(predictions)} predictions do not match the {len(gold)} gold questions."
        )
    rows: list[Parts] = []
    for prediction, record in zip(predictions, gold, strict=True):
        answers = distinct(*gold_answer(record, "gold"), *texts_field(record, "answer_aliases", "gold"))
        predicted_facts = list(dict.fromkeys(map(int, prediction["predicted_support_idxs"])))
        gold_facts = [number for number, paragraph in numbered_paragraphs(record, "gold") if paragraph.gold]
        # Where HotpotQA's rule gives F1 0 for two empty lists, MuSiQue's gives 1.
        nothing_to_find = not (predicted_facts or gold_facts)
        support = (
            ItemScore(1.0, 1.0, 0.0, 0.0) if nothing_to_find else support_score(predicted_facts, gold_facts)
        )
        rows.append(
            {"answer": SCORERS["musique"].score(prediction["predicted_answer"], answers), "support": support}
        )
    return _means(rows)


def kilt_scores(predictions: Iterable[Record], gold: Iterable[Record]) -> dict[str, float]:
    """Score lines {"id", "output": [{"answer", "provenance": [...]}]} by KILT's eval_downstream.py.

    ``provenance`` is a list of {"wikipedia_id"}. The KILT scores count an answer only if the R-precision of
    its pages is 1. An empty ``provenance``, which Hugging Face's release fills in where the official files
    have none, is no set to be found. Raises :class:`DataError` for a gold question without a prediction, and
    for a prediction without exactly one output with an answer.
    """
    rule = SCORERS["kilt"]
    by_id = {str(record["id"]).strip(): record for record in predictions}  # some tasks number their questions
    rows = []
    for record in gold:
        question = kilt.parse(record, "gold")
        if question.id not in by_id:
            raise DataError(
                f"there is no prediction for question '{question.id}': KILT wants one for every question."
            )
        outputs = list_field(by_id[question.id], "output", f"prediction '{question.id}'")
        if len(outputs) != 1 or "answer" not in outputs[0]:
            raise DataError(f"prediction '{question.id}' must have exactly one output with an answer.")
        prediction = str(outputs[0]["answer"])
        item = rule.score(prediction, question.answers)
        measures = {
            "accuracy": rule.best_accuracy(prediction, question.answers),
            "em": item.em,
            "f1": item.f1,
        }
        pages = provenance_pages(outputs[0], question.id)
        sets = [
            gold_pages
            for output in list_field(record, "output", "gold")
            if (gold_pages := provenance_pages(output, "gold"))
        ]
        rows.append(
            measures
            | with_provenance(measures, r_precision(pages, sets))
            | {"recall@5": page_recall(pages, sets, 5)}
        )
    return _averages(rows)


def _gold_triples(record: Record, aliases: Aliases) -> list[list[tuple[str, str, str]]]:
    """Return for each evidence triple every way to write it, subjects and objects with their aliases.

    Releases without ``evidences_id`` name no aliases: each triple then has one way.
    """
    triples = list_field(record, "evidences", "gold")
    ids = list_field(record, "evidences_id", "gold") or [("", "", "")] * len(triples)
    if len(ids) != len(triples):
        raise DataError(
            f"gold: question '{require_id(record, 'gold')}' has {len(triples)} evidences, but {len(ids)} "
            "evidences_id."
        )
    return [
        [
            (subject_name, relation, object_name)
            for subject_name, object_name in itertools.product(
                (subject, *aliases.get(str(subject_id), ())), (target, *aliases.get(str(target_id), ()))
            )
        ]
        for (subject, relation, target), (subject_id, _, target_id) in zip(triples, ids, strict=True)
    ]


def _facts(pairs: Iterable[Sequence[Any]]) -> list[tuple[str, Any]]:
    return list(dict.fromkeys((title, sentence) for title, sentence in pairs))


def _lower(facts: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(title.lower(), sentence) for title, sentence in facts]


def _plain(triple: Sequence[str]) -> tuple[str, ...]:
    """Lower-case, drop ASCII punctuation, squeeze spaces; articles stay."""
    return tuple(" ".join(part.lower().translate(_PUNCTUATION).split()) for part in triple)


def _with_joint(parts: Parts, count: int) -> Parts:
    """Add the joint score if the gold record has all ``count`` parts: None unless the prediction has them."""
    if len(parts) < count:
        return parts
    items = [item for item in parts.values() if item is not None]
    return {**parts, "joint": joint_score(items) if len(items) == count else None}


def _means(rows: Sequence[Parts]) -> dict[str, float]:
    """Return the means: a part's measures are called part_em, part_f1 and so on, an answer's just em, f1.

    A part that a prediction lacks counts as 0; one that all predictions lack is left out.
    """
    measured_parts = {part for row in rows for part, item in row.items() if item is not None}
    return _averages(
        [
            {
                f"{part}_{name}".removeprefix("answer_"): value
                for part, item in row.items()
                if part in measured_parts
                for name, value in asdict(item or NOTHING_RIGHT).items()
            }
            for row in rows
        ]
    )


def _averages(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each measure over the rows that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: sum(each) / len(each) for name, each in values.items()}
