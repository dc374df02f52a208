"""Failed questions: told last, by reason, and in the exit status, by every command alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.runs.failures import Failures
from corag.core.runs.shards import Shard, write_questions
from tests.cli.test_batch import answer
from tests.failing_search import Failing

ASKED = [f"Who wrote book {number}?" for number in range(8)]
REFUSED = {
    ASKED[1]: "the query 'book 1' has 2,000 words: shorten it.",
    ASKED[2]: "the query 'book 2' has 3,000 words: shorten it.",
    ASKED[4]: "no such field.",
    ASKED[5]: "the index is locked.",
    ASKED[7]: "the disk is full.",
}
Command = Callable[..., int]


@pytest.fixture
def server() -> Iterator[Failing]:
    with Failing() as server:
        server.refused = dict(REFUSED)
        yield server


@pytest.fixture
def command(server: Failing, tiny_model: str, tmp_path: Path) -> Command:
    """Return what runs a command over that server with a tiny model on eight questions."""
    questions = tmp_path / "questions.jsonl"
    records = [{"id": f"q{n}", "question": text, "answers": ["x"]} for n, text in enumerate(ASKED)]
    questions.write_text("".join(json.dumps(record) + "\n" for record in records))

    def run(name: str, *more: object) -> int:
        given = [
            name, "--questions", questions, "--retriever.url", server.url, "--retriever.retries", 0,
            "--model.name", tiny_model, "--model.backend", "transformers", "--model.dtype", "float32",
        ]  # fmt: skip
        return main([str(word) for word in (*given, *more)])

    return run


def run_options(out: Path) -> list[object]:
    return [
        "--method", "one_step", "--one_step.max_answer_tokens", 2, "--one_step.k", 1,
        "--one_step.strip_question_words", "false", "--out", out,
    ]  # fmt: skip


def test_a_run_says_last_how_many_failed_why_and_what_to_do(
    command: Command, server: Failing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = run_options(tmp_path / "runs")
    assert command("run", *options) == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-6] == "corag: 5 of 8 questions failed:"
    assert (
        "5 of 8 questions failed, which counts as wrong" in printed.out
        and "2 x the query 'book 1'" in printed.out
    )
    assert command("run", *options, "--max_failed", 4) == 1
    assert command("run", *options, "--max_failed", 5) == 0, "it is no part of the run's identity"
    assert capsys.readouterr().err.splitlines()[-1] == "The same command tries them again."
    server.refused.clear()
    assert command("run", *options) == 0
    assert "failed" not in capsys.readouterr().err.splitlines()[-1]
    assert command("run", *options, "--max_failed", -1) == 2


def test_sweep_and_sample_do_so_too(
    command: Command, server: Failing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*run_options(tmp_path / "sweep"), "--grid", "{one_step.k: [1, 2]}"]
    assert command("sweep", *options) == 1
    assert "corag: 10 of 16 questions failed:\n  4 x the query" in capsys.readouterr().err
    assert command("sweep", *options, "--max_failed", 10) == 0

    server.refused = {"": "the index is locked."}
    sampling = [
        "--out", tmp_path / "chains", "--sample.chains", 1, "--sample.max_hops", 2,
        "--corag.max_sub_query_tokens", 2, "--corag.max_sub_answer_tokens", 2,
    ]  # fmt: skip
    assert command("sample", *sampling) == 1
    first, reason, _ = capsys.readouterr().err.splitlines()[-3:]
    assert (first, reason) == ("corag: 8 of 8 questions failed:", "  8 x the index is locked.")


def test_a_back_end_that_is_gone_is_one_sentence_and_status_1(
    command: Command, server: Failing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults = iter(["503"] * 99)
    assert command("run", *run_options(tmp_path / "runs")) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "as told" in line]
    assert line.startswith("corag: the search server http://127.0.0.1") and "status 503" in line


def test_join_does_so_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    for number, failing in ((1, "a"), (2, "")):
        shard = Shard(number, 2)
        answer(shard.folder(run), shard.select("abcd"), failing=failing, shard=str(shard))
        write_questions(shard.folder(run), shard.select("abcd"))
    assert main(["table", str(run), "--join"]) == 1
    first, reason, advice = capsys.readouterr().err.splitlines()
    assert (first, reason) == ("corag: 1 of 4 questions failed:", "  1 x Broken: x")
    assert advice.startswith("The commands that answered the shards try them again; then join again; max_")
    assert main(["table", str(run), "--join", "--max_failed", "1"]) == 0


def test_reasons_are_grouped_by_their_first_line_whatever_query_or_number_they_name() -> None:
    defect = "KeyError: 'results'\nTraceback (most recent call last):\n  File ..."
    found = Failures.count(
        ["", "SearchFailedError: no reply in 0.3 s.", "SearchFailedError: no reply in 30 s.", defect, ""]
    )
    assert (found.questions, found.failed) == (5, 3)
    assert dict(found.reasons) == {"no reply in 0.3 s.": 2, "KeyError: 'results'": 1}
    both = found + Failures.count([defect, defect])
    assert list(both.reasons.items()) == [("KeyError: 'results'", 3), ("no reply in 0.3 s.", 2)]
    assert list(Failures.count(["", ""]).lines(0)) == []
