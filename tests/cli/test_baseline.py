"""What 'corag table --baseline' says of runs: paired tests, conditions, and disagreements."""

import json
from dataclasses import replace

import pytest

from corag.cli.main import main
from corag.core.types import Question
from tests.eval.runs import QUESTIONS, make_run, row, run_of


def compared(capsys, first, second, *argv):
    """Test the second run against the first; return the lines that were printed, and the line of JSON."""
    assert main(["table", str(first), str(second), "--baseline", str(first), *map(str, argv), "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    return lines, json.loads(last)


def difference(record, measure):
    return next(one for one in record["against"] if one["measure"] == measure)


def test_tests_are_of_what_both_have_answered_by_the_gold_answers_of_the_first(tmp_path, capsys):
    first = run_of(tmp_path / "first", range(8))
    some = [
        row(replace(each, answers=("x",)), f"Town {n}" if n > 3 else "x")
        for n, each in enumerate(QUESTIONS[:14])
    ]
    second = make_run(tmp_path / "second", some[::-1], {"seed": 1})
    lines, record = compared(capsys, first, second)
    em = difference(record, "em")
    assert em["n"] == 14 and em["difference"] == pytest.approx((10 - 8) / 14, abs=1e-4)
    assert any("for 14 of 14 questions" in line for line in lines)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "a run was given twice"),
        ({"questions": {"source": "xyz", "dataset": "jsonl"}}, 'questions.source: "abc" -> "xyz"'),
        ({"seed": 1}, "the runs have no question in common"),
    ],
)
def test_runs_that_do_not_go_into_one_table_are_refused(tmp_path, capsys, settings, message):
    first = run_of(tmp_path / "first", range(8))
    second = (
        first
        if settings is None
        else make_run(tmp_path / "second", [row(Question("x", "Who?"), "y")], settings)
    )
    assert main(["table", str(first), str(second)]) == 2
    assert message in capsys.readouterr().err


def test_runs_with_nothing_in_common_to_compare_are_refused(tmp_path, capsys):
    bare = [row(Question(f"h{n}", "Where?"), "x", ["p1"]) for n in range(3)]
    runs = [make_run(tmp_path / name, bare) for name in ("one", "two")]
    assert main(["table", *map(str, runs), "--baseline", "one"]) == 2
    assert "nothing can be compared" in capsys.readouterr().err


def test_all_runs_are_scored_as_the_first_was(tmp_path, capsys):
    half = [
        [
            row(question, "x", ["other", f"p{n}"] if n < found else ["other"])
            for n, question in enumerate(QUESTIONS)
        ]
        for found in (12, 0)
    ]
    first = make_run(tmp_path / "first", half[0], scorer="drop", recall_at=1)
    second = make_run(tmp_path / "second", half[1], {"seed": 1}, scorer="musique", recall_at=9)

    def scored(*argv):
        _, record = compared(capsys, *argv)
        return (
            record["scorer"],
            difference(record, "recall")["difference"],
            record["runs"]["first"]["recall_at"],
        )

    assert scored(first, second) == ("drop", 0, 1)
    assert scored(second, first) == ("musique", 0.5, 9)
    assert scored(first, second, "--scorer", "squad", "--recall_at", "2") == ("squad", -0.5, 2)


def test_json_names_scorer_and_conditions(tmp_path, capsys):
    asked = {"questions": {"source": "abc", "dataset": "2wikimultihopqa", "split": "", "subset": ""}}
    first = run_of(tmp_path / "first", range(8), asked, aliases="")
    second = run_of(tmp_path / "second", range(4), asked | {"seed": 1, "prompts": ["other v2"]})
    lines, record = compared(capsys, first, second)
    assert (record["scorer"], record["scorer_title"]) == (
        "2wikimultihopqa",
        "2WikiMultihopQA v1.1, no aliases",
    )
    said = (
        "Questions: q.jsonl (2wikimultihopqa).",
        "Model: model (scripted).",
        "Retriever: indexes/none (words).",
    )
    own = {"first": "prompts: layout v1 0123456789abcdef", "second": "prompts: other v2"}
    assert record["conditions"] == {"shared": [*said, "Corpus: not known here."], "own": own}
    assert {*record["conditions"]["shared"], f"second: {second} (prompts: other v2)"} <= set(lines)
    aliased = run_of(tmp_path / "aliased", range(8), asked, aliases="0123456789abcdef")
    assert compared(capsys, aliased, second)[1]["scorer_title"] == "2WikiMultihopQA v1.1"
    assert main(["table", str(aliased)]) == 0
    assert "Scorer: 2WikiMultihopQA v1.1.\n" in capsys.readouterr().out


def test_disagreements_are_listed_those_first_that_a_run_lost(tmp_path, capsys):
    texts = {2: "Town Two", 3: "", 5: None, 6: "Town \x1b[2J6\n\n" + "and so on " * 40}
    rows = [
        row(each, texts.get(n, f"Town {n}" if n > 3 else "x"), [f"p{n}"])
        for n, each in enumerate(QUESTIONS[:10])
    ]
    second = make_run(tmp_path / "second", rows, {"seed": 1})
    first = run_of(tmp_path / "first", [2, 3, 5, 6, 7])
    assert "disagreements" not in compared(capsys, first, second)[1], "unless they are asked for"
    lines, record = compared(capsys, first, second, "--disagreements", 5)
    # In F1 the second is half right about 2, less so about 6, and not at all about 3 and 5: the furthest
    # apart come first.
    differing = {"only_baseline_right": ["3", "5", "6", "2"], "only_run_right": ["4", "8", "9"]}
    assert record["disagreements"] == {"second": differing}
    assert [line[:1] for line in lines if "Where was" in line] == [*"35624"]
    lines, record = compared(capsys, second, first, "--disagreements", 99)
    assert lines[-1 - 7 * 4].endswith("7 of them:")
    assert record["disagreements"]["first"] == dict(
        zip(differing, list(differing.values())[::-1], strict=True)
    )
