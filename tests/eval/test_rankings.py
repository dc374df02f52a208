"""Measures of rankings beside those of answers."""

import json
import math
from dataclasses import replace

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError, DataError
from eval.api.results import Results
from eval.exporting import ExportConfig, export_run
from eval.scoring.rankings import find_ranking_measures, score_rankings
from retrieval.index.aliases import NO_ALIASES, Aliases
from tests.eval.runs import QUESTIONS, make_run, row, run_of, saved
from tests.messages import raises_message

QUESTION = replace(QUESTIONS[0], supporting=("a", "b"))


def scores(passages, *names, question=QUESTION, aliases=NO_ALIASES):
    """The measures of one question's ranking, as typed."""
    measures = find_ranking_measures(names, 15)
    values = score_rankings([saved(question, "x", passages)], measures.values(), aliases)
    return {name: values[question.id][str(each)] for name, each in measures.items()}


def test_measures_are_those_of_the_order_of_collection():
    found = scores(["x", "b", "b", "y", "a"], "nDCG@3", "mrr", "map", "R@2", "p@2", "Success@1")
    assert found["nDCG@3"] == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))
    assert found["mrr"] == 0.5
    assert found["map"] == pytest.approx((1 / 2 + 2 / 4) / 2), "a passage collected twice takes one place"
    assert (found["R@2"], found["p@2"], found["Success@1"]) == (0.5, 0.5, 0)


def test_gold_passages_count_by_what_the_index_calls_them():
    found = scores(["a#2", "a", "b"], "R@1", "P@3", "RR", aliases=Aliases(numbered=True))
    assert found == {"R@1": 0.5, "P@3": pytest.approx(2 / 3), "RR": 1}, "a document is found once"
    named = replace(QUESTION, supporting=("title:About p9",))
    assert scores(["x", "p9"], "RR", question=named) == {"RR": 0.5}
    paged = replace(QUESTION, supporting=("12",), pages=(("12",),))
    assert scores(["7-1", "7-2", "12-4"], "RR", question=paged) == {"RR": 0.5}


def test_a_question_without_relevant_passages_is_not_measured_and_a_failed_one_found_nothing():
    rows = [saved(QUESTIONS[0], None), saved(replace(QUESTIONS[1], supporting=()), "x", ["a"])]
    measure = find_ranking_measures(["AP"], 15).values()
    assert score_rankings(rows, measure, NO_ALIASES) == {QUESTIONS[0].id: {"AP": 0}}


@pytest.mark.parametrize("name", ["RR@10", "Judged@10", "nDCG@10", "R@5", "Compat(p=0.9)", "Rprec"])
def test_a_failed_question_counts_as_0_by_every_library_that_computes(name):
    rows = [saved(QUESTIONS[0], "x", ["y", "p0"]), saved(QUESTIONS[1], None)]
    (measure,) = find_ranking_measures([name], 15).values()
    found = score_rankings(rows, [measure], NO_ALIASES)
    assert found["1"] == {str(measure): 0}
    if name in ("RR@10", "Judged@10"):
        assert found["0"] == {name: 0.5}


def test_the_named_extra_alone_computes_the_depth_of_the_reciprocal_rank(monkeypatch):
    import ir_measures

    monkeypatch.setattr(ir_measures.cwl_eval, "is_available", lambda: False)
    assert scores(["x", "y", "b"], "RR@2", "RR@3") == {"RR@2": 0, "RR@3": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    "name",
    ["nDCG@0", "nDCG@x", "P", "P(rel=0)@5", "NumRet", "RBP(p=0.8)", "ERR@20", "AP(depth=3)", "nDCG@1.5"],
)
def test_a_measure_that_cannot_be_computed_is_a_sentence(name):
    with raises_message(ConfigError):
        find_ranking_measures([name], 15)


def test_tables_own_measures_are_their_own():
    assert not find_ranking_measures(["em", "EM", "recall@15", "accuracy", "R-precision", "nope"], 15)


def table(capsys, *argv):
    assert main(["table", *map(str, argv), "--json"]) == 0
    printed = capsys.readouterr().out
    return printed, json.loads(printed.splitlines()[-1])


def test_exported_judgements_that_name_pages_are_remarked_on(tmp_path, capsys):
    asked = replace(QUESTION, supporting=("kept", "other"))
    run = make_run(tmp_path / "run", [row(asked, "x", ["y", "kept"])])
    qrels = tmp_path / "gold.qrels"
    assert main(["export", str(run), "--to", "qrels", "--out", str(qrels)]) == 0
    assert qrels.read_text() == f"{asked.id} 0 kept 1\n{asked.id} 0 other 1\n"
    assert "compare ids as they stand" not in capsys.readouterr().out
    paged = make_run(tmp_path / "paged", [row(replace(asked, supporting=("12",), pages=(("12",),)), "x")])
    assert main(["export", str(paged), "--to", "qrels", "--out", str(qrels)]) == 0
    assert "compare ids as they stand" in capsys.readouterr().out


def test_exports_have_the_tables_figures_by_other_tools(tmp_path, capsys):
    import ir_measures

    rows = [row(question, "x", ["y", *question.supporting, "z"]) for question in QUESTIONS]
    run = make_run(tmp_path / "ours", rows)
    trec, qrels = tmp_path / "ours.trec", tmp_path / "gold.qrels"
    assert main(["export", str(run), "--to", "trec", "--out", str(trec)]) == 0
    assert main(["export", str(run), "--to", "qrels", "--out", str(qrels)]) == 0
    figures = table(capsys, run, "--measures", "nDCG@10,RR")[1]["runs"]["ours"]
    names = [ir_measures.nDCG @ 10, ir_measures.RR]
    theirs = ir_measures.calc_aggregate(
        names, ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(trec))
    )
    for name in names:
        assert figures[str(name)] == pytest.approx(theirs[name], abs=1e-4) != 0


def test_measures_that_cannot_be_taken_are_sentences(tmp_path):
    run = run_of(tmp_path / "ours", range(4))
    with raises_message(ConfigError):
        Results({"ours": run}).table(measures=["nope@3"])
    bare = [row(replace(question, supporting=()), "x", ["y"]) for question in QUESTIONS]
    with raises_message(ConfigError):
        Results({"bare": make_run(tmp_path / "bare", bare)}).table(measures=["AP"])
    with raises_message(DataError):
        export_run(ExportConfig(str(tmp_path / "bare"), "qrels", str(tmp_path / "out")))
