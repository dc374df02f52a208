"""Sweeps: cells change options of one run, share an engine, and each goes on where it was."""

import json
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.options import parse
from eval.world.write import write_world
from retrieval.build import build_index
from retrieval.config import IndexConfig
from scripts.cli import main
from scripts.sweep import Config, read_cells


def config_of(tmp_path: Path, cells: str, *argv: str) -> Config:
    file = tmp_path / "cells.yaml"
    file.write_text(cells)
    return parse(Config, ["--questions", "q.jsonl", "--cells", str(file), *argv], "corag sweep", "")


def test_cells_change_options_over_what_they_share(tmp_path: Path) -> None:
    text = "one: {method: one_step, one_step.k: 3}\nL=2: {corag.max_hops: 2, corag.temperature: 1}\n"
    cells = read_cells(config_of(tmp_path, text, "--method", "corag", "--corag.chains", "7"))
    assert list(cells) == ["one", "L=2"]
    assert (cells["one"].method, cells["one"].one_step.k) == (["one_step"], 3)
    assert (cells["L=2"].corag.max_hops, cells["L=2"].corag.chains, cells["L=2"].corag.temperature) == (2, 7, 1.0)


def test_cells_take_presets_and_aliases_as_any_command(tmp_path: Path) -> None:
    text = "theirs:\n  method: corag\n  corag: {preset: released_code, top_k: 3, unsure_above: null}\n"
    cell = read_cells(config_of(tmp_path, text, "--corag.reuse", "true", "--corag.task", "answer: {all}"))[
        "theirs"
    ].corag
    assert (cell.preset, cell.reuse, cell.repeats, cell.passages_per_hop) == ("released_code", False, "exact", 3)
    assert (cell.task, cell.unsure_above) == ("answer: {all}", None)


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        (
            "a: {method: corag, corag.max_hop: 2}",
            "cell 'a' of .*unknown option '--corag.max_hop': did you mean 'corag.max_hops'",
        ),
        ("a: {method: corag, corag.max_hops: two}", "cell 'a' of .*'--corag.max_hops'.*Expected a int.*two"),
        ("a: {method: corag, corag.strategy: beam}", "cell 'a' of .*'--corag.strategy'.*best_of_n"),
        ("a: {method: [corag, ircot]}", "cell 'a' of .* has the methods corag, ircot: a cell has one"),
        ("a: {method: corag, corag.chains: 0}", "cell 'a' of .*chains must be at least 1"),
        ("a: {model.name: x}", "changes model.name, which all cells share"),
        ("a: {method: corg}", "no method 'corg'"),
        ("[a, b]", "must hold cells"),
        ("", "must hold cells, .*such as 'tree:"),
        ("a: {corag: {strategy: greedy}", "cells.yaml' is not valid YAML"),
        ("a: {corag.max_hops: 3}", "cell 'a' of .* changes corag.max_hops, but its method is ircot"),
        ("a: {corag: {max_hops: 3}}", "cell 'a' of .* changes corag, but its method is ircot"),
    ],
)
def test_wrong_cells_are_named(tmp_path: Path, cells: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_cells(config_of(tmp_path, cells))


@pytest.mark.slow
def test_a_sweep_answers_every_cell_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path / "world", passages=500, train=20, dev=5, test=2, report=lambda line: None)
    build_index(IndexConfig([str(tmp_path / "world/corpus.jsonl")], str(tmp_path / "bm25")), lambda line: None)
    (tmp_path / "cells.yaml").write_text(
        "one: {method: one_step}\nL=1: {corag.max_hops: 1}\nbest: {corag.strategy: best_of_n, corag.chains: 2}\n"
    )
    command = [
        "sweep", "--questions", "world/test.jsonl", "--cells", "cells.yaml", "--method", "corag", "--retriever.index", "bm25",
        "--model.backend", "transformers", "--corag.max_hops", "2", "--corag.passages_per_hop", "1",
        "--corag.context_passages", "1", "--corag.max_sub_query_tokens", "12", "--corag.max_sub_answer_tokens", "8",
        "--corag.max_answer_tokens", "8", "--one_step.k", "1", "--one_step.max_answer_tokens", "8", "--out", "sweep",
    ]  # fmt: skip
    figures = []
    for _ in range(2):
        assert main(command) == 0
        figures.append(json.loads(capsys.readouterr().out.splitlines()[-1])["runs"])
    assert list(figures[0]) == ["one", "L=1", "best"]
    assert figures[0] == figures[1], "the second time nothing is answered again"
    assert figures[0]["L=1"]["searches"] == 2 and figures[0]["best"]["searches"] >= 3
    assert [run["folder"] for run in figures[0].values()] == ["sweep/one", "sweep/L=1", "sweep/best"]
