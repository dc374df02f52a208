"""What mkdocs does beyond reading docs/: pages from outside it, links for GitHub and the site, made parts.

Pages are written to be read on GitHub, too. A comment on a line of its own stands for a part that is made:

    <!-- options: corag -->            the options and presets of a method
    <!-- commands -->                  every command with its options
    <!-- reference: ask run -->        names of the front door, from their docstrings
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
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
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FILE = re.compile(r"(?<!\[)`([\w.-]+(?:/[\w.-]+)*\.(?:sh|yaml|cff|py|def|lock))`(?!\])")
_BOOST = {
    "reference/commands.md": 0.4,
    "reference/python.md": 0.5,
    "changelog.md": 0.2,
    "log.md": 0.5,
    "drills.md": 0.5,
}
"""Pages that have every word somewhere: in a search they come after those that explain it."""


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
    return fill_in("".join(parts))


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


def on_post_build(config: MkDocsConfig) -> None:
    """Remove the map of addresses where the site has none."""
    if not config.site_url:
        for name in ("sitemap.xml", "sitemap.xml.gz"):
            (Path(config.site_dir) / name).unlink(missing_ok=True)
