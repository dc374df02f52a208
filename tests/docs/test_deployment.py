"""The configuration file, systemd unit and container recipe of the guide fit the program and each other."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from corag.cli.commands import COMMANDS, split_command
from corag.core.options.command_line import parse
from corag.service.options import AnswersOptions, read_presets
from retrieval.config import IndexConfig
from tests.docs.test_pages import ROOT, blocks

FILES = {block.file: block.text for block in blocks(ROOT / "docs/guides/deployment.md") if block.file}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnswersOptions:
    """The options of service.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("service.yaml").write_text(FILES["service.yaml"])
    return options_of(["corag", "serve", "answers", "--config", "service.yaml"])


def options_of(words: list[str]) -> AnswersOptions:
    name, arguments = split_command(words[1:])
    assert (Path(words[0]).name, name) == ("corag", "serve answers")
    return parse(AnswersOptions, arguments, "", "")


def unit(name: str = "corag.service") -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(FILES[name])
    return parser


def test_the_configuration_file_is_read_whole(config: AnswersOptions) -> None:
    assert list(read_presets(config)) == ["one-step", "corag"]
    assert config.retriever.index == ["quickstart/bm25"] and config.model.backend == "transformers"
    assert (config.port, config.sources, config.limits.shutdown_s) == (AnswersOptions.port, 5, 30.0)
    other = re.search(r"# or (\{backend.*\})", FILES["service.yaml"])
    assert other
    changed = FILES["service.yaml"].replace("{backend: transformers, adapter: default}", other[1])
    Path("service.yaml").write_text(changed)
    assert options_of(["corag", "serve", "answers", "--config", "service.yaml"]).model.backend == "openai"


def test_the_unit_starts_the_service_and_hides_nothing_that_it_needs(config: AnswersOptions) -> None:
    service = unit()["Service"]
    words = [word.replace("/etc/corag/", "") for word in service["ExecStart"].split()]
    assert options_of(words) == config
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    environment = dict(pair.split("=") for pair in service["Environment"].split())
    # Home folders are hidden and the file system is read-only, so what is unpacked goes to its own cache.
    assert service["ProtectHome"] == "true" and service["ProtectSystem"] == "strict"
    assert set(environment.values()) == {f"/var/cache/{service['CacheDirectory']}"}
    assert {"HOME", "CORAG_CACHE"} == environment.keys()
    assert float(service["TimeoutStopSec"]) > config.limits.shutdown_s
    assert service["RestartPreventExitStatus"] == "2", "an invalid configuration stays invalid"


def test_the_timer_indexes_into_the_folder_of_the_service() -> None:
    index, service = (unit(name)["Service"] for name in ("corag-index.service", "corag.service"))
    command, options = split_command(index["ExecStart"].split()[1:])
    config = parse(IndexConfig, options, "", "", COMMANDS[command].positional)
    assert command == "index" and config.out == f"{service['WorkingDirectory']}/documents"
    assert index["Environment"] == service["Environment"] and index["User"] == service["User"]
