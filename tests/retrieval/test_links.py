"""Links between passages: titles that a text mentions, and what they do to a ranking."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.protocols import NotedHits
from corag.core.types import Hit, Passage
from retrieval.build import build_index
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.open import open_retriever
from retrieval.store import PassageStore
from retrieval.title_links import TITLES, TitleTable
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, write_jsonl

FILM = Passage(
    "film", "The Prairie King (1927 film)", "A silent western directed by Reeves Eason for a studio."
)
EASON = Passage("eason", "Reeves Eason", "He was born in Friars Point and died in California in 1956.")
POINT = Passage("point", "Friars Point, Mississippi", "A town on the river, with a museum.")
NOISE = [
    Passage(f"n{number}", f"Directors {number}", "Where was the director of a king of films born, and why?")
    for number in range(30)
]
PASSAGES = [*NOISE, FILM, EASON, POINT]
QUESTION = "Where was the director of The Prairie King born?"


def mentions(titles: Sequence[str], text: str) -> list[tuple[str, tuple[int, ...]]]:
    table = TitleTable.build(Passage(str(row), title, "") for row, title in enumerate(titles))
    return [(each.text, each.rows) for each in table.find(text)]


def test_titles_are_found_as_texts_spell_them() -> None:
    titles = [
        "Titanic (1997 film)",
        "Titanic (1953 film)",
        "Pan's Labyrinth",
        "Ran",
        "Where",
        "東京タワー",
        "",
    ]
    assert mentions(titles, "TITANIC came before Pan’s Labyrinth.") == [
        ("TITANIC", (0, 1)), ("Pan’s Labyrinth", (2,)),
    ]  # fmt: skip
    assert mentions(titles, "Ran is short") == [], "a common word"
    assert mentions(titles, "she knows where a titanic ship is. No.") == [], (
        "words without a capital are no names"
    )
    assert mentions(titles, "who directed titanic") == [("titanic", (0, 1))], "unless nothing has one"
    assert mentions(titles, "東京タワーは高い") == [("東京タワー", (5,))]
    assert mentions([], "Titanic") == mentions(titles, "") == []


def test_the_longest_title_counts_and_one_that_is_everywhere_is_no_name() -> None:
    titles = ["New York", "New York City", "York City Council", *["Introduction", "Oslo"] * 4]
    assert mentions(titles, "The New York City Council met. Introduction: Oslo") == [("New York City", (1,))]
    article = ["Whole Article"] * 9
    assert mentions(article, "the Whole Article") == [("Whole Article", tuple(range(9)))]


def test_documents_are_named_by_their_files_and_innermost_headings() -> None:
    passages = [
        Passage("a", "Handbook", "", "hr/staff-handbook.pdf", 1),
        Passage("b", "Handbook > Results", "", "hr/staff-handbook.pdf", 2),
        Passage("c", "Handbook > Parental Leave", "", "hr/staff-handbook.pdf", 3),
    ]
    table = TitleTable.build(passages)
    text = "Results: see Parental Leave in Staff-Handbook.pdf"
    assert [(each.text, each.rows) for each in table.find(text)] == [
        ("Parental Leave", (2,)), ("Staff-Handbook.pdf", (0,)),
    ]  # fmt: skip


def find_slowly(titles: Sequence[str], text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return what :meth:`TitleTable.find` returns, of words of ASCII letters without case."""
    words = list(re.finditer(r"[a-z]+", text))
    found, start = [], 0
    while start < len(words):
        for end in range(len(words), start, -1):
            span = [word[0] for word in words[start:end]]
            rows = tuple(row for row, title in enumerate(titles) if title.split() == span)
            if rows and (len(span) > 1 or len(span[0]) >= 5):
                found.append((text[words[start].start() : words[end - 1].end()], rows))
                start = end - 1
                break
        start += 1
    return found


def test_the_table_agrees_with_a_search_for_every_title() -> None:
    chance = random.Random(7)
    for _ in range(60):
        words = ["alpha", "beta", "gamma", "of", "x"]
        titles = [" ".join(chance.choices(words, k=chance.randint(1, 4))) for _ in range(12)]
        titles = list(dict.fromkeys(titles))  # a title in many places is no name
        text = " ".join(chance.choices(words, k=30))
        assert mentions(titles, text) == find_slowly(titles, text)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links")
    corpus = write_jsonl(folder / "corpus.jsonl", PASSAGES)
    build_index(IndexConfig([str(corpus)], out=str(folder / "bm25")), ignore)
    return folder / "bm25"


async def search(query: str, k: int, index: Path, **options: object) -> Sequence[Hit]:
    retriever = await open_retriever(RetrieverConfig([str(index)], **options))  # type: ignore[arg-type]
    try:
        return await retriever.search(query, k)
    finally:
        await retriever.close()


@pytest.mark.slow
async def test_two_hops_are_reached_by_one_search(index: Path) -> None:
    plain = await search(QUESTION, 5, index)
    assert "eason" not in {hit.passage.id for hit in plain}, "it shares no word with the question"
    hits = await search(QUESTION, 5, index, links="titles")
    ids = [hit.passage.id for hit in hits]
    assert ids[0] == "film" and "eason" in ids
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert isinstance(hits, NotedHits)
    assert "'The Prairie King (1927 film)' (named in the query)" in hits.note
    assert "'Reeves Eason' (mentioned in 'The Prairie King (1927 film)')" in hits.note
    everything = [hit.passage.id for hit in await search(QUESTION, 40, index, links="titles")]
    assert len(everything) == len(set(everything)) == len(NOISE) + 2, "no repeats"


@pytest.mark.slow
async def test_what_links_do_is_set_by_options(index: Path) -> None:
    plain = await search(QUESTION, 5, index)
    off = await search(QUESTION, 5, index, links="titles", link_named=0, link_weight=0)
    assert [hit.passage for hit in off] == [hit.passage for hit in plain]
    unlifted = await search(QUESTION, 2, index, links="titles", link_weight=0)
    others = [hit.passage.id for hit in plain if hit.passage != FILM]
    assert [hit.passage.id for hit in unlifted] == ["film", others[0]]
    fingerprints = set()
    for seeds in (1, 2):
        retriever = await open_retriever(RetrieverConfig([str(index)], links="titles", link_seeds=seeds))
        fingerprints.add(retriever.fingerprint)
        await retriever.close()
    assert len(fingerprints) == 2, "runs of one are not resumed with the other"


@pytest.mark.slow
def test_the_table_is_kept_and_made_again_if_it_is_torn(index: Path) -> None:
    store = PassageStore(index)
    made = TitleTable.open(index, store)
    (index / TITLES).write_bytes((index / TITLES).read_bytes()[:-3])
    assert TitleTable.open(index, store).find(QUESTION) == made.find(QUESTION)
    assert np.load(index / TITLES).shape == (2, len(PASSAGES)), "whole again"
    store.close()


@pytest.mark.slow
async def test_where_there_are_no_titles_links_are_refused(
    index: Path, index_of: Callable[[str], str]
) -> None:
    for config in (
        RetrieverConfig([str(index), "tests.fakes:searching"], links="titles"),
        RetrieverConfig(url=["http://127.0.0.1:9"], links="titles"),
    ):
        with raises_message(ConfigError):
            await open_retriever(config)
    lucene = index.parent / "lucene"  # as Pyserini makes it
    lucene.mkdir()
    for file in index.iterdir():
        if file.name.startswith(("_", "segments")):
            (lucene / file.name).write_bytes(file.read_bytes())
    with raises_message(IndexMismatchError):
        await open_retriever(RetrieverConfig([str(lucene)], links="titles"))
