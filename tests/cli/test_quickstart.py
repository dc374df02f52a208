"""The quickstart ends in an answer, also where vLLM does not get the memory that it asks for."""

from __future__ import annotations

import pytest

from corag.cli.commands.quickstart import QuickstartOptions, open_small_model
from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from tests.messages import raises_message


def test_the_engine_can_be_chosen_but_not_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model.backend", "transformers", "--model.kv_cache_gb", "2"]
    model = parse(QuickstartOptions, words, "corag quickstart", "").model
    assert (model.backend, model.kv_cache_gb) == ("transformers", 2.0)
    with raises_message(ConfigError):
        parse(QuickstartOptions, ["--model.name", "org/other"], "corag quickstart", "")
    assert main(["quickstart", "--model.backend", "vlm"]) == 2 and "vllm" in capsys.readouterr().err


@pytest.mark.drill
def test_without_vllms_memory_the_quickstart_goes_on_with_transformers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = parse(QuickstartOptions, ["--model.kv_cache_gb", "100000"], "corag quickstart", "").model
    with open_small_model(options, "default") as model:
        assert model.options.backend == "transformers"
    assert "goes on with transformers" in capsys.readouterr().err
