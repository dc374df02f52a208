"""Markdown by way of HTML, so that headings, lists, tables and code are understood in one place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import yaml

from corag.data.text import decode
from retrieval.documents.document import Document, clean, stated_title
from retrieval.documents.markup import read_markup
from retrieval.documents.omissions import LEFT_OUT

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(.{0,20000}?\n)(?:\1|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_NAMED_VALUE = re.compile(r"^([A-Za-z][\w-]*)[ \t]*[:=][ \t]*(.*)$", re.MULTILINE)
_SUMMARIES = ("subtitle", "description", "summary", "abstract", "excerpt")
"""Of front matter: what is text of the document."""
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)\b([^<>]*)>", re.DOTALL)
_EMPTY = frozenset("area base br col embed hr img input link meta source track wbr".split())
# Markdown's own parts of pages: what else is written as a tag is a placeholder or a name.
_KNOWN_TAGS = _EMPTY | frozenset(
    "a abbr acronym address article aside audio b bdi bdo big blockquote button caption center cite code "
    "colgroup data datalist dd del details dfn dialog dir div dl dt em fieldset figcaption figure font "
    "footer form h1 h2 h3 h4 h5 h6 head header hgroup html body i iframe ins kbd label legend li main map "
    "mark math menu meter mfrac mi mn mo mrow msqrt msub msup nav noscript object ol optgroup option output "
    "p picture pre progress q rp rt ruby s samp script section select semantics small span strike strong "
    "style sub summary sup svg table tbody td template textarea tfoot th thead time title tr tt u ul var "
    "video".split()
)
_MAY_STAY_OPEN = _EMPTY | frozenset(
    "p li dt dd tr td th thead tbody tfoot option optgroup colgroup html body".split()
)
_DEEPEST = 100  # levels of lists and quotations: the parser drops what is deeper
_NOTE_MARK = re.compile(r"\[\^([^\]\s]{1,40})\]")


def read_markdown(data: bytes, title: str) -> Document:
    """Read Markdown (CommonMark with tables), with a title from its front matter if it has one."""
    decoding = decode(data)
    text, note = decoding.text, decoding.note
    text = clean(text)
    front, text = _front_matter(text)
    own_title = stated_title(front.get("title"), "")
    parser = _parser()
    tokens = parser.parse(text)
    notes = [note] if note else []
    if any(token.level >= _DEEPEST - 2 for token in tokens):
        notes.append(f"read in part only: it nests over {_DEEPEST} levels deep")
    html = parser.renderer.render(tokens, parser.options, {})
    summaries = "".join(
        f"<p>{escape(value)}</p>" for name in _SUMMARIES if isinstance(value := front.get(name), str)
    )
    # What is written as a tag does not tell which part is the main one.
    return read_markup(
        summaries + html,
        own_title or title,
        notes,
        narrow=False,
        is_title_stated=bool(own_title),
    )


def _front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """Return the values that stand before a text, and the rest of it."""
    front = _FRONT_MATTER.match(text)
    # A ruler may open a text too: front matter has values by name.
    values = _named_values(front[2]) if front else {}
    return (values, text[front.end() :]) if front and values else ({}, text)


def _named_values(text: str) -> Mapping[str, Any]:
    with suppress(yaml.YAMLError, ValueError):
        if isinstance(values := yaml.safe_load(text), dict):
            return values
    # TOML, or a title with a colon in it.
    values = {name: value.strip("\"' ") for name, value in _NAMED_VALUE.findall(text)}
    return values if "title" in values else {}


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table")
    parser.core.ruler.push("placeholders", _escape_placeholders)
    parser.inline.ruler.before("link", "note_mark", _note_mark)
    reference = next(rule for rule in parser.block.ruler.__rules__ if rule.name == "reference")
    parser.block.ruler.at("reference", partial(_refer, reference.fn), {"alt": reference.alt})
    return parser


def _refer(
    rule: Callable[[Any, int, int, bool], bool], state: Any, start: int, end: int, silent: bool
) -> bool:
    # A note is no address of a link.
    is_note = state.src.startswith("[^", state.bMarks[start] + state.tShift[start])
    return not is_note and rule(state, start, end, silent)


def _note_mark(state: Any, silent: bool) -> bool:
    """Write the mark of a note apart from its word: town[^1] is "town [1]"."""
    mark = _NOTE_MARK.match(state.src, state.pos)
    if not mark:
        return False
    if not silent:
        token = state.push("text", "", 0)
        before = state.src[state.pos - 1 : state.pos]
        token.content = f"{' ' if before.strip() else ''}[{mark[1]}]"
    state.pos += len(mark[0])
    return True


def _escape_placeholders(state: Any) -> None:
    """Make text of tags that have no counterpart: their writer forgot to mark them as code."""
    tokens = [each for token in state.tokens for each in (token, *(token.children or ()))]
    tokens = [token for token in tokens if token.type in ("html_block", "html_inline")]
    tags = [tag for token in tokens for tag in _TAG.finditer(token.content)]
    opened, closed = (Counter(tag[2].lower() for tag in tags if tag[1] == slash) for slash in ("", "/"))

    def is_lone(name: str) -> bool:
        # One that would keep a part of the page out of sight must close as often as it opens.
        return opened[name] != closed[name] if name in LEFT_OUT else not (opened[name] and closed[name])

    def escape_lone(tag: re.Match[str], *, inline: bool) -> str:
        name, attributes = tag[2].lower(), tag[3].strip(" /")
        if name in _MAY_STAY_OPEN or tag[3].endswith("/"):
            return tag[0]
        may_be_text = name in LEFT_OUT or (inline and not attributes)
        return escape(tag[0]) if name not in _KNOWN_TAGS or (may_be_text and is_lone(name)) else tag[0]

    for token in tokens:
        token.content = _TAG.sub(partial(escape_lone, inline=token.type == "html_inline"), token.content)
