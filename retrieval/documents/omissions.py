"""What of a web page is not its text: recognised by what it holds as well as by its name, and counted.

A name alone proves little: a ``<nav>`` that was never closed holds the rest of its page, and what is hidden
may be shown by a button. So a part with prose in it is read whatever it is called, and what is left out is
counted by what it is.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from corag.core.language.words import count_words
from retrieval.documents.left_out import (
    CONTENTS,
    COOKIES,
    DRAWN_WORDS,
    EDGES,
    ELSEWHERE,
    EMBEDDED,
    FALLBACK,
    FORMS,
    HIDDEN_PARTS,
    NAVIGATION,
    READINGS,
)

NOT_TEXT = "code"
"""Scripts, styles and the like: no text, so not counted."""

_BY_TAG = {
    **dict.fromkeys(
        "head script style title annotation annotation-xml param source track rp".split(), NOT_TEXT
    ),
    **dict.fromkeys("noscript object embed applet iframe frame noembed video audio canvas".split(), FALLBACK),
    **dict.fromkeys("select datalist textarea".split(), FORMS),
    **dict.fromkeys("rt rtc".split(), READINGS),
    "svg": DRAWN_WORDS,
    "nav": NAVIGATION,
}
LEFT_OUT = frozenset((*_BY_TAG, "footer", "template", "dialog", "button"))
"""Tags of which some or all are left out."""

_BY_ROLE = {
    "navigation": NAVIGATION,
    "banner": EDGES,
    "contentinfo": EDGES,
    "search": FORMS,
    "doc-toc": CONTENTS,
    "doc-index": CONTENTS,
}
# An element that has its own footer: that belongs to the text.
_OWNERS = frozenset("article section main aside blockquote figure td li dd details dialog".split())
_WHOLE_PAGES = frozenset("html body main article".split())
# Where a button is the title of what it opens.
_TITLES = frozenset("h1 h2 h3 h4 h5 h6 summary dt legend caption th label".split())
_STYLED_AWAY = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_COOKIE_NOTICE = re.compile(
    r"(?:cookie|consent|gdpr)[-_]?(?:banner|notice|bar|popup|modal|overlay|dialog|consent|law|message)"
    r"|onetrust|cybotcookiebot|cookiebanner|cc-(?:window|banner)|^cookies?$",
    re.IGNORECASE,
)
_CONTENTS_NAME = re.compile(
    r"(?:^|[\s_-])(?:toc|table-?of-?contents|contents|toctree[\w-]*|list-of-(?:tables|figures|examples)|"
    r"index|\w*indextable)(?:[\s_-]|$)",
    re.IGNORECASE,
)
_EDIT_LINKS = re.compile(r"\b(?:mw-editsection|skip-?link|skip-to-content)\b", re.IGNORECASE)
_LINK_SHARE = 0.8  # of a table of contents' words are links
_FEWEST_LINKS = 3
_FRAGMENTS = 5  # links within the page that make a list without a name a table of contents
_PROSE = 25  # words outside links, beside fewer in links: no navigation has so many
_NEVER_TAKEN_BACK = frozenset((CONTENTS, READINGS, DRAWN_WORDS, NOT_TEXT))
_FEWEST_TAKEN_BACK, _FEWEST_ELSEWHERE = 20, 80  # words


@dataclass(frozen=True, slots=True)
class Extent:
    """How many words an element has, and how many of them are links or choices in a form."""

    words: int
    linked_words: int

    @property
    def prose(self) -> int:
        """Words of running text."""
        return self.words - self.linked_words


class Omissions:
    """Decides which elements of a page are left out, and counts their words.

    ``kinds_to_read``: kinds that are read this time, because the page has hardly any text but theirs.
    """

    def __init__(self, root: Any, kinds_to_read: frozenset[str] = frozenset()) -> None:
        self.kinds_to_read = kinds_to_read
        self.counts: Counter[str] = Counter()
        self.prose: Counter[str] = Counter()
        self.read_anyway = 0  # words of parts that are called navigation, and are text
        self._last_extent: tuple[Any, Extent] = (None, Extent(0, 0))  # mostly asked for twice in a row
        self._panels = _controlled_panels(root)

    def reason(self, element: Any, tag: str) -> str:
        """Return what an element is that is not read, "" if it is."""
        attributes = element.attrib
        kind = _BY_TAG.get(tag, "")
        if tag == "button":
            kind = "" if _is_title(element) else FORMS
        elif tag == "template":
            kind = "" if "shadowrootmode" in attributes else HIDDEN_PARTS
        elif tag == "dialog" and "open" not in attributes:
            kind = HIDDEN_PARTS
        elif tag == "footer" and _of_the_page(element):
            kind = EDGES
        if attributes and not kind:
            kind = self._by_attributes(element, tag, attributes)
        elif not kind and tag in ("ul", "ol") and _lists_places_in_page(element):
            kind = CONTENTS
        if not kind or kind in self.kinds_to_read:
            return ""
        if kind in (NAVIGATION, FORMS) and tag not in ("select", "datalist", "textarea", "button"):
            extent = self._measure(element)
            if extent.prose >= _PROSE and extent.prose > extent.linked_words:
                self.read_anyway += extent.prose
                return ""
        return kind

    def leave_out(self, element: Any, kind: str) -> None:
        """Count an element that is left out."""
        if kind == NOT_TEXT:
            return
        if kind == FALLBACK and element.tag not in ("noscript", "noembed"):
            self.counts[EMBEDDED] += 1
        extent = self._measure(element)
        self.counts[kind] += extent.words
        if kind not in _NEVER_TAKEN_BACK and element.tag not in ("select", "datalist"):
            self.prose[kind] += extent.prose

    def to_take_back(self, words_read: int) -> str:
        """Return the kind that has most of the page's text, "" if what was read has."""
        if not self.prose:
            return ""
        total = sum(self.prose.values())
        words_read += self.counts[CONTENTS]  # they are no text, but what the page is there for
        kind, words = self.prose.most_common(1)[0]
        # A page of few words has more of them beside its main part: who wrote it, and when.
        fewest = _FEWEST_ELSEWHERE if kind == ELSEWHERE else _FEWEST_TAKEN_BACK
        most = not words_read or (total > words_read and total >= fewest)
        return kind if words and most else ""

    def _by_attributes(self, element: Any, tag: str, attributes: Any) -> str:
        if "hidden" in attributes or "aria-hidden" in attributes or "style" in attributes:
            is_hidden = (
                attributes.get("hidden", "until-found").lower() != "until-found"
                or attributes.get("aria-hidden") == "true"
                or _STYLED_AWAY.search(attributes.get("style", "")) is not None
            )
            if is_hidden and not self._is_shown_later(element, attributes):
                return HIDDEN_PARTS
        if kind := _BY_ROLE.get(attributes.get("role", ""), ""):
            return kind if kind != EDGES or _of_the_page(element) else ""
        names = f"{attributes.get('id', '')} {attributes.get('class', '')}"
        if names != " ":
            if _COOKIE_NOTICE.search(names) and tag not in _WHOLE_PAGES:
                return COOKIES
            if _CONTENTS_NAME.search(names) and self._is_contents(element):
                return CONTENTS
            if _EDIT_LINKS.search(names):
                return NAVIGATION
        if tag in ("ul", "ol") and _lists_places_in_page(element):
            return CONTENTS
        return ""

    def _is_contents(self, element: Any) -> bool:
        if element.tag in _WHOLE_PAGES or next(element.iter("h1"), None) is not None:
            return False
        extent = self._measure(element)
        links = sum(1 for _ in element.iter("a"))
        return links >= _FEWEST_LINKS and extent.linked_words >= _LINK_SHARE * extent.words > 0

    def _measure(self, element: Any) -> Extent:
        if self._last_extent[0] is not element:
            self._last_extent = (element, measure(element))
        return self._last_extent[1]

    def _is_shown_later(self, element: Any, attributes: Any) -> bool:
        """Tell a panel that a control opens, or a formula whose picture is shown, from what never is."""
        if attributes.get("role") == "tabpanel" or attributes.get("id") in self._panels:
            extent = measure(element)
            return extent.prose >= extent.linked_words
        return next(element.iter("math"), None) is not None


def measure(element: Any) -> Extent:
    """Count an element's words, those of scripts and styles aside."""
    words = linked_words = 0
    inside = 0  # links that are open
    from lxml import etree  # of an extra: what reads no web page has the names above without it

    walk = etree.iterwalk(element, events=("start", "end"))
    for event, part in walk:
        tag = part.tag
        if event == "start":
            if _BY_TAG.get(tag) == NOT_TEXT and part is not element:
                walk.skip_subtree()
                continue
            inside += tag in _LINKS
            text = part.text
        else:
            inside -= tag in _LINKS
            text = None if part is element else part.tail
        if text and (count := count_words(text)):
            words += count
            linked_words += count * (inside > 0)
    return Extent(words, linked_words)


_LINKS = frozenset("a option button".split())


def _is_title(button: Any) -> bool:
    attributes = button.attrib
    if "aria-expanded" in attributes or attributes.get("role") == "tab":
        return True
    if any(above.tag in _TITLES for above in button.iterancestors()):
        return True
    return next(button.iter("h1", "h2", "h3", "h4", "h5", "h6", "p"), None) is not None


def _of_the_page(element: Any) -> bool:
    return not any(
        above.tag in _OWNERS or above.get("role") in ("main", "article") for above in element.iterancestors()
    )


def _controlled_panels(root: Any) -> frozenset[str]:
    """Return the ids of what buttons, tabs and links of the page open."""
    ids: set[str] = set()
    for element in root.xpath("//*[@aria-controls or @data-target or @data-bs-target]"):
        for name in ("aria-controls", "data-target", "data-bs-target"):
            ids.update(part.lstrip("#") for part in element.get(name, "").split())
    return frozenset(ids)


def _lists_places_in_page(element: Any) -> bool:
    first = next(element.iter("a"), None)
    if first is None or not first.get("href", "").startswith("#"):
        return False
    links = list(element.iter("a"))
    if len(links) < _FRAGMENTS or not all(link.get("href", "#").startswith("#") for link in links):
        return False
    extent = measure(element)
    return extent.linked_words >= _LINK_SHARE * extent.words > 0
