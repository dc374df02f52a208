"""Which passages the model read on the way to an answer: an answer's sources are cited by it.

A method may write passages into its prompts in any way. So they are looked for in what was sent, by their
texts, and no method has to say what it showed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from corag.core.language.sentences import first_sentence
from corag.core.language.text import shared_length
from corag.core.prompting.prompt import Prompt, Shortening
from corag.core.prompting.shorten import text_left
from corag.core.support import Statement, order_by_support
from corag.core.types import Answer, Branch, Passage

_BEGINNING = 80  # characters by which a passage is looked for: of one that was cut there is no more
_SENTENCE = 20  # characters of a first sentence that tells a passage: of an excerpt there may be no more


class _Place(NamedTuple):
    """Where a passage's text, or the beginning of it, stands in a prompt: characters from and to."""

    start: int
    end: int
    whole: bool

    def within(self, other: _Place) -> bool:
        """Whether this is but a part of another passage that stands there, such as the end that two share."""
        is_inside = other.start <= self.start and self.end <= other.end
        longer = other.whole or (other.start, other.end) != (self.start, self.end)
        return is_inside and longer and not self.whole


@dataclass
class PassagesRead:
    """The passages that one question met, and the prompts in which they stood, in order."""

    _texts: dict[str, str] = field(default_factory=dict)  # by id, with single blanks
    _titles: dict[str, str] = field(default_factory=dict)  # by id
    _ranks: dict[str, int] = field(default_factory=dict)  # by id: the best in a search
    _queries: dict[str, str] = field(default_factory=dict)  # by the place that searched last with it
    _readings: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # (place, ids)

    def add_passages(self, passages: Iterable[Passage]) -> None:
        """Note passages that a search or a look-up returned, best first."""
        for rank, passage in enumerate(passages):
            if passage.id not in self._texts:
                self._texts[passage.id] = " ".join(passage.text.split()) or passage.title
                self._titles[passage.id] = passage.title
            self._ranks[passage.id] = min(rank, self._ranks.get(passage.id, rank))

    def texts_of(self, ids: Iterable[str]) -> list[Passage]:
        """Return passages by their ids, without where they are from; unknown ones are empty."""
        return [Passage(name, self._titles.get(name, ""), self._texts.get(name, "")) for name in ids]

    def add_query(self, path: str, query: str) -> None:
        """Note what was searched for at a place of the method."""
        self._queries[path] = query

    def add_prompt(
        self, path: str, prompt: Prompt, shortening: Shortening, count: Callable[[str], int]
    ) -> None:
        """Note a prompt that was answered. ``count``: of a text's tokens."""
        if not self._texts:
            return
        visible = " ".join(text_left(prompt, shortening, count).split())
        locations = {
            name: location for name, text in self._texts.items() if (location := _find(text, visible))
        }
        ids = [
            name
            for name, location in locations.items()
            if not any(location.within(other) for other in locations.values() if other is not location)
        ]
        if ids:
            self._readings.append((path, tuple(sorted(ids, key=lambda name: locations[name].start))))

    def leading_to(self, answer: Answer | None, question: str = "") -> tuple[str, ...]:
        """Return the ids of the passages that were read on the way to an answer, each once.

        Those that carry it come first (:func:`corag.core.support.order_by_support`); without an answer they
        come in the order of reading. What was read for other branches than the answer's is left out.
        """
        branch = answer.branch() if answer is not None else None
        leads = _leading_places(branch, self._queries)
        ids = dict.fromkeys(name for path, names in self._readings if leads(path) for name in names)
        if answer is None:
            return tuple(ids)
        # What worked examples alone were shown with is no source.
        known = {*answer.passage_ids, *answer.shown_ids} or ids.keys()
        statements = [Statement(question, answer.text)]
        statements += [Statement(*hop) for hop in branch.hops] if branch else []
        texts = {name: f"{self._titles[name]} {self._texts[name]}" for name in ids if name in known}
        return order_by_support(texts, statements, self._ranks)


def _find(text: str, prompt: str) -> _Place | None:
    """Return where a passage stands in a prompt, as far as it was not cut; None if it does not."""
    if not text:
        return None
    # "Cost: 3" does not stand in "Cost: 35".
    ends_in_word = text[-1].isalnum()
    for start in _occurrences(text, prompt):
        end = start + len(text)
        if not (ends_in_word and prompt[end : end + 1].isalnum()):
            return _Place(start, end, whole=True)
    beginning = text[:_BEGINNING]
    starts = list(_occurrences(beginning, prompt))
    if not starts and _SENTENCE <= len(sentence := _sentence(beginning)) < len(beginning):
        starts = list(_occurrences(sentence, prompt))
    ends = [(shared_length(text, prompt[start : start + len(text)]), start) for start in starts]
    length, start = max(ends, default=(0, 0))
    return _Place(start, start + length, whole=False) if length else None


# Every passage that was found is looked for in every prompt.
_sentence = lru_cache(maxsize=4096)(first_sentence)


def _occurrences(part: str, text: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


def _leading_places(branch: Branch | None, queries: dict[str, str]) -> Callable[[str], bool]:
    """Return what tells whether a place of the method leads to a branch; without one all do."""
    if branch is None:
        return lambda path: True
    tops = {path.partition("/")[0] for path in branch.paths}
    sub_queries = {query for query, _ in branch.hops}

    def leads(path: str) -> bool:
        is_shared = path.partition("/")[0] not in tops
        on_the_way = f"{branch.path}/".startswith(f"{path}/") or path.startswith(f"{branch.path}/hop ")
        # A hop may have been taken over from a rollout, which is another branch of the tree. A search may
        # have had an answer behind the sub-query.
        words = f"{queries.get(path, '')} "
        return is_shared or on_the_way or any(words.startswith(f"{each} ") for each in sub_queries)

    return leads
