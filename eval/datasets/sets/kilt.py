"""KILT (Petroni et al. 2021): entity linking, slot filling, question answering, fact checking in one format.

A record has an ``input``, and in ``output`` its gold answers and, for each, the Wikipedia pages that bear it
out. Test files have no ``output``; their questions can be answered and exported, not scored. Gold pages are
named by ``wikipedia_id``, so passages of the corpus must say which page they are of: a passage's id is the
``wikipedia_id`` itself or begins with it, followed by "-" or "#" and anything ("290", "290-3", "290#3").
``corag index --format kilt`` gives such ids to the paragraphs of KILT's knowledge source, and to the passages
of corag/kilt-corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.core.errors import DataError
from corag.core.types import Passage, Question
from corag.data.fields import Record, distinct, list_field, name_record, require_id, text_field
from corag.data.records import Note, OddRecordError
from corag.data.records import Record as FileRecord
from eval.datasets.dataset import CorpusFormat, Dataset
from retrieval.corpora.passages import CorpusItem, Reading, passage_from_record, read_file

_SEPARATOR = "[SEP]"  # between subject and relation in T-REx and zero-shot relation extraction
_LINKING = (
    "say which Wikipedia page the words between [START_ENT] and [END_ENT] stand for, by the exact title of "
    "that page"
)
_SLOT = "complete a fact: before [SEP] stands the subject, after it the relation; reply with the object"


def parse(record: Record, where: str) -> Question:
    """Read a record of any KILT task. The input is kept as it is, marks included; no template is filled in.

    ``supporting`` are the gold pages of all answers; ``pages`` keeps them apart: one set for each way to bear
    an answer out. ``kind`` is the relation, for inputs of the form "subject [SEP] relation". Raises
    :class:`DataError` naming ``where`` and the field, also for outputs without any answer.
    """
    record_name = name_record(record, where)
    outputs = [_output(value, record_name) for value in list_field(record, "output", record_name)]
    answers = distinct(*(answer for answer, _ in outputs if answer))
    if outputs and not answers:
        raise DataError(
            f"{record_name}: none of the {len(outputs)} outputs has an answer: expected at least one."
        )
    text = text_field(record, "input", where)
    # Outputs repeat provenance, and some have none: what is left are the ways to bear an answer out.
    pages = dict.fromkeys(pages for _, pages in outputs if pages)
    return Question(
        id=require_id(record, where),
        text=text,
        answers=answers,
        supporting=distinct(*(page for group in pages for page in group)),
        kind=text.rpartition(_SEPARATOR)[2].strip() if _SEPARATOR in text else "",
        pages=tuple(pages),
    )


def _output(output: Any, record_name: str) -> tuple[str, tuple[str, ...]]:
    """Return an output's answer, "" if it has none, and the different pages of its provenance."""
    if not isinstance(output, Mapping):
        raise DataError(f"{record_name}: field 'output' must be a list of objects, but has {output!r:.60}.")
    answer = output.get("answer")
    if not isinstance(answer, str | None):
        raise DataError(f"{record_name}: an output's answer must be a text, but is {answer!r:.60}.")
    return (answer or "").strip(), distinct(*provenance_pages(output, record_name))


def provenance_pages(output: Mapping[str, Any], record_name: str) -> Sequence[str]:
    """Return the ``wikipedia_id`` of each piece of an output's provenance that has one, repeats included."""
    provenance = output.get("provenance") or []
    if not isinstance(provenance, list) or not all(isinstance(piece, Mapping) for piece in provenance):
        raise DataError(
            f"{record_name}: an output's provenance must be a list of objects, but is {provenance!r:.60}."
        )
    pages = (piece.get("wikipedia_id") for piece in provenance)
    return [str(page).strip() for page in pages if page not in (None, "")]


def read_kilt(paths: Sequence[str | Path], reading: Reading) -> Iterator[CorpusItem]:
    """Read KILT's knowledge source (an article per line) or corag/kilt-corpus (a passage per line).

    A paragraph of an article's ``text`` becomes a passage with the id "<article id>-<place in the list>". The
    first one repeats the title and those starting with "Section::::" are headings: neither is a passage, and
    both are counted. A line with ``contents`` gets "<wikipedia_id>-<id>", since its own id is the number of
    its row.
    """
    for path in paths:
        headings = 0
        for record in read_file(path, reading):
            if not isinstance(record, FileRecord):
                yield record
                continue
            try:
                if "contents" in record.fields:
                    yield _kilt_passage(record.fields, record.where)
                else:
                    paragraphs = _kilt_paragraphs(record.fields, record.where)
                    headings += len(record.fields["text"]) - len(paragraphs)
                    yield from paragraphs
            except OddRecordError as odd:
                yield odd
        if headings:
            yield Note(f"{path}: {headings:,} headings and repeated titles are no passages")


def _kilt_paragraphs(article: Record, where: str) -> list[Passage]:
    identifier = article.get("wikipedia_id", article.get("_id"))
    title, paragraphs = article.get("wikipedia_title"), article.get("text")
    if identifier is None or not isinstance(title, str) or not isinstance(paragraphs, list):
        raise OddRecordError(
            where,
            "without the fields of an article",
            "expected 'wikipedia_id', 'wikipedia_title' and a list 'text', but found: "
            f"{', '.join(sorted(article))}.",
        )
    passages = []
    for record_name, paragraph in enumerate(paragraphs):
        text = "" if paragraph is None else str(paragraph).strip()
        if text != title and not text.startswith("Section::::"):
            passages.append(Passage(f"{identifier}-{record_name}", title, text))
    return passages


def _kilt_passage(record: Record, where: str) -> Passage:
    page, row = (record.get(name) for name in ("wikipedia_id", "id"))
    if page in (None, "") or row in (None, ""):
        raise OddRecordError(
            where,
            "without the page's id",
            "a passage of KILT's pages needs 'id', 'wikipedia_id', 'title' and 'contents', but found: "
            f"{', '.join(sorted(record))}.",
        )
    return replace(passage_from_record(record, where), id=f"{page}-{row}")


DATASETS = tuple(
    Dataset(
        f"kilt_{name}",
        f"KILT {title}",
        parse,
        scorer="kilt",
        task=task,
        question="input",
    )
    for name, title, task in (
        ("aidayago2", "AIDA CoNLL-YAGO, entity linking", _LINKING),
        ("wned", "WNED-WIKI, entity linking", _LINKING),
        ("cweb", "WNED-CWEB, entity linking", _LINKING),
        ("trex", "T-REx, slot filling", _SLOT),
        ("structured_zeroshot", "zero-shot relation extraction, slot filling", _SLOT),
        ("nq", "Natural Questions", "answer questions that people typed into a search engine"),
        ("hotpotqa", "HotpotQA", "answer multi-hop questions"),
        ("triviaqa", "TriviaQA", "answer trivia questions"),
        (
            "fever",
            "FEVER, fact checking",
            "check a claim: reply SUPPORTS if Wikipedia bears it out, REFUTES if Wikipedia contradicts it",
        ),
    )
)
CORPUS_FORMATS = (CorpusFormat("kilt", read_kilt, has_pages=True),)
