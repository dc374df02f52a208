"""An option means the same from Python, from YAML, on the command line and in a sweep's cell."""

from __future__ import annotations

import itertools
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from corag.chains.config import CoRAGConfig
from corag.cli.commands.ask import AskOptions
from corag.core.errors import ConfigError
from corag.core.method import MethodConfig
from corag.core.options.classes import change_options
from corag.core.options.command_line import parse
from corag.core.options.names import kinds_of
from corag.generation.config import ModelConfig
from corag.service.options import AnswersOptions
from eval.experiment.registry import METHODS
from eval.experiment.run import RunConfig
from eval.sweeps.cells import read_cells
from ircot.method import IRCoTConfig
from retrieval.config import IndexConfig, RetrieverConfig

BASE = ("--questions", "q.jsonl")
OPTIONS = [(name, option.name) for name, entry in METHODS.items() for option in fields(entry.config)]


def surfaces(
    method: str, values: dict[str, Any], folder: Path
) -> dict[str, typing.Callable[[], MethodConfig]]:
    """Return a function for each way to state some values of a method's options."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({method: values}))
    words = [f"--{method}.{name}={as_word(value)}" for name, value in values.items()]
    base = parse(RunConfig, [*BASE, "--method", method], "test", "a test")
    cell = {"a": {f"{method}.{name}": value for name, value in values.items()}}
    return {
        "Python": lambda: METHODS[method].config(**values),
        "YAML": lambda: parse(RunConfig, [*BASE, "--config", str(file)], "test", "a test").of(method),
        "command line": lambda: parse(RunConfig, [*BASE, *words], "test", "a test").of(method),
        "cell": lambda: read_cells(base, cell, "")[0].config.of(method),
    }


def as_word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def another_value(config: type[MethodConfig], option: str) -> Any:
    """Return a value of an option that is not its default and that no rule over several options refuses."""
    default = getattr(config(), option)
    kind = kinds_of(config)[option]
    choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    candidates: list[Any] = [choice for choice in choices if choice != default]
    if isinstance(default, bool):
        candidates = [not default]
    elif isinstance(default, int):
        candidates = [default + 1, max(0, default - 1)]
    elif isinstance(default, float):
        candidates = [default / 2, default + 0.25]
    for value in candidates:
        try:
            if getattr(config(**{option: value}), option) == value:
                return value
        except ConfigError:
            continue
    return default


@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_an_option_of_a_method_is_the_same_from_everywhere(method: str, option: str, tmp_path: Path) -> None:
    config = METHODS[method].config
    values = {option: another_value(config, option)}
    made = {name: make() for name, make in surfaces(method, values, tmp_path).items()}
    assert all(each == made["Python"] for each in made.values()), made
    assert getattr(made["Python"], option) == values[option] or isinstance(values[option], tuple | list)


def messages(method: str, values: dict[str, Any], folder: Path) -> set[str]:
    """Return the messages about wrong values, without the names of file and cell."""
    sentences = set()
    for make in surfaces(method, values, folder).values():
        with pytest.raises(ConfigError) as caught:
            make()
        message = str(caught.value).replace(f"'{folder / 'config.yaml'}' has the ", "")
        sentences.add(message.removeprefix("cell 'a': "))
    return sentences


@pytest.mark.parametrize("method", METHODS)
def test_mistakes_are_the_same_sentence_from_everywhere(method: str, tmp_path: Path) -> None:
    config = METHODS[method].config
    kinds = kinds_of(config)
    for option, kind in kinds.items():
        if typing.get_origin(kind) is typing.Literal:
            (message,) = messages(method, {option: "nope"}, tmp_path)
            assert f"'{method}.{option}'" in message and "it should be" in message
        elif kind is int:
            for wrong in ("many", 2.5):
                (message,) = messages(method, {option: wrong}, tmp_path)
                assert f"'{method}.{option}'" in message and "valid integer" in message
    if "max_answer_tokens" in kinds:
        (message,) = messages(method, {"max_answer_token": 3}, tmp_path)
        assert message.endswith(
            f"unknown option '{method}.max_answer_token': did you mean '{method}.max_answer_tokens'?"
        )


def test_presets_and_other_names_work_in_python() -> None:
    small = CoRAGConfig(preset="small_model")
    assert (small.passages_per_hop, small.max_answer_tokens, small.merge) == (3, 16, "turns")
    assert CoRAGConfig(preset="small_model", passages_per_hop=5).passages_per_hop == 5
    few_shot = IRCoTConfig(preset="paper", demonstrations="default")
    assert (few_shot.stop_rule, few_shot.reader, few_shot.max_thought_tokens) == ("strict", "cot", 300)
    assert IRCoTConfig(top_k=4) == IRCoTConfig(k_per_step=4)
    assert CoRAGConfig(L=3, n=2, strategy="tree") == CoRAGConfig(max_hops=3, chains=2, strategy="tree")
    assert IRCoTConfig(k_per_step="4").k_per_step == 4, "text means what it means in a shell"


def test_what_asks_one_question_and_what_serves_answers_have_the_same_defaults() -> None:
    asked, served = AskOptions(), AnswersOptions()  # MCP is the latter, with stdio
    assert (asked.method, asked.budget, asked.seed) == (served.method, served.budget, served.seed)
    assert asked.model.with_engine() == served.model and asked.retriever == served.retriever


WITH_PRESETS = [name for name, each in METHODS.items() if hasattr(each.config, "PRESETS")]


@pytest.mark.parametrize("method", WITH_PRESETS)
def test_a_changed_preset_is_as_if_it_had_been_stated_first(method: str) -> None:
    """What the preset before brought along is gone, and what was stated beside it is still there."""
    kind: typing.Any = METHODS[method].config
    stated = {"prompt": "some prompt"} if "prompt" in kinds_of(kind) else {}
    few_shot = {"demonstrations": "default"} if "demonstrations" in kinds_of(kind) else {}
    for before, after in itertools.permutations(kind.PRESETS, 2):
        stated_options = stated | few_shot
        base = kind(preset=before, **stated_options)
        assert change_options(base, {"preset": after}) == kind(preset=after, **stated_options), (
            before,
            after,
        )


def test_an_other_name_counts_beside_its_whole_section_in_any_order() -> None:
    section = ModelConfig(name="x", max_context=9)
    for values in ({"llm": "y", "model": section}, {"model": section, "llm": "y"}):
        model = RunConfig(questions="q", **values).model  # type: ignore[arg-type]
        assert (model.name, model.max_context) == ("y", 9)


def test_null_and_empty_sections_of_a_file_leave_the_default(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("questions: q\nretriever:\nmodel: {adapter: null, tokenizer: ~}\n")
    config = parse(RunConfig, ["--config", str(file)], "test", "a test")
    assert (config.model.adapter, config.model.tokenizer, config.retriever.index) == ("", "", [])


def test_spaces_between_items_of_a_list_do_not_count() -> None:
    assert parse(RunConfig, [*BASE, "--method", "react, flare"], "test", "").method == ["react", "flare"]


def test_a_tilde_is_the_home_folder_and_a_folder_with_a_comma_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell expands what stands in a file, or behind an equals sign."""
    monkeypatch.setenv("HOME", str(tmp_path))
    index, *_ = folders = [tmp_path / "an, index", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"retriever": {"index": "~/an, index"}, "out": "~/runs"}))
    shell = [*BASE, "--retriever.index=~/an, index", "--out=~/runs"]
    ways = [parse(RunConfig, words, "test", "") for words in (shell, [*BASE, "--config", "~/config.yaml"])]
    for config in (*ways, RunConfig(questions="q", retriever=RetrieverConfig("~/an, index"), out="~/runs")):  # type: ignore[arg-type]
        assert list(config.retriever.index) == [str(index)] and config.out == str(tmp_path / "runs")
    two = parse(IndexConfig, [*map(str, folders), "--out", "~"], "test", "", positional="corpus")
    assert list(two.corpus) == [*map(str, folders)] and two.out == str(tmp_path)
    assert list(RetrieverConfig("~/no such, index").index) == [f"{tmp_path}/no such", "index"]  # type: ignore[arg-type]
