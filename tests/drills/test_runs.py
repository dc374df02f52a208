"""What befalls a run: it is killed, its disk is full, a line is torn, another writes it, the clock jumps."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.errors import DataError
from corag.core.runs.folder import TRACES, RunFolder, read_rows
from corag.core.runs.manifest import MANIFEST
from corag.core.runs.rows import SavedRow
from tests.drills.answering import METHOD, ROOT, ended, started
from tests.drills.disks import SmallDisk, small_disk
from tests.eval.runs import QUESTIONS, SETTINGS, START, make_run, row
from tests.messages import raises_message


def told(rows: dict[str, SavedRow]) -> dict[str, object]:
    """What rows say, without how long it took."""
    return {
        name: (row.question, row.answer, row.usage, row.error, row.searches) for name, row in rows.items()
    }


def ids(traces: Path) -> list[str]:
    return [json.loads(line)["id"] for line in traces.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SavedRow]:
    """The rows of the run to which nothing happens."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert ended(started(out))[0] == 0
    rows = read_rows(out / METHOD)
    assert len(rows) == 40 and min(row.answer.steps for row in rows.values()) >= 2
    assert all(row.text == f"A{name[1:]}" for name, row in rows.items())
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_run_killed_at_random_moments_has_the_same_rows_in_the_end(
    seed: int, undisturbed: dict[str, SavedRow], tmp_path: Path
) -> None:
    chance, traces, kept = random.Random(seed), tmp_path / METHOD / TRACES, b""
    for _ in range(2):
        process = started(tmp_path, "--pause", 0.05)
        # Some are killed while they start, the others after some more lines, a moment later or at once.
        wanted = kept.count(b"\n") + chance.randint(1, 12) if chance.random() < 0.8 else 0
        deadline = time.monotonic() + (60 if wanted else chance.uniform(0.1, 0.9))
        while time.monotonic() < deadline and process.poll() is None:
            if wanted and traces.exists() and traces.read_bytes().count(b"\n") >= wanted:
                time.sleep(chance.uniform(0, 0.02))
                break
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        before = traces.read_bytes() if traces.exists() else b""
        assert before.startswith(kept), "what had finished was not asked again"
        kept = before[: before.rfind(b"\n") + 1]
    assert ended(started(tmp_path))[0] == 0
    assert traces.read_bytes().startswith(kept)
    assert sorted(ids(traces)) == sorted(undisturbed), "every question once"
    assert told(read_rows(tmp_path / METHOD)).items() == told(undisturbed).items()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", kilobytes=48) as found:
        yield found


@pytest.mark.slow
def test_a_disk_that_is_full_ends_a_run_in_a_sentence_and_space_lets_it_go_on(
    disk: SmallDisk, undisturbed: dict[str, SavedRow]
) -> None:
    traces = disk.folder / METHOD / TRACES
    status, said = ended(started(disk.folder, **disk.limits))
    assert status == 2 and f"cannot write to '{traces}'" in said and "free some space" in said
    before = traces.read_bytes()
    assert 0 < before.count(b"\n") < 40 and before.endswith(b"\n"), "no half of a line stays"
    assert f"{len(ids(traces))} answered questions are safe" in said
    disk.grow()
    assert ended(started(disk.folder))[0] == 0
    assert traces.read_bytes().startswith(before) and len(ids(traces)) == 40
    assert told(read_rows(disk.folder / METHOD)) == told(undisturbed)


@pytest.mark.slow
def test_a_manifest_that_finds_no_space_leaves_the_one_before(disk: SmallDisk) -> None:
    assert ended(started(disk.folder, "--questions", 3))[0] == 0
    manifest = disk.folder / METHOD / MANIFEST
    before = manifest.read_bytes()
    disk.fill()
    status, said = ended(started(disk.folder, "--questions", 6, **disk.nothing))
    assert status == 2 and f"cannot write '{manifest}'" in said
    assert manifest.read_bytes() == before and len(list(manifest.parent.glob("*.tmp"))) == 0
    disk.grow()
    assert ended(started(disk.folder, "--questions", 6))[0] == 0
    assert len(read_rows(disk.folder / METHOD)) == 6


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [("table RUN", ""), ("table RUN --ledger", "1"), ("--help", "")],
)
def test_what_is_printed_to_a_full_disk_ends_in_a_sentence(
    words: str, unbuffered: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", [row(question, "Town 1") for question in QUESTIONS[:4]])
    command = [str(run) if word == "RUN" else word for word in words.split()]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "corag.cli", *command], cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered}, stdout=full,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.startswith("corag: cannot write what is printed: No space left on device. Free some")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "torn",
    [b'{"id": "3", "question": {"te', b"\x00" * 300, b"[1]", b'{"id": 3}', b'{"id": "3"}'],
)
def test_a_torn_line_in_the_middle_is_named_and_nothing_is_written_over(
    torn: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", [row(question, "Town 1") for question in QUESTIONS[:6]])
    lines = (run / TRACES).read_bytes().splitlines(keepends=True)
    (run / TRACES).write_bytes(b"".join([*lines[:3], torn + b"\n", *lines[4:]]))
    before = (run / TRACES).read_bytes()
    for command in (
        ["table"],
        ["table", "--report", str(tmp_path / "r.html")],
        ["table", "--ledger"],
    ):
        assert main([command[0], str(run), *command[1:]]) == 2
        said = capsys.readouterr().err
        assert f"line 4 of '{run / TRACES}'" in said and "Traceback" not in said
    with raises_message(DataError), RunFolder(run, SETTINGS, START):
        pass
    assert (run / TRACES).read_bytes() == before
    (run / TRACES).write_bytes(b"".join([*lines[:3], *lines[4:]]))  # as the sentence says
    with RunFolder(run, SETTINGS, START) as going_on:
        assert going_on.answered_ids == {"0", "1", "2", "4", "5"}


@pytest.mark.slow
def test_a_second_writer_is_refused_and_the_first_finishes_and_a_dead_one_leaves_no_lock(
    tmp_path: Path,
) -> None:
    first = started(tmp_path, "--pause", 0.3)
    traces = tmp_path / METHOD / TRACES
    while not (traces.exists() and traces.stat().st_size):
        assert first.poll() is None
        time.sleep(0.01)
    status, said = ended(started(tmp_path))
    assert status == 2 and f"(process {first.pid}) is at work in" in said and "'out'" in said
    first.kill()
    first.communicate()
    second = ended(started(tmp_path))
    assert second[0] == 0 and len(ids(traces)) == len(set(ids(traces))) == 40


def test_a_line_of_another_shape_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", [row(QUESTIONS[0], "Town 1")])
    whole = json.loads((run / TRACES).read_bytes())
    for field in ("question", "answer", "usage", "steps", "seconds"):
        for value in (3, "x", [1], {"x": 1}):
            if (field, value) == ("seconds", 3):
                continue  # that is right
            (run / TRACES).write_text(json.dumps(whole | {field: value}) + "\n")
            assert main(["table", str(run)]) == 2
            said = capsys.readouterr().err
            assert f"line 1 of '{run / TRACES}'" in said and "Traceback" not in said


def test_a_clock_that_is_set_back_makes_no_time_negative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 2_000_000_000.0
    for begun in (now, now - 86_400):  # the second start comes a day before the first
        monkeypatch.setattr("corag.core.system.process._OFFSET", begun - time.perf_counter())
        half = QUESTIONS[:4] if begun == now else QUESTIONS[4:8]
        make_run(tmp_path / "run", [row(question, "Town 1") for question in half])
    rows = read_rows(tmp_path / "run")
    assert len(rows) == 8 and all(row.seconds >= 0 for row in rows.values())
    for command in (
        ["table"],
        ["table", "--ledger"],
        ["table", "--report", str(tmp_path / "r.html")],
    ):
        assert main([command[0], str(tmp_path / "run"), *command[1:]]) == 0
        said = capsys.readouterr().out
        assert "-86" not in said and "nan" not in said


_WRITING = {
    "report": ["table", "RUN", "--report", "PLACE/r.html"],
    "export": ["export", "RUN", "--to", "trec", "--out", "PLACE/x.trec"],
    "world": ["world", "PLACE/world", "--passages", "500", "--train", "1", "--dev", "1", "--test", "1"],
    "run": ["run", "--questions", "QUESTIONS", "--method", "closed_book", "--out", "PLACE/runs"],
}


def refused_to_write(command: str, place: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace("PLACE", str(place)) for word in _WRITING[command]]
    words = [str(source / "run") if word == "RUN" else word for word in words]
    words = [str(source / "q.jsonl") if word == "QUESTIONS" else word for word in words]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "corag: cannot write" in said and str(place) in said and "Traceback" not in said


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A run and a question file."""
    make_run(tmp_path / "run", [row(question, "Town 1") for question in QUESTIONS[:4]])
    (tmp_path / "q.jsonl").write_text('{"id": "1", "question": "Who?", "answers": ["Ada"]}\n')
    return tmp_path


@pytest.mark.parametrize("command", _WRITING)
@pytest.mark.parametrize("place", ["file", "/proc"])
def test_a_place_where_nothing_can_be_written_is_a_sentence(
    command: str, place: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "file").write_text("in the way")
    refused_to_write(command, source / place, source, capsys)
    assert (source / "file").read_text() == "in the way"
