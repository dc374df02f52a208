"""Sweeps: cells share engines and work, go on where they were, and are weighed against each other."""

import csv
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.options.command_line import parse
from corag.core.protocols import GenerateRequest, Generator, Retriever
from corag.core.runs.folder import TRACES
from corag.core.runs.manifest import Manifest
from corag.core.seeds import derive_seed
from corag.core.types import Question
from corag.generation.cached import CachedGenerator
from corag.generation.config import ModelConfig
from eval.experiment.questions import has_gold_answers, keep_usable
from eval.statistics.scaling import CellScores
from eval.sweeps.cells import Cell, read_cells
from eval.sweeps.findings import PointScores, choose_cells
from eval.sweeps.sweep import (
    Openers,
    SweepConfig,
    answer_cells,
    is_answered,
)
from retrieval.config import RetrieverConfig
from retrieval.index.store import storing
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind, passage
from tests.messages import raises_message

pytestmark = pytest.mark.slow

TOWNS = ("Oslo", "Bergen", "Narvik", "Bodo", "Molde", "Hamar", "Alta")
WORLD = [passage(name, f"{name} lies in Norway.") for name in TOWNS]


def write_questions(file: Path, towns: Sequence[str]) -> None:
    lines = [
        {"id": f"{file.stem}-{town}", "question": f"Where is {town}?", "answers": [town]} for town in towns
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def knowing(request: GenerateRequest) -> str:
    """The more hops it sees, the likelier a model answers rightly; sub-queries by prompt and seed."""
    draw = derive_seed(request.prompt.text, request.sampling.seed or 0)
    if kind(request) == "NEXT":
        return f"What of {TOWNS[draw % len(TOWNS)]}, {draw}?"
    if kind(request) == "ANSWER":
        return f"it is {draw}"
    hops = request.prompt.text.count("->")
    town = request.prompt.text.split("?")[0].split()[-1]
    return town if draw % 8 < 2 + hops else "elsewhere"


class Backends:
    """Scripted engines and indexes that count how often they are opened, and what is asked of them."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.engines: list[ScriptedGenerator] = []
        self.reply = knowing

    @asynccontextmanager
    async def generator(self, config: ModelConfig) -> AsyncIterator[Generator]:
        self.opened.append(f"model {config.adapter}")
        engine = ScriptedGenerator(
            self.reply, log_likelihood=lambda request: -1.0 - len(request.prompt.text) % 7
        )
        engine.fingerprint = f"scripted:{config.adapter}"
        self.engines.append(engine)
        yield CachedGenerator(engine)

    @asynccontextmanager
    async def retriever(self, config: RetrieverConfig) -> AsyncIterator[Retriever]:
        self.opened.append(f"index {','.join(config.index)}")
        yield WordRetriever(WORLD)

    @property
    def openers(self) -> Openers:
        return Openers(self.generator, self.retriever)

    @property
    def asked(self) -> int:
        return sum(len(engine.requests) for engine in self.engines)


SETTINGS: dict[str, Any] = {
    "method": ["corag"], "batch_size": 2, "resamples": 20, "budgets": [50, 100, 200, 400],
    "corag": PROMPTS | {"passages_per_hop": 1, "context_passages": 1},
    "retriever": {"index": ["words"]},
    "cells": {"closed": {"method": "closed_book"}},
    "grid": [
        {"corag.strategy": "greedy", "corag.L": [0, 1, 2, 3]},
        {"corag.strategy": "best_of_n", "corag.N": [2, 4], "corag.L": [1, 2, 3]},
        {"corag.strategy": "best_of_n", "corag.N": 4, "corag.L": 3, "budget": 300},
    ],
}  # fmt: skip


@pytest.fixture
def backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backends:
    """Scripted back ends in the place of real ones, and two question files in the current folder."""
    scripted = Backends()
    monkeypatch.setattr("corag.cli.commands.sweep.BACK_ENDS", scripted.openers)
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path / "test.jsonl", TOWNS[:4])
    write_questions(tmp_path / "dev.jsonl", TOWNS[4:])
    (tmp_path / "sweep.yaml").write_text(json.dumps(SETTINGS))
    return scripted


COMMAND = "sweep --config sweep.yaml --questions test.jsonl --dev.questions dev.jsonl --out out".split()
ENVIRONMENT = [
    "--model.kv_cache_gb", "8", "--model.gpu_memory_utilization", "0.5", "--model.max_num_seqs", "2",
    "--model.batch_size", "3",
    "--model.timeout_s", "9", "--model.retries", "1", "--model.api_key_variable", "KEY",
    "--retriever.threads", "3", "--retriever.timeout_s", "9", "--retriever.retries", "1",
    "--retriever.cache_size", "0",
]  # fmt: skip


def swept(*more: str) -> dict[str, Any]:
    """Run the sweep and return what its sweep.json says, without how tokens were come by, and seconds."""
    assert main([*COMMAND, *more]) == 0
    record: dict[str, Any] = json.loads(Path("out/sweep.json").read_text())
    for cell in [*record["cells"].values(), *record["dev_cells"].values()]:
        del cell["computed_tokens"], cell["seconds_p50"], cell["seconds_p95"]
    return record


def cells_of(text: str) -> list[Cell]:
    """Cells over the test questions, in the folder "out"."""
    Path("cells.yaml").write_text(text)
    argv = [*"--config sweep.yaml --questions test.jsonl --out out --corag.max_hops 2 --grid".split(), ""]
    config = parse(SweepConfig, [*argv, "--retriever.index", "a", "--cells", "cells.yaml"], "corag sweep", "")
    return [replace(cell, questions=config.load()) for cell in read_cells(config, config.cells, config.grid)]


async def test_engines_and_indexes_are_opened_once_and_serve_all_their_cells(backends: Backends) -> None:
    cells = cells_of(
        "none: {method: closed_book, model.adapter: mine}\na: {}\nb: {retriever.index: b}\n"
        "c: {model.adapter: mine, retriever.index: b}\nd: {corag.max_hops: 1}\n"
    )

    async def opened() -> list[str]:
        backends.opened.clear()
        await answer_cells(cells, backends.openers)
        return list(backends.opened)

    assert await opened() == ["index b", "model mine", "index a", "model "]
    assert all(map(is_answered, cells))
    assert await opened() == [], "finished cells start nothing"
    traces = cells[3].folder / TRACES
    traces.write_bytes(traces.read_bytes()[:-30])
    assert await opened() == ["index b", "model mine"], "only what the torn cell wants"
    cells[0] = replace(cells[0], config=replace(cells[0].config, seed=1))
    with raises_message(ConfigError):
        await opened()


def test_seeds_are_one_point_of_what_cells_say_together(backends: Backends) -> None:
    seeds = "{corag.strategy: best_of_n, corag.N: 2, corag.L: 3, model.adapter: mine, seed: [1, 2, 3]}"
    record = swept("--grid", seeds)
    cells = {name: each for name, each in record["cells"].items() if name != "closed"}
    assert len({each["f1"] for each in cells.values()}) > 1, "else their order tells nothing"
    assert [each["pareto"] for each in cells.values()] == [True] * 3
    assert len(set(record["pareto"]) & cells.keys()) == 1
    (choice,) = [each for each in record["best_under_budget"]["choices"] if each["cell"] in cells]
    mean = sum(each["f1"] for each in cells.values()) / 3
    assert choice["score"]["mean"] == pytest.approx(mean, abs=1e-3)


async def test_questions_that_failed_are_tried_again_and_open_their_engine_for_it(backends: Backends) -> None:
    """As 'corag run' tries them again: what was gone may be back. The other cells start nothing."""
    fine, failing = cells_of("a: {method: closed_book}\nb: {method: closed_book, model.adapter: mine}\n")
    await answer_cells([fine, failing], backends.openers)
    traces = failing.folder / TRACES
    first, *rest = traces.read_bytes().splitlines(keepends=True)
    failed = json.loads(first) | {"answer": None, "error": "SearchFailedError: gone"}
    traces.write_bytes(json.dumps(failed).encode() + b"\n" + b"".join(rest))
    backends.opened.clear()
    assert is_answered(fine) and not is_answered(failing)
    await answer_cells([fine, failing], backends.openers)
    assert backends.opened == ["model mine"] and is_answered(failing)
    assert len(traces.read_bytes().splitlines()) == len(failing.questions) + 1, (
        "the one that failed is asked again"
    )


def test_a_cell_that_failed_altogether_is_left_out_of_what_cells_say_together(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--grid", "{corag.L: [1, 2, 3, 4]}", "--resamples", "3")
    assert "closed" in swept(*few)["pareto"], "it is the cheapest"
    shutil.rmtree("out")

    def refusing(request: GenerateRequest) -> str:
        if kind(request) not in ("NEXT", "ANSWER", "FINAL"):
            raise RequestRefusedError("no.")
        return knowing(request)

    backends.reply = refusing
    capsys.readouterr()
    assert main([*COMMAND, *few]) == 1
    printed = capsys.readouterr().out
    record = json.loads(Path("out/sweep.json").read_text())
    assert record["failed"] == ["closed"] and record["cells"]["closed"]["failed"] == 4
    assert "closed" not in record["pareto"] and record["fit"]["curves"]["corag"].get("points", 4) == 4
    assert "closed" not in [choice["cell"] for choice in record["best_under_budget"]["choices"]]
    assert "Left out of all that follows, for every question failed: closed." in printed


async def test_more_memory_threads_or_patience_make_no_other_cell(backends: Backends) -> None:
    cells = cells_of("a: {}")
    await answer_cells(cells, backends.openers)
    (cell,) = cells
    again = parse(SweepConfig, ["--questions", "test.jsonl", *ENVIRONMENT], "corag sweep", "")
    model, retriever = again.model, replace(again.retriever, index=["a"])
    assert (model.kv_cache_gb, model.max_num_seqs, retriever.threads) == (8, 2, 3)
    assert is_answered(replace(cell, config=replace(cell.config, model=model, retriever=retriever)))
    assert not is_answered(
        replace(cell, config=replace(cell.config, retriever=replace(retriever, ef_search=3)))
    )
    assert not is_answered(replace(cell, config=replace(cell.config, model=replace(model, max_context=9))))


async def test_an_adapter_that_was_trained_again_is_not_taken_for_the_old_one(backends: Backends) -> None:
    Path("mine").mkdir()
    Path("mine/adapter.safetensors").write_text("weights")
    (cell,) = cells_of("a: {method: closed_book, model.adapter: mine}")
    await answer_cells([cell], backends.openers)
    assert is_answered(cell)
    Path("mine/adapter.safetensors").write_text("better weights")
    assert not is_answered(cell)


def test_a_sweep_leaves_tables_plots_and_choices(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    record = swept("--json")
    printed = capsys.readouterr().out
    names = list(record["cells"])
    assert (
        len(names) == 12
        and names[0] == "closed"
        and names[-1] == "corag strategy=best_of_n N=4 L=3 budget=300"
    )
    assert record["cells"][names[-1]]["options"] == {
        "method": "corag", "corag.strategy": "best_of_n", "corag.chains": 4, "corag.max_hops": 3,
        "budget": 300,
    }  # fmt: skip
    assert (
        record["cells"][names[-1]]["tokens_per_question"]
        < 300
        < record["cells"][names[-2]]["tokens_per_question"]
    )
    last = json.loads(printed.splitlines()[-1])
    assert list(last["runs"]) == names and last["pareto"] == record["pareto"] != []
    assert last["runs"]["closed"]["folder"] == "out/closed" and record["dev_cells"]["closed"]["n"] == 3
    fit = record["fit"]["curves"]["corag"]
    assert "refused" in fit or fit["a"]["low"] <= fit["a"]["high"]
    chosen = record["best_under_budget"]
    assert chosen["chosen_on"] == "dev.jsonl" and chosen["choices"]
    for choice in chosen["choices"]:
        assert choice["chosen_tokens"] <= choice["budget"]
        assert choice["score"]["mean"] == pytest.approx(record["cells"][choice["cell"]]["f1"], abs=1e-4)
    assert record["scorer_title"] == last["scorer_title"] == "SQuAD-style"
    shared = record["conditions"]
    assert (
        shared[0] == "Questions: test.jsonl (jsonl)."
        and len(shared) == 4
        and set(shared) <= set(printed.splitlines())
    )
    for cell in (record["cells"]["closed"], record["dev_cells"]["closed"]):
        assert cell["conditions"].startswith("prompts: ")
    rows = list(csv.DictReader(Path("out/sweep.csv").read_text().splitlines()))
    assert [row["cell"] for row in rows] == names * 2 and {row["questions"] for row in rows} == {
        "test",
        "dev",
    }
    assert [row["scorer"] for row in rows] == ["SQuAD-style"] * len(rows)
    assert rows[0]["conditions"] == " ".join([*record["conditions"], record["cells"]["closed"]["conditions"]])
    assert rows[-1]["conditions"].startswith("Questions: dev.jsonl (jsonl). Model: ")
    assert rows[-1]["corag.chains"] == "4" and rows[0]["corag.chains"] == "" and float(rows[0]["f1"]) <= 1
    assert Path("out/sweep.png").stat().st_size > 20_000 and Path("out/sweep.svg").stat().st_size > 5_000
    asked = [
        (request.prompt.text, request.sampling) for engine in backends.engines for request in engine.requests
    ]
    assert len(set(asked)) == len(asked)


def test_a_half_done_sweep_ends_in_the_same_report(backends: Backends) -> None:
    few = (
        "--grid",
        "[{corag.L: [1, 2]}, {corag.strategy: best_of_n, corag.N: [2, 3], corag.L: 2}]",
        "--resamples",
        "3",
    )
    whole = swept(*few)
    backends.opened.clear()
    before = backends.asked
    assert swept(*few) == whole and backends.opened == [] and backends.asked == before, "nothing left to ask"
    for torn in ("out/corag-L=2", "out/dev/corag-strategy=best_of_n-N=3-L=2"):
        traces = Path(torn) / TRACES
        traces.write_bytes(traces.read_bytes().splitlines(keepends=True)[0] + b'{"id": "torn')
    shutil.rmtree("out/corag-strategy=best_of_n-N=2-L=2")
    Path("out/dev/closed/provenance.json").unlink()
    assert swept(*few) == whole
    assert backends.opened == ["index words", "model "]


def test_a_finished_sweep_is_not_replaced_by_that_of_other_questions(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--grid", "{corag.L: 1}", "--resamples", "3")
    files = [Path("out/sweep.csv"), Path("out/sweep.json"), Path("out/sweep.png")]
    swept(*few, "--limit", "3")
    before = [file.read_bytes() for file in files]
    backends.opened.clear()
    for fewer in (("--limit", "2"), ("--skip", "1", "--limit", "3")):
        assert main([*COMMAND, *few, *fewer]) == 2
        assert "'out' holds a finished sweep of 3 questions of test.jsonl" in capsys.readouterr().err
    assert [file.read_bytes() for file in files] == before and backends.opened == []
    assert swept(*few)["questions"]["n"] == 4, "more questions go on with those of before"


def test_no_curve_goes_through_cells_of_unlike_methods(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = {f"step {k}": {"method": "one_step", "one_step.k": k} for k in (1, 2)}
    backends.reply = lambda request: "Oslo"
    grid = "[{corag.L: [1, 2, 3]}, {corag.strategy: best_of_n, corag.N: 2, corag.L: 2}]"
    record = swept("--cells", json.dumps(cells), "--grid", grid, "--resamples", "3")
    curves = record["fit"]["curves"]
    assert set(curves) == {"one_step", "corag"} and set(record["cells"]) >= {"step 1", "step 2"}
    assert "refused" in curves["one_step"]
    printed, picture = capsys.readouterr().out, Path("out/sweep.svg").read_text()
    assert ("curve: corag" in picture) == ("F1 = " in picture) == ("F1 = " in printed)


def test_without_dev_questions_the_choice_is_called_optimistic(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [word for word in COMMAND if word not in ("--dev.questions", "dev.jsonl")]
    assert main([*command, "--grid", "{corag.L: [1, 2]}", "--json"]) == 0
    printed = capsys.readouterr().out
    assert (
        "optimistic" in printed
        and "optimistic" in json.loads(printed.splitlines()[-1])["best_under_budget"]["chosen_on"]
    )
    assert not Path("out/dev").exists()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--dev.questions", "test.jsonl"],
         "4 of the dev questions are among those that are reported on, such as 'test-Oslo'"),
        (["--dev.questions", "retyped.jsonl"], "4 of the dev questions are among those that are reported on"),
        (["--dev.retriever.index", "x", "--grid", "{retriever.index: [a, b]}"], "search different indexes"),
        (["--dev.shard", "1/2"], "dev and test questions are not sharded, but these are to be shard 1/2"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_before_an_engine_starts(
    backends: Backends, capsys: pytest.CaptureFixture[str], more: list[str], complaint: str
) -> None:
    retyped = Path("test.jsonl").read_text().replace("?", " ?").replace('"test-', '"other-')
    Path("retyped.jsonl").write_text(retyped)
    assert main([*COMMAND, "--grid", "{corag.L: 1}", *more]) == 2
    assert complaint in capsys.readouterr().err and backends.opened == []


def test_a_folder_that_was_not_named_changes_with_what_the_cells_share(backends: Backends) -> None:
    def folder(*more: str) -> Path:
        return parse(
            SweepConfig, ["--config", "sweep.yaml", "--questions", "test.jsonl", *more], "corag sweep", ""
        ).folder

    assert folder() == folder("--cells", "{a: {seed: 1}}", "--limit", "2", "--batch_size", "9")
    assert folder() == folder(*ENVIRONMENT)
    assert folder().parent == Path("runs/test")
    assert (
        len(
            {folder(), folder("--seed", "1"), folder("--model.adapter", "x"), folder("--corag.stop", "check")}
        )
        == 4
    )


def test_a_cell_of_other_settings_is_refused(backends: Backends, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*COMMAND[:-2], "--grid", "{corag.L: [1, 2]}"]
    assert main(command) == 0
    (folder,) = Path("runs/test").glob("sweep-*")
    cell = folder / "corag-L=2"
    begun = Manifest.read(cell)  # by a version with another default
    options = {**begun.options, "max_sub_answer_tokens": 3}
    Manifest({**begun.settings, "options": options}, begun.starts).write(cell)
    (cell / "provenance.json").unlink()
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "corag.max_sub_answer_tokens: 3 -> " in said and "overwrite=true" in said
    assert list(Path("runs/test").glob("sweep-*")) == [folder]
    again = [*COMMAND[:5], "--grid", "{corag.L: 2}", "--out", str(folder)]
    assert main([*again, "--corag.max_sub_answer_tokens", "3"]) == 0, "as it was advised"


def test_questions_without_answers_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    some = [Question("a", "Who?", ("x",)), Question("b", "Where?"), Question("c", "When?", (" ",))]
    wanted = (has_gold_answers, "gold answers", "a sweep compares scores")
    assert keep_usable(some, *wanted) == some[:1]
    printed = " ".join(capsys.readouterr().err.split())
    assert "2 of 3 questions have no gold answers, such as 'b', so they are left out: a sweep" in printed
    for asked, strict in ((some, True), (some[1:], False)):
        with pytest.raises(ConfigError, match=r"2 of \d questions have no gold answers, such as 'b'"):
            keep_usable(asked, *wanted, strict=strict)


def test_the_best_cell_is_chosen_on_dev_and_reported_on_test() -> None:
    def cell(name: str, tokens: float, scores: list[float]) -> PointScores:
        figures = (name, np.full(len(scores), tokens), np.array(scores))
        return PointScores(*figures, [CellScores(*figures)])

    dev = [
        cell("a", 3000, [0, 0, 1]),
        cell("b", 3900, [1, 0, 1]),
        cell("c", 3500, [1, 1, 0]),
        cell("d", 9000, [1, 1, 1]),
    ]
    test = [
        cell("a", 3100, [1, 1]),
        cell("b", 4000, [1, 1]),
        cell("c", 4100, [1, 0]),
        cell("d", 9500, [0, 0]),
    ]
    chosen = choose_cells(test, dev, [2000, 4000, 8000, 16_000, 32_000])
    assert [(choice.budget, choice.cell) for choice in chosen] == [(4000, "c"), (16_000, "d")]
    first = chosen[0]
    assert (first.chosen_tokens, first.chosen_score, first.tokens) == (3500, pytest.approx(2 / 3), 4100)
    assert (first.score.mean, first.score.low, first.score.high) == (
        0.5,
        pytest.approx(0.0945, abs=1e-4),
        pytest.approx(0.9055, abs=1e-4),
    )
    assert chosen[1].score.mean == 0, "the best on dev need not be the best on test"
    assert [choice.cell for choice in choose_cells(test, test, [4000, 16_000])] == ["a"]


def test_cells_can_be_compared_by_any_measure_that_all_of_them_have(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, town in (("test.jsonl", "Oslo"), ("dev.jsonl", "Alta")):
        line = {
            "id": file,
            "question": f"Where is {town}?",
            "answers": [town],
            "supporting": [each.id for each in WORLD],
        }
        Path(file).write_text(json.dumps(line) + "\n")
    few = ("--cells", "{one: {corag.L: 1}, two: {corag.L: 2}}", "--grid", "", "--metric")
    record = swept(*few, "recall")
    assert 0 < record["cells"]["one"]["recall"] < 1
    for choice in record["best_under_budget"]["choices"]:
        assert choice["score"]["mean"] == pytest.approx(record["cells"][choice["cell"]]["recall"], abs=1e-4)
    header, line = Path("out/sweep.csv").read_text().splitlines()[:2]
    assert dict(zip(header.split(","), line.split(","), strict=False))["metric"] == "recall"
    asked, opened = backends.asked, len(backends.opened)
    assert main([*COMMAND, *few, "accuracy"]) == 2
    assert (
        "by accuracy, but in the cell 'one' the question 'test.jsonl' can have em, f1, recall only"
        in capsys.readouterr().err
    )
    assert len(backends.opened) == opened, "found before an engine starts"
    assert swept(*few, "em")["metric"] == "em" and backends.asked == asked, "what was answered is answered"


def test_recall_is_of_the_questions_whose_gold_passages_the_index_has(backends: Backends) -> None:
    Path("words").mkdir()
    assert list(storing(WORLD, Path("words")))
    towns = {"test.jsonl": {"Oslo": ["Oslo"], "Bodo": ["Bodo", "Gone"]}, "dev.jsonl": {"Alta": ["Alta"]}}
    for file, golds in towns.items():
        lines = [
            {"id": f"{file} {town}", "question": f"Where is {town}?", "answers": [town], "supporting": gold}
            for town, gold in golds.items()
        ]
        Path(file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = swept("--cells", "{one: {method: one_step, one_step.k: 2}}", "--grid", "", "--metric", "recall")
    assert (record["cells"]["one"]["recall"], record["dev_cells"]["one"]["recall"]) == (1.0, 1.0)
    assert record["cells"]["one"]["measured_on_fewer"] == {"recall": 1}
