"""'corag list': methods and datasets in a line each."""

import re
from dataclasses import fields

import pytest

from corag.cli.main import main
from corag.core.options.help import descriptions
from eval.experiment.registry import METHODS, MethodOptions, check_names, methods_of


def test_every_method_is_listed_once_with_every_option_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.name for each in fields(MethodOptions)] == list(METHODS) == list(methods_of(MethodOptions))
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
