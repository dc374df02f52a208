"""Every cell of a sweep repeated over models or other options, and resumed after it was killed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.command_line import parse
from corag.core.errors import ConfigError
from corag.core.runs.folder import TRACES
from corag.core.runs.manifest import Manifest
from eval.sweeps.cells import Cell, read_cells
from eval.sweeps.sweep import SweepConfig
from tests.messages import raises_message


def cells_of(text: str, *argv: str) -> dict[str, Cell]:
    Path("sweep.yaml").write_text(text)
    words = ["--questions", "q.jsonl", "--config", "sweep.yaml", *argv]
    config = parse(SweepConfig, words, "corag sweep", "")
    return {cell.name: cell for cell in read_cells(config, config.cells, config.grid, over=config.over)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


BASE = "method: [corag]\nmodel: {adapter: mine, max_context: 2048}\nout: swept\n"


def test_every_cell_is_there_for_each_model_and_the_adapter_stays_with_its_own() -> None:
    text = BASE + "cells: {one: {method: one_step}}\ngrid: {corag.L: [1, 2]}\n"
    cells = cells_of(text, "--over", "model=default,org/big")
    assert list(cells) == [
        f"{cell} model={model}"
        for cell in ("one", "corag L=1", "corag L=2")
        for model in ("default", "org/big")
    ]
    for cell in cells.values():
        own = cell.name.endswith("default")
        model = cell.config.model
        assert (model.name, model.adapter) == (("default", "mine") if own else ("org/big", ""))
        assert model.max_context == 2048, "what does not belong to a model stays"
    assert cells["corag L=2 model=org/big"].folder == Path("swept/corag-L=2-model=org-big")


def test_a_model_may_have_options_of_its_own_and_no_cells_are_needed() -> None:
    cells = cells_of(
        BASE + "over:\n  model: [default, {name: org/big, adapter: theirs, backend: transformers}]\n"
        "  seed: [1, 2]\n"
    )
    assert list(cells) == [
        f"corag {model} seed={seed}"
        for model in ("model=default", "model=org/big adapter=theirs backend=transformers")
        for seed in (1, 2)
    ]
    big = cells["corag model=org/big adapter=theirs backend=transformers seed=2"].config
    assert (big.model.adapter, big.model.backend, big.seed) == ("theirs", "transformers", 2)


def test_a_cell_or_grid_that_names_another_model_leaves_the_adapter_behind_too() -> None:
    cells = cells_of(
        BASE
        + "cells: {a: {model.name: org/big}, b: {model: {name: org/big, adapter: theirs}}, c: {seed: 3}}\n"
        "grid: {model.name: [default, org/other]}\n"
    )
    assert [cell.config.model.adapter for cell in cells.values()] == ["", "theirs", "mine", "mine", ""]


def test_a_bare_name_is_an_option_of_each_cells_method() -> None:
    text = "method: [ircot]\ncells: {thinking: {}, one: {method: one_step, one_step.k: 3}}\n"
    cells = cells_of(text, "--over", "demonstrations=hotpotqa/a.txt,musique/a.txt")
    assert {name: each.options.demonstrations for name, each in cells.items()} == {
        f"{cell} demonstrations={file}": file
        for cell in ("thinking", "one")
        for file in ("hotpotqa/a.txt", "musique/a.txt")
    }


def test_long_paths_are_called_by_the_part_in_which_they_differ() -> None:
    """A name has room for 40 characters, and these files of the authors differ in their folders alone."""
    text = "method: [ircot]\nircot: {demonstrations: default}\ncells: {thinking: {}}\n"
    file = "gold_with_1_distractors_context_cot_qa_codex.txt"
    cells = cells_of(text, "--over", f"demonstrations=prompts/hotpotqa/{file},prompts/musique/{file}")
    assert list(cells) == ["thinking demonstrations=hotpotqa", "thinking demonstrations=musique"]


@pytest.mark.parametrize(
    "over", ["model", "model=", "{model: org/big}", "[a]", "modle=a,b", "model.name=a,b", "questions=a,b"]
)
def test_what_cannot_be_repeated_over_is_told(over: str) -> None:
    with raises_message(ConfigError):
        cells_of("cells: {a: {model: org/big, seed: 1}}\n", "--over", over)


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
        "--out", "swept", "--over", "model=first.py:first,second.py:second",
    ]  # fmt: skip
    start = "import sys; from corag.cli.main import main; sys.exit(main(sys.argv[1:]))"
    program = [sys.executable, "-c", start]
    killed = subprocess.Popen([*program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = [f"closed_book model={name}.py:{name}" for name in ("first", "second")]
    folders = [Path("swept") / f"closed_book-model={name}.py-{name}" for name in ("first", "second")]
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
