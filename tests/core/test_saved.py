"""What stands in a run folder, read back: all that was written, also by older versions that wrote less."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from corag.core.errors import DataError
from corag.core.prompting.prompt import NOTHING_LEFT_OUT, Shortening
from corag.core.runs.folder import RunFolder, read_lines, read_rows
from corag.core.runs.manifest import MANIFEST, Manifest
from corag.core.runs.rows import Row, SavedAnswer, SavedRow
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Step
from corag.core.types import Answer, GoldHop, Hit, Passage, Question, TokenUsage
from tests.messages import raises_message

USAGE = TokenUsage(1, 10, 2, 8, 2)
ASKED = Question(
    "q", "Where was Ada born?", ("Orvale", "Orval"), ("p1",), "bridge", 2, (GoldHop("Who?", "Ada", "p1"),),
    ("p2",), (("1", "2"),),
)  # fmt: skip
HITS = (Hit(Passage("p1", "Ada", ""), 1.5), Hit(Passage("p2", "Ben", ""), 0.5))
LEFT_OUT = Shortening((("passage", 2),), 7)
STEPS: tuple[Step, ...] = (
    SearchStep("Ada", "hop 1", 5, HITS, 0.1, 0.2),
    GenerateStep("reader", "", ("Orvale", "x"), ("stop", "length"), USAGE, LEFT_OUT, 0.3, "P", 0.4),
    ScoreStep("score", "chain 1", -math.inf, 3, USAGE, NOTHING_LEFT_OUT, 0.5, 0.6),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FactsAnswer(Answer):
    """An answer of a method with more to tell."""

    facts: tuple[str, ...] = ()


ROW = Row(
    ASKED, FactsAnswer("Orvale", ("p1", "p2"), 2, "read", ("born",)), STEPS, {"reader": USAGE}, 1.5, "", 7.25
)


def saved(row: Row) -> SavedRow:
    """Write a row and read it back."""
    return SavedRow.from_json(json.loads(row.to_json(3.5)))


def test_a_row_comes_back_with_everything_but_the_texts_of_passages() -> None:
    row = saved(ROW)
    assert row.question == ASKED and row.steps == STEPS and row.searches == 1
    assert row.answer == SavedAnswer("Orvale", ("p1", "p2"), 2, "read", {"facts": ["born"]})
    assert json.dumps(row.answer.to_json()) == json.dumps(json.loads(ROW.to_json())["answer"]), (
        "in the same order"
    )
    assert (row.usage, row.total_usage, row.seconds, row.error) == ({"reader": USAGE}, USAGE, 1.5, "")
    assert (row.opened, row.begun) == (3.5, 7.25)
    thought = replace(STEPS[1], thinking=TokenUsage(generated=9), thoughts_cut=1, thoughts=("Hm.",))
    thinking = saved(replace(ROW, steps=(thought, *STEPS)))
    assert thinking.steps == (thought, *STEPS) and thinking.thoughts_cut == 1
    assert b"thought" not in ROW.to_json()  # of models that do not think
    failed = saved(replace(ROW, answer=None, error="Broken: x"))
    assert (failed.answer, failed.text, failed.passage_ids, failed.further) == (None, "", (), {})


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    settings = {
        "method": "corag", "options": {"k": 5}, "prompts": ["a v1 0"],
        "questions": {"source": "abc", "dataset": "kilt"}, "model": "m:1", "retriever": "", "seed": 3,
        "budget": 0,
    }  # fmt: skip
    first = {
        "model": {"name": "m"},
        "retriever": {"index": [], "url": ["http://here"]},
        "questions": "q.jsonl",
    }
    for start in (first, first | {"aliases": "", "scorer": "drop", "recall_at": 9}):
        with RunFolder(tmp_path, settings, start) as run:
            run.append(ROW)
    before = (tmp_path / MANIFEST).read_bytes()
    manifest = Manifest.read(tmp_path)
    manifest.write(tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == before
    assert (manifest.method, manifest.dataset, manifest.model, manifest.seed) == ("corag", "kilt", "m:1", 3)
    assert not manifest.searches and manifest.last.searched_sources == "http://here"
    assert [(start.aliases, start.scorer, start.recall_at) for start in manifest.starts] == [
        (None, "auto", 0), ("", "drop", 9),
    ]  # fmt: skip
    (line,) = read_lines(tmp_path).values()
    assert [line.parse()] == list(read_rows(tmp_path).values())


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}, "start": {}}'])
def test_what_is_no_manifest_of_a_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(DataError, match="is not a run"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("change", [{"format": 2}, {"format": None}, {}])
def test_a_manifest_of_another_format_is_refused_in_one_sentence(tmp_path, change) -> None:
    Manifest({"method": "one_step"}, []).write(tmp_path)
    record = json.loads((tmp_path / MANIFEST).read_text())
    assert record.pop("format") == 1
    (tmp_path / MANIFEST).write_text(json.dumps(record | change))
    with raises_message(DataError):
        Manifest.read(tmp_path)
