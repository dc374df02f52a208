"""Grouping a corpus into long retrieval units (Jiang, Ma, Chen 2024: LongRAG, section 2.1, algorithm 1).

Passages of one title are a document. Documents that link to each other are grouped up to a size, those with
the fewest links first. Differences from the released code: no document is left out for having no links, a
unit is in the corpus's order (there, a set's), and a document longer than a unit is split between passages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from corag.core.errors import DataError
from corag.core.language.words import count_words
from corag.core.types import Passage
from corag.core.units import Unit, write_units
from retrieval.config import IndexConfig
from retrieval.corpora.files import expand_corpus
from retrieval.corpora.formats import DOCUMENTS, has_links
from retrieval.corpora.passages import read_records_and_passages
from retrieval.index.manifest import IndexManifest
from retrieval.index.store import PassageStore
from retrieval.search.titles import TitleTable


@dataclass
class Documents:
    """A corpus by document: the passages (id, words) of each file or title in the corpus's order.

    Texts are not kept.
    """

    passages: list[list[tuple[str, int]]] = field(default_factory=list)
    by_title: dict[str, int] = field(default_factory=dict)
    by_passage_id: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, passages: Iterable[Passage]) -> Documents:
        """Sort passages into documents by source, else title; one with neither is a document by itself."""
        documents = cls()
        for passage in passages:
            title = passage.source or passage.title
            number = documents.by_title.get(title, len(documents.passages))
            if number == len(documents.passages):
                documents.passages.append([])
                if title:
                    documents.by_title[title] = number
            documents.passages[number].append((passage.id, count_words(passage.text)))
            documents.by_passage_id[passage.id] = number
        return documents

    @property
    def sizes(self) -> list[int]:
        """Words of every document."""
        return [sum(words for _, words in passages) for passages in self.passages]


def build_units(config: IndexConfig, manifest: IndexManifest) -> str:
    """Group the passages of the index ``config.out``, which is complete, and write them to ``long_units``.

    Returns a sentence on what was made.

    Raises :class:`DataError` for a corpus without links where "field" was asked for.
    """
    store, corpus_format = PassageStore(Path(config.out)), manifest.settings.detail("format")

    def passages() -> Iterator[Passage]:
        for passage in store.rows(0, len(store)):
            # A record is of its title's document, whatever its source.
            yield passage if corpus_format == DOCUMENTS else replace(passage, source="")

    documents = Documents.read(passages())
    links: Iterable[tuple[int, int]] = ()
    if config.long_unit_links == "mentions":
        links = _mentions(passages, documents)
    elif config.long_unit_links != "title" and has_links(corpus_format):
        links = _field_links(config, documents)
    neighbours = _both_ways(links, len(documents.passages))
    source = config.long_unit_links if any(neighbours) else "title"
    if config.long_unit_links == "field" and source == "title":
        raise DataError(
            f"no record of {', '.join(config.corpus)} has 'links' that name another document of it by title "
            "or id: choose long_unit_links 'mentions' or 'title'."
        )
    units: list[Unit] = []
    sizes: list[int] = []
    for group in group_documents(documents.sizes, neighbours, config.long_unit_words):
        members = [passage for number in group for passage in documents.passages[number]]
        for part in _split(members, config.long_unit_words):
            units.append(Unit(f"unit-{len(units) + 1}", tuple(identifier for identifier, _ in part)))
            sizes.append(sum(words for _, words in part))
    write_units(Path(config.long_units), units)
    store.close()
    return (
        f"{config.long_units}: {len(units):,} units of {len(neighbours):,} documents, "
        f"{sum(map(bool, neighbours)):,} of them linked (by {'field' if source == 'auto' else source}); "
        f"{sum(sizes) / len(sizes):,.1f} words on average, {max(sizes):,} at most."
    )


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


def _field_links(config: IndexConfig, documents: Documents) -> Iterator[tuple[int, int]]:
    """Yield the links that records state in their field ``links``, as (from, to), one way.

    What they name outside the corpus is passed over.
    """
    files = expand_corpus(config.corpus, lambda line: None)
    for record, passage in read_records_and_passages(files, config.reading):
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


def _mentions(passages: Callable[[], Iterable[Passage]], documents: Documents) -> Iterator[tuple[int, int]]:
    """Yield a link from every passage's document to those that its text names by a title, heading or file."""
    number_of = documents.by_passage_id
    named = {(number_of[each.id], each.title): replace(each, text="") for each in passages()}
    titles, numbers = TitleTable.build(named.values()), [number for number, _ in named]
    for passage in passages():
        for mention in titles.find(passage.text):
            targets = {numbers[row] for row in mention.rows}
            if len(targets) == 1:  # which of the documents of one title is meant, the text does not tell
                yield number_of[passage.id], targets.pop()
