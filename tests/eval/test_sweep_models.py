"""Cells of several models: what each takes over, one engine after the other, resumed after a kill."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.options.command_line import parse
from corag.core.runs.folder import TRACES
from corag.core.runs.manifest import Manifest
from eval.sweeps.cells import Cell, read_cells
from eval.sweeps.sweep import SweepConfig

pytestmark = pytest.mark.slow


def cells_of(text: str, *argv: str) -> dict[str, Cell]:
    Path("sweep.yaml").write_text(text)
    words = ["--questions", "q.jsonl", "--config", "sweep.yaml", *argv]
    config = parse(SweepConfig, words, "corag sweep", "")
    return {cell.name: cell for cell in read_cells(config, config.cells, config.grid)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


BASE = "method: [corag]\nmodel: {adapter: mine, max_context: 2048}\nout: swept\n"


def test_a_cell_or_grid_that_names_another_model_leaves_the_adapter_behind_too() -> None:
    cells = cells_of(
        BASE
        + "cells: {a: {model.name: org/big}, b: {model: {name: org/big, adapter: theirs}}, c: {seed: 3}}\n"
        "grid: {model.name: [default, org/other]}\n"
    )
    assert [cell.config.model.adapter for cell in cells.values()] == ["", "theirs", "mine", "mine", ""]


MODEL = """
import time

def {name}(prompt):
    time.sleep(0.2)
    return "So the answer is: {name}."
"""


def test_models_come_one_after_the_other_and_a_killed_sweep_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("first", "second"):
        Path(f"{name}.py").write_text(MODEL.format(name=name))
    questions = [
        {"id": str(n), "question": f"Who is {n}?", "answers": ["first"], "supporting": []} for n in range(6)
    ]
    Path("q.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    command = [
        "sweep", "--questions", "q.jsonl", "--method", "closed_book", "--batch_size", "1", "--resamples", "3",
        "--out", "swept", "--grid", "{model.name: ['first.py:first', 'second.py:second']}",
    ]  # fmt: skip
    start = "import sys; from corag.cli.main import main; sys.exit(main(sys.argv[1:]))"
    program = [sys.executable, "-c", start]
    killed = subprocess.Popen([*program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = [f"closed_book model.name={name}.py:{name}" for name in ("first", "second")]
    folders = [Path("swept") / f"closed_book-model.name={name}.py-{name}" for name in ("first", "second")]
    deadline = time.monotonic() + 200
    try:
        while not (folders[1] / TRACES).exists() or not (folders[1] / TRACES).read_bytes():
            assert killed.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        killed.kill()
        killed.wait()
    before = [(folder / TRACES).read_bytes() for folder in folders]
    assert before[0].count(b"\n") == 6 and before[1].count(b"\n") < 6
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr().out
    record = json.loads(printed.splitlines()[-1])
    assert [(name, run["em"]) for name, run in record["runs"].items()] == [(names[0], 1), (names[1], 0)]
    for folder, begun in zip(folders, before, strict=True):
        traces = (folder / TRACES).read_bytes()
        assert traces.count(b"\n") == 6 and traces.startswith(begun.rpartition(b"\n")[0])
    models = [Manifest.read(folder).last.model for folder in folders]
    assert models == ["first.py:first", "second.py:second"]
    assert all(name in printed for name in names)
    sweep = json.loads(Path("swept/sweep.json").read_text())
    assert [cell["options"]["model.name"] for cell in sweep["cells"].values()] == models
