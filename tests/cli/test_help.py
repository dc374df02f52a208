"""What ``--help`` shows, and what a misspelt option is answered with."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from corag.chains.config import CoRAGConfig
from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from corag.core.options.names import options_of, sections_of
from eval.experiment.registry import METHODS
from eval.experiment.run import RunConfig


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


def test_help_on_a_section_has_all_of_it(help_on: Callable[..., str]) -> None:
    whole = help_on("run", "--help", "corag")
    assert re.findall(r"^  --corag\.(\w+)", whole, re.MULTILINE) == [
        each.name for each in fields(CoRAGConfig)
    ]
    everything = help_on("run", "--help=all")
    assert set(re.findall(r"^  --([\w.]+)", everything, re.MULTILINE)) >= dict(options_of(RunConfig)).keys()


MISSPELT = {
    "--react.max_iteration 3": "did you mean 'react.max_iterations'?",  # never recursive.max_iterations
    "--corag.straegy tree": "did you mean 'corag.strategy'?",
    "--corga.strategy tree": "did you mean 'corag'?",
    "--ircot.k 3": "did you mean 'ircot.k_per_step'?",
    "--modle x": "did you mean 'model'?",
    "--limt 3": "did you mean 'limit'?",
    "--method react --max_step 3": "did you mean 'ircot.max_steps' or 'react.max_steps'?",
    "--max_hops 3": "did you mean 'corag.max_hops' or 'recursive.max_hops'?",
    "--model.temperature 1": "'model' has backend, name, adapter, ",
    "--corag 3": "it is a section: write one of its options, such as 'corag.preset'.",
    "--foo.bar 1": "known: auto_rag, closed_book, corag",
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


ALIASES = {
    "--ircot.reasoning_prompt_template {query}": ("ircot", "reasoning_prompt", "{query}"),
    "--ircot.global_max_num_paras 3": ("ircot", "paragraph_budget", 3),
    "--ircot.max-steps 3": ("ircot", "max_steps", 3),
    "--model some/model": ("model", "name", "some/model"),
    "--index a,b": ("retriever", "index", ["a", "b"]),
    "--corag.max_depth 3": ("corag", "max_hops", 3),
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
