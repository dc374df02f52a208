"""All GPUs are used, or a sentence says which are not: two that a stand-in for nvidia-smi lists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corag.core.errors import ConfigError
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import Manifest
from corag.generation.config import ModelConfig
from eval.experiment.backends import print_once
from eval.experiment.workers import choice
from eval.experiment.workers.actors import client_options
from eval.experiment.workers.choice import choose_workers
from eval.experiment.workers.config import WorkersConfig, ray_workers
from retrieval.config import RetrieverConfig
from retrieval.search.pipeline import open_retriever
from tests.core.test_machine import CUT, WHOLE, install_driver
from tests.drills.test_runs import told
from tests.drills.test_servers import searching

pytest.importorskip("ray", reason="Ray is an extra: pip install 'corag[ray]'")

MODEL = """
import os, pathlib

def reply(prompt):
    with (pathlib.Path(__file__).parent / "devices").open("a") as devices:
        devices.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}\\n")
    return f"A{prompt.split('?')[0].split()[-1]}"

reply.gpus = 1

def elsewhere(prompt):
    return "A1"
"""
FOUR = f"{WHOLE}\nGPU 3: NVIDIA H100 (UUID: GPU-dd44)"
TWO = "\n".join(WHOLE.splitlines()[:2])
SENTENCE = "corag: 2 GPUs: 2 engines on 1 each; --workers none keeps one."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scripted model and eight questions, on a machine with two GPUs."""
    (tmp_path / "model.py").write_text(MODEL)
    lines = [{"id": f"q{number}", "question": f"What is number {number}?", "answers": [f"A{number}"]}
             for number in range(8)]  # fmt: skip
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    install_driver(tmp_path / "bin", TWO, monkeypatch=monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(out: str, *options: str, **environment: str) -> tuple[str, dict[str, list[str]]]:
    """Run the questions through a closed-book method; return what was printed, and devices by process."""
    devices = Path("devices")
    devices.unlink(missing_ok=True)
    finished = subprocess.run(
        [sys.executable, "-m", "corag.cli", "run", "--questions", "questions.jsonl",
         "--method", "closed_book", "--model", "model.py:reply", "--out", out, *options],
        env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    engines: dict[str, list[str]] = {}
    for line in devices.read_text().splitlines():
        process, device = line.split()
        engines.setdefault(process, []).append(device)
    return finished.stderr, engines


@pytest.mark.slow
def test_a_run_has_an_engine_on_each_gpu_by_itself_and_the_same_table(folder: Path) -> None:
    printed, engines = answer("two", "--batch_size", "2")
    assert printed.count(SENTENCE) == 1
    assert sorted(set(map(frozenset, engines.values())), key=sorted) == [frozenset("0"), frozenset("1")]
    note = Manifest.read(folder / "two/closed_book").last.record["workers"]
    assert note["count"] == 2 and note["gpus_per_worker"] == 1
    printed, engines = answer("one", "--workers", "none")
    assert "GPU" not in printed and [*engines.values()] == [["all"] * 8], "one process, which sees both"
    assert told(read_rows(folder / "two/closed_book")) == told(read_rows(folder / "one/closed_book"))
    printed, engines = answer("hidden", CUDA_VISIBLE_DEVICES="1")
    assert "GPU" not in printed and [*engines.values()] == [["1"] * 8]


@pytest.mark.parametrize(
    ("listing", "visible", "model", "questions", "expected", "sentence"),
    [
        (WHOLE, None, {}, 100, (3, 1), "3 GPUs: 3 engines on 1 each"),
        (WHOLE, "0,2", {}, 100, (2, 1), "2 GPUs: 2 engines on 1 each"),
        (WHOLE, None, {}, 2, (2, 1), "3 GPUs: 2 engines on 1 each"),
        (CUT, None, {}, 100, (2, 1), "2 GPUs: 2 engines on 1 each"),  # of a card cut into unnamed parts one
        (WHOLE, None, {"gpus": 2}, 100, None, ""),
        (FOUR, None, {"gpus": 2}, 100, (2, 2), "2 engines on 2 each"),
        (WHOLE, "", {}, 100, None, ""),
        (WHOLE, None, {}, 1, None, ""),
        (WHOLE, None, {"name": "model.py:elsewhere"}, 100, None, ""),
        (WHOLE, None, {"backend": "server", "urls": ("http://localhost:1",)}, 100, None, ""),
        (WHOLE, None, {"backend": "transformers", "device": "cuda:1"}, 100, None, ""),
    ],
)  # fmt: skip
def test_how_many_engines_start_where_nobody_said(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    listing: str,
    visible: str | None,
    model: dict[str, Any],
    questions: int,
    expected: tuple[int, int] | None,
    sentence: str,
) -> None:
    print_once.cache_clear()
    install_driver(folder / "bin", listing)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    options = dict(model)
    if gpus := options.pop("gpus", 0):
        (folder / "model.py").write_text(MODEL.replace("reply.gpus = 1", f"reply.gpus = {gpus}"))
    if "backend" not in options:
        options.setdefault("name", "model.py:reply")
    chosen = choose_workers(WorkersConfig(), ModelConfig(**options), [], questions)
    assert ((chosen.count, chosen.gpus_per_worker) if chosen.enabled else None) == expected
    assert sentence in (printed := capfd.readouterr().err) and bool(printed) == bool(sentence)


@pytest.mark.parametrize(
    ("free", "visible", "expected"),
    [
        (("79000", "9000", "70000"), "0,2", 2),
        (("9000", "9000", "70000"), "2", None),
        (("9000", "9000", "9000"), None, 3),
    ],
)
def test_gpus_that_others_fill_are_left_out(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    free: tuple[str, ...],
    visible: str | None,
    expected: int | None,
) -> None:
    """One full GPU would set the share of all engines, since these are alike."""
    print_once.cache_clear()
    choice._leave_out_filled.cache_clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    memory = "\n".join(f"{number}, GPU-{number}, {each}, 81559" for number, each in enumerate(free))
    install_driver(folder / "bin", WHOLE, memory)
    chosen = choose_workers(WorkersConfig(), ModelConfig(name="model.py:reply"), [], 100)
    assert (chosen.count if chosen.enabled else None) == expected
    assert os.environ["CUDA_VISIBLE_DEVICES"] == (visible or "0,1,2")
    assert ("left out" in capfd.readouterr().err) == bool(visible)


def test_a_filled_gpu_stays_where_an_engine_needs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice._leave_out_filled.cache_clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    install_driver(folder / "bin", WHOLE, "0, GPU-0, 9000, 81559\n1, GPU-1, 79000, 81559")
    (folder / "model.py").write_text(MODEL.replace("reply.gpus = 1", "reply.gpus = 2"))
    choose_workers(WorkersConfig(), ModelConfig(name="model.py:reply"), [], 100)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_workers_that_are_asked_for_have_a_gpu_each(folder: Path) -> None:
    model = ModelConfig(name="model.py:reply")
    chosen = choose_workers(ray_workers(), model, [], 100)
    assert (chosen.kind, chosen.count, chosen.gpus_per_worker) == ("ray", 0, 1), "they were all on the first"
    shared = ray_workers(gpus_per_worker=0.5)
    assert choose_workers(shared, model, [], 100) == shared
    nobody = WorkersConfig(kind="none")
    assert choose_workers(nobody, model, [], 100) == nobody
    with pytest.raises(ConfigError, match="add workers=ray"):
        WorkersConfig(count=2)


async def test_search_settings_stay_with_the_server_of_the_workers() -> None:
    with searching() as (url, _):
        config = RetrieverConfig(["an/index"], threads=1, k1=1.2, device="cpu", ef_search=64)
        client = await open_retriever(client_options(config, url))  # it was refused: a server has its own
        assert len(await client.search("Velden", 1)) == 1
        await client.close()
