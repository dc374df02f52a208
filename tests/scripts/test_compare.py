"""What 'corag compare' says of two runs: paired tests, what they cannot see, conditions, the questions on
which they disagree.
"""

import json
from dataclasses import replace

import pytest

from core.types import Question
from scripts.cli import main
from tests.eval.runs import QUESTIONS, make_run, row, run_of


def compared(capsys, *argv):
    """Compare two runs and return the lines that were printed, and the line of JSON."""
    assert main(["compare", *map(str, argv), "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    return lines, json.loads(last)


def record_of(capsys, *argv):
    """Run a command and return its line of JSON."""
    capsys.readouterr()
    assert main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_compare_says_what_it_cannot_see(tmp_path, capsys):
    first = run_of(tmp_path / "first", range(8))
    second = run_of(tmp_path / "second", range(4, 14), {"seed": 1})
    assert main(["compare", str(first), str(second), "--json"]) == 0
    printed = capsys.readouterr().out
    record = json.loads(printed.splitlines()[-1])
    points = 100 * record["em"]["detectable"]
    assert f"with n = 24, a difference under {points:.1f} points in em" in printed
    assert "without pairing by question" in printed and "by Holm over 3 measures" in printed
    assert main(["compare", str(first), str(run_of(tmp_path / "twin", range(8), {"seed": 2}))]) == 0
    assert "score alike on every question" in capsys.readouterr().out


def test_compare_is_the_table_of_two_runs_with_a_baseline(tmp_path, capsys):
    """Also where one run has answered fewer questions, and another file of aliases: of what both have
    answered.
    """
    first = run_of(tmp_path / "first", range(8))
    some = [
        row(replace(each, answers=("x",)), f"Town {n}" if n > 3 else "x")
        for n, each in enumerate(QUESTIONS[:14])
    ]
    second = make_run(tmp_path / "second", some[::-1], {"seed": 1})
    assert main(["compare", str(first), str(second), "--json"]) == 0
    printed = capsys.readouterr().out
    record = json.loads(printed.splitlines()[-1])
    against = record_of(capsys, "table", first, second, "--baseline", "first")["against"]
    assert {one.pop("measure"): one for one in against if one.pop("run") == "second"} == {
        measure: record[measure] for measure in ("em", "f1", "recall")
    }
    assert record["em"]["n"] == 14 and record["em"]["difference"] == pytest.approx((10 - 8) / 14, abs=1e-4)
    assert "for 14 of 14 questions" in printed and "with n = 14, a difference under" in printed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "a run was given twice"),
        ({"questions": {"source": "xyz", "dataset": "jsonl"}}, 'questions.source: "abc" -> "xyz"'),
        ({"seed": 1}, "the runs have no question in common"),
    ],
)
def test_what_a_table_refuses_cannot_be_compared_either(tmp_path, capsys, settings, message):
    first = run_of(tmp_path / "first", range(8))
    second = (
        first
        if settings is None
        else make_run(tmp_path / "second", [row(Question("x", "Who?"), "y")], settings)
    )
    for command in ("table", "compare"):
        assert main([command, str(first), str(second)]) == 2
        assert message in capsys.readouterr().err


def test_runs_with_nothing_in_common_to_compare_are_refused(tmp_path, capsys):
    bare = [row(Question(f"h{n}", "Where?"), "x", ["p1"]) for n in range(3)]
    runs = [make_run(tmp_path / name, bare) for name in ("one", "two")]
    assert main(["compare", *map(str, runs)]) == 2
    assert "nothing can be compared" in capsys.readouterr().err


def test_compare_scores_as_the_first_run_was_scored(tmp_path, capsys):
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
        lines, record = compared(capsys, *argv)
        return (
            record["scorer"],
            record["recall"]["difference"],
            lines[0].removesuffix(":").rpartition("recall@")[2],
        )

    assert scored(first, second) == ("drop", 0, "1")
    assert scored(second, first) == ("musique", 0.5, "9")
    assert scored(first, second, "--scorer", "squad", "--recall_at", "2") == ("squad", -0.5, "2")


def test_compare_names_scorer_and_conditions_as_the_table_does(tmp_path, capsys):
    asked = {"questions": {"source": "abc", "dataset": "2wikimultihopqa", "split": "", "subset": ""}}
    first = run_of(tmp_path / "first", range(8), asked, aliases="")
    second = run_of(tmp_path / "second", range(4), asked | {"seed": 1, "prompts": ["other v2"]})
    lines, record = compared(capsys, first, second)
    assert lines[0] == f"{second} minus {first}, scorer 2WikiMultihopQA v1.1, no aliases, recall@5:"
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


def test_compare_lists_what_the_runs_disagree_on_those_first_that_the_second_lost(tmp_path, capsys):
    texts = {2: "Town Two", 3: "", 5: None, 6: "Town \x1b[2J6\n\n" + "and so on " * 40}
    rows = [
        row(each, texts.get(n, f"Town {n}" if n > 3 else "x"), [f"p{n}"])
        for n, each in enumerate(QUESTIONS[:10])
    ]
    second = make_run(tmp_path / "second", rows, {"seed": 1})
    first = run_of(tmp_path / "first", [2, 3, 5, 6, 7])
    lines, record = compared(capsys, first, second)
    # In F1 the second is half right about 2, less so about 6, and not at all about 3 and 5: the furthest
    # apart come first.
    differing = {"only_first_right": ["3", "5", "6", "2"], "only_second_right": ["4", "8", "9"]}
    assert record["disagreements"] == differing
    said = (
        "They disagree on 7 of 10 questions by EM: only the first is right on 4, only the second on 3. "
        "5 of them:"
    )
    listed = lines[lines.index(said) + 1 :]
    assert [line for line in listed if not line.startswith(" ")] == [
        f"{n}: Where was {n} born?" for n in "35624"
    ]
    assert listed[1:4] == ["  gold    Town 3", "  first   Town 3", "  second  (an empty answer)"]
    assert listed[7] == "  second  (failed: SearchFailedError: it failed)"
    assert listed[11].startswith(r"  second  Town \x1b[2J6 and so on and") and len(listed[11]) == 100
    assert listed[11].endswith("…") and len(listed) == 20
    lines, _ = compared(capsys, first, second, "--disagreements", 0)
    assert lines[-1] == said.removesuffix("5 of them:").rstrip()
    lines, record = compared(capsys, second, first, "--disagreements", 99)
    assert lines[-1 - 7 * 4].endswith("7 of them:")
    assert record["disagreements"] == dict(zip(differing, list(differing.values())[::-1], strict=True))
    assert main(["compare", str(first), str(second), "--disagreements", "-1"]) == 2
    assert "disagreements must be 0 (none)" in capsys.readouterr().err
