"""The documentation as a site: built without a warning, complete, and what one looks for is found."""

from __future__ import annotations

import doctest
import functools
import http.server
import importlib
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import corag
from corag.cli.commands import COMMANDS
from eval.experiment.registry import METHODS

pytest.importorskip("material", reason="the site wants mkdocs-material: pip install 'corag[dev]'")
pytest.importorskip("mkdocstrings", reason="the site wants mkdocstrings: pip install 'corag[dev]'")

ROOT = Path(__file__).parents[2]
SECONDS = 30  # of one core; 6 were seen


class Page(HTMLParser):
    """What a page of the site refers to, and the places in it that can be referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in given:
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


@pytest.fixture(scope="module")
def searched(site: Path) -> list[dict[str, str]]:
    """What the site's search reads: a record for each heading of each page."""
    return json.loads((site / "search/search_index.json").read_text())["docs"]


def test_addresses_of_the_site_and_its_source_come_from_the_release_workflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mkdocs.config import load_config

    for name in ("SITE_URL", "REPO_URL"):
        monkeypatch.delenv(name, raising=False)
    unset = load_config(str(ROOT / "mkdocs.yml"))
    assert not unset.site_url and not unset.repo_url
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    (build,) = (step for step in workflow["jobs"]["site"]["steps"] if "mkdocs build" in step.get("run", ""))
    for name in build["env"]:
        monkeypatch.setenv(name, f"https://{name.lower()}.example/corag/")
    given = load_config(str(ROOT / "mkdocs.yml"))
    assert given.site_url == "https://site_url.example/corag/"
    assert given.repo_url == "https://repo_url.example/corag/"


@pytest.mark.slow
def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        if file.name == "404.html":  # its links are those of a server's root
            continue
        for link in page.links:
            parts = urlsplit(link)
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if parts.scheme or parts.netloc:
                continue
            if target.suffix == ".html" and parts.fragment and parts.fragment not in ("__skip",):
                known = pages[target].ids if target in pages else set()
                if unquote(parts.fragment) not in known:
                    broken.append((str(file.relative_to(site)), link))
            elif not target.exists():
                broken.append((str(file.relative_to(site)), link))
    assert len(pages) > 60 and broken == []


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


@pytest.mark.parametrize(
    ("link", "repository", "mended"),
    [
        ("[guide](docs/guides/corag.md#budget)", "", "[guide](guides/corag.md#budget)"),
        ("[changes](CHANGELOG.md)", "", "[changes](changelog.md)"),
        ("![picture](docs/images/a.png)", "", "![picture](images/a.png)"),
        ("[examples](examples)", "", "examples"),
        (
            "[examples](examples)",
            "https://host/me/corag/",
            "[examples](https://host/me/corag/blob/main/examples)",
        ),
        ("[other](https://host/x.md)", "", "[other](https://host/x.md)"),
        ("`CITATION.cff`, `a.yaml`", "", "`CITATION.cff`, `a.yaml`"),
        (
            "`CITATION.cff`, `a.yaml`",
            "https://host/me/corag/",
            "[`CITATION.cff`](https://host/me/corag/blob/main/CITATION.cff), `a.yaml`",
        ),
        ("[`LICENSE`](LICENSE)", "https://host", "[`LICENSE`](https://host/blob/main/LICENSE)"),
        ("[`Makefile.py`](CITATION.cff)", "", "`Makefile.py`"),
    ],
)
def test_links_of_the_readme_suit_the_site(
    monkeypatch: pytest.MonkeyPatch, link: str, repository: str, mended: str
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/site"))
    hooks = importlib.import_module("hooks")
    assert hooks.mend_links(link, "README.md", "index.md", repository.rstrip("/")) == mended
    assert (
        hooks.mend_links("[readme](../../README.md)", "docs/guides/a.md", "guides/a.md", "")
        == "[readme](../index.md)"
    )


def test_examples_in_what_makes_the_site_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/site"))
    tried = doctest.testmod(importlib.import_module("site_reference"))
    assert tried.attempted and not tried.failed


LOOKED_FOR = {
    "own retriever": "guides/own_retriever_and_model.html",
    "what does L mean": "help/faq.html",
    "HTTP 429": "help/troubleshooting.html",
    "multi-GPU": "guides/clusters.html",
    "EM of CoRAG on 2Wiki": "results/training_two_wiki.html",
    "gold passages": "help/faq.html",
    "resume": "help/faq.html",
    "Qwen3 thinking": "guides/models.html",
    "licence of models": "help/faq.html",
    "cost of tree search": "help/faq.html",
    "CUDA out of memory": "help/troubleshooting.html",
    "confidence interval": "help/faq.html",
    "Chinese documents": "help/faq.html",
    "fine-tune LoRA": "help/faq.html",
    "run without GPU": "help/faq.html",
    "SLURM": "guides/clusters.html",
    "push adapter to hub": "help/faq.html",
    "judge": "guides/evaluation.html",
    "own FAISS vectors": "guides/data_and_indexes.html",
    "made with other settings": "help/troubleshooting.html",
    "Open WebUI": "guides/service.html",
    "MDE": "glossary.html",
    "BibTeX": "help/faq.html",
    "preemption": "guides/clusters.html",
    "accuracy against tokens sweep": "guides/scaling.html",
}
"""What somebody types who never saw the code, and the page that must be among the first three."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.drill
def test_what_one_looks_for_is_among_the_first_three(address: str, tmp_path: Path) -> None:
    """Typed into the search of the page itself."""
    from tests.eval.browser import CHROMIUM, DRIVER, Browser

    if not CHROMIUM.exists() or not DRIVER.exists():
        pytest.skip(f"no browser: '{CHROMIUM}' and '{DRIVER}' are needed")
    browser = Browser(tmp_path)
    try:
        missed = {}
        for words, wanted in LOOKED_FOR.items():
            browser.driver.get(f"{address}/index.html?q={'+'.join(words.split())}")
            hits = "[...document.querySelectorAll('.md-search-result__item > a')].map((each) => each.href)"
            browser.until(f"return {hits}.length > 0", seconds=60)
            found = dict.fromkeys(urlsplit(each).path.lstrip("/") for each in browser.run(f"return {hits}"))
            first = list(found)[:3]
            if wanted not in first:
                missed[words] = first
        assert missed == {}
    finally:
        browser.driver.quit()
