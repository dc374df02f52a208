"""Pairs of passages of an index of which the first mentions the second by its title.

:mod:`retrieval.linked` follows such links for search, where a wrong one costs a place in a ranking. Here a
wrong one is a wrong question, so fewer count: see :func:`linked_pairs`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.text import mentions
from corag.core.types import Passage
from retrieval.store import PassageStore, has_store
from retrieval.title_links import Mention, TitleTable, without_brackets

_MOST_USES = 2  # of a passage in pairs: else half of all questions are about the one that all mention
_BRACKET_WORDS = re.compile(r"\w+")
_LAST_HEADING = re.compile(r"^.* > ")


@dataclass(frozen=True, slots=True)
class LinkedPair:
    """Two passages, and where the first mentions the second: ``start`` and ``stop`` in its text."""

    first: Passage
    second: Passage
    start: int
    stop: int

    @property
    def first_name(self) -> str:
        """What the first passage is called in a question."""
        return passage_name(self.first)

    @property
    def second_name(self) -> str:
        """What the second passage is called in the first."""
        return self.first.text[self.start : self.stop]


def passage_name(passage: Passage) -> str:
    """Return a passage's title as texts spell it: the innermost heading, without brackets at its end.

    >>> passage_name(Passage("1", "Handbook > Leave", "Thirty days."))
    'Leave'
    """
    return without_brackets(_LAST_HEADING.sub("", passage.title))


class LinkedPassages:
    """The passages of an index that ``corag index`` made, in pairs, and any of them at random."""

    def __init__(self, index: str) -> None:
        """Open an index. Raises :class:`ConfigError` for what is none of ours."""
        folder = Path(index)
        if not has_store(folder):
            raise ConfigError(
                f"'{index}' is no index of 'corag index': its passages are read in pairs. Give the folder of "
                "one, such as indexes/mine; 'corag index DOCUMENTS --out indexes/mine' makes it."
            )
        self._store = PassageStore(folder)
        self._titles = TitleTable.open(folder, self._store)

    def __len__(self) -> int:
        return len(self._store)

    def pairs(self, seed: int) -> Iterator[LinkedPair]:
        """Yield linked pairs in an order drawn from ``seed``, each passage in two of them at most.

        A mention counts if it is no part of a longer name, and if the text has the words in brackets behind
        the title as well ("film", "1997"), if there are any. No pair whose second passage mentions the first,
        or whose first has the second's title in its own: one search would do for a question about them. Nor
        two passages of one section, or one twice.
        """
        rows = list(range(len(self)))
        random.Random(seed).shuffle(rows)
        uses: dict[str, int] = {}
        for row in rows:
            first = self._store.row(row)
            seconds: set[str] = set()
            for mention in self._titles.find(first.text) if first.title else ():
                pair = self._pair(first, mention)
                if pair is None or pair.second.id in seconds:
                    continue
                if max(uses.get(each.id, 0) for each in (first, pair.second)) >= _MOST_USES:
                    continue
                seconds.add(pair.second.id)
                for each in (first, pair.second):
                    uses[each.id] = uses.get(each.id, 0) + 1
                yield pair

    def others(self, pair: LinkedPair, count: int, seed: int) -> list[Passage]:
        """Return up to ``count`` passages at random that are none of a pair's."""
        rows = random.Random(seed).sample(range(len(self)), min(count + 2, len(self)))
        passages = map(self._store.row, rows)
        return [each for each in passages if each.id not in (pair.first.id, pair.second.id)][:count]

    def close(self) -> None:
        """Let go of the passages."""
        self._store.close()

    def _pair(self, first: Passage, mention: Mention) -> LinkedPair | None:
        passages = [self._store.row(row) for row in mention.rows]
        second, stop = passages[0], mention.start + len(mention.text)
        # Below a heading its words need not be repeated; an article that lacks its title is a part of one.
        is_other = not second.source and (
            not _has_name(second.text, mention.text)
            or _plain(passage_name(second)) != _plain(mention.text)  # "Tokyo!" is no city
        )
        # A document may call itself by its file's name; a section that was cut in two has one title.
        is_same = any((each.source, each.title) == (first.source, first.title) for each in passages)
        if (
            len({each.title for each in passages}) > 1  # of two films of one name, which is meant?
            or is_same
            or is_other
            or _has_name(first.title, mention.text)
            or _has_name(second.text, passage_name(first))
            or not _stands_alone(first.text, mention.start, stop)
            or not _brackets_fit(second.title, first.text)
        ):
            return None
        return LinkedPair(first, second, mention.start, stop)


def _has_name(text: str, name: str) -> bool:
    """Whether a text has a name; a single word counts as one if it is written as such."""
    return mentions([text], [name]) and (name in text or not name[:1].isupper() or " " in name)


def _plain(name: str) -> str:
    return re.sub(r"^the\s+", "", name.casefold().replace("\u2019", "'")).strip("\"'")


def _stands_alone(text: str, start: int, stop: int) -> bool:
    """Whether a mention is a name, and no part of a longer one: no word with a capital stands beside it.

    Its own first word has a capital; one word at the beginning of a sentence may be any word.
    """
    word = re.sub(r"^the\s+", "", text[start:stop], flags=re.IGNORECASE).split(" ")[0]
    if word == word.lower() != word.upper():
        return False
    before, after = text[:start].split(" ")[-2:], text[stop:].split(" ", 2)
    if text[stop : stop + 1] == " " and len(after) > 1 and after[1][:1].isupper():
        return False
    if re.match(r"[-\w&]| &", text[stop:]) or re.search(r"[-\w&]$|& $", text[:start]):
        return False
    last = before[0] if len(before) > 1 and not before[-1] else ""
    single = not re.search(r"\s", text[start:stop].strip())
    if single and (not text[:start].strip() or text[:start].rstrip()[-1] in ".!?:\n\"'\u201c"):
        return False
    return not last[:1].isupper() or last.endswith((".", ",", ";", ":"))


def _brackets_fit(title: str, text: str) -> bool:
    """Whether a text has the words in brackets at a title's end, such as "film", if there are any."""
    brackets = title.removeprefix(without_brackets(title))
    return all(mentions([text], [word]) for word in _BRACKET_WORDS.findall(brackets))
