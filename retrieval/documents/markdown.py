"""Markdown by way of HTML, so that headings, lists, tables and code are understood in one place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

import yaml

from corag.data.text import decode
from retrieval.documents.document import Document, clean, stated_title
from retrieval.documents.markup import read_markup
from retrieval.documents.omissions import LEFT_OUT

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.{0,20000}?\n)(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_TOML_FRONT_MATTER = re.compile(r"\+\+\+[ \t]*\n(.{0,20000}?\n)\+\+\+[ \t]*(?:\n|$)", re.DOTALL)
_NAMED_VALUE = re.compile(r"^([A-Za-z][\w-]*)[ \t]*[:=][ \t]*(.*)$", re.MULTILINE)
_SUMMARIES = ("subtitle", "description", "summary", "abstract", "excerpt")
"""Of front matter: what is text of the document."""
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)\b([^>]*)>", re.DOTALL)
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
_MAY_STAY_OPEN = frozenset("p li dt dd tr td th thead tbody tfoot option optgroup colgroup html body".split())
_NOTE_MARK = re.compile(r"\[\^([^\]\s]{1,40})\]")
_NEVER_ENDING = re.compile(r" {0,3}<(?:(!--)|(script|style|pre|textarea)(?=[\s>]|$))", re.IGNORECASE)


def read_markdown(data: bytes, title: str) -> Document:
    """Read Markdown (CommonMark with tables), with a title from its front matter if it has one."""
    decoding = decode(data)
    text, note = decoding.text, decoding.note
    text = clean(text)
    front, text = _front_matter(text)
    own_title = stated_title(front.get("title"), "")
    html = _parser().render(text)
    summaries = "".join(
        f"<p>{escape(value)}</p>" for name in _SUMMARIES if isinstance(value := front.get(name), str)
    )
    # What is written as a tag does not tell which part is the main one.
    return read_markup(
        summaries + html,
        own_title or title,
        [note] if note else [],
        narrow=False,
        is_title_stated=bool(own_title),
    )


def _front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """Return the values that stand before a text, and the rest of it."""
    if front := _FRONT_MATTER.match(text):
        # A ruler may open a text too: front matter has values by name.
        if isinstance(values := _yaml(front[1]), dict):
            return values, text[front.end() :]
    elif front := _TOML_FRONT_MATTER.match(text):
        values = {name: value.strip("\"' ") for name, value in _NAMED_VALUE.findall(front[1])}
        return values, text[front.end() :]
    return {}, text


def _yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # such as a title with a colon in it
        values = {name: value.strip("\"' ") for name, value in _NAMED_VALUE.findall(text)}
        return values if "title" in values else None


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.push("placeholders", _escape_placeholders)
    parser.inline.ruler.before("link", "note_mark", _note_mark)
    # A note is no address of a link, and what never ends does not begin.
    for name, condition in (("reference", _begins_note), ("html_block", _never_ends)):
        rule = next(rule for rule in parser.block.ruler.__rules__ if rule.name == name)
        parser.block.ruler.at(name, _unless(condition, rule.fn), {"alt": rule.alt})
    return parser


def _unless(condition: Any, rule: Any) -> Any:
    def apply(state: Any, start: int, end: int, silent: bool) -> bool:
        return not condition(state, start, end) and bool(rule(state, start, end, silent))

    return apply


def _begins_note(state: Any, start: int, _: int) -> bool:
    return bool(state.src.startswith("[^", state.bMarks[start] + state.tShift[start]))


def _never_ends(state: Any, start: int, end: int) -> bool:
    """Whether a comment or script begins here that would go to the end of the file."""
    position = state.bMarks[start] + state.tShift[start]
    opening = _NEVER_ENDING.match(state.src, position)
    if not opening:
        return False
    closing = "-->" if opening[1] else f"</{opening[2].lower()}>"
    return closing not in state.src[position : state.eMarks[end - 1]].lower()


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
    blocks: list[tuple[Any, str]] = []
    for token in state.tokens:
        if token.type == "html_block":
            blocks.append((token, token.content))
        elif token.children:
            inline = [child for child in token.children if child.type == "html_inline"]
            _escape_unpaired([(child, child.content) for child in inline], _is_placeholder)
    _escape_unpaired(blocks, _is_left_out)


def _is_placeholder(tag: re.Match[str]) -> bool:
    return _is_left_out(tag) or not tag[3].strip(" /")  # attributes make it markup


def _is_left_out(tag: re.Match[str]) -> bool:
    return tag[2].lower() in LEFT_OUT or tag[2].lower() not in _KNOWN_TAGS


def _escape_unpaired(tokens: Sequence[tuple[Any, str]], may_be_text: Callable[[re.Match[str]], bool]) -> None:
    lone_tags: set[re.Match[str]] = set()
    open_tags: list[re.Match[str]] = []
    open_names: Counter[str] = Counter()

    def close_last() -> str:
        last = open_tags.pop()
        name = last[2].lower()
        open_names[name] -= 1
        if name not in _MAY_STAY_OPEN:
            lone_tags.add(last)
        return name

    tags = [list(_tags(content)) for _, content in tokens]
    for match in chain.from_iterable(tags):
        name = match[2].lower()
        if name in _EMPTY or match[3].endswith("/"):
            continue
        if name not in _KNOWN_TAGS or (match[1] and not open_names[name]):
            lone_tags.add(match)
        elif not match[1]:
            open_tags.append(match)
            open_names[name] += 1
        else:
            pair = next(other for other in reversed(open_tags) if other[2].lower() == name)
            while close_last() != name:
                pass
            lone_tags.discard(pair)
    while open_tags:
        close_last()
    for (token, content), matches in zip(tokens, tags, strict=True):
        parts, end = [], 0
        for match in matches:
            if match in lone_tags and may_be_text(match):
                parts += [content[end : match.start()], escape(match[0])]
                end = match.end()
        token.content = "".join([*parts, content[end:]])


def _tags(content: str) -> Iterator[re.Match[str]]:
    """Yield the tags of some markup, those in comments and scripts aside."""
    end = 0
    for match in _TAG.finditer(content):
        if match.start() < end or "<!--" in content[end : match.start()].rsplit("-->", 1)[-1]:
            continue
        yield match
        name = match[2].lower()
        if name in ("script", "style") and not match[1]:
            closing = content.lower().find(f"</{name}", match.end())
            end = closing if closing >= 0 else end
