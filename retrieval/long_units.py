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
from typing import Literal

from core.errors import ConfigError, DataError
from core.files import read_records
from core.types import Passage
from core.units import Unit, write_units
from retrieval.corpora import (
    AUTO,
    DOCUMENTS,
    FORMATS,
    check_format,
    format_of,
    read_corpus,
    read_passage_records,
)
from retrieval.sifting import CorpusReport, passage_from_record

LinkSource = Literal["auto", "field", "mentions", "title"]
_WORD = re.compile(r"\w+(?:[.-]\w+|['’](?!s\b)\w+)*")  # a genitive's s is a word by itself
# What stands before a word that has a capital for its place alone.
_SENTENCE_START = re.compile(r"(?:^|[.!?][\"”’)]*\s+|\n\s*)$")


@dataclass(frozen=True)
class UnitsConfig:
    """How to group a corpus into long units.

    Attributes:
        corpus: Files that hold the passages: those that were indexed.
        out: File to write, a unit per line; replaced if it is there.
        format: As for 'corag index'. Documents are cut as it cuts them by default; a file is a document.
        links: What relates documents: "field" (records have ``links``, a list of titles or ids), "mentions"
            (a text names another document's title, as hyperlinks mostly do), "title" (nothing: a unit is what
            shares a title), or "auto": "field" if any record has links, else "title".
        max_words: Words of a unit at most; 3,000 are about the paper's 4,000 tokens.
    """

    corpus: list[str]
    out: str
    format: str = AUTO
    links: LinkSource = "auto"
    max_words: int = 3000

    def __post_init__(self) -> None:
        if self.max_words < 1:
            raise ConfigError(f"max_words must be at least 1, but is {self.max_words}.")
        check_format(self.format)
        if self.links == "field" and self.format != AUTO and not _has_fields(self.format):
            known = ", ".join(filter(_has_fields, FORMATS))
            raise ConfigError(
                f"records of the format '{self.format}' have no field 'links': choose links 'mentions' or "
                f"'title', or a corpus in one of the formats {known}."
            )


def _has_fields(format: str) -> bool:
    """Whether a passage of this format is a record of its own, so may state its links."""
    return FORMATS[format] is read_passage_records


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
    of_title: dict[str, int] = field(default_factory=dict)
    of_passage: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, passages: Iterable[Passage]) -> Documents:
        """Sort passages into documents; one without a title is a document by itself."""
        documents = cls()
        for passage in passages:
            number = documents.of_title.get(passage.title) if passage.title else None
            if number is None:
                number = len(documents.titles)
                documents.titles.append(passage.title)
                documents.passages.append([])
                if passage.title:
                    documents.of_title[passage.title] = number
            documents.passages[number].append((passage.id, len(passage.text.split())))
            documents.of_passage[passage.id] = number
        return documents

    @property
    def sizes(self) -> list[int]:
        """Words of every document."""
        return [sum(words for _, words in passages) for passages in self.passages]


def build_units(config: UnitsConfig, report: Callable[[str], None]) -> UnitsReport:
    """Group a corpus into units and write them.

    ``report`` is told a sentence of what was read. Raises :class:`core.errors.DataError` for a broken corpus,
    or one without links where "field" was asked for.
    """
    config = replace(config, format=format_of(config.corpus, config.format))
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
    linked = sum(map(bool, neighbours))
    mean = round(sum(sizes) / len(sizes), 1)
    links = "field" if source == "auto" else source
    return UnitsReport(len(units), corpus.kept, len(neighbours), linked, links, mean, max(sizes))


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
    group_of: dict[int, int] = {}
    # A sort is stable: of equally linked documents the earlier one goes first, whatever the machine.
    for document in sorted(range(len(sizes)), key=lambda number: len(neighbours[number])):
        related = dict.fromkeys(group_of[number] for number in neighbours[document] if number in group_of)
        members, total = [document], sizes[document]
        for group in sorted(related, key=lambda number: words[number]):
            if total + words[group] > max_words:
                break
            total += words[group]
            members += groups.pop(group)
        groups[document], words[document] = members, total
        group_of.update((member, document) for member in members)
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
    return [list(found) for found in neighbours]


def _links(config: UnitsConfig, documents: Documents) -> Iterable[tuple[int, int]]:
    """Return links as (from, to), one way."""
    if config.links == "mentions":
        return _mentions(_passages(config, CorpusReport()), documents)
    if config.links == "title" or not _has_fields(config.format):
        return ()
    return _field_links(config, documents)


def _field_links(config: UnitsConfig, documents: Documents) -> Iterator[tuple[int, int]]:
    """Yield the links that records state in their field ``links``.

    What they name outside the corpus is passed over.
    """
    for path in config.corpus:
        for number, record in enumerate(read_records(path), 1):
            named = record.get("links") or []
            if not isinstance(named, list):
                raise DataError(f"{path}, record {number}: expected 'links' to be a list of titles or ids.")
            source = documents.of_passage.get(passage_from_record(record, f"{path}, record {number}").id)
            for name in map(str, named):
                target = documents.of_title.get(name, documents.of_passage.get(name))
                if source is not None and target is not None:
                    yield source, target


def _mentions(passages: Iterable[Passage], documents: Documents) -> Iterator[tuple[int, int]]:
    """Yield a link from every passage's document to those whose titles its text names, longest titles first.

    Titles match as whole words with their capitals, without a closing bracket such as "(film)". A title that
    several documents have is passed over, and so is a single word at the start of a sentence, where any word
    has a capital.
    """
    named: dict[str, dict[tuple[str, ...], int]] = {}
    shared = set()
    for number, title in enumerate(documents.titles):
        words = tuple(_WORD.findall(re.sub(r"\s*\([^)]*\)$", "", title)))
        if not words or not any(word[0].isupper() or word[0].isdigit() for word in words):
            continue
        if words in named.setdefault(words[0], {}):
            shared.add(words)
        named[words[0]][words] = number
    # Which of the documents of one title is meant, the text does not tell.
    for words in shared:
        del named[words[0]][words]
    for passage in passages:
        source = documents.of_passage[passage.id]
        yield from ((source, target) for target in _titles_in(passage.text, named))


def _titles_in(text: str, named: dict[str, dict[tuple[str, ...], int]]) -> Iterator[int]:
    """Yield the documents that a text names.

    ``named``: by first word, the words of a title and its document.
    """
    matches = list(_WORD.finditer(text))
    words = [match[0] for match in matches]
    place = 0
    while place < len(words):
        candidates = named.get(words[place], {})
        fits = [title for title in candidates if tuple(words[place : place + len(title)]) == title]
        longest = max(fits, key=len, default=())
        # Four characters are enough to see the end of a sentence, closing quotes and brackets included.
        if len(longest) == 1 and _SENTENCE_START.search(text[: matches[place].start()][-4:]):
            longest = ()
        if longest:
            yield candidates[longest]
        place += max(1, len(longest))
