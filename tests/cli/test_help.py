"""What ``--help`` shows, and what a misspelt option is answered with."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from corag.chains.config import CoRAGConfig
from corag.cli.commands import COMMANDS
from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from corag.core.options.names import options_of, sections_of
from eval.experiment.registry import METHODS
from eval.experiment.run import RunConfig
from tests.eval.test_own_methods import method_of_the_page
from tests.messages import raises_message

LIMIT = 60  # a screen


@pytest.fixture
def help_on(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The help that a command line asks for."""

    def shown(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*words])
        assert ended.value.code == 0
        return capsys.readouterr().out

    return shown


def configure(*argv: str) -> RunConfig:
    return parse(RunConfig, ["--questions", "q.jsonl", *argv], "corag run", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_fits_on_a_screen(command: str, help_on: Callable[..., str]) -> None:
    lines = help_on(*command.split(), "--help").splitlines()
    assert 3 < len(lines) < LIMIT and max(map(len, lines)) <= 110
    assert lines[0].startswith(f"usage: corag {command}")


def test_a_method_of_ones_own_has_help(tmp_path: Path, help_on: Callable[..., str]) -> None:
    own = method_of_the_page(tmp_path)
    assert "--my_method.k " in help_on("ask", "--method", own, "--help", "my_method")


def test_help_on_a_section_has_all_of_it(help_on: Callable[..., str]) -> None:
    whole = help_on("run", "--help", "corag")
    assert re.findall(r"^  --corag\.(\w+)", whole, re.MULTILINE) == [
        each.name for each in fields(CoRAGConfig)
    ]
    assert "One of greedy, best_of_n, tree, adaptive. Also: decode_strategy." in " ".join(whole.split())
    assert ", reader, one_step, closed_book." in " ".join(help_on("rows", "--help", "rows").split())
    everything = help_on("run", "--help=all")
    assert set(re.findall(r"^  --([\w.]+)", everything, re.MULTILINE)) >= dict(options_of(RunConfig)).keys()
    assert "--print_config" in help_on("list", "--help")


def test_json_is_for_commands_that_have_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 2
    assert "'corag list' prints no figures" in capsys.readouterr().err


def test_help_on_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help", "corga"]) == 2
    assert "there is no help on 'corga': did you mean 'corag'?" in capsys.readouterr().err


MISSPELT = {
    "--react.max_iteration 3": "did you mean 'react.max_iterations'?",  # never recursive.max_iterations
    "--react.max_stpes 3": "did you mean 'react.max_steps'?",
    "--recursive.max_iteration 3": "did you mean 'recursive.max_iterations'?",
    "--corag.max_dept 3": "did you mean 'corag.max_depth'?",
    "--corag.straegy tree": "did you mean 'corag.strategy'?",
    "--corga.strategy tree": "did you mean 'corag'?",
    "--ircot.k 3": "did you mean 'ircot.k_per_step'?",
    "--ircot.reasonning_prompt x": "did you mean 'ircot.reasoning_prompt'?",
    "--model.nam x": "did you mean 'model.name'?",
    "--modle.name x": "did you mean 'model'?",
    "--modle x": "did you mean 'model'?",
    "--retriver.index x": "did you mean 'retriever'?",
    "--retriever.indx x": "did you mean 'retriever.index'?",
    "--questons x": "did you mean 'questions'?",
    "--limt 3": "did you mean 'limit'?",
    "--method react --max_step 3": "did you mean 'ircot.max_steps' or 'react.max_steps'?",
    "--method corag --max_hops 3": "did you mean 'corag.max_hops' or 'recursive.max_hops'?",
    "--max_hops 3": "did you mean 'corag.max_hops' or 'recursive.max_hops'?",
    "--temperature 0.5": "did you mean 'corag.temperature' or 'search_o1.temperature'?",
    "--model.temperature 1": "'model' has backend, name, adapter, ",
    "--corag 3": "it is a section: write one of its options, such as 'corag.preset'.",
    "--foo.bar 1": "known: auto_rag, closed_book, corag",
    "--zzz 1": "--help lists the options.",
    "--verbos": "unknown option 'verbos': --help lists the options.",
    "--method reat": "there is no method 'reat': did you mean 'react'?",
}


@pytest.mark.parametrize("words", MISSPELT)
def test_a_misspelt_option_is_looked_for_where_it_was_typed(words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        configure(*words.split())
    assert MISSPELT[words] in str(error.value)
    option, _, value = words.removeprefix("--").partition(" ")
    if "." in option and value:
        section, name = option.split(".")
        (tmp_path / "c.yaml").write_text(f"{section}:\n  {name}: {value}\n")
        with pytest.raises(ConfigError, match=re.escape(f"has the unknown option '{section}")) as error:
            configure("--config", str(tmp_path / "c.yaml"))
        if section in METHODS or section == "model":
            assert MISSPELT[words] in str(error.value)


def test_a_misspelt_section_of_a_file_is_answered_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("irct:\n  max_steps: 3\n")
    with raises_message(ConfigError):
        configure("--config", str(tmp_path / "c.yaml"))


ALIASES = {
    "--ircot.reasoning_prompt_template {query}": ("ircot", "reasoning_prompt", "{query}"),
    "--ircot.qa_prompt_template {query}": ("ircot", "qa_prompt", "{query}"),
    "--one_step.qa_prompt_template {query}": ("one_step", "qa_prompt", "{query}"),
    "--iter_retgen.qa_prompt_template {query}": ("iter_retgen", "qa_prompt", "{query}"),
    "--ircot.max_iterations 3": ("ircot", "max_steps", 3),
    "--ircot.global_max_num_paras 3": ("ircot", "paragraph_budget", 3),
    "--ircot.max-steps 3": ("ircot", "max_steps", 3),
    "--react.max_iterations 3": ("react", "max_steps", 3),
    "--llm some/model": ("model", "name", "some/model"),
    "--model some/model": ("model", "name", "some/model"),
    "--index a,b": ("retriever", "index", ["a", "b"]),
    "--corag.max_depth 3": ("corag", "max_hops", 3),
    "--corag.decode_strategy tree": ("corag", "strategy", "tree"),
    "--corag.max_path_length 3": ("corag", "max_hops", 3),
    "--corag.context_placement best_first": ("corag", "context_order", "best_first"),
}


@pytest.mark.parametrize("words", ALIASES)
def test_names_of_the_papers_code_are_understood(words: str, tmp_path: Path) -> None:
    section, option, value = ALIASES[words]
    assert getattr(getattr(configure(*words.split()), section), option) == value
    name, _, given = words.removeprefix("--").partition(" ")
    (tmp_path / "c.yaml").write_text(f"{name}: '{given}'\n")
    assert getattr(getattr(configure("--config", str(tmp_path / "c.yaml")), section), option) == value


def test_a_preset_of_the_shell_brings_its_values() -> None:
    assert configure("--corag.preset", "small_model").corag.passages_per_hop == 3


def test_methods_answer_to_the_names_of_others() -> None:
    config = configure("--method", "basic_rag,self-ask,nor")
    assert config.method == ["one_step", "self_ask", "closed_book"]
    assert configure("--method", "vanilla").method == ["one_step"]


def test_no_alias_hides_an_option() -> None:
    for prefix, section in sections_of(RunConfig):
        own = {each.name for each in fields(section)} - {"model", "workers"}
        others = {*section.ALIASES} - {"model", "workers"}
        assert not own & others, prefix
        known = dict(options_of(section))
        assert set(section.ALIASES.values()) <= known.keys()
