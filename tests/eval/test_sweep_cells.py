"""The cells of a sweep: written one by one or combined from grids, named, told apart, refused with a
sentence.
"""

from dataclasses import fields
from pathlib import Path

import pytest

from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from eval.experiment.run import RunConfig
from eval.sweeps.cells import SHARED_OPTIONS, Cell, read_cells, varying
from eval.sweeps.plots import name_groups, name_point
from eval.sweeps.sweep import SweepConfig

ROOT = Path(__file__).parents[2]


def config_of(tmp_path: Path, text: str, *argv: str) -> SweepConfig:
    """Options from a YAML file with this text."""
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    return parse(SweepConfig, ["--questions", "q.jsonl", "--config", str(file), *argv], "corag sweep", "")


def cells_of(config: SweepConfig) -> dict[str, Cell]:
    return {cell.name: cell for cell in read_cells(config, config.cells, config.grid)}


def cells_in_a_file(tmp_path: Path, text: str, *argv: str) -> dict[str, Cell]:
    file = tmp_path / "cells.yaml"
    file.write_text(text)
    return cells_of(
        parse(SweepConfig, ["--questions", "q.jsonl", "--cells", str(file), *argv], "corag sweep", "")
    )


def test_no_cell_may_change_an_option_of_the_sweep_itself() -> None:
    assert {each.name for each in fields(SweepConfig)} - {
        each.name for each in fields(RunConfig)
    } <= SHARED_OPTIONS


def test_cells_take_presets_and_aliases_as_any_command(tmp_path: Path) -> None:
    text = "theirs:\n  method: corag\n  corag: {preset: released_code, top_k: 3, yes_bias: 0.5}\n"
    cells = cells_in_a_file(tmp_path, text, "--corag.reuse", "true", "--corag.task", "answer: {all}")
    corag = cells["theirs"].config.corag
    assert (corag.preset, corag.reuse, corag.max_prompt_tokens, corag.passages_per_hop) == (
        "released_code",
        False,
        3072,
        3,
    )
    assert (corag.task, corag.yes_bias) == ("answer: {all}", 0.5)
    assert cells["theirs"].option_names == (
        "method",
        "corag.preset",
        "corag.passages_per_hop",
        "corag.yes_bias",
    )


def test_a_configuration_holds_its_cells_and_keeps_their_order(tmp_path: Path) -> None:
    text = (
        "method: [corag]\ncells:\n  zeta: {method: one_step}\n  alpha: {corag: {task: '{odd}: text'}}\n"
        "grid:\n  - {corag.strategy: greedy, corag.L: [2, 1]}\n"
        "  - {corag.strategy: best_of_n, corag.N: [8, 2], budget: [16000, 4000]}\n"
    )
    cells = cells_of(config_of(tmp_path, text))
    assert list(cells) == [
        "zeta", "alpha", "corag strategy=greedy L=2", "corag strategy=greedy L=1",
        "corag strategy=best_of_n N=8 budget=16000", "corag strategy=best_of_n N=8 budget=4000",
        "corag strategy=best_of_n N=2 budget=16000", "corag strategy=best_of_n N=2 budget=4000",
    ]  # fmt: skip
    assert cells["alpha"].config.corag.task == "{odd}: text"
    last = cells["corag strategy=best_of_n N=2 budget=4000"]
    assert (last.config.corag.chains, last.config.budget) == (2, 4000)
    assert name_point(last, varying(list(cells.values()))[last.name]) == "chains=2 budget=4000"


def test_lists_of_lists_are_values_and_blocks_may_overlap(tmp_path: Path) -> None:
    text = (
        "method: [corag]\ngrid:\n  - {corag: {chains: [2, 4], strategy: best_of_n}, retriever.index: [[a, "
        "b], c]}\n"
        "  - {retriever.index: c, corag.strategy: best_of_n, corag.N: [4, 8]}\n"
    )
    cells = cells_of(config_of(tmp_path, text))
    assert list(cells) == [
        "corag chains=2 strategy=best_of_n retriever.index=a,b",
        "corag chains=2 strategy=best_of_n retriever.index=c",
        "corag chains=4 strategy=best_of_n retriever.index=a,b",
        "corag chains=4 strategy=best_of_n retriever.index=c",
        "corag retriever.index=c strategy=best_of_n N=8",
    ]  # fmt: skip
    assert [cell.config.retriever.index for cell in cells.values()] == [
        ["a", "b"],
        ["c"],
        ["a", "b"],
        ["c"],
        ["c"],
    ]


def test_a_grid_on_the_command_line_may_be_a_list_line_by_line_and_long_paths_stay_apart(
    tmp_path: Path,
) -> None:
    """Names of indexes longer than a cell's name may be, which differ before their ends."""
    bm25, dense = (f"indexes/hotpotqa-hotpot_dev_distractor_v1-{kind}" for kind in ("bm25", "dense"))
    searched = f"[{bm25}, {dense}, '{bm25},{dense}']"
    grid = f"\n- {{method: closed_book}}\n- {{method: one_step, retriever.index: {searched}}}"
    cells = list(cells_of(config_of(tmp_path, "out: results", "--grid", grid)).values())
    assert [cell.config.retriever.index for cell in cells[1:]] == [[bm25], [dense], [bm25, dense]]
    assert len({cell.folder for cell in cells}) == len({cell.name for cell in cells}) == 4
    assert "hotpot_dev_distractor_v1-dense" in cells[2].name


def test_options_that_differ_tell_cells_apart(tmp_path: Path) -> None:
    text = (
        "method: [corag]\ncells:\n  none: {method: closed_book, seed: 0}\n  one: {method: one_step, "
        "retriever.index: [a]}\n"
        "grid: {corag.strategy: greedy, corag.L: [1, 2], retriever.index: a, model.adapter: ['', mine], "
        "corag.stop: length}\n"
    )
    told = varying(list(cells_of(config_of(tmp_path, text, "--retriever.index", "other")).values()))
    assert told["none"] == {"method": "closed_book"}, "it searches nothing, whatever the index"
    assert told["one"] == {"method": "one_step"}, "all that search have index a"
    assert told["corag strategy=greedy L=2 retriever.index=a model.adapter=mine stop=length"] == {
        "method": "corag",
        "corag.max_hops": 2,
        "model.adapter": "mine",
    }


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        (
            "a: {method: corag, corag.max_hop: 2}",
            "cell 'a' of .*unknown option 'corag.max_hop': did you mean 'corag.max_hops'",
        ),
        ("a: {method: [corag, ircot]}", "cell 'a' of .* has the methods corag, ircot: a cell has one"),
        ("a: {questions: x}", "changes questions, which all cells share"),
        ("a: {dev: {limit: 3}}", "changes dev, which all cells share"),
        ("[a, b]", "must hold cells"),
        ("a: {corag.max_hops: 1}\na: {corag.max_hops: 2}", "'a' is given twice"),
        ("a: {corag.max_hops: 3}", "cell 'a' of .* changes corag.max_hops, but its method is ircot"),
        ("a b: {seed: 1}\na/b: {seed: 2}", "cell 'a/b' of .* would share the folder 'a-b' with 'a b'"),
        ("dev: {seed: 1}", "cell 'dev' of .* would share the folder"),
    ],
)
def test_wrong_cells_are_named(tmp_path: Path, cells: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        cells_in_a_file(tmp_path, cells)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seed: 1", "no cells were given"),
        ("grid: {seed: []}", "the grid has no value for seed"),
        ("grid: {method: [one_step, corag], corag.L: 2}",
         "cell 'one_step corag.L=2' of the grid changes corag.L, but its method"),
        ("cells: {a: {seed: 1}}\nshard: 1/2", "a sweep is not sharded"),
    ],
)  # fmt: skip
def test_wrong_configurations_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        cells_of(config_of(tmp_path, text))


def shipped(name: str, *options: str) -> dict[str, Cell]:
    argv = ["--config", str(ROOT / f"eval/configs/{name}.yaml"), "--questions", "q.jsonl", *options]
    return cells_of(parse(SweepConfig, argv, "corag sweep", ""))


@pytest.mark.parametrize("name", ["world", "hotpotqa", "musique", "popqa", "bamboogle"])
def test_shipped_configurations_are_whole(name: str) -> None:
    cells = shipped(name)
    assert len(cells) >= 12
    trees = {(each.options.expand, each.options.rollouts) for each in cells.values() if "tree" in each.name}
    assert trees == {(2, 1), (2, 2), (4, 1), (4, 2)}
    assert len({tuple(told.items()) for told in varying(list(cells.values())).values()}) == len(cells)


@pytest.mark.parametrize("name", ["nq", "triviaqa", "kilt", "browsecomp_plus", "paper_corag", "paper_ircot"])
def test_configurations_for_gpus_name_a_model_without_an_adapter(name: str) -> None:
    cells = shipped(name)
    assert len({tuple(told.items()) for told in varying(list(cells.values())).values()}) == len(cells) >= 4
    for cell in cells.values():
        assert cell.config.model.name != "default" and cell.config.model.adapter == ""


def test_table_1_alone_has_its_rows_and_no_point_of_the_figure() -> None:
    cells = shipped(
        "paper_corag", "--model.name", "mine", "--grid", "",
        "--cells", str(ROOT / "eval/configs/paper_corag_table1.yaml"),
    )  # fmt: skip
    first, *rows = cells.values()
    assert (first.method, first.config.model.name) == ("closed_book", "meta-llama/Llama-3.1-8B-Instruct")
    assert [(each.options.strategy, each.options.max_hops) for each in rows] == [
        ("greedy", 1), ("greedy", 6), ("best_of_n", 6), ("tree", 6), ("best_of_n", 10)
    ]  # fmt: skip
    assert all(each.config.model.name == "mine" and each.options.preset == "paper" for each in rows)


def test_the_papers_sweep_has_every_row_of_its_table() -> None:
    cells = shipped("paper_corag", "--model.name", "mine")
    rows = [(each.options.strategy, each.options.max_hops, each.options.chains) for each in cells.values()
            if each.method == "corag"]  # fmt: skip
    for row in [("greedy", 0, 4), ("greedy", 1, 4), ("greedy", 6, 4), ("best_of_n", 6, 4), ("tree", 6, 4),
                ("best_of_n", 10, 8)]:  # fmt: skip
        assert row in rows
    for cell in cells.values():
        few_shot = cell.method != "corag"  # which the paper asks of the model that nobody fine-tuned
        assert cell.config.model.name == ("meta-llama/Llama-3.1-8B-Instruct" if few_shot else "mine")
        assert cell.config.dataset == "corag"
        if cell.method == "corag":  # 5 passages a hop, 20 for the answer, those of the question
            assert (cell.options.passages_per_hop, cell.options.context_passages) == (5, 20)
            assert cell.options.context == "question" and cell.options.temperature == 0.7


@pytest.mark.parametrize("table", [(), ("--grid", "", "--cells", "eval/configs/paper_corag_table1.yaml")])
def test_few_shot_rows_ask_the_untuned_model_where_training_left_an_adapter(table: tuple[str, ...]) -> None:
    base = "meta-llama/Llama-3.1-8B-Instruct"  # as the recipe names an adapter that was trained on it
    words = [str(ROOT / word) if "/" in word else word for word in table]
    cells = shipped("paper_corag", "--model.name", base, "--model.adapter", "default", *words)
    for cell in cells.values():
        assert cell.config.model.adapter == ("default" if cell.method == "corag" else "")


def test_ircots_grid_and_its_three_sets_are_the_papers() -> None:
    cells = list(shipped("paper_ircot").values())
    assert {cell.config.model.max_context for cell in cells} == {6000}, "its own would be T5's 512"
    kinds = [each.method for each in cells]
    assert (kinds.count("ircot"), kinds.count("one_step")) == (4 * 3, 6 * 3)
    assert all(each.options.demonstration_count == 15 and each.options.reader == "direct" for each in cells)
    for dataset in ("hotpotqa", "2wikimultihopqa", "musique"):
        file = str(ROOT / f"eval/configs/paper_ircot_sets/{dataset}.yaml")
        sets = list(shipped("paper_ircot", "--grid", "", "--cells", file).values())
        assert [each.method for each in sets] == ["ircot", "one_step", "closed_book"] * 3
        ids = [tuple(each.options.demonstration_ids) for each in sets]
        assert len(set(ids)) == 3 and all(len(set(each)) == 15 for each in ids)


def test_react_is_configured_for_each_retriever_at_the_baselines_k() -> None:
    cells = shipped("react")
    searches = {"bm25": "bm25", "dense": "dense", "hybrid": "bm25 dense"}
    assert set(cells) == {f"{method} {each}" for method in ("one_step", "react") for each in searches}
    for name, cell in cells.items():
        kinds = [index.rsplit("-", 1)[1] for index in cell.config.retriever.index]
        assert " ".join(kinds) == searches[cell.name.split()[1]]
        assert cell.method == name.split()[0] and cell.config.of(cell.method).k == 5
    assert shipped("react", "--limit", "100")["react bm25"].config.limit == 100
    assert cells["react bm25"].config.limit == 0, "without a limit it is the full set"


def test_named_cells_go_by_their_names_where_no_other_looks_like_them(tmp_path: Path) -> None:
    text = "method: [corag]\ncells:\n  before: {corag.max_hops: 2}\n  none: {method: closed_book}\n"
    cells = list(cells_of(config_of(tmp_path, text)).values())
    assert name_groups(cells, [{}, {}]) == ["before", "none"]
    grid = list(cells_of(config_of(tmp_path, "method: [corag]\ngrid: {corag.L: [1, 2, 3]}\n")).values())
    assert set(name_groups(grid, [{}, {}, {}])) == {"corag greedy"}, "the labels of a grid say what differs"
