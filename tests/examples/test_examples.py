"""The examples run as they stand, with the real small model."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from corag import open_model
from eval.api import Model

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "first_steps.ipynb"


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """Several engines are open in a test run: a small prefix cache each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("corag.generation.vllm_start.CPU_KV_CACHE_GB", 1.0)
        yield


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    """The engine that the programs open, open for all that open the same: one at a time."""
    with open_model("default", adapter=request.param) as opened:
        yield opened


plain = pytest.mark.parametrize("model", [""], indirect=True, ids=["plain"])
adapted = pytest.mark.parametrize("model", ["default"], indirect=True, ids=["adapted"])


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few questions, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUESTIONS", "3")
    monkeypatch.setenv("CHAINS", "2")
    monkeypatch.setattr("sys.argv", ["program.py"])


def printed_by(name: str, capfd: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capfd.readouterr().out


@pytest.mark.slow
@plain
@pytest.mark.usefixtures("model")
def test_own_documents_are_asked(capfd: pytest.CaptureFixture[str]) -> None:
    said = printed_by("ask_own_documents", capfd)
    assert "3 passages" in said and "answer   " in said
    assert "tarn_hollow.html" in said and "sources  " in said


@pytest.mark.slow
@plain
@pytest.mark.usefixtures("model")
def test_ircot_is_compared_with_one_step(capfd: pytest.CaptureFixture[str]) -> None:
    said = printed_by("ircot_against_one_step", capfd)
    assert "minus one_step" in said and "recall@6" in said
    assert Path("runs/examples/ircot/report.html").stat().st_size > 50_000


@pytest.mark.drill
@adapted
@pytest.mark.usefixtures("model")
def test_the_chains_of_best_of_n_are_drawn(capfd: pytest.CaptureFixture[str]) -> None:
    said = printed_by("best_of_n", capfd)
    assert "── chain 1" in said and "── chain 2" in said and "← chosen" in said
    assert "gold     " in said and "<- kept" in said


@pytest.mark.slow
@plain
@pytest.mark.usefixtures("model")
def test_a_method_of_ones_own_stands_in_the_table(capfd: pytest.CaptureFixture[str]) -> None:
    said = printed_by("own_method", capfd)
    assert "│ one_step" in said and "│ hyde" in said


@pytest.mark.drill
@plain
def test_chains_become_an_adapter_that_is_asked(model: Model, capfd: pytest.CaptureFixture[str]) -> None:
    said = printed_by("sample_and_fine_tune", capfd)
    assert "questions 3" in said and "train/sub_query" in said
    assert "adapter: 4 steps" in said and "answer   " in said.rpartition("adapter: 4 steps")[2]
    assert Path("runs/examples/training/adapter/adapter_model.safetensors").is_file()


@pytest.mark.drill
@plain
@pytest.mark.usefixtures("model")
def test_a_sweep_draws_its_picture(capfd: pytest.CaptureFixture[str]) -> None:
    said = printed_by("sweep_with_picture", capfd)
    assert "Pareto set" in said and "Best under each budget" in said and "best of 4, 2 hops" in said
    assert Path("runs/examples/sweep/cells/sweep.png").stat().st_size > 20_000


@pytest.mark.drill
@adapted
def test_the_notebook_runs_in_a_running_event_loop(model: Model, capfd: pytest.CaptureFixture[str]) -> None:
    """Cell by cell in one namespace, with top-level await, as a notebook's kernel does it."""
    cells = [
        "".join(c["source"]) for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"
    ]
    names: dict[str, object] = {"__name__": "__main__"}

    async def execute(text: str) -> object:
        """Run a cell; return what its last line shows."""
        tree = ast.parse(text)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        for part in (tree, last and ast.Expression(last.value)):
            if part is None:
                return None
            mode = "eval" if isinstance(part, ast.Expression) else "exec"
            value = eval(compile(part, "cell", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            value = await value if inspect.iscoroutine(value) else value
        return value

    async def notebook() -> list[object]:
        return [await execute(text) for text in cells]

    shown = asyncio.run(notebook())
    pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert any("hop 1" in page for page in pages) and any("minus one step" in page for page in pages)
    assert model.engine is not None, "closing the notebook's model left the one that is open beside it"
