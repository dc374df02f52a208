"""Gold passages that an index lacks, and failed questions in tests of runs."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from corag.core.protocols import CachedHits
from corag.core.types import Hit, Passage, Question
from eval.experiment.executor import AnswerTask, RemoteHandle, WithoutPassage
from eval.experiment.gold import Sources, match_gold
from eval.experiment.run import RunConfig, method_settings
from eval.scoring.scorers import default_scorer
from eval.statistics.comparisons import against_baseline, against_each_other
from eval.tables.ceiling import measure_ceilings
from eval.tables.printing import print_results, render_text
from eval.tables.results import TableView, table_of_runs
from eval.tables.runs import read_run
from retrieval.index.aliases import Aliases
from retrieval.index.store import TEXTS, PassageStore, storing
from tests.eval.runs import make_run, row
from tests.eval.test_ceiling import Several, answered

QUESTIONS = [
    Question("1", "Where is Ghent?", ("Belgium",), ("d1",)),
    Question("2", "Where is Oslo?", ("Norway",), ("d1", "gone")),
    Question("3", "Where is Bern?", ("Switzerland",), ("lost",)),
    Question("4", "Where is Rome?", ("Italy",)),
    Question("d2", "Is it far?", ("no",), ("d1",)),
]
PASSAGES = [
    Passage("d1", "Ghent", "A city."),
    Passage("d2", "", "is it FAR?"),
    Passage("1", "One", "Another."),
]


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "index"
    folder.mkdir()
    assert len(list(storing(PASSAGES, folder))) == 3
    return str(folder)


class Index:
    """An index that is open here, of which only passages can be looked up."""

    fingerprint = "index"

    async def passages(self, ids):
        assert len(ids) <= 1000
        return [each for each in PASSAGES if each.id in ids]


@pytest.mark.parametrize("place", ["on disk", "open here"])
async def test_questions_whose_gold_passages_the_index_lacks_have_no_recall(store, capsys, place):
    index, folders = (RemoteHandle("elsewhere"), [store]) if place == "on disk" else (Index(), [])
    matched = await match_gold(QUESTIONS, index, folders)
    assert [each.supporting for each in matched] == [("d1",), (), (), (), ("d1",)]
    printed = capsys.readouterr().err
    assert (
        "the index lacks gold passages of 2 of 5 questions, such as 'gone': they have no recall." in printed
    )
    assert await match_gold(matched[:1], index, folders) == matched[:1] and not capsys.readouterr().err


async def test_gold_pages_and_indexes_that_cannot_be_asked_are_left_alone(store, capsys):
    pages = [Question("7", "Who?", ("Ada",), ("290",), pages=(("290",),))]
    assert await match_gold(pages, Index(), [store]) == pages
    assert await match_gold(QUESTIONS, None, []) == QUESTIONS
    assert await match_gold(QUESTIONS, RemoteHandle("elsewhere"), ["no/store"]) == QUESTIONS
    assert not capsys.readouterr().err


async def test_titles_are_read_as_far_as_they_are_wanted_and_others_are_not_kept(tmp_path):
    many = [Passage(str(n), f"Title {n}", "text") for n in range(20_000)]
    assert len(list(storing(many, tmp_path))) == len(many)
    tracemalloc.start()
    assert await Sources([PassageStore(tmp_path)]).titles(["Title 19999", "lost"]) == {"Title 19999"}
    assert tracemalloc.get_traced_memory()[1] < 1_000_000, "all titles are four times as large"
    tracemalloc.stop()
    os.truncate(tmp_path / TEXTS, 1000)
    assert await Sources([PassageStore(tmp_path)]).titles(["Title 9"]) == {"Title 9"}


async def test_gold_passages_that_repeat_another_count_under_its_id(store, capsys, tmp_path):
    Aliases({"d0": "d1", "d9": "d1"}).save(Path(store))
    asked = [Question("1", "Where?", ("Here",), ("d0", "d2", "d1")), Question("2", "Who?", ("Ada",), ("d1",))]
    matched = await match_gold(asked, RemoteHandle("elsewhere"), [store])
    assert [each.supporting for each in matched] == [("d1", "d2"), ("d1",)]
    assert "1 gold passages have the same text as another" in (printed := capsys.readouterr().err)
    assert "'d0' under 'd1'" in printed and "lacks" not in printed


class Searched(Index):
    """An index that finds all passages for every query."""

    async def search(self, query, k, hop=False):
        hits = tuple(Hit(each, 1.0) for each in PASSAGES[:k])
        return CachedHits(hits) if query == "again" else hits

    async def close(self):
        raise AssertionError("the index is others' too")


async def test_a_question_does_not_find_itself():
    index = WithoutPassage(Searched(), "d1")
    assert [hit.passage.id for hit in await index.search("Who?", 2)] == ["d2", "1"]
    assert isinstance(await index.search("again", 1), CachedHits)
    assert [each.id for each in await index.passages(["d1", "d2"])] == ["d2"]
    await index.close()

    async def collect(question, tools):
        hits = await tools.search(question.text, k=2)
        return Several(" ".join(hit.passage.id for hit in hits))

    for leave_out_self, expected in ((False, "d1 d2"), (True, "d1 1")):
        task = AnswerTask(collect, leave_out_self=leave_out_self)
        done = await task(QUESTIONS[-1], None, Searched())
        assert done.answer is not None and done.answer.text == expected
    plain, without = (
        method_settings(RunConfig(questions="q.jsonl", leave_out_self=each), "ircot")
        for each in (False, True)
    )
    assert without == plain | {"leave_out_self": True}, "such a run is another run"


def test_a_row_is_measured_by_the_gold_passages_that_its_index_had(tmp_path):
    matched = Question("2", "Where is Oslo?", ("Norway",), ())
    run = make_run(tmp_path / "run", [row(QUESTIONS[0], "Belgium", ["d1"]), row(matched, "x", ["d1"])])
    scored = read_run("run", run).on(QUESTIONS[:2]).score(default_scorer("jsonl"), 5)
    assert [each.scores.recall for each in scored.scored_rows] == [1.0, None]


def scores(n, right):
    return {"em": {str(i): float(i < right) for i in range(n)}}


def test_failed_questions_stand_in_the_line_of_a_test_and_half_of_them_end_it():
    runs = {"base": scores(20, 4), "few": scores(20, 12), "half": scores(20, 12), "whole": scores(20, 12)}
    failed = {"few": {"19", "18"}, "half": {str(i) for i in range(10, 20)}, "base": {"19"}, "other": {"1"}}
    few, half, whole = against_baseline(runs, "base", failed)
    assert (few.warning, half.warning, whole.warning) == (
        "2 of 20 failed",
        "10 of 20 failed",
        "1 of 20 failed",
    )
    assert half.p_value is None is half.p_holm and few.p_value == whole.p_value == few.comparison.p_value
    assert few.p_holm == pytest.approx(2 * few.p_value), "corrected for the tests that there are"
    assert half.to_json()["p_value"] is None and half.to_json()["failed"] == 10
    assert against_each_other(runs, failed)["base"] == [few, half, whole]


def test_a_table_warns_of_failed_questions(tmp_path):
    asked = [Question(str(n), "Where?", (f"Town {n}",)) for n in range(6)]
    runs = {
        "base": make_run(tmp_path / "base", [row(each, each.answers[0]) for each in asked]),
        "broken": make_run(tmp_path / "broken", [row(each, None) for each in asked]),
        "good": make_run(tmp_path / "good", [row(each, "x") for each in asked]),
    }
    table = table_of_runs(runs, TableView(baseline="base", measures=["em"]))
    printed = render_text(lambda console: print_results(table, console))
    (line,) = (each for each in printed.splitlines() if each.startswith("│ broken") and "│ EM" in each)
    assert "6 of 6 failed" in line and "│ - │" in " ".join(line.split())
    assert (
        "Where half of the questions failed, nothing is tested" in printed and "Holm over 1 tests" in printed
    )
    del runs["broken"]
    table = table_of_runs(runs, TableView(baseline="base"))
    assert "warning" not in render_text(lambda console: print_results(table, console))
    json.dumps(table.to_json())


def test_a_ceiling_tells_questions_without_gold_from_unfinished_and_failed_ones(tmp_path):
    told = (["T", "Rome"], [2, 1])
    asked = [Question("1", "Where?", ("Oslo",)), Question("2", "Where?", ("Bern",)), Question("3", "Where?")]
    rows = [answered(asked[0], told), answered(asked[1], None), row(asked[2], "x")]
    found = measure_ceilings({"mine": make_run(tmp_path / "mine", rows)})
    assert (found.runs["mine"].questions, found.runs["mine"].failure_count) == (2, 1)
    assert all(each.p_holm is None for each in found.runs["mine"].rankers), "half of them failed"
    assert json.loads(json.dumps(found.to_json()))["runs"]["mine"]["questions"] == 2
