"""Trainings as a user starts them: killed, started twice, refused."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.system.folder_lock import lock_folder, refuse_if_locked
from retrieval.config import IndexConfig
from retrieval.index.build import build_index
from tests.training.conftest import PASSAGES, make_rows
from training.checkpoints import last_checkpoint
from training.config import SftConfig
from training.stages import TrainOptions, launch_program

Options = Callable[..., SftConfig]
CORAG = [sys.executable, "-m", "corag.cli"]
PROGRAMS = ("corag.cli", "sft.py")


def train_words(config: SftConfig, *more: str) -> list[str]:
    """Return 'corag train' with the options that a test's training has."""
    words = ["--rows", ",".join(config.rows), "--out", config.out, "--model", config.model]
    words += ["--max_steps", str(config.max_steps), "--batch_size", "2", "--precision", "float32"]
    return [*CORAG, "train", *words, *more]


@contextmanager
def started(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], dict[int, str]]]]:
    """A process, and a function that returns the command lines of it and all that came of it, by number."""
    mark = uuid.uuid4().hex
    environment = os.environ | {"CORAG_DRILL": mark, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def family() -> dict[int, str]:
        living = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended meanwhile, or is a zombie, which has no environment
                if mark.encode() in (folder / "environ").read_bytes():
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    living[int(folder.name)] = line
        return living

    try:
        yield process, family
    finally:
        for number in family():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()


def wait_until(condition: Callable[[], object], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it must come to that"
        time.sleep(0.02)


def number_of(family: Callable[[], dict[int, str]], program: str) -> int:
    """Return the process whose program this is: the first of these names in its command line."""
    for number, line in family().items():
        named = [word for word in line.split() if word in PROGRAMS or word.endswith("/sft.py")]
        if named and named[0].endswith(program):
            return number
    return 0


def is_free(folder: Path) -> bool:
    with suppress(ConfigError):
        refuse_if_locked(folder)
        return True
    return False


MOMENTS = {
    "the training starts": lambda family, out: number_of(family, "sft.py"),
    "it has begun its folder": lambda family, out: (out / "training.json").exists(),
    "it has logged a step": lambda family, out: (
        (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size
    ),
    "it has saved": lambda family, out: any(out.glob("checkpoints/*/trainer_state.json")),
}


PLAIN = ("corag.cli", "it has logged a step")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("killed", "moment"),
    [
        pytest.param(killed, moment, marks=[] if (killed, moment) == PLAIN else [pytest.mark.drill])
        for killed in PROGRAMS
        for moment in MOMENTS
    ],
)
def test_a_training_ends_with_what_launched_it(killed: str, moment: str, options: Options) -> None:
    config = options(max_steps=4000)
    out = Path(config.out)
    with started(train_words(config, "--save_steps", "5", "--logging_steps", "1")) as (process, family):
        wait_until(lambda: MOMENTS[moment](family, out) or process.poll() is not None)
        assert process.poll() is None
        number = process.pid if killed == "corag.cli" else number_of(family, killed)
        os.kill(number, signal.SIGKILL)
        wait_until(lambda: not family(), 15)
    wait_until(lambda: is_free(out), 15)  # for the same command again


@pytest.mark.slow
def test_a_second_training_is_refused_and_an_interrupted_one_says_what_it_leaves(options: Options) -> None:
    config = options(max_steps=4000)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = train_words(config, "--save_steps", "4000", "--logging_steps", "1")
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: (Path(config.out) / "metrics.jsonl").exists() or process.poll() is not None)
        second = subprocess.run(train_words(config), capture_output=True, text=True, check=False)
        assert second.returncode == 2 and process.poll() is None
        assert "another corag train (process " in second.stderr and config.out in second.stderr
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=300)
    assert process.returncode == 130
    last = text.strip().splitlines()[-1]
    kept = Path(last_checkpoint(Path(config.out)) or "no checkpoint").name
    assert f"{kept} is kept in '{config.out}'" in last


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        ("run --method closed_book --out made/runs", "runs/closed_book"),
        ("sample --retriever.index nowhere --out made/chains", "chains"),
        ("rounds --retriever.index nowhere --out made/rounds", "rounds"),
    ],
)
def test_a_second_command_in_a_folder_is_refused_before_anything_opens(
    words: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.jsonl").write_text('{"id": "1", "question": "Who?", "answers": ["x"]}\n')
    with lock_folder(Path("made") / folder, work="corag run"):
        before = sorted(Path("made").rglob("*"))
        assert main([*words.split(), "--questions", "q.jsonl"]) == 2
        said = capsys.readouterr().err
        assert f"corag: another corag run (process {os.getpid()} on " in said
        assert f"is at work in 'made/{folder}'" in said
        assert sorted(Path("made").rglob("*")) == before


def test_a_training_that_the_system_killed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dies.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    options = TrainOptions(rows=["rows"], out=str(tmp_path / "out"))
    assert launch_program(str(tmp_path / "dies.py"), options) == -signal.SIGKILL
    assert "no checkpoint" in capsys.readouterr().err


@pytest.mark.slow
def test_the_line_that_ends_a_training_is_a_command_that_asks_as_was_taught(
    tiny_model: str, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"id": "{each.id}", "title": "{each.title}", "text": "{each.text}"}}\n'
                              for each in PASSAGES))  # fmt: skip
    build_index(IndexConfig([str(corpus)], out=str(tmp_path / "my index")), lambda line: None)
    searched = {"index": [str(tmp_path / "my index")], "links": "titles"}
    rows = make_rows(tmp_path, tiny_model, start={"retriever": searched})
    config = SftConfig(rows=[rows], out=str(tmp_path / "adapter"), model=tiny_model, max_steps=1)
    trained = subprocess.run(train_words(config), capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr
    line = next(line for line in trained.stdout.splitlines() if line.startswith("Use it: "))
    words = shlex.split(line.removeprefix("Use it: "))
    assert words[0] == "corag" and "--corag.passages_per_hop" in words
    assert words[words.index("--retriever.links") + 1] == "titles"
    # vLLM has no kernels for heads so small.
    command = [*CORAG, *words[1:], "--model.backend", "transformers"]
    for more, said in (([], False), (["--corag.passages_per_hop", "4"], True)):
        asked = subprocess.run(
            [*command, *more], input="When was the mayor of Bost born?\n", capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert asked.returncode == 0 and asked.stdout.strip(), asked.stderr
        otherwise = r"corag: '\S+adapter' was trained for corag with passages_per_hop 2"
        assert bool(re.search(otherwise, asked.stderr)) == said
