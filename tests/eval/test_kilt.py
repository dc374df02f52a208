"""KILT's question files, and what their pages are worth in a table."""

import json
from dataclasses import replace

import pytest

from corag.chains.config import CoRAGConfig
from corag.core.errors import DataError
from corag.core.options.command_line import parse
from corag.core.runs.provenance import settings_of
from corag.core.runs.rows import Row, SavedRow
from corag.core.types import Answer, Question
from eval.datasets import DATASETS, load_questions
from eval.datasets.sets.jsonl import question_record
from eval.experiment.run import RunConfig, method_settings
from eval.scoring.official_scores import kilt_scores
from eval.scoring.rows import score_row, score_rows
from eval.scoring.scorers import default_scorer, scorer
from eval.sweeps.cells import read_cells
from eval.sweeps.sweep import SweepConfig
from eval.tables.columns import summarise
from tests.messages import raises_message
from training.sample import SampleRunConfig

KILT = [name for name in DATASETS if name.startswith("kilt_")]
LINKING = {
    "id": 12,
    "input": "Rain fell on [START_ENT] Brundt [END_ENT] all week.",
    "output": [
        {"answer": "Brundt (town)", "provenance": [{"wikipedia_id": "290", "title": "Brundt (town)"}]}
    ],
    "meta": {"mention": "Brundt"},
}
SLOT = {
    "id": "s1",
    "input": "Ada Tan [SEP] place of birth",
    "output": [
        {
            "answer": "Orvale ",
            "provenance": [{"wikipedia_id": 17, "start_paragraph_id": 3}, {"wikipedia_id": 17}],
        },
        {"answer": "Orvale"},
        {
            "provenance": [
                {"wikipedia_id": "4"},
                {"wikipedia_id": "5"},
                {"title": "no id"},
                {"wikipedia_id": ""},
            ]
        },
    ],
}
HIDDEN = {"id": "h1", "input": "Ada Tan was born in Orvale."}


@pytest.fixture
def load(tmp_path):
    def read(dataset, *records, **options):
        file = tmp_path / "kilt.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        return load_questions(str(file), dataset, **options)

    return read


def test_inputs_stay_as_they_are_and_pages_are_kept_by_answer(load):
    (linking,) = load("kilt_wned", LINKING)
    assert (linking.id, linking.text) == ("12", LINKING["input"])
    assert (linking.answers, linking.supporting, linking.pages) == (("Brundt (town)",), ("290",), (("290",),))
    (slot,) = load("kilt_trex", SLOT)
    assert (slot.answers, slot.kind) == (("Orvale",), "place of birth")
    assert (slot.supporting, slot.pages) == (("17", "4", "5"), (("17",), ("4", "5")))


def test_questions_of_a_test_split_have_no_answers_and_are_not_scored(load):
    for record in (HIDDEN, HIDDEN | {"output": []}):
        (question,) = load("kilt_fever", record)
        assert question.answers == () and question.pages == ()
    summary = summarise("m", score_rows([_record(question, "SUPPORTS", ["3-1"])], scorer("kilt"), 15))
    assert (summary.n, summary.unscored_count) == (1, 1)
    assert summary.measures == {"em": None, "f1": None, "recall": None}


def test_every_task_has_a_description_and_the_kilt_scorer():
    for name in KILT:
        assert default_scorer(name).name == "kilt" and DATASETS[name].task
    assert "SUPPORTS" in DATASETS["kilt_fever"].task and "[START_ENT]" in DATASETS["kilt_cweb"].task
    assert DATASETS["kilt_trex"].task != DATASETS["kilt_nq"].task


def test_a_command_says_of_the_questions_what_their_dataset_is_unless_it_is_told():
    def of(*argv, command=RunConfig):
        return parse(command, ["--questions", "q.jsonl", *argv], "corag", "")

    usual = CoRAGConfig().task
    for name in KILT:
        assert of("--dataset", name).corag.task == DATASETS[name].task
    fever = ("--dataset", "kilt_fever")
    assert of("--dataset", "hotpotqa").corag.task == of().corag.task == usual
    assert of(*fever, "--corag.preset", "small_model").corag.task == DATASETS["kilt_fever"].task
    assert of(*fever, command=SampleRunConfig).corag.task == DATASETS["kilt_fever"].task
    one_step = of(*fever, "--method", "one_step")
    assert one_step.one_step == of().one_step
    noted = method_settings(of(*fever, "--method", "corag"), "corag")["options"]
    assert noted == settings_of(CoRAGConfig(task=DATASETS["kilt_fever"].task))


def test_cells_of_a_sweep_are_told_too_and_may_say_otherwise(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "dataset: kilt_fever\nmethod: corag\ncells: {a: {}, b: {corag.L: 2}, c: {corag.task: guess}}\n"
    )
    config = parse(SweepConfig, ["--questions", "q.jsonl", "--config", str(file)], "corag sweep", "")
    tasks = [cell.config.corag.task for cell in read_cells(config, config.cells, "")]
    assert tasks == [DATASETS["kilt_fever"].task] * 2 + ["guess"]
    config = parse(
        SweepConfig,
        ["--questions", "q.jsonl", "--config", str(file), "--corag.task", "x"],
        "corag sweep",
        "",
    )
    assert [cell.config.corag.task for cell in read_cells(config, config.cells, "")] == ["x", "x", "guess"]


def _record(question, text, passages=(), failed=False):
    answer = None if failed else Answer(text, tuple(passages), 1, "read")
    return SavedRow.from_json(json.loads(Row(question, answer, (), {}, 0.0, "x" * failed).to_json()))


def test_a_table_counts_pages_and_gates_answers_by_them(load):
    (slot,) = load("kilt_trex", SLOT)
    rule = scorer("kilt")
    row = _record(slot, "orvale", ["4-1", "4-2", "5-0", "17-3"])
    right = score_row(row, rule, recall_at=2)
    assert (right.em, right.further["accuracy"], right.further["r_precision"]) == (1, 0, 1)
    assert (right.further["kilt_em"], right.further["kilt_f1"], right.further["kilt_accuracy"]) == (1, 1, 0)
    assert right.recall == 1, "pages 4 and 5 are one set, which takes the first place; 17 takes the second"
    assert score_row(row, rule, recall_at=1).recall == 0.5
    astray = score_row(_record(slot, "Orvale", ["9-1", "17-3"]), rule, recall_at=2)
    assert (astray.em, astray.further["accuracy"], astray.further["kilt_em"]) == (1, 1, 0)
    failed = score_row(_record(slot, "", failed=True), rule, recall_at=2)
    assert (failed.em, failed.recall) == (0, 0) and set(failed.further.values()) == {0.0}
    closed_book = score_row(_record(slot, "Orvale"), rule, recall_at=2, searches=False)
    assert closed_book.further == {"accuracy": 1.0} and closed_book.recall is None
    rows = [_record(slot, "Orvale", ["17-3"]), _record(slot, "", failed=True)]
    figures = summarise("m", score_rows(rows, rule, 15)).to_json()
    assert (figures["kilt_em"], figures["accuracy"], figures["kilt_em_interval"]) == (
        0.5,
        0.5,
        [0.0945, 0.9055],
    )


def test_an_answer_that_no_page_bears_out_counts_as_kilt_counts_it(load):
    """In KILT's script the R-precision of a question without provenance is 0, and so its gated scores are."""
    bare = SLOT | {"output": [{"answer": "Orvale"}]}
    (slot,) = load("kilt_trex", bare)
    scored = score_row(_record(slot, "Orvale", ["17-3"]), scorer("kilt"), recall_at=5)
    zeros = {"r_precision": 0, "kilt_em": 0, "kilt_f1": 0, "kilt_accuracy": 0}
    assert (scored.em, scored.recall, dict(scored.further)) == (1, 0, {"accuracy": 1} | zeros)
    predicted = {"id": "s1", "output": [{"answer": "Orvale", "provenance": [{"wikipedia_id": "17"}]}]}
    official = kilt_scores([predicted], [bare])
    assert {name: official[name] for name in scored.further} == dict(scored.further) and official[
        "recall@5"
    ] == 0
    assert "r_precision" not in score_row(_record(slot, "Orvale"), scorer("kilt"), 5, searches=False).further
    of_passages = replace(slot, supporting=("p1",))
    assert "r_precision" not in score_row(_record(of_passages, "Orvale", ["p1"]), scorer("kilt"), 5).further
    assert score_row(_record(slot, "Orvale", ["17-3"]), scorer("squad"), recall_at=5).further == {}


def test_pages_survive_our_own_format(load, tmp_path):
    (slot,) = load("kilt_trex", SLOT)
    file = tmp_path / "plain.jsonl"
    file.write_text(json.dumps(question_record(slot)) + "\n")
    assert load_questions(str(file)) == [slot]
    file.write_text(json.dumps(question_record(slot) | {"wikipedia_ids": "17"}) + "\n")
    with raises_message(DataError):
        load_questions(str(file), strict=True)
    assert "wikipedia_ids" not in question_record(Question("1", "Who?", ("Ada",)))
