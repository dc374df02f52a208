"""What a table says of runs that are hard to compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError
from eval.api import Results
from eval.datasets.corpora import describe_corpora
from eval.tables.results import table_of_runs
from tests.eval.runs import QUESTIONS, make_run, row, run_of, searched
from tests.messages import raises_message

ALONE = " between the runs, so a difference is not the method's alone."
EITHER = " between the runs, so a difference may be due to either."


@pytest.mark.parametrize(
    ("settings", "start", "sentence"),
    [
        ({"method": "ircot", "model": "m2", "retriever": "r2"}, {}, f"Model and retriever differ{ALONE}"),
        ({"method": "ircot", "model": "m2"}, {}, f"Model differs{ALONE}"),
        ({"model": "m2", "retriever": "r2"}, {}, f"Model and retriever differ{EITHER}"),
        ({"model": "m2"}, {}, ""),
        ({"method": "ircot"}, {}, ""),
        ({"method": "ircot", "model": "m2"}, {"model": {"name": "model", "adapter": "mine"}}, ""),
        ({"method": "closed_book", "retriever": ""}, {}, ""),
    ],
    ids=["all", "model", "same method", "model alone", "method alone", "an adapter", "no search"],
)  # fmt: skip
def test_a_table_says_what_else_differs_beside_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict, start: dict, sentence: str
) -> None:
    runs = [run_of(tmp_path / "a", range(4)), run_of(tmp_path / "b", range(20), settings, **start)]
    assert main(["table", *map(str, runs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (sentence in lines) == bool(sentence) and not any(
        ALONE in each for each in lines if each != sentence
    )
    if sentence:
        assert lines.index(sentence) < next(n for n, each in enumerate(lines) if "95% intervals" in each)
        assert sentence in table_of_runs({"a": runs[0], "b": runs[1]}).to_json()["notes"]
    assert sentence not in table_of_runs({"b": runs[1]}).sentences, "nothing is compared"


def test_a_table_says_that_recall_is_over_far_more_passages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def collecting(name: str, passages: int) -> Path:
        rows = [row(each, "x", [f"p{n}" for n in range(passages)]) for each in QUESTIONS]
        return make_run(tmp_path / name, rows, {"seed": passages}, recall_at=15)

    runs = [collecting("few", 5), collecting("many", 37), collecting("more", 8)]
    note = "recall@15 counts 15.0 passages a question of many, 8.0 of more, 5.0 of few; recall_at=5 compares"
    for options, says in (([], True), (["--measures", "em"], False), (["--recall_at", "5"], False)):
        assert main(["table", *map(str, runs), *options]) == 0
        assert (note in capsys.readouterr().out) == says, options
    assert not table_of_runs({"few": runs[0], "more": runs[2]}).cautions, "less than twice as many"


def test_a_corpus_that_was_pooled_from_questions_is_called_so(tmp_path: Path) -> None:
    pooled = searched(tmp_path / "pooled", "hotpotqa")["index"]
    assert "passages, pooled-distractor: the questions' own paragraphs)" in describe_corpora(pooled)
    assert "pooled" not in describe_corpora(searched(tmp_path / "plain", "jsonl")["index"])


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_finished_runs_are_drawn_with_their_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    pytest.importorskip("matplotlib")
    runs = [run_of(tmp_path / "one step", range(4)), run_of(tmp_path / "ircot", range(20), {"seed": 1})]
    file = tmp_path / "figures" / f"score.{ending}"
    assert main(["table", *map(str, runs), "--figure", str(file)]) == 0
    assert f"score.{ending}: F1 over tokens per question." in capsys.readouterr().err
    first = file.read_bytes()
    assert Results(runs).figure(file) == file and file.read_bytes() == first, "the same runs, the same file"
    assert first[:4] in (b"<?xm", b"%PDF")
    if ending == "svg":
        drawn = first.decode()
        # Text of an SVG is drawn, and stands in a comment before.
        assert all(
            f"<!-- {text} -->" in drawn
            for text in ("0", "F1 (%)", "ircot", "Pareto frontier (filled points)")
        )
        assert "<!-- one step -->" in drawn
        Results(runs).figure(file, measures=["recall"])
        assert "<!-- recall@5 (%) -->" in file.read_text()


def test_what_cannot_be_drawn_is_a_sentence(tmp_path: Path) -> None:
    right = run_of(tmp_path / "run", range(4))
    failed = make_run(tmp_path / "failed", [row(each, None) for each in QUESTIONS])
    with raises_message(ConfigError):
        Results([right]).figure(tmp_path / "score.xls")
    with raises_message(ConfigError):
        Results([failed]).figure(tmp_path / "score.png")
    assert main(["table", str(right), "--figure", "score"]) == 2


def test_a_table_of_few_questions_says_that_it_tells_nothing(tmp_path: Path) -> None:
    for count, says in ((4, True), (20, False)):
        rows = [row(each, "Ada") for each in QUESTIONS[:count]]
        runs = {name: make_run(tmp_path / f"{name}{count}", rows) for name in "ab"}
        table = Results(runs).table()
        assert ("4 questions cannot tell which run is better" in str(table)) == says
