"""Exports, each read back by the official rule of its dataset."""

import json
from dataclasses import dataclass, replace

import pytest

from corag.cli.main import main
from corag.core.runs.folder import read_rows
from corag.core.system.files import file_digest
from corag.core.types import Answer, Question, passage_id
from eval.datasets.exports import (
    hotpotqa_prediction,
    kilt_lines,
    musique_lines,
    trec_lines,
    two_wiki_prediction,
)
from eval.scoring.official_scores import hotpotqa_scores, two_wiki_scores
from tests.eval.runs import make_run, row, searched

ADA = Question("a", "Where was Ada born?", ("Orvale",), ("p1",))
BEN = Question("b", "Where was Ben born?", ("Issel",), ("p2",))


@dataclass(frozen=True, slots=True)
class FactsAnswer(Answer):
    """What a method that predicts sentences and triples would return."""

    supporting_facts: tuple[tuple[str, int], ...] = ()
    evidences: tuple[tuple[str, str, str], ...] = ()


def export(run, to, out, *options):
    return main(["export", str(run), "--to", to, "--out", str(out), *map(str, options), "--json"])


def hotpotqa_file(folder):
    """An official file of two questions; the run's settings that name it, and what its last start says."""
    gold = [
        {
            "_id": question.id,
            "question": question.text,
            "answer": question.answers[0],
            "supporting_facts": [["Ada", 0]],
            "context": [],
        }
        for question in (ADA, BEN)
    ]
    file = folder / "dev.json"
    file.write_text(json.dumps(gold))
    asked = {"source": file_digest(file), "dataset": "hotpotqa", "split": "", "subset": ""}
    return gold, {"questions": asked}, {"questions": str(file)}


def test_hotpotqa_files_are_read_back_and_scored(tmp_path, capsys):
    gold, settings, start = hotpotqa_file(tmp_path)
    run = make_run(tmp_path / "run", [row(BEN, None), row(ADA, "orvale", ["p1"])], settings, **start)
    out = tmp_path / "pred.json"
    assert export(run, "hotpotqa", out) == 0
    printed = capsys.readouterr().out
    assert json.loads(out.read_text()) == {"answer": {"b": "", "a": "orvale"}, "sp": {"b": [], "a": []}}
    assert (
        "2 questions" in printed
        and "1 of them failed" in printed
        and "No method here predicts sentences" in printed
    )
    record = json.loads(printed.splitlines()[-1])
    assert record["official"] == hotpotqa_scores(json.loads(out.read_text()), gold)
    assert (record["official"]["em"], record["official"]["sp_f1"], record["official"]["joint_f1"]) == (
        0.5,
        0,
        0,
    )


def test_a_method_that_predicts_facts_gets_its_joint_score(tmp_path):
    answer = FactsAnswer("Orvale", ("p1",), 1, "read", (("Ada", 0),), (("Ada", "born in", "Orvale"),))
    run = make_run(tmp_path / "run", [replace(row(ADA, "x"), answer=answer)])
    rows = read_rows(run)
    gold = [
        {
            "_id": "a",
            "answer": "Orvale",
            "supporting_facts": [["Ada", 0]],
            "evidences": [["Ada", "born in", "Orvale"]],
        }
    ]
    assert hotpotqa_scores(hotpotqa_prediction(rows), gold)["joint_f1"] == 1
    prediction = json.loads(json.dumps(two_wiki_prediction(rows)))
    assert set(prediction) == {"answer", "sp", "evidence"}
    assert two_wiki_scores(prediction, gold)["joint_em"] == 1


def test_2wiki_files_have_evidence_and_are_scored_with_aliases_if_given(tmp_path, capsys):
    gold = [
        {
            "_id": "a",
            "question": ADA.text,
            "answer": "Orvale",
            "answer_id": "Q1",
            "supporting_facts": [],
            "context": [],
            "evidences": [],
        }
    ]
    (tmp_path / "dev.json").write_text(json.dumps(gold))
    known = [
        {"Q_id": "Q0", "aliases": [], "demonyms": []},
        {"Q_id": "Q1", "aliases": ["Orval"], "demonyms": []},
    ]
    (tmp_path / "aliases.json").write_text("".join(json.dumps(names) + "\n" for names in known))
    run = make_run(tmp_path / "run", [row(ADA, "Orval")])
    out = tmp_path / "pred.json"
    assert export(run, "2wikimultihopqa", out, "--questions", tmp_path / "dev.json") == 0
    printed = capsys.readouterr().out
    assert "without aliases" in printed and json.loads(printed.splitlines()[-1])["official"]["em"] == 0
    assert "nothing to compare with: sp, evi, joint." in printed and "sp_em" not in printed
    assert json.loads(out.read_text())["evidence"] == {"a": []}
    export(
        run,
        "2wikimultihopqa",
        out,
        "--questions",
        tmp_path / "dev.json",
        "--aliases",
        tmp_path / "aliases.json",
    )
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["official"]["em"] == 1


def musique_record(name, answer, *paragraphs):
    return {
        "id": name,
        "question": f"Question {name}?",
        "answer": answer,
        "answer_aliases": [],
        "paragraphs": [
            {"idx": number, "title": title, "paragraph_text": "Text.", "is_supporting": number == 1}
            for number, title in enumerate(paragraphs)
        ],
    }


def test_musique_files_follow_the_order_of_the_question_file(tmp_path, capsys):
    gold = [
        musique_record("2hop__1", "Orvale", "A", "B"),
        musique_record("2hop__2", "Issel", "C", "D"),
        musique_record("2hop__3", "x", "E"),
    ]
    file = tmp_path / "dev.jsonl"
    unanswerable = gold[0] | {"answerable": False}  # of MuSiQue-Full, under the same id
    file.write_text("".join(json.dumps(record) + "\n" for record in [*gold, unanswerable]))
    asked = {"source": file_digest(file), "dataset": "musique", "split": "", "subset": ""}
    b, d, c = (passage_id(title, "Text.") for title in "BDC")
    second, first = Question("2hop__2", "Where?", ("Issel",)), Question("2hop__1", "Where?", ("Orvale",))
    rows = [row(second, "No", ["other", c, d]), row(first, "Orvale", [b])]
    run = make_run(tmp_path / "run", rows, {"questions": asked}, questions=str(file))
    out = tmp_path / "pred.jsonl"
    assert export(run, "musique", out) == 0
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["id"], line["predicted_support_idxs"]) for line in lines] == [
        ("2hop__1", [1]),
        ("2hop__2", [0, 1]),
    ]
    assert lines[0] == {
        "id": "2hop__1",
        "predicted_answer": "Orvale",
        "predicted_support_idxs": [1],
        "predicted_answerable": True,
    }
    assert "1 of the file's 3 questions are not in the run" in printed
    scores = json.loads(printed.splitlines()[-1])["official"]
    assert (scores["em"], scores["support_em"], scores["support_f1"]) == (
        0.5,
        0.5,
        pytest.approx((1 + 2 / 3) / 2),
    )
    assert [line["predicted_support_idxs"] for line in musique_lines(read_rows(run), gold, top_k=2)] == [
        [1],
        [0],
    ]
    file.write_text(json.dumps(gold[0]) + "\n")
    assert export(run, "musique", out) == 2
    assert "has changed: name it with questions=" in capsys.readouterr().err


def test_kilt_lines_name_pages_in_the_order_of_the_passages(tmp_path, capsys):
    fever = Question("7", "Ada was born in Orvale.", ("SUPPORTS",), ("290",), pages=(("290",),))
    gold = {
        "id": 7,
        "input": fever.text,
        "output": [{"answer": "SUPPORTS", "provenance": [{"wikipedia_id": "290"}]}],
    }
    file = tmp_path / "fever-dev-kilt.jsonl"
    file.write_text(json.dumps(gold) + "\n")
    asked = {"source": file_digest(file), "dataset": "kilt_fever", "split": "", "subset": ""}
    rows = [row(fever, "SUPPORTS", ["290-4", "17-1", "290-9"])]
    run = make_run(tmp_path / "run", rows, {"questions": asked}, questions=str(file))
    out = tmp_path / "pred.jsonl"
    assert export(run, "kilt", out) == 0
    (line,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert line["output"] == [
        {
            "answer": "SUPPORTS",
            "provenance": [
                {"wikipedia_id": "290", "title": "About 290-4"},
                {"wikipedia_id": "17", "title": "About 17-1"},
            ],
        }
    ]
    printed = capsys.readouterr().out
    scores = json.loads(printed.splitlines()[-1])["official"]
    assert scores["kilt_accuracy"] == scores["r_precision"] == scores["recall@5"] == 1
    assert [len(line["output"][0]["provenance"]) for line in kilt_lines(read_rows(run), top_k=1)] == [1]
    assert "Pages are read from passage ids" in printed, "the run's index is not here to say what it holds"
    nameless = make_run(tmp_path / "nameless", [row(fever, "SUPPORTS", ["p290"])], {"questions": asked})
    assert export(nameless, "kilt", out) == 2
    assert "passage 'p290' of question '7' does not say which page" in capsys.readouterr().err


def test_kilt_refuses_numbers_of_rows_and_knows_its_own_pages(tmp_path, capsys):
    fever = Question("7", "Ada was born in Orvale.", ("SUPPORTS",), ("290",), pages=(("290",),))
    asked = {"source": "abc", "dataset": "kilt_fever", "split": "", "subset": ""}
    rows = [row(fever, "SUPPORTS", ["290"])]
    dpr, kilt = searched(tmp_path / "wiki18", "dpr"), searched(tmp_path / "wiki19", "kilt")
    run = make_run(tmp_path / "run", rows, {"questions": asked}, retriever=dpr)
    out = tmp_path / "pred.jsonl"
    assert export(run, "kilt", out) == 2 and not out.exists()
    assert "numbers of rows, not of Wikipedia's pages" in capsys.readouterr().err
    run = make_run(tmp_path / "right", rows, {"questions": asked}, retriever=kilt)
    assert export(run, "kilt", out) == 0 and "Pages are read from" not in capsys.readouterr().out
    silent = make_run(
        tmp_path / "silent", [row(fever, "SUPPORTS")], {"questions": asked, "retriever": ""}, retriever=dpr
    )
    assert export(silent, "kilt", out) == 0, "a method that does not search has no passages to misread"


def test_a_test_split_with_null_answers_is_exported_unscored(tmp_path, capsys):
    gold, settings, start = hotpotqa_file(tmp_path)
    hidden = [record | {"answer": answer} for record, answer in zip(gold, (None, ""), strict=True)]
    (tmp_path / "dev.json").write_text(json.dumps(hidden))
    settings["questions"]["source"] = file_digest(tmp_path / "dev.json")
    rows = [row(replace(question, answers=()), "Orvale") for question in (ADA, BEN)]
    run = make_run(tmp_path / "run", rows, settings, **start)
    assert export(run, "hotpotqa", tmp_path / "pred.json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["official"] is None


def test_a_kilt_test_split_is_exported_unscored(tmp_path, capsys):
    hidden = Question("7", "Ada was born in Orvale.")
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps({"id": 7, "input": hidden.text}) + "\n")
    asked = {"source": file_digest(file), "dataset": "kilt_fever", "split": "", "subset": ""}
    run = make_run(
        tmp_path / "run", [row(hidden, "REFUTES", ["3-1"])], {"questions": asked}, questions=str(file)
    )
    assert export(run, "kilt", tmp_path / "pred.jsonl") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["official"] is None


def test_trec_runs_rank_the_passages_in_their_order(tmp_path, capsys):
    rows = [row(ADA, "x", ["p9", "p1", "p3"]), row(BEN, None)]
    run = make_run(tmp_path / "run", rows)
    out = tmp_path / "run.trec"
    assert export(run, "trec", out) == 0
    ranked = [line.split() for line in out.read_text().splitlines()]
    assert [(line[0], line[2], line[3]) for line in ranked] == [
        ("a", "p9", "1"),
        ("a", "p1", "2"),
        ("a", "p3", "3"),
    ]
    assert all(line[1] == "Q0" and line[5] == "one_step" for line in ranked)
    # A TREC evaluator sorts by score, whatever the ranks say.
    assert (
        sorted(ranked, key=lambda line: -float(line[4])) == ranked and len({line[4] for line in ranked}) == 3
    )
    assert len(list(trec_lines(read_rows(run), "mine", top_k=2))) == 2
    spaced = make_run(tmp_path / "spaced", [row(ADA, "x", ["p 9"])])
    assert export(spaced, "trec", out) == 2
    assert "'p 9' is empty or has white space" in capsys.readouterr().err
    assert export(run, "trec", out, "--tag", "two words") == 2
    assert "tag of a TREC run is one word" in capsys.readouterr().err


def test_browsecomp_pluss_script_finds_a_file_for_each_question(tmp_path, capsys):
    run = make_run(tmp_path / "run", [row(ADA, "Orvale", ["p9#2", "p1", "p9"]), row(BEN, None)])
    assert export(run, "browsecomp_plus", tmp_path / "out") == 0
    ada, ben = (json.loads(file.read_text()) for file in sorted((tmp_path / "out").glob("*.json")))
    assert (ada["query_id"], ada["status"], ada["retrieved_docids"]) == ("a", "completed", ["p9", "p1"])
    assert ada["result"] == [{"type": "output_text", "output": "Orvale"}]
    assert isinstance(ada["tool_call_counts"]["search"], int)
    assert (ben["query_id"], ben["status"], ben["result"]) == ("b", "failed", [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "hotpot", "--out", "x"], "no format 'hotpot' to export to: did you mean 'hotpotqa'"),
        (["--to", "musique", "--out", "x"], "name it with questions="),
        (["--to", "musique", "--out", "x", "--questions", "gone.jsonl"], "no file 'gone.jsonl'"),
    ],
)
def test_wrong_options_are_sentences(tmp_path, capsys, options, message):
    run = make_run(tmp_path / "run", [row(ADA, "Orvale")])
    assert main(["export", str(run), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("afile/deeper/p.json", "/afile/deeper' is a file or lies in one"),
        (".", "it is a folder. Name a file to write"),
    ],
)
def test_files_that_cannot_be_written_are_sentences(tmp_path, capsys, out, message):
    run = make_run(tmp_path / "run", [row(ADA, "Orvale")])
    (tmp_path / "afile").write_text("mine")
    assert export(run, "hotpotqa", out if out == "." else tmp_path / out) == 2
    assert message in capsys.readouterr().err
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ["afile", "run"]
        and (tmp_path / "afile").read_text() == "mine"
    )


def test_runs_that_do_not_fit_the_format_are_refused(tmp_path, capsys):
    settings = {"questions": {"source": "abc", "dataset": "musique", "split": "", "subset": ""}}
    run = make_run(tmp_path / "run", [row(ADA, "Orvale")], settings)
    assert export(run, "hotpotqa", tmp_path / "x") == 2
    assert "choose to=musique" in capsys.readouterr().err
