"""One finished question as a line of JSON: written from what a method did, read back for every reader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from corag.core.citations import Claim
from corag.core.errors import DataError
from corag.core.prompting.prompt import Shortening
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Step
from corag.core.types import NOTHING_SPENT, Answer, GoldHop, Hit, Passage, Question, TokenUsage, sum_usage


@dataclass(frozen=True, slots=True)
class Row:
    """One finished question: its answer, steps and tokens.

    ``error`` is "" unless the question failed. ``answer`` is None for a failed question. ``seconds``: from
    first call to answer, waiting included. ``begun``: when, in seconds since 1970; the steps' ``started``
    counts from there. 0 if that is not known. ``read_ids``: the passages whose text stood in a prompt that
    led to the answer, those first that carry it. ``citations``: the sentences of an answer that cites
    passages, each with what is wrong with it.
    """

    question: Question
    answer: Answer | None
    steps: tuple[Step, ...]
    usage: Mapping[str, TokenUsage]
    seconds: float
    error: str = ""
    begun: float = 0.0
    read_ids: tuple[str, ...] = ()
    citations: tuple[Claim, ...] = ()

    @property
    def total_usage(self) -> TokenUsage:
        """The sum over all roles but that of what was only measured."""
        return sum_usage(self.usage)

    def to_json(self, opened_at: float = 0.0) -> bytes:
        """Write the row as one line. Passages appear by id, title and score.

        ``opened_at``: seconds since 1970 when the start that answered the question opened its run: rows of
        one start share it.
        """
        record: dict[str, Any] = {
            "id": self.question.id,
            "question": asdict(self.question),
            "answer": None if self.answer is None else asdict(self.answer),
            "error": self.error,
            "seconds": round(self.seconds, 4),
            "opened": round(opened_at, 6),
            "begun": round(self.begun, 6),
            "read": self.read_ids,
            "usage": {role: usage.to_json() for role, usage in self.usage.items()},
            "steps": [step_record(step) for step in self.steps],
        }
        if self.citations:
            record["citations"] = [asdict(claim) for claim in self.citations]
        return orjson.dumps(record) + b"\n"


def step_record(step: Step) -> dict[str, Any]:
    """Return a step as it stands in its row, JSON values.

    Passages come without their texts, which would be most of the line: the index has them.
    """
    if not isinstance(step, SearchStep):
        record = {"kind": step.kind, **asdict(step), "usage": step.usage.to_json()}
        return _with_thoughts(record, step) if isinstance(step, GenerateStep) else record
    hits = [
        {"id": hit.passage.id, "title": hit.passage.title, "score": hit.score, **hit.passage.place}
        for hit in step.hits
    ]
    return {
        "kind": step.kind,
        "path": step.path,
        "query": step.query,
        "k": step.k,
        "hits": hits,
        "seconds": step.seconds,
        "started": step.started,
        "remembered": step.remembered,
        **({"note": step.note} if step.note else {}),
    }


def _with_thoughts(record: dict[str, Any], step: GenerateStep) -> dict[str, Any]:
    """Return a generation's record with what it says of thoughts, where there were any."""
    thought_fields = {
        "thinking": step.thinking.to_json() if step.thinking != NOTHING_SPENT else None,
        "thoughts_cut": step.thoughts_cut,
        "thoughts": step.thoughts,
    }
    others = {name: value for name, value in record.items() if name not in thought_fields}
    return others | {name: value for name, value in thought_fields.items() if value}


@dataclass(frozen=True, slots=True)
class SavedAnswer(Answer):
    """An answer read back.

    ``further``: the fields that its method adds to those of all answers, as JSON values.
    """

    further: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as it stands in its line."""
        common = {
            "text": self.text,
            "passage_ids": self.passage_ids,
            "steps": self.steps,
            "stopped": self.stopped,
        }
        return common | dict(self.further)

    @property
    def shown_ids(self) -> tuple[str, ...]:
        """The passages of the final prompt by their numbers there."""
        return tuple(self.further.get("context_ids", self.passage_ids))


@dataclass(frozen=True, slots=True)
class SavedRow:
    """A :class:`Row` read back.

    ``searches``: how many there were. ``remembered_searches``: those of them that an equal one had made.
    ``thoughts_cut``: how many of the model's thoughts reached the end of their budget.
    ``steps_json``: the steps as JSON text: few readers want them, a tree has hundreds, and parsed they would
    be most of what the rows of a long run hold.
    """

    question: Question
    answer: SavedAnswer | None
    usage: Mapping[str, TokenUsage]
    seconds: float
    error: str
    opened: float
    begun: float
    searches: int
    remembered_searches: int
    steps_json: bytes
    read_ids: tuple[str, ...] = ()
    thoughts_cut: int = 0
    citations: tuple[Claim, ...] = ()

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> SavedRow:
        """Read what :meth:`Row.to_json` wrote, parsed.

        Raises :class:`DataError` for a record of another shape.
        """
        try:
            return cls(
                _parse_question(record["question"]),
                _parse_answer(record["answer"]),
                {role: TokenUsage(**usage) for role, usage in record["usage"].items()},
                float(record["seconds"]),
                record["error"],
                float(record["opened"]),
                float(record["begun"]),
                sum(step["kind"] == SearchStep.kind for step in record["steps"]),
                sum(step.get("remembered", False) for step in record["steps"]),
                orjson.dumps(record["steps"]),
                tuple(record.get("read", ())),
                sum(step.get("thoughts_cut", 0) for step in record["steps"]),
                tuple(Claim(**claim) for claim in record.get("citations", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError, DataError) as error:
            raise DataError(f"it is not an answered question ({error!r}). Remove that line.") from None

    @classmethod
    def without_answer(cls, question: Question) -> SavedRow:
        """Return the row of a question that nothing was done for."""
        return cls(question, None, {}, 0.0, "", 0.0, 0.0, 0, 0, b"[]")

    @property
    def text(self) -> str:
        """The answer's text, "" for a failed question."""
        return self.answer.text if self.answer else ""

    @property
    def passage_ids(self) -> tuple[str, ...]:
        """The passages that the method collected, none for a failed question."""
        return self.answer.passage_ids if self.answer else ()

    @property
    def further(self) -> Mapping[str, Any]:
        """What the method adds to its answer, nothing for a failed question."""
        return self.answer.further if self.answer else {}

    @property
    def total_usage(self) -> TokenUsage:
        """The sum over all roles but that of what was only measured."""
        return sum_usage(self.usage)

    @property
    def sources(self) -> list[dict[str, Any]]:
        """What the answer rests on, see :func:`collect_sources`; nothing for a failed question."""
        if self.answer is None:
            return []
        return collect_sources(self.passage_ids, orjson.loads(self.steps_json), self.read_ids)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, parsed anew at every call; passages lack their texts."""
        return tuple(map(_parse_step, orjson.loads(self.steps_json)))


def collect_sources(
    ids: Sequence[str], steps: Sequence[Mapping[str, Any]], read: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the passages that an answer rests on: those that were read for it, then the others collected.

    Each says under "read" which it is. The former come as the row has them, those that carry the answer
    first, the latter in the order of collection. Titles and origins are those that searches returned.
    ``steps``: as rows have them.
    """
    hits = {hit["id"]: hit for step in steps for hit in step.get("hits", ())}
    was_read = set(read)
    return [
        {
            "id": name,
            "title": "",
            **{key: value for key, value in hits.get(name, {}).items() if key != "score"},
            "read": name in was_read,
        }
        for name in dict.fromkeys((*read, *ids))
    ]


_QUESTION_LISTS = ("answers", "supporting", "context_ids", "titles")


def _parse_question(record: Mapping[str, Any]) -> Question:
    lists = {name: tuple(record.get(name, ())) for name in _QUESTION_LISTS}
    decomposition = tuple(GoldHop(**hop) for hop in record.get("decomposition", ()))
    pages = tuple(map(tuple, record.get("pages", ())))
    return Question(**{**record, **lists, "decomposition": decomposition, "pages": pages})


def _parse_answer(record: Mapping[str, Any] | None) -> SavedAnswer | None:
    if record is None:
        return None
    further = dict(record)
    text, ids, steps, stop_reason = (
        further.pop(name) for name in ("text", "passage_ids", "steps", "stopped")
    )
    return SavedAnswer(text, tuple(ids), steps, stop_reason, further)


def _parse_step(record: Mapping[str, Any]) -> Step:
    values = {name: value for name, value in record.items() if name != "kind"}
    if record["kind"] == SearchStep.kind:
        return SearchStep(**values | {"hits": tuple(map(_parse_hit, record["hits"]))})
    dropped_items = tuple((kind, count) for kind, count in record["shortening"]["dropped"])
    values["usage"] = TokenUsage(**record["usage"])
    values["shortening"] = Shortening(dropped_items, record["shortening"]["cut_tokens"])
    if record["kind"] == ScoreStep.kind:
        return ScoreStep(**values | {"log_likelihood": log_likelihood(record["log_likelihood"])})
    lists = {name: tuple(record.get(name, ())) for name in ("texts", "finish_reasons", "thoughts")}
    values["thinking"] = TokenUsage(**record.get("thinking", {}))
    return GenerateStep(**values | lists)


def _parse_hit(record: Mapping[str, Any]) -> Hit:
    origin = record.get("source", ""), record.get("page", 0)
    return Hit(Passage(record["id"], record["title"], "", *origin), record["score"])


def log_likelihood(value: float | None) -> float:
    """Read a log-likelihood: JSON has no infinity, so that of a text of probability 0 was written as null."""
    return -math.inf if value is None else value
