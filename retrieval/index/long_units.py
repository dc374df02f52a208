"""Grouping a corpus into long retrieval units (Jiang, Ma, Chen 2024: LongRAG, section 2.1, algorithm 1).

Passages of one title are a document. Documents that link to each other are grouped up to a size, those with
the fewest links first. Differences from the released code: no document is left out for having no links, a
unit is in the corpus's order (there, a set's), and a document longer than a unit is split between passages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from corag.core.errors import ConfigError, DataError
from corag.core.option_names import LocalPath, Mark, NameOrPath
from corag.core.options import Options
from corag.core.types import Passage
from corag.core.units import Unit, write_units
from corag.core.words import UNSPACED_LETTERS, count_words, is_unspaced, word_spans
from retrieval.corpora.files import expand_corpus
from retrieval.corpora.formats import (
    AUTO,
    DOCUMENTS,
    FORMATS,
    check_format,
    detect_format,
    has_links,
    read_corpus,
)
from retrieval.corpora.record_files import read_records_and_passages
from retrieval.corpora.sifting import CorpusReport

LinkSource = Literal["auto", "field", "mentions", "title"]
_WORD = re.compile(r"\w+(?:[.-]\w+|['’](?!s\b)\w+)*")  # a genitive's s is a word by itself
_BRACKET = re.compile(r"\s*[(（][^)）]*[)）]$")
_UNSPACED_LETTER = re.compile(f"[{UNSPACED_LETTERS}]")
# What stands before a word that has a capital for its place alone.
_SENTENCE_START = re.compile(r"(?:^|[.!?][\"”’)]*\s+|\n\s*)$")


@dataclass(frozen=True)
class UnitsConfig(Options):
    """How to group a corpus into long units."""

    corpus: list[NameOrPath]
    """What was indexed: files that hold the passages, folders of tables, data sets of the hub."""

    out: LocalPath
    """File to write, a unit per line; replaced if it is there."""

    format: Annotated[str, Mark.PUBLIC] = AUTO
    """As for 'corag index'. Documents are cut as it cuts them by default; a file is a document."""

    links: LinkSource = "auto"
    """What relates documents: "field" (records have ``links``, a list of titles or ids), "mentions" (a text
    names another document's title, as hyperlinks mostly do), "title" (nothing: a unit is what shares a
    title), or "auto": "field" if any record has links, else "title"."""

    max_words: int = 3000
    """Words of a unit at most; 3,000 are about the paper's 4,000 tokens."""

    def __post_init__(self) -> None:
        if self.max_words < 1:
            raise ConfigError(f"max_words must be at least 1, but is {self.max_words}.")
        check_format(self.format)
        if self.links == "field" and self.format != AUTO and not has_links(self.format):
            formats = ", ".join(filter(has_links, FORMATS))
            raise ConfigError(
                f"records of the format '{self.format}' have no field 'links': choose links 'mentions' or "
                f"'title', or a corpus in one of the formats {formats}."
            )


@dataclass(frozen=True)
class UnitsReport:
    """What was made. ``linked``: documents related to another one; ``links``: where from; sizes in words."""

    units: int
    passages: int
    documents: int
    linked: int
    links: str
    mean_words: float
    largest_words: int


@dataclass
class Documents:
    """A corpus by document: the passages (id, words) of each title in the corpus's order.

    Texts are not kept.
    """

    passages: list[list[tuple[str, int]]] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    by_title: dict[str, int] = field(default_factory=dict)
    by_passage_id: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, passages: Iterable[Passage]) -> Documents:
        """Sort passages into documents; one without a title is a document by itself."""
        documents = cls()
        for passage in passages:
            number = documents.by_title.get(passage.title) if passage.title else None
            if number is None:
                number = len(documents.titles)
                documents.titles.append(passage.title)
                documents.passages.append([])
                if passage.title:
                    documents.by_title[passage.title] = number
            documents.passages[number].append((passage.id, count_words(passage.text)))
            documents.by_passage_id[passage.id] = number
        return documents

    @property
    def sizes(self) -> list[int]:
        """Words of every document."""
        return [sum(words for _, words in passages) for passages in self.passages]


def build_units(config: UnitsConfig, report: Callable[[str], None]) -> UnitsReport:
    """Group a corpus into units and write them.

    ``report`` gets a sentence of what was read. Raises :class:`DataError` for a broken corpus,
    or one without links where "field" was asked for.
    """
    config = replace(config, corpus=expand_corpus(config.corpus, report))
    config = replace(config, format=detect_format(config.corpus, config.format))
    corpus = CorpusReport()
    documents = Documents.read(_passages(config, corpus))
    report(f"{corpus}.")
    neighbours = _both_ways(_links(config, documents), len(documents.titles))
    source = config.links if any(neighbours) else "title"
    if config.links == "field" and source == "title":
        raise DataError(
            f"no record of {', '.join(config.corpus)} has 'links' that name another document of it by title "
            "or id: choose links 'mentions' or 'title'."
        )
    units: list[Unit] = []
    sizes: list[int] = []
    for group in group_documents(documents.sizes, neighbours, config.max_words):
        passages = [passage for number in group for passage in documents.passages[number]]
        for part in _split(passages, config.max_words):
            units.append(Unit(f"unit-{len(units) + 1}", tuple(identifier for identifier, _ in part)))
            sizes.append(sum(words for _, words in part))
    write_units(Path(config.out), units)
    linked_documents = sum(map(bool, neighbours))
    mean = round(sum(sizes) / len(sizes), 1)
    links = "field" if source == "auto" else source
    return UnitsReport(
        len(units), corpus.passages, len(neighbours), linked_documents, links, mean, max(sizes)
    )


def _passages(config: UnitsConfig, report: CorpusReport) -> Iterator[Passage]:
    for passage in read_corpus(config.corpus, config.format, report):
        # The title of a passage that was cut out of a file is that of its section.
        yield replace(passage, title=passage.source) if config.format == DOCUMENTS else passage


def group_documents(
    sizes: Sequence[int], neighbours: Sequence[Sequence[int]], max_words: int
) -> list[list[int]]:
    """Group documents (LongRAG, algorithm 1).

    ``sizes``: words of each; ``neighbours``: the related documents of each, both ways. From the fewest
    relations to the most, a document joins the groups of its neighbours, the smallest first, as long as they
    fit ``max_words`` together. Every document is in one group. Returns groups and their documents in the
    corpus's order.

    >>> group_documents([10, 10, 10, 10], [[1], [0, 2], [1], []], 20)
    [[0, 1], [2], [3]]
    """
    groups: dict[int, list[int]] = {}
    words: dict[int, int] = {}
    group_by_document: dict[int, int] = {}
    # A sort is stable: of equally linked documents the earlier one goes first, whatever the machine.
    for document in sorted(range(len(sizes)), key=lambda number: len(neighbours[number])):
        neighbour_groups = dict.fromkeys(
            group_by_document[number] for number in neighbours[document] if number in group_by_document
        )
        members, total = [document], sizes[document]
        for group in sorted(neighbour_groups, key=lambda number: words[number]):
            if total + words[group] > max_words:
                break
            total += words[group]
            members += groups.pop(group)
        groups[document], words[document] = members, total
        group_by_document.update((member, document) for member in members)
    return sorted(sorted(members) for members in groups.values())


def _split(passages: Sequence[tuple[str, int]], max_words: int) -> Iterator[list[tuple[str, int]]]:
    """Cut a group that is one long document between passages; a group within the size stays whole."""
    part: list[tuple[str, int]] = []
    total = 0
    for passage in passages:
        if part and total + passage[1] > max_words:
            yield part
            part, total = [], 0
        part.append(passage)
        total += passage[1]
    yield part


def _both_ways(links: Iterable[tuple[int, int]], documents: int) -> list[list[int]]:
    """Turn links into the neighbours of every document, each once."""
    neighbours: list[dict[int, None]] = [{} for _ in range(documents)]
    for source, target in links:
        if source != target:
            neighbours[source][target] = None
            neighbours[target][source] = None
    return [list(targets) for targets in neighbours]


def _links(config: UnitsConfig, documents: Documents) -> Iterable[tuple[int, int]]:
    """Return links as (from, to), one way."""
    if config.links == "mentions":
        return _mentions(_passages(config, CorpusReport()), documents)
    if config.links == "title" or not has_links(config.format):
        return ()
    return _field_links(config, documents)


def _field_links(config: UnitsConfig, documents: Documents) -> Iterator[tuple[int, int]]:
    """Yield the links that records state in their field ``links``.

    What they name outside the corpus is passed over.
    """
    for record, passage in read_records_and_passages(config.corpus):
        names = record.get("links") or []
        if not isinstance(passage, Passage) or not names:
            continue
        if not isinstance(names, list):
            raise DataError(
                f"the passage '{passage.id}' has the links {names!r:.60}: expected a list of titles or ids."
            )
        source = documents.by_passage_id.get(passage.id)
        for name in map(str, names):
            target = documents.by_title.get(name, documents.by_passage_id.get(name))
            if source is not None and target is not None:
                yield source, target


def _mentions(passages: Iterable[Passage], documents: Documents) -> Iterator[tuple[int, int]]:
    """Yield a link from every passage's document to those whose titles its text names, longest titles first.

    Titles match as whole words with their capitals, without a closing bracket such as "(film)". A title that
    several documents have is passed over, and so is a single word at the start of a sentence, where any word
    has a capital. Of scripts without capitals, titles of several words match, and any of two characters where
    no spaces are set between words.
    """
    by_first_word: dict[str, dict[tuple[str, ...], int]] = {}
    shared = set()
    for number, title in enumerate(documents.titles):
        text = _BRACKET.sub("", title)
        words = tuple(text[start:end] for start, end in _words(text))
        if not words or not (any(map(_begins_name, words)) or _names_without_capitals(words)):
            continue
        if words in by_first_word.setdefault(words[0], {}):
            shared.add(words)
        by_first_word[words[0]][words] = number
    # Which of the documents of one title is meant, the text does not tell.
    for words in shared:
        del by_first_word[words[0]][words]
    for passage in passages:
        source = documents.by_passage_id[passage.id]
        yield from ((source, target) for target in _titles_in(passage.text, by_first_word))


def _titles_in(text: str, by_first_word: dict[str, dict[tuple[str, ...], int]]) -> Iterator[int]:
    """Yield the documents that a text names.

    ``by_first_word``: the words of a title and its document.
    """
    spans = list(_words(text))
    words = [text[start:end] for start, end in spans]
    position = 0
    while position < len(words):
        candidates = by_first_word.get(words[position], {})
        fits = [title for title in candidates if tuple(words[position : position + len(title)]) == title]
        longest = max(fits, key=len, default=())
        # Four characters are enough to see the end of a sentence, closing quotes and brackets included.
        if len(longest) == 1 and _begins_name(longest[0]):
            start = spans[position][0]
            if _SENTENCE_START.search(text[max(0, start - 4) : start]):
                longest = ()
        if longest:
            yield candidates[longest]
        position += max(1, len(longest))


def _words(text: str) -> Iterator[tuple[int, int]]:
    for match in _WORD.finditer(text):
        if is_unspaced(match[0]):
            yield from ((match.start() + start, match.start() + end) for start, end in word_spans(match[0]))
        else:
            yield match.span()


def _begins_name(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit()


def _names_without_capitals(words: Sequence[str]) -> bool:
    """Whether words of a script without capitals are enough to be a title, and no word like any other."""
    caseless = words[0][0].isalpha() and words[0][0].lower() == words[0][0].upper()
    return caseless and (len(words) > 1 or (len(words[0]) > 1 and bool(_UNSPACED_LETTER.match(words[0]))))
