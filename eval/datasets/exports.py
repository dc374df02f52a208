"""A run's rows in the formats of other tools: official prediction files, TREC runs.

A failed question is exported with an empty answer, because official scripts want every question. No method
here predicts sentences or triples: supporting facts and evidence are taken from an answer's fields
``supporting_facts`` ([title, sentence] pairs) and ``evidences`` ([subject, relation, object]) where a method
of yours fills them, and are empty otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from corag.core.errors import ConfigError, DataError
from corag.core.runs.rows import SavedRow
from corag.core.tools import SearchStep
from corag.data.fields import Record, require_id
from eval.datasets.pages import page_id
from eval.datasets.sets.musique import numbered_paragraphs

Rows = Mapping[str, SavedRow]


def hotpotqa_prediction(rows: Rows) -> dict[str, dict[str, Any]]:
    """Return HotpotQA's prediction: ``{"answer": {id: text}, "sp": {id: [[title, sentence], ...]}}``."""
    return {
        "answer": {name: row.text for name, row in rows.items()},
        "sp": {name: list(row.further.get("supporting_facts", ())) for name, row in rows.items()},
    }


def two_wiki_prediction(rows: Rows) -> dict[str, dict[str, Any]]:
    """Return 2WikiMultihopQA's: HotpotQA's with ``"evidence": {id: [[subject, relation, object], ...]}``."""
    return {
        **hotpotqa_prediction(rows),
        "evidence": {name: list(row.further.get("evidences", ())) for name, row in rows.items()},
    }


def musique_lines(rows: Rows, questions: Iterable[Record], top_k: int = 0) -> Iterator[dict[str, Any]]:
    """Yield MuSiQue's prediction lines for the rows' questions, in the order of the question file.

    The official script insists on that order. Support: those of the question's own paragraphs that are among
    the first ``top_k`` passages collected (0: among all), so it is empty if another corpus was searched.
    Every question is held to be answerable. Raises :class:`DataError` for a question without paragraphs.
    """
    for record in questions:
        name = require_id(record, "questions")
        if name in rows:
            passage_ids = set(_passages(rows[name], top_k))
            yield {
                "id": name,
                "predicted_answer": rows[name].text,
                "predicted_support_idxs": [
                    number
                    for number, paragraph in numbered_paragraphs(record, "questions")
                    if paragraph.passage.id in passage_ids
                ],
                "predicted_answerable": True,
            }


def kilt_lines(rows: Rows, top_k: int = 0, formats: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield KILT's prediction lines.

    Args:
        rows: by question id.
        top_k: provenance is the pages of the first so many passages collected, in their order; 0: of all.
        formats: what the corpora searched were read as ('corag index --format').

    Raises:
        DataError: for a corpus whose ids are numbers of rows, which look like pages and are none, and for a
            passage whose id does not begin with a page's number.
    """
    if "dpr" in formats:  # would pass for pages below: a row's number is decimal too
        raise DataError(
            "the run searched a corpus of the format 'dpr', whose passage ids are numbers of rows, not of "
            "Wikipedia's pages: KILT's provenance needs ids that begin with the wikipedia_id ('corag index "
            "--format kilt')."
        )
    for name, row in rows.items():
        titles = {
            hit.passage.id: hit.passage.title
            for step in row.steps
            if isinstance(step, SearchStep)
            for hit in step.hits
        }
        pages: dict[str, str] = {}
        for passage in _passages(row, top_k):
            if not page_id(passage).isdecimal():
                raise DataError(
                    f"the passage '{passage}' of question '{name}' does not say which page it is of: KILT's "
                    "provenance needs passage ids that begin with the wikipedia_id, such as 290 or 290-3 "
                    "('corag index --format kilt')."
                )
            pages.setdefault(page_id(passage), titles.get(passage, ""))
        provenance = [{"wikipedia_id": page, "title": title} for page, title in pages.items()]
        output = [{"answer": row.text, "provenance": provenance}]
        yield {"id": name, "input": row.question.text, "output": output}


def trec_lines(rows: Rows, tag: str, top_k: int = 0) -> Iterator[str]:
    """Yield a TREC run: ``qid Q0 docid rank score tag``, the passages collected in the method's own order.

    That order is fused over searches for CoRAG, of collection for IRCoT. Passages of different searches have
    no scores in common, so these carry the order and nothing else: the last passage of a question has 1, the
    one before it 2. Raises :class:`DataError` for an id with white space, which the format cannot hold.
    """
    if tag.split() != [tag]:
        raise ConfigError(f"the tag of a TREC run is one word, but '{tag}' was given.")
    for name, row in rows.items():
        passages = _passages(row, top_k)
        for rank, passage in enumerate(passages, 1):
            yield f"{_require_word(name)} Q0 {_require_word(passage)} {rank} {len(passages) - rank + 1} {tag}"


def qrels_lines(rows: Rows) -> Iterator[str]:
    """Yield TREC's judgements: ``qid 0 docid 1`` for each gold passage of the questions.

    Raises :class:`DataError` for an id with white space, which the format cannot hold, and if there are no
    gold passages at all.
    """
    if not any(row.question.supporting for row in rows.values()):
        raise DataError("the run's questions have no gold passages: there are no judgements to write.")
    for name, row in rows.items():
        for passage in dict.fromkeys(row.question.supporting):
            yield f"{_require_word(name)} 0 {_require_word(passage)} 1"


def browsecomp_plus_records(rows: Rows, top_k: int = 0) -> Iterator[dict[str, Any]]:
    """Yield what BrowseComp-Plus's ``evaluate_run.py`` reads, an object for each question.

    A failed question has the status "failed" and no output. ``retrieved_docids``: of all passages collected,
    or of the first ``top_k``; chunks of a page (``ID#2``) count as the page, once.
    """
    for name, row in rows.items():
        pages = dict.fromkeys(passage.partition("#")[0] for passage in _passages(row, top_k))
        yield {
            "query_id": name,
            "tool_call_counts": {"search": row.searches},
            "status": "failed" if row.answer is None else "completed",
            "retrieved_docids": list(pages),
            "result": [] if row.answer is None else [{"type": "output_text", "output": row.text}],
        }


def _require_word(identity: str) -> str:
    """Return an id. Raises :class:`DataError` for one that a line of words cannot hold."""
    if identity.split() != [identity]:
        raise DataError(
            f"the id '{identity}' is empty or has white space in it, which TREC's files cannot hold."
        )
    return identity


def _passages(row: SavedRow, top_k: int) -> Sequence[str]:
    """Return the first ``top_k`` different passages collected; 0 for all."""
    return list(dict.fromkeys(row.passage_ids))[: top_k or None]
