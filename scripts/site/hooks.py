"""What mkdocs does beyond reading docs/: pages from outside it, links for GitHub and the site, made parts.

Pages are written to be read on GitHub, too. A comment on a line of its own stands for a part that is made:

    <!-- options: corag -->            the options and presets of a method
    <!-- commands -->                  every command with its options
    <!-- reference: ask run -->        names of the front door, from their docstrings
    <!-- errors: tests/retrieval -->   the messages of errors that these tests have on file

Each page is also written as the Markdown that it was made of, and ``llms.txt`` lists them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page
from site_errors import messages_of
from site_options import commands, options_of_method
from site_reference import reference

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages that lie elsewhere in the repository, by where the site has them."""
FILLERS: dict[str, Callable[[str], str]] = {
    "options": options_of_method,
    "commands": commands,
    "reference": reference,
    "errors": messages_of,
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FILE = re.compile(r"(?<!\[)`([\w.-]+(?:/[\w.-]+)*\.(?:sh|yaml|cff|py|def|lock))`(?!\])")
_BOOST = {
    "reference/commands.md": 0.4,
    "reference/python.md": 0.5,
    "help/errors.md": 0.7,
    "changelog.md": 0.2,
    "log.md": 0.5,
    "drills.md": 0.5,
}
"""Pages that have every word somewhere: in a search they come after those that explain it."""
_FEWEST, _MOST = 2, 9  # headings that say what a page is about
_page_texts: dict[str, str] = {}
_nav: list[Navigation] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for source, page_path in OUTSIDE.items():
        files.append(File.generated(config, page_path, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend a page's links and fill in what is made."""
    page_path = page.file.src_uri
    source = next((each for each, at in OUTSIDE.items() if at == page_path), f"docs/{page_path}")
    repository = (config.repo_url or "").rstrip("/")
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [mend_links(part, source, page_path, repository) for part in parts[::2]]
    page.meta["search"] = {"boost": _BOOST.get(page_path, 1)}
    _page_texts[page_path] = text = fill_in("".join(parts))
    return text


def mend_links(text: str, source: str, page_path: str, repository: str) -> str:
    """Return a page's text with links as the site wants them.

    Links to files that are no pages lead to the repository, or nowhere as long as it has no address.

    Args:
        text: Markdown without fenced blocks.
        source: where the page lies in the repository.
        page_path: where the site has it.
        repository: address of the repository, "" if there is none.
    """

    def mend_link(link: re.Match[str]) -> str:
        image, label, to = link.groups()
        path, _, anchor = to.partition("#")
        if not path or "://" in to or to.startswith("mailto:"):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        at = OUTSIDE.get(target, target.removeprefix("docs/") if target.startswith("docs/") else "")
        if at:
            near = posixpath.relpath(at, posixpath.dirname(page_path) or ".")
            return f"{image}[{label}]({near}{anchor and '#' + anchor})"
        return f"[{label}]({repository}/blob/main/{target})" if repository else label

    text = _LINK.sub(mend_link, text)
    if not repository:
        return text
    return _FILE.sub(lambda name: _link_file(name[1], repository), text)


def _link_file(path: str, repository: str) -> str:
    """Return the name of a file of the repository as a link to it, any other as it is."""
    name = f"`{path}`"
    return f"[{name}]({repository}/blob/main/{path})" if (ROOT / path).is_file() else name


def fill_in(text: str) -> str:
    """Return a page's text with the parts that comments stand for."""

    def replacement(comment: re.Match[str]) -> str:
        return FILLERS[comment[1]]((comment[2] or "").strip())

    return re.sub(rf"^<!-- ({'|'.join(FILLERS)})(?:: (.*?))? -->$", replacement, text, flags=re.MULTILINE)


def on_page_context(context: Any, page: Page, config: MkDocsConfig, nav: Navigation) -> None:
    """Leave the messages out of the table of contents: they are many, and search finds them."""
    if page.file.src_uri == "help/errors.md":
        for heading in (each for top in page.toc for each in top.children):
            heading.children.clear()


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Keep the navigation for llms.txt."""
    _nav[:] = [nav]


def on_post_build(config: MkDocsConfig) -> None:
    """Write every page's Markdown and llms.txt (llmstxt.org), the index that language models are given."""
    site = Path(config.site_dir)
    for page_path, text in _page_texts.items():
        (site / page_path).parent.mkdir(parents=True, exist_ok=True)
        (site / page_path).write_text(re.sub(r"^<!-- .*? -->\n", "", text, flags=re.MULTILINE))
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for section in _nav[0].items:
        if isinstance(section, Section):
            lines += ["", f"## {section.title}", "", *map(_line, _pages_of(section))]
    (site / "llms.txt").write_text("\n".join(lines) + "\n")
    if not config.site_url:  # a map of addresses that nobody knows
        for name in ("sitemap.xml", "sitemap.xml.gz"):
            (site / name).unlink(missing_ok=True)


def _pages_of(item: Any) -> list[Page]:
    """Return the pages of an item of the navigation, in its order."""
    children = getattr(item, "children", None) or []
    return [item] if isinstance(item, Page) else [page for each in children for page in _pages_of(each)]


def _line(page: Page) -> str:
    """Return a page's line in llms.txt: title, place, and its headings, or its first sentence."""
    text = re.sub(r"^```.*?^```$", "", _page_texts[page.file.src_uri], flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^## (.*?)(?: \{.*\})?$", text, flags=re.MULTILINE)
    if len(headings) >= _FEWEST and not page.file.src_uri.startswith("methods/"):
        summary = "; ".join(headings[:_MOST]) + ("; ..." if len(headings) > _MOST else "")
    else:
        prose = re.sub(r"^(<!--|#|:::|!\[|\||---).*$", "", text, flags=re.MULTILINE)
        first = " ".join(prose.strip().split("\n\n")[0].split())
        summary = re.split(r"(?<=\.)\s", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first))[0]
    return f"- [{page.title}]({page.file.src_uri}): {summary}".removesuffix(": ")
