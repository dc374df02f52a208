"""Links between passages: titles that a text mentions, and what they do to a ranking."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from corag.core.protocols import NotedHits
from corag.core.types import Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.index.store import PassageStore, storing
from retrieval.lucene.bm25 import build_lucene
from retrieval.search.pipeline import open_retriever
from retrieval.search.titles import TITLES, HitTitles, TitleTable
from tests.retrieval.conftest import ignore, search, static_encoder, write_jsonl
from tests.retrieval.test_http import served

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


@pytest.mark.slow
async def test_two_hops_are_reached_by_one_search(index: Path) -> None:
    plain = await search(index, QUESTION, 5)
    assert "eason" not in {hit.passage.id for hit in plain}, "it shares no word with the question"
    hits = await search(index, QUESTION, 5, links="titles")
    ids = [hit.passage.id for hit in hits]
    assert ids[0] == "film" and "eason" in ids
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert isinstance(hits, NotedHits)
    assert "'The Prairie King (1927 film)' (named in the query)" in hits.note
    assert "'Reeves Eason' (mentioned in 'The Prairie King (1927 film)')" in hits.note
    everything = [hit.passage.id for hit in await search(index, QUESTION, 40, links="titles")]
    assert len(everything) == len(set(everything)) == len(NOISE) + 2, "no repeats"


@pytest.mark.slow
async def test_what_links_do_is_set_by_options(index: Path) -> None:
    plain = await search(index, QUESTION, 5)
    off = await search(index, QUESTION, 5, links="titles", link_named=0, link_weight=0)
    assert [hit.passage for hit in off] == [hit.passage for hit in plain]
    unlifted = await search(index, QUESTION, 2, links="titles", link_weight=0)
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
    earlier = index / "passages.titles.npy"  # of rules that the titles of documents had no part in
    TitleTable.build([]).save(earlier)
    assert TitleTable.open(index, store).find(QUESTION) == made.find(QUESTION)
    earlier.unlink()
    store.close()


def test_an_index_that_is_updated_meanwhile_gets_no_table_of_the_old_one(tmp_path: Path) -> None:
    folder, updated = tmp_path / "index", tmp_path / "updated"
    for place, passages in ((folder, PASSAGES), (updated, [POINT, EASON])):
        place.mkdir()
        list(storing(passages, place))

    class Replaced(PassageStore):
        def rows(self, start: int, end: int) -> Iterator[Passage]:
            yield from super().rows(start, end)
            shutil.rmtree(folder)
            updated.rename(folder)

    (late,) = TitleTable.open(folder, Replaced(folder)).find("Who is Reeves Eason?")
    (now,) = TitleTable.open(folder, PassageStore(folder)).find("Who is Reeves Eason?")
    assert (late.rows, now.rows) == ((PASSAGES.index(EASON),), (1,))


def own_search(query: str, k: int) -> list[tuple[Passage, float]]:
    """Search as a user's own function does: here, all passages that share a word with the query."""
    words = set(re.findall(r"\w{4,}", query.lower()))
    shared = ((each, len(words & set(re.findall(r"\w+", each.contents.lower())))) for each in PASSAGES)
    ranked = sorted(((each, float(count)) for each, count in shared), key=lambda pair: -pair[1])
    return ranked[:k]


@pytest.mark.slow
async def test_every_kind_of_search_follows_links(index: Path, tmp_path: Path) -> None:
    encoder = static_encoder(tmp_path / "encoder")
    corpus = write_jsonl(tmp_path / "corpus.jsonl", PASSAGES)
    dense = str(tmp_path / "dense")
    build_index(IndexConfig([str(corpus)], out=dense, kind="dense", encoder=encoder), ignore)
    for part in ("1/2", "2/2"):
        out = str(tmp_path / f"part{part[0]}")
        build_index(IndexConfig([str(corpus)], out=out, kind="dense", encoder=encoder, part=part), ignore)
    parts = [str(tmp_path / "part1"), str(tmp_path / "part2")]
    own = "tests.retrieval.test_links:own_search"
    bm25, lucene = str(index), str(tmp_path / "lucene")
    # As Pyserini makes it: without our table of passages.
    build_lucene(PASSAGES, tmp_path / "lucene", 2, ignore)
    for searched in ([own], [bm25, own], [lucene], [dense], [bm25, dense], parts):
        retriever = await open_retriever(RetrieverConfig(searched, links="titles"))
        hits = await retriever.search(QUESTION, 40)
        await retriever.close()
        assert hits[0].passage.id == "film", searched
        assert (
            isinstance(hits, NotedHits) and "'Reeves Eason' (mentioned in 'The Prairie King" in hits.note
        ), searched


@pytest.mark.slow
async def test_passages_of_a_search_server_are_linked_as_far_as_they_are_hits(index: Path) -> None:
    inner = await open_retriever(RetrieverConfig([str(index)], threads=1))
    async with served(inner) as url:
        plain, linked = [
            await open_retriever(RetrieverConfig(url=[url], links=links)) for links in ("none", "titles")
        ]
        ranks = [[hit.passage.id for hit in await each.search(QUESTION, 40)] for each in (plain, linked)]
        assert ranks[0].index("eason") > 20 and ranks[1].index("eason") < 5
        assert sorted(ranks[0]) == sorted(ranks[1]), "nothing else can be had from there"
        whole = await open_retriever(RetrieverConfig([str(index)], links="titles"))
        assert len({each.fingerprint for each in (plain, linked, whole)}) == 3
        for each in (plain, linked, whole):
            await each.close()
    await inner.close()


def test_a_word_above_many_hits_is_no_name_where_no_source_shows_what_it_is() -> None:
    def named(titles: Sequence[str], text: str) -> list[int]:
        hits = HitTitles(Passage(str(row), title, "") for row, title in enumerate(titles))
        return [len(passages) for _, passages in hits.find(text)]

    assert named(["Introduction"] * 6, "The Introduction tells more.") == []
    assert named(["Chicago"] * 3, "It is in Chicago.") == [3]
    assert named(["The Long Chronicle"] * 6, "See The Long Chronicle.") == [6]


@pytest.mark.slow
async def test_a_title_of_many_passages_does_not_flood_the_hits(tmp_path: Path) -> None:
    """A book's one title above all its passages brings two of them, those that fit the query best."""
    book = [Passage(f"b{number}", "The Long Chronicle", f"Chapter {number} of it.") for number in range(60)]
    book[40] = Passage("b40", "The Long Chronicle", "Chapter 40 tells of the lighthouse keeper.")
    lamp = Passage("lamp", "Lamp", "The lighthouse keeper is in The Long Chronicle.")
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [*NOISE, *book, lamp])
    build_index(IndexConfig([str(corpus)], out=str(tmp_path / "bm25")), ignore)
    hits = await search(tmp_path / "bm25", "Who is the lighthouse keeper?", 5, links="titles")
    ids = [hit.passage.id for hit in hits]
    assert "b40" in ids and sum(name.startswith("b") for name in ids) <= 2, ids
