"""What other libraries print while something opens goes to a log; what we print is seen."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corag.core.errors import BackendError, ConfigError
from eval.experiment import opening
from eval.experiment.opening import last_words, log_to, quiet


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a process of the test's own."""
    monkeypatch.setattr(opening, "_output", opening._Output())
    log_to(tmp_path / "runs/.engine.log")
    return tmp_path / "runs/.engine.log"


def chatter(name: str) -> logging.Logger:
    """Print in every way that libraries print; return a logger that bound itself to the stream of now."""
    print(f"{name} print")
    print(f"{name} error", file=sys.stderr)
    os.write(1, f"{name} descriptor 1\n".encode())
    os.write(2, f"{name} descriptor 2\n".encode())
    subprocess.run(["sh", "-c", f"echo {name} child; echo {name} child error >&2"], check=True)
    logger = logging.getLogger(f"chatter.{name}")
    logger.propagate = False
    logger.addHandler(logging.StreamHandler())
    logger.warning("%s logger", name)
    return logger


WAYS = ("print", "error", "descriptor 1", "descriptor 2", "child", "child error", "logger")


def test_whatever_is_printed_meanwhile_goes_to_the_log_and_ours_is_seen(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    print("before")
    with quiet("opening a model", "a model is open") as say:
        logger = chatter("first")
        say("half of it is there")
        late = subprocess.Popen(["sh", "-c", "read line; echo the engine says $line"], stdin=subprocess.PIPE)
    print("after")
    logger.warning("a late logger")
    late.communicate(b"something late\n")
    seen = capfd.readouterr()
    assert seen.out == "before\nafter\n"
    half, done = seen.err.splitlines()
    assert half == "half of it is there"
    assert done.startswith("corag: a model is open (") and done.endswith(" s)")
    written = log.read_text()
    assert all(f"first {way}" in written for way in WAYS)
    assert "a late logger" in written and "the engine says something late" in written


def test_what_takes_its_time_says_so(
    log: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that compiles for five minutes looked as one that hangs."""
    monkeypatch.setattr(opening, "_LATE_S", 0.02)
    with quiet("opening model x", "model x is open"):
        time.sleep(0.3)
    first, done = capfd.readouterr().err.splitlines()
    assert first == "corag: opening model x ..." and done.startswith("corag: model x is open")
    monkeypatch.setattr(opening, "_LATE_S", 0.2)
    with quiet("opening model x"):
        pass
    time.sleep(0.3)
    assert not capfd.readouterr().err, "what is open says no more"


def test_what_opens_at_the_same_time_turns_output_back_once(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = quiet("a"), quiet("b")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    os.write(1, b"noise\n")
    second.__exit__(None, None, None)
    os.write(1, b"ours\n")
    assert capfd.readouterr().out == "ours\n" and log.read_text() == "noise\n"


def test_an_engine_that_fails_tells_the_last_lines_of_its_log(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log.parent.mkdir()
    log.write_text("of an earlier start\n")
    with pytest.raises(BackendError) as error, quiet("opening"):
        print("\n".join(f"line {n}" for n in range(99)))
        print("WARNING: Using incubator modules: jdk.incubator.vector")
        raise BackendError("vLLM could not start.")
    (note,) = error.value.__notes__
    assert note == last_words()
    assert note.splitlines()[0] == f"The last lines of {log}:"
    assert note.splitlines()[1:] == [f"  | line {n}" for n in range(87, 99)], "not what Java always warns of"
    with pytest.raises(ZeroDivisionError) as defect, quiet("opening"):
        1 / 0  # noqa: B018
    assert "line 98" in defect.value.__notes__[0], "a traceback shows it too"
    with pytest.raises(ConfigError) as mistake, quiet("opening"):
        raise ConfigError("there is no such model.")
    assert not hasattr(mistake.value, "__notes__"), "the log has nothing to do with it"
    print("seen")
    assert capfd.readouterr().out == "seen\n"


def test_a_folder_that_cannot_be_written_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(opening, "_output", opening._Output())
    log_to(tmp_path / "file/.engine.log")
    with quiet("opening"):
        print("noise")
    assert last_words() == "" and capfd.readouterr().out == ""
