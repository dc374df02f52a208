"""Questions in shards: what is split must come together again, once each, in order, and nothing else."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError, DataError
from corag.core.runs.folder import TRACES, RunFolder, read_rows
from corag.core.runs.manifest import MANIFEST, Manifest
from corag.core.runs.rows import Row
from corag.core.runs.shards import SHARD, Shard, join, write_questions
from corag.core.system.folder_lock import lock_folder
from corag.core.types import Answer, Question, TokenUsage
from tests.messages import raises_message

SCRIPT = Path(__file__).parents[2] / "scripts/recipes/batch_inference.sh"
SETTINGS = {
    "method": "closed_book",
    "options": {"k": 5},
    "prompts": ["direct:1"],
    "questions": {"source": "abc", "dataset": "jsonl"},
    "model": "model:1",
    "retriever": "",
    "seed": 0,
}
TABLE = {
    "model": {"name": "model"}, "retriever": {"index": [], "url": []},
    "questions": "q.jsonl", "scorer": "auto", "recall_at": 5,
}  # fmt: skip
IDS = ["zeta", "alpha", "mid", "beta", "last"]


def answer(folder, ids, *, settings=SETTINGS, failing=(), text="right", **start):
    """Answer these questions, in this order, in a run folder."""
    with RunFolder(folder, settings, TABLE | start) as run:
        for name in ids:
            done = None if name in failing else Answer(text)
            question = Question(name, f"What is {name}?", ("right",))
            run.append(
                Row(
                    question,
                    done,
                    (),
                    {"reader": TokenUsage(1, 2, 3, 2, 3)},
                    0.1,
                    "" if done else "Broken: x",
                )
            )


def split(run, count, ids=IDS, **options):
    """Answer these questions in shards, each backwards, as a run with many questions in flight might."""
    for number in range(1, count + 1):
        shard = Shard(number, count)
        answer(shard.folder(run), shard.select(ids)[::-1], shard=str(shard), **options)
        write_questions(shard.folder(run), shard.select(ids))


def content(run):
    return (run / TRACES).read_bytes(), (run / MANIFEST).read_bytes()


def test_shards_share_the_questions_out():
    shares = [Shard(number, 3).select(range(11)) for number in (1, 2, 3)]
    assert shares == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]
    with raises_message(ConfigError):
        Shard(1, 3).select("ab")


@pytest.mark.parametrize("text", ["0/4", "5/4", "x", "1", "1/0", "-1/4", "1/2/3", "1.5/2"])
def test_a_shard_that_cannot_be(text, capsys, tmp_path):
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": "1", "question": "Who?", "answers": ["X"]}\n')
    assert main(["run", "--questions", str(questions), "--method", "closed_book", f"--shard={text}"]) == 2
    printed = capsys.readouterr().err
    assert f"there is no shard '{text}'" in printed and "shard=2/8" in printed and "Traceback" not in printed


def test_joining_puts_the_questions_in_their_order_and_prints_the_table(tmp_path, capsys):
    run = tmp_path / "run"
    split(run, 2)
    assert main(["table", str(run), "--json", "--join"]) == 0
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])["runs"]["closed_book"]
    assert (figures["n"], figures["em"], figures["folder"]) == (5, 1.0, str(run))
    assert "q.jsonl" in printed and "model:1" in printed
    assert list(read_rows(run)) == IDS
    manifest = Manifest.read(run)
    assert manifest.settings == SETTINGS
    assert [start.record["shard"] for start in manifest.starts] == ["1/2", "2/2"]
    assert not (run / SHARD).exists()


def test_joining_again_changes_nothing(tmp_path):
    run = tmp_path / "run"
    split(run, 3)
    join(run)
    with RunFolder(run, SETTINGS, TABLE) as opened:
        assert opened.answered_ids == set(IDS), "the joined run is a finished run"
    before = content(run)
    assert join(Shard(2, 3).folder(run)) == run, "any shard names the run"
    assert content(run) == before


def test_joining_again_takes_up_what_was_answered_since(tmp_path):
    run = tmp_path / "run"
    split(run, 2, failing=["mid", "beta"])
    join(run)
    assert [name for name, row in read_rows(run).items() if row.error] == ["mid", "beta"], (
        "a failure is a row"
    )
    answer(Shard(1, 2).folder(run), ["mid"])
    answer(run, ["beta"], text="the run itself was resumed")
    join(run)
    rows = read_rows(run)
    assert list(rows) == IDS and not any(row.error for row in rows.values())
    assert rows["beta"].text == "the run itself was resumed"


def test_shards_with_other_settings_are_refused(tmp_path):
    run = tmp_path / "run"
    split(run, 3)
    third = Shard(3, 3).folder(run)
    manifest = Manifest.read(third)
    Manifest(manifest.settings | {"options": {"k": 7}}, manifest.starts).write(third)
    with raises_message(ConfigError):
        join(run)
    assert not run.exists()


def test_missing_shards_are_refused(tmp_path, capsys):
    run = tmp_path / "run"
    split(run, 4)
    for number in (2, 4):
        Shard(number, 4).folder(run).rename(tmp_path / f"away-{number}")
    assert main(["table", str(run), "--join"]) == 2
    printed = capsys.readouterr().err
    assert "lacks shard 2 and 4 of 4" in printed and "shard=2/4" in printed
    with raises_message(DataError):
        join(tmp_path / "nowhere/run")


def test_an_unfinished_shard_is_refused(tmp_path):
    run = tmp_path / "run"
    split(run, 2)
    traces = Shard(1, 2).folder(run) / TRACES
    lines = traces.read_bytes().splitlines(keepends=True)
    traces.write_bytes(lines[0] + lines[1][:-9])  # a torn line is no answer
    with raises_message(DataError):
        join(run)
    assert not run.exists()


def test_shards_of_different_lengths_are_refused(tmp_path):
    run = tmp_path / "run"
    split(run, 2, IDS[:2])
    write_questions(Shard(2, 2).folder(run), IDS[1::2])
    answer(Shard(2, 2).folder(run), IDS[3:4])
    with raises_message(ConfigError):
        join(run)


def test_a_run_split_in_two_ways_is_asked_about(tmp_path):
    run = tmp_path / "run"
    split(run, 2)
    split(run, 3)
    with raises_message(DataError):
        join(run)
    assert list(read_rows(join(Shard(1, 3).folder(run)))) == IDS


def test_another_run_in_the_way_is_refused(tmp_path):
    run = tmp_path / "run"
    split(run, 2)
    answer(run, IDS, text="another")
    before = content(run)
    with raises_message(ConfigError):
        join(run)
    with lock_folder(run), raises_message(ConfigError):
        join(run)
    assert content(run) == before


def test_joining_keeps_what_the_run_has_beyond_its_shards(tmp_path):
    run = tmp_path / "run"
    split(run, 2, IDS[:3])
    join(run)
    answer(run, IDS[3:], text="the run went on without a limit")
    join(run)
    assert list(read_rows(run)) == IDS


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    asked = [
        "Which planet is red?",
        "Who wrote Hamlet?",
        "What is the capital of France?",
        "Is fire cold?",
        "What is 2 + 2?",
    ]
    records = [{"id": f"q{i}", "question": text, "answers": ["x"]} for i, text in enumerate(asked)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


@pytest.mark.slow
def test_the_script_answers_in_shards_and_goes_on(questions, tmp_path):
    """A shard fails, the other goes on.

    The same command again finishes; the answers are those of a run in one piece.
    """
    (tmp_path / "own.py").write_text("def llm(prompt):\n    return prompt[-9:]\n")
    options = ["--questions", questions, "--method", "closed_book", "--llm", "own.py:llm"]
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SHARDS", "AT_ONCE", "GPUS_PER_ENGINE")
    }

    def batch(**environment):
        words = ["bash", SCRIPT, *options, "--out", tmp_path / "runs", "--json"]
        return subprocess.run(
            list(map(str, words)),
            cwd=tmp_path,
            env=clean | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    run = tmp_path / "runs/closed_book"
    first, second = Shard(1, 2).folder(run), Shard(2, 2).folder(run)
    with lock_folder(second):
        failed = batch(CUDA_VISIBLE_DEVICES="5,6", LOGS="logs")
    assert failed.returncode == 1 and "shard 2 of 2 failed; its log is logs/shard-2-of-2.err" in failed.stderr
    assert "another Python program (process" in failed.stderr and not run.exists()
    assert list(read_rows(first)) and not (second / TRACES).exists()
    answered = (first / TRACES).read_bytes()

    finished = batch(CUDA_VISIBLE_DEVICES="", SHARDS="2")
    assert finished.returncode == 0, finished.stderr
    assert (first / TRACES).read_bytes() == answered, "what was answered is not asked again"
    rows = read_rows(run)
    assert list(rows) == ["q0", "q1", "q2", "q3", "q4"]
    assert json.loads(finished.stdout.splitlines()[-1])["runs"]["closed_book"]["n"] == 5
    visible = [start.record["machine"]["cuda_visible_devices"] for start in Manifest.read(run).starts]
    assert visible == ["5", "", ""], "one GPU for each engine"

    joined = (run / TRACES).read_bytes()
    for out in ("runs", "whole"):
        whole = [sys.executable, "-m", "corag.cli", "run", *options, "--out", tmp_path / out]
        subprocess.run(list(map(str, whole)), env=clean, capture_output=True, check=True, cwd=tmp_path)
    assert (run / TRACES).read_bytes() == joined, "a joined run is finished"
    in_one_piece = read_rows(tmp_path / "whole/closed_book")
    assert {name: row.answer for name, row in rows.items()} == {
        name: row.answer for name, row in in_one_piece.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["kill", "Ctrl-C"])
def test_stopping_the_script_stops_its_engines(stop, questions, tmp_path):
    own = "import asyncio\n\nasync def llm(prompt):\n    await asyncio.sleep(60)\n"
    (tmp_path / "own.py").write_text(own)
    words = ["bash", SCRIPT, "--questions", questions, "--method", "closed_book", "--out", tmp_path / "runs"]
    stopped = subprocess.Popen(
        [*map(str, words), "--llm", "own.py:llm"],
        cwd=tmp_path, env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "SHARDS": "2", "AT_ONCE": "2",
        "LOGS": "logs"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # a shell's background jobs ignore it, and pass that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while len(engines(tmp_path)) < 2:
        assert stopped.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    if stop == "kill":
        stopped.terminate()
    else:
        os.killpg(stopped.pid, signal.SIGINT)  # a terminal sends it to the script and to all its subshells
    assert "the same command goes on from there" in stopped.communicate()[1] and stopped.returncode == 130
    while engines(tmp_path):
        assert time.monotonic() < deadline, "an engine lives on"
        time.sleep(0.1)


def engines(folder):
    """Return the process ids of the 'corag run' that write to this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if f"{folder}/runs" in words and "run" in words:
            found.append(process.name)
    return found
