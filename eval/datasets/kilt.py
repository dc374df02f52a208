"""KILT (Petroni et al. 2021): entity linking, slot filling, question answering, fact checking in one format.

A record has an ``input``, and in ``output`` its gold answers and, for each, the Wikipedia pages that bear it
out. Test files have no ``output``; their questions can be answered and exported, not scored. Gold pages are
named by ``wikipedia_id``, so passages of the corpus must say which page they are of: a passage's id is the
``wikipedia_id`` itself or begins with it, followed by "-" or "#" and anything ("290", "290-3", "290#3").
``corag index --format kilt`` gives such ids to the paragraphs of KILT's knowledge source, and to the passages
of corag/kilt-corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError, DataError, nearest
from core.types import Question
from eval.datasets.fields import Record, distinct, list_field, name_record, require_id, text_field

_SEPARATOR = "[SEP]"  # between subject and relation in T-REx and zero-shot relation extraction
_LINKING = (
    "say which Wikipedia page the words between [START_ENT] and [END_ENT] stand for, by the exact title of "
    "that page"
)
_SLOT = "complete a fact: before [SEP] stands the subject, after it the relation; reply with the object"


@dataclass(frozen=True, slots=True)
class KiltTask:
    """One of KILT's datasets: what it is, and how a prompt may say what is asked for (a prompt's {task})."""

    title: str
    task: str


KILT_TASKS = {
    "kilt_aidayago2": KiltTask("KILT AIDA CoNLL-YAGO, entity linking", _LINKING),
    "kilt_wned": KiltTask("KILT WNED-WIKI, entity linking", _LINKING),
    "kilt_cweb": KiltTask("KILT WNED-CWEB, entity linking", _LINKING),
    "kilt_trex": KiltTask("KILT T-REx, slot filling", _SLOT),
    "kilt_structured_zeroshot": KiltTask("KILT zero-shot relation extraction, slot filling", _SLOT),
    "kilt_nq": KiltTask("KILT Natural Questions", "answer questions that people typed into a search engine"),
    "kilt_hotpotqa": KiltTask("KILT HotpotQA", "answer multi-hop questions"),
    "kilt_triviaqa": KiltTask("KILT TriviaQA", "answer trivia questions"),
    "kilt_fever": KiltTask(
        "KILT FEVER, fact checking",
        "check a claim: reply SUPPORTS if Wikipedia bears it out, REFUTES if Wikipedia contradicts it",
    ),
}


def task_description(dataset: str) -> str:
    """Return what the questions of a dataset are like, for a method's option ``task`` unless that is stated.

    Raises :class:`ConfigError` for a dataset that has no description of its own.
    """
    if dataset not in KILT_TASKS:
        raise ConfigError(f"there is no task description for '{dataset}': {nearest(dataset, KILT_TASKS)}")
    return KILT_TASKS[dataset].task


def kilt(record: Record, where: str) -> Question:
    """Read a record of any KILT task. The input is kept as it is, marks included; no template is filled in.

    ``supporting`` are the gold pages of all answers; ``pages`` keeps them apart: one set for each way to bear
    an answer out. ``kind`` is the relation, for inputs of the form "subject [SEP] relation". Raises
    :class:`DataError` naming ``where`` and the field, also for outputs without any answer.
    """
    place = name_record(record, where)
    outputs = [_output(value, place) for value in list_field(record, "output", place)]
    answers = distinct(*(answer for answer, _ in outputs if answer))
    if outputs and not answers:
        raise DataError(f"{place}: none of the {len(outputs)} outputs has an answer: expected at least one.")
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


def _output(output: Any, place: str) -> tuple[str, tuple[str, ...]]:
    """Return an output's answer, "" if it has none, and the different pages of its provenance."""
    if not isinstance(output, Mapping):
        raise DataError(f"{place}: field 'output' must be a list of objects, but has {output!r:.60}.")
    answer = output.get("answer")
    if not isinstance(answer, str | None):
        raise DataError(f"{place}: an output's answer must be a text, but is {answer!r:.60}.")
    return (answer or "").strip(), distinct(*provenance_pages(output, place))


def provenance_pages(output: Mapping[str, Any], place: str) -> Sequence[str]:
    """Return the ``wikipedia_id`` of each piece of an output's provenance that has one, repeats included."""
    provenance = output.get("provenance") or []
    if not isinstance(provenance, list) or not all(isinstance(piece, Mapping) for piece in provenance):
        raise DataError(
            f"{place}: an output's provenance must be a list of objects, but is {provenance!r:.60}."
        )
    pages = (piece.get("wikipedia_id") for piece in provenance)
    return [str(page).strip() for page in pages if page not in (None, "")]
