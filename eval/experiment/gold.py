"""Gold passages against the index that is searched: an id that it lacks can never be found.

Recall of such a question would be below 1 whatever the method does, and 0 on an index with other ids. So its
gold passages count by their titles, where the dataset names these and the index has them all; else it has no
recall. The numbers of both are printed at the start. A gold passage may also be given by file, page or
title instead of an id: rows have it with what it is (:mod:`eval.datasets.gold_names`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.core.errors import CoragError
from corag.core.own_objects import is_user_object
from corag.core.protocols import Retriever
from corag.core.types import Passage, Question
from eval.datasets.gold_names import TITLE, find_name, headings, is_name, passage_names
from eval.experiment.executor import HasFingerprint, RemoteHandle
from eval.experiment.progress import print_line
from retrieval.index.aliases import Aliases, load_aliases
from retrieval.index.store import PassageStore, has_store
from retrieval.lucene.bm25 import LuceneSearcher
from retrieval.search.places import open_passages

_BATCH = 1000  # ids that are looked up at once, and titles
_HITS = 50  # of a search for a title, among which the passages of that title are: they hold all its words
_MAX_PASSAGES = 3_000_000  # passages of an index whose files and titles are read: a quarter of a minute


async def match_gold(
    questions: Sequence[Question], index: HasFingerprint | None, folders: Sequence[str]
) -> list[Question]:
    """Return the questions with gold passages as the index has them; print what was done to how many.

    Those of a question are titles where the index lacks an id, but has all its titles; else it has none.

    With a retriever of the user's own they keep all; scoring then takes ids or titles, whichever finds more.

    Args:
        questions: those of a run. Gold passages that are known by their page only are left as they are.
        index: what is searched; None for nothing, or for what is not open yet and :func:`lies_here`.
        folders: of the index, where it lies here: the passages' store is beside it.

    Raises:
        DataError: for a gold passage by a name that several files have.
    """
    if index is None and not lies_here(folders):
        return list(questions)
    if any(map(is_user_object, folders)):  # a retriever of the user's own knows passages by searching only
        return [each if each.supporting else _by_title(each) for each in questions]
    ids = list(dict.fromkeys(id_ for each in questions if not each.pages for id_ in each.supporting))
    try:
        with ExitStack() as stack:
            look_up = _open_look_up(index, folders, stack)
            if look_up is None:
                return list(questions)
            known_ids = set(await look_up.passages(ids))
            by_title = {each.id: each for each in questions if _wants_titles(each, known_ids)}
            titles = dict.fromkeys(title for each in by_title.values() for title in each.titles)
            present = await look_up.titles(titles) if titles else set()
            # Where all titles are found, ids are hashes, and no names of files.
            found = [each for each in by_title.values() if present.issuperset(each.titles)]
            settled = {id_ for each in found for id_ in each.supporting}
            others = [id_ for id_ in ids if id_ not in known_ids | settled]
            names = _names(folders, stack) if others else None
    except CoragError as error:
        _print(f"gold passages were not looked up in the index: {error}")
        return list(questions)
    by_name = {each: each for each in others if is_name(each)}
    if names is not None:
        by_name = {each: name for each in others if (name := find_name(each, names))}
    known_ids.update(by_name)
    by_title = {name: each for name, each in by_title.items() if _wants_titles(each, known_ids)}
    results = []
    for each in questions:
        if each.id in by_title:
            each = _by_title(each) if present.issuperset(each.titles) else replace(each, supporting=())
        elif not each.pages and not known_ids.issuperset(each.supporting):
            each = replace(each, supporting=())
        results.append(each)
    results = _name(_rename(results, load_aliases(folders)), by_name)
    _print_counts(questions, results, by_title, known_ids | present)
    return results


class OpenIndex:
    """Says what an index has that is open in this process, or a server's."""

    def __init__(self, index: Any) -> None:
        """``index``: a :class:`Retriever`."""
        self._index: Retriever = index

    async def passages(self, ids: Sequence[str]) -> Mapping[str, Passage]:
        """Return the passages of those ids that there are."""
        batches = [await self._index.passages(batch) for batch in _batches(ids)]
        return {passage.id: passage for batch in batches for passage in batch}

    async def titles(self, titles: Collection[str]) -> set[str]:
        """Return those titles that any passage has, or a heading above it: each is searched for."""
        present = set[str]()
        for batch in _batches(list(titles)):
            hits = await asyncio.gather(*(self._index.search(title, _HITS) for title in batch))
            present.update(*(headings(hit.passage.title) for each in hits for hit in each))
        return present & set(titles)


class Sources:
    """Says what indexes have whose texts lie here."""

    def __init__(self, sources: Sequence[PassageStore | LuceneSearcher]) -> None:
        self._sources = sources

    async def passages(self, ids: Sequence[str]) -> Mapping[str, Passage]:
        """Return the passages of those ids that there are."""
        return {
            id_: passage
            for batch in _batches(ids)
            for source in self._sources
            for id_, passage in source.passages(batch).items()
        }

    async def titles(self, titles: Collection[str]) -> set[str]:
        """Return those titles that any passage has, or a heading above it.

        A store is read through, Lucene searched.
        """
        missing = set(titles)  # alone in memory, and only as long as any is: a store may have millions
        for source in self._sources:
            if isinstance(source, PassageStore):
                passages = source.rows(0, len(source))
            else:
                found = (hits for batch in _batches(list(missing)) for hits in source.search(batch, _HITS))
                passages = (hit.passage for hits in found if not isinstance(hits, Exception) for hit in hits)
            while missing and (passage := next(passages, None)):
                missing.difference_update(headings(passage.title))
        return set(titles) - missing


def _open_look_up(
    index: HasFingerprint | None, folders: Sequence[str], stack: ExitStack
) -> OpenIndex | Sources | None:
    """Return what looks passages up, closed with the stack; None where texts are in other processes alone."""
    # The stores first: workers' indexes are not open here, and a server would be sent thousands of ids.
    if not lies_here(folders) and not isinstance(index, RemoteHandle):
        return OpenIndex(index)
    sources: list[PassageStore | LuceneSearcher] = []
    # Without a store an index may be on another machine; with one, what is wrong with it is an error.
    with nullcontext() if lies_here(folders) else suppress(CoragError):
        sources += [source for folder in folders if (source := open_passages(folder))]
    for source in sources:
        stack.callback(source.close)
    return Sources(sources) if sources and len(sources) == len(folders) else None


def _names(folders: Sequence[str], stack: ExitStack) -> set[str] | None:
    """Return what passages of the stores here may be called, such as "file:tr9.md"; None without a store.

    The stores are closed with the stack.
    """
    stores = [PassageStore(Path(folder)) for folder in folders if lies_here([folder])]
    for store in stores:
        stack.callback(store.close)
    small = [store for store in stores if len(store) <= _MAX_PASSAGES]
    names = {name for store in small for row in store.rows(0, len(store)) for name in passage_names(row)}
    return names if stores else None


def _batches(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    return (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))


def lies_here(folders: Sequence[str]) -> bool:
    """Whether gold passages can be looked up before the index is opened, and an engine beside it."""
    return bool(folders) and all(has_store(Path(folder)) for folder in folders)


def _wants_titles(question: Question, known_ids: Collection[str]) -> bool:
    """Whether a question's gold passages are known by title, but not by ids that the index has."""
    if question.pages or not question.titles:
        return False
    return not question.supporting or any(id_ not in known_ids for id_ in question.supporting)


def _by_title(question: Question) -> Question:
    """Return a question with its gold passages by title; as it is, where no titles are known."""
    if question.pages or not question.titles:
        return question
    return replace(question, supporting=tuple(f"{TITLE}{title}" for title in question.titles))


def _print_counts(
    questions: Sequence[Question],
    results: Sequence[Question],
    by_title: Collection[str],
    present: Collection[str],
) -> None:
    """Print how many questions have gold passages by title, and how many have none any more.

    ``by_title``: ids of the questions that wanted titles. ``present``: ids and titles that the index has.
    """
    with_titles = [each for each in results if each.id in by_title and each.supporting]
    if with_titles:
        _print(
            f"the gold passages of {len(with_titles):,} of {len(questions):,} questions have other ids in "
            f"the index: they count by title, such as '{with_titles[0].titles[0]}'."
        )
    pairs = zip(questions, results, strict=True)
    lost = [each for each, now in pairs if (each.supporting or each.id in by_title) and not now.supporting]
    if lost:
        names = lost[0].titles if lost[0].id in by_title else lost[0].supporting
        lacking = next((name for name in names if name not in present), names[0])  # an id may be a title
        _print(
            f"the index lacks gold passages of {len(lost):,} of {len(questions):,} questions, such as "
            f"'{lacking}': they have no recall."
        )


def _name(questions: Sequence[Question], names: Mapping[str, str]) -> list[Question]:
    """Return the questions with gold passages that are given by file, page or title as what they are."""
    return [
        each
        if each.pages or names.keys().isdisjoint(each.supporting)
        else replace(each, supporting=tuple(dict.fromkeys(names.get(id_, id_) for id_ in each.supporting)))
        for each in questions
    ]


def _rename(questions: Sequence[Question], aliases: Aliases) -> list[Question]:
    """Return the questions with gold passages by the ids of the index; print how many it calls otherwise.

    Of passages with the same text an index has one, under the id of the first.
    """
    ids = {id_ for each in questions if not each.pages for id_ in each.supporting if id_ in aliases.same_as}
    if not ids:
        return list(questions)
    first = min(ids)
    _print(
        f"{len(ids):,} gold passages have the same text as another, and stand in the index under its id, "
        f"such as '{first}' under '{aliases.same_as[first]}': that one counts."
    )
    return _name(questions, aliases.same_as)


def _print(line: str) -> None:
    print_line(f"corag: {line}")
