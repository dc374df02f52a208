"""SIGTERM, by which schedulers end a job, ends a command as Ctrl-C does: in seconds, with its sentence."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SENTENCE = "corag: told to end (SIGTERM). What a run or an index build had finished is kept"
AT_MOST_S = 30.0  # half of what the model sleeps; a run that answers takes one on a free machine
ROOT = Path(__file__).parents[2]
# A model that never answers, in place of one that takes minutes to open.
RUN = """
import asyncio, sys, time
from pathlib import Path
from corag.cli import main
from tests.fakes import ScriptedGenerator

class Slow(ScriptedGenerator):
    async def generate(self, request):
        Path("asked").touch()
        try:
            await asyncio.sleep(60)
        finally:
            Path("cancelled").touch()

async def open_generator(config, capacity=0):
    if sys.argv[1] == "opening":
        Path("asked").touch()
        time.sleep(60)  # as vLLM's start, which awaits nothing
    return Slow([])

import eval.experiment.opening
eval.experiment.opening.open_generator = open_generator
sys.exit(main.main(sys.argv[2:]))
"""


def start(*words: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, **options,
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> tuple[str, float]:
    """Send SIGTERM; return what is printed from then on, and after how many seconds the process has ended."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=50)[1]
    return told, time.monotonic() - started


def wait_for(process: subprocess.Popen[str], file: Path) -> None:
    deadline = time.monotonic() + 120
    while not file.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("when", "background"), [("answering", True), ("opening", False)])
def test_a_run_ends_within_seconds(tmp_path: Path, when: str, background: bool) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "1", "question": "Who?", "answers": ["She"]}\n')
    words = ["run", "--questions", questions, "--method", "closed_book", "--out", tmp_path / "runs"]
    ignore = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if background else None
    process = start("-c", RUN, when, *words, preexec_fn=ignore, cwd=tmp_path)
    wait_for(process, tmp_path / "asked")
    told, seconds = end(process)
    assert process.returncode == 143 and SENTENCE in told.splitlines()[-1]
    assert "Traceback" not in told and seconds < AT_MOST_S
    assert (tmp_path / "cancelled").exists() == (when == "answering"), "what runs has cleaned up"


@pytest.mark.slow
def test_an_engine_that_computes_does_not_abort_the_end(tmp_path: Path) -> None:
    """Transformers compute in a thread of this process, which Python's end finds in the middle of torch."""
    questions = tmp_path / "questions.jsonl"
    lines = [json.dumps({"id": n, "question": f"Who is {n}? " * 300, "answers": ["She"]}) for n in range(64)]
    questions.write_text("\n".join(map(str, lines)))
    process = start(
        "-m", "corag.cli", "run", "--questions", questions, "--method", "closed_book",
        "--model.backend", "transformers", "--closed_book.max_answer_tokens", 512, "--out", tmp_path / "runs",
    )  # fmt: skip
    wait_for(process, tmp_path / "runs/closed_book/manifest.json")  # the model is open
    time.sleep(3)
    told, seconds = end(process)
    assert process.returncode == 143, told
    assert SENTENCE in told.splitlines()[-1] and seconds < AT_MOST_S
