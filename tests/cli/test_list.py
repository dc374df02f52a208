"""'corag list': the list, and what is shown of one."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.help import descriptions
from eval.experiment.registry import METHODS, MethodOptions, check_names, methods_of
from tests.eval.test_own_methods import method_of_the_page


def test_every_method_is_listed_once_with_every_option_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        list(METHODS) == [section.name for section in fields(MethodOptions)]
        and methods_of(MethodOptions) == METHODS
    )
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    for name, entry in METHODS.items():
        assert re.search(rf"^{name} +{re.escape(entry.summary[:40])}", listed, re.MULTILINE)
        assert MethodOptions().find_method(name) is entry and type(MethodOptions().of(name)) is entry.config
        unexplained = {option.name for option in fields(entry.config)} - dict(
            descriptions(entry.config)
        ).keys()
        assert not unexplained, f"{name} does not say what these are: {unexplained}"
    check_names(list(METHODS))


def test_one_method_is_shown_with_defaults_presets_and_aliases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "ircot"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"--ircot.max_steps +8 +maximum number of thoughts", shown)
    assert "--ircot.preset paper_code stands for --ircot.stop_rule strict" in shown
    assert "--ircot.top_k is --ircot.k_per_step" in shown
    assert main(["list", method_of_the_page(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("my_method: Search for what is missing") and re.search(
        r"--my_method.k +4 +passages", shown
    )
    assert main(["list", "closed_book"]) == 0 and "needs no index" in capsys.readouterr().out
    assert main(["list", "corag"]) == 0
    method, dataset = capsys.readouterr().out.split("The dataset of this name:")
    assert method.startswith("corag: ") and "--corag.max_hops" in method and "Scorer:" in dataset
    assert main(["list", "irct"]) == 2 and "did you mean 'ircot'" in capsys.readouterr().err
