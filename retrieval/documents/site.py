"""What the pages of a site repeat: menus and footers that no tag marks, told by comparing pages of a folder.

A sample of a folder's pages is compared before the first of them is cut, and kept until its turn comes, so
that no page is read twice. A menu is left out of every page. Repeated text that is no link is left out only
at a page's edges, and stays in one page: a telephone number in every footer is still found.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

from corag.core.words import count_words
from retrieval.documents.document import Block, Document

REPEATED_NAVIGATION = "navigation repeated on most pages"
_SAMPLE = 40  # pages of a folder
_FEWEST = 4  # pages; fewer do not show what is a site's
_SHARE = 0.5  # of the pages repeat it
_LONGEST = 400  # characters; what is longer is text that was copied
_LONGEST_EDGE = 60  # words that are no links; pages that share more are copies of each other
_MOST_ENCLOSED = 3  # blocks between two links of a menu
_NOTICE = ("©", "copyright", "all rights reserved")


@dataclass(frozen=True)
class Site:
    """What the pages of a folder repeat.

    Attributes:
        texts: blocks, with the page that keeps each.
        digest: of them, "" if there is none: the same pages give other passages when it changes.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""

    @classmethod
    def compare(cls, pages: Mapping[str, Document]) -> Site:
        """Find what most of these pages (by name) repeat."""
        if len(pages) < _FEWEST:
            return cls()
        counts: Counter[str] = Counter()
        keepers: dict[str, str] = {}
        for name in sorted(pages):
            for text in {block.text for block in pages[name].blocks if len(block.text) <= _LONGEST}:
                counts[text] += 1
                keepers.setdefault(text, name)
        texts = {text: keepers[text] for text, count in counts.items() if count > _SHARE * len(pages)}
        listing = "\n".join(f"{text}\t{texts[text]}" for text in sorted(texts))
        return cls(texts, hashlib.blake2b(listing.encode(), digest_size=8).hexdigest() if texts else "")

    def trim(self, document: Document, name: str) -> Document:
        """Return a page without what its site repeats, which is counted; all of it if it has nothing else."""
        if not self.texts:
            return document
        blocks = document.blocks
        menu = {
            position
            for position in _menu_places(blocks, self.texts)
            if blocks[position].linked or self.texts[blocks[position].text] != name
        }
        if not menu or len(menu) == len(blocks):
            return document
        words = sum(count_words(blocks[position].text) for position in menu)
        kept_blocks = tuple(block for position, block in enumerate(blocks) if position not in menu)
        return replace(
            document, blocks=kept_blocks, left_out={**document.left_out, REPEATED_NAVIGATION: words}
        )


def group_pages(names: Iterable[str]) -> dict[str, str]:
    """Return for each page the folder that it is compared in: the first one in which the pages part.

    >>> group_pages(["web/a/1.html", "web/a/x/2.html", "web/b/3.html"])
    {'web/a/1.html': 'a', 'web/a/x/2.html': 'a', 'web/b/3.html': 'b'}
    """
    folders = {name: name.split("/")[:-1] for name in names}
    shortest = min(map(len, folders.values()), default=0)
    levels = (len({folder[level] for folder in folders.values()}) == 1 for level in range(shortest))
    shared = sum(takewhile(bool, levels))
    return {name: folder[shared] if len(folder) > shared else "" for name, folder in folders.items()}


def choose_sample(names: Sequence[str]) -> list[str]:
    """Return the pages of a folder to compare: a new page hardly changes the choice."""
    return sorted(names, key=lambda name: hashlib.blake2b(name.encode(), digest_size=8).digest())[:_SAMPLE]


class Sites:
    """The sites of a listing. ``read`` returns a page by its name, None if it cannot be read."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Document | None]) -> None:
        self._groups = group_pages(names)
        self._pages: dict[str, list[str]] = defaultdict(list)
        for name, group in self._groups.items():
            self._pages[group].append(name)
        self._read = read
        self._sites: dict[str, Site] = {}

    def site(self, name: str) -> Site:
        """Return the site of a page; the first of its folder has the sample read."""
        group = self._groups.get(name)
        if group is None:
            return Site()
        if group not in self._sites:
            names = choose_sample(self._pages[group]) if len(self._pages[group]) >= _FEWEST else []
            pages = {each: page for each in names if (page := self._read(each)) is not None}
            self._sites[group] = Site.compare(pages)
        return self._sites[group]


def _menu_places(blocks: Sequence[Block], repeated_texts: Mapping[str, str]) -> set[int]:
    """Return where a page has what its site repeats: links, what they enclose, and its edges."""
    places = {position for position, block in enumerate(blocks) if block.text in repeated_texts}
    linked_places = [position for position in sorted(places) if blocks[position].linked]
    menu = set(linked_places)
    for position, following in pairwise(linked_places):
        between = range(position + 1, following)
        if len(between) <= _MOST_ENCLOSED and places.issuperset(between):
            menu.update(between)
    first = next(
        (position for position in range(len(blocks)) if position not in places or blocks[position].headings),
        0,
    )
    last = next(
        (position for position in reversed(range(len(blocks))) if position not in places), len(blocks) - 1
    )
    ending = last + 1
    while ending < len(blocks) and not (blocks[ending].linked or _is_notice(blocks[ending])):
        ending += 1
    for edge in (range(first), range(ending, len(blocks))):
        words = sum(count_words(blocks[position].text) for position in edge if not blocks[position].linked)
        if words <= _LONGEST_EDGE:
            menu.update(edge)
    return menu


def _is_notice(block: Block) -> bool:
    text = block.text.lower()
    return any(notice in text for notice in _NOTICE)
