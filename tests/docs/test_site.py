"""The documentation as a site: built without a warning, complete, and what one looks for is found."""

from __future__ import annotations

import doctest
import importlib
import os
import resource
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import corag
from corag.cli.commands import COMMANDS
from eval.experiment.registry import METHODS

pytest.importorskip("material", reason="the site wants mkdocs-material: pip install 'corag[dev]'")
pytest.importorskip("mkdocstrings", reason="the site wants mkdocstrings: pip install 'corag[dev]'")

ROOT = Path(__file__).parents[2]
SECONDS = 30  # of one core; 6 were seen


class Page(HTMLParser):
    """What a page of the site loads, and the places in it that can be referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < SECONDS, f"the site took {seconds:.0f} s of a core"
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text()) for file in site.rglob("*.html")}


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    assert {each for page in pages.values() for each in page.loaded if urlsplit(each).netloc} == set()


@pytest.mark.slow
def test_every_name_of_the_front_door_has_an_entry(site: Path, pages: dict[Path, Page]) -> None:
    ids = pages[site / "reference/python.html"].ids
    assert {name for name in corag.__all__ if f"corag.{name}" not in ids} == set()


def test_every_command_and_every_option_of_a_method_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/site"))
    site_options = importlib.import_module("site_options")
    commands = f"\n{site_options.commands('')}"
    assert [name for name in COMMANDS if f"\n## corag {name}\n" not in commands] == []
    assert "| `--retriever.index` |" in commands and "| `--batch_size` |" in commands
    for name, method in METHODS.items():
        page = site_options.options_of_method(name)
        assert [
            each.name for each in fields(method.config) if f"| `--{name}.{each.name}` |" not in page
        ] == []


def test_examples_in_what_makes_the_site_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/site"))
    tried = doctest.testmod(importlib.import_module("site_reference"))
    assert tried.attempted and not tried.failed
