"""An index in parts, each behind a server of its own, is the whole index to whoever asks all of them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from corag.core.errors import BackendError, ConfigError, IndexMismatchError
from corag.core.protocols import Retriever, search_note
from corag.core.types import Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.aliases import Aliases
from retrieval.index.build import build_index
from retrieval.index.manifest import IndexPart, read_manifest, require_all_parts
from retrieval.search.batched import BY_HOP_ENCODER
from retrieval.search.pipeline import open_retriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, static_encoder, write_jsonl
from tests.retrieval.test_http import served

COUNT, PASSAGES = 4, 20_000
WORDS = [f"{first}{last}" for first in ("bar", "cor", "dun", "fen", "gal") for last in ("as", "el", "ith")]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return static_encoder(tmp_path_factory.mktemp("static"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 passages, a tenth of them equal to another but for upper case, often parts away."""
    chance = random.Random(5)
    passages: list[Passage] = []
    for number in range(PASSAGES):
        if number % 10 == 9:
            letters = list(chance.choice(passages).text)
            for place in chance.sample(range(len(letters)), 12):
                letters[place] = letters[place].swapcase()
            text = "".join(letters)
        else:
            text = " ".join([*chance.choices(WORDS, k=6), str(chance.randrange(900)), "river"])
        passages.append(Passage(f"p{number}", "", text))
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", passages)


def built(corpus: Path, encoder: str, out: Path, **more: object) -> str:
    options = {"kind": "dense", "encoder": encoder, "shard_size": 5_000, **more}
    build_index(IndexConfig([str(corpus)], str(out), **options), ignore)  # type: ignore[arg-type]
    return str(out)


@asynccontextmanager
async def served_parts(folders: Sequence[str], hop_encoder: str = "") -> AsyncIterator[list[str]]:
    async with AsyncExitStack() as stack:
        urls = []
        for folder in folders:
            part = await open_retriever(RetrieverConfig([folder], hop_encoder=hop_encoder), part_alone=True)
            stack.push_async_callback(part.close)
            urls.append(await stack.enter_async_context(served(part)))
        yield urls


async def rankings(retriever: Retriever, k: int) -> list[list[tuple[str, float]]]:
    """One after another: in a batch, equal vectors may get scores that differ in the last bit."""
    chance = random.Random(7)
    found = []
    for _ in range(25):
        query = f"{' '.join(chance.choices(WORDS, k=4))} {chance.randrange(900)}"
        found.append([(hit.passage.id, hit.score) for hit in await retriever.search(query, k)])
    return found


@pytest.mark.slow
async def test_four_served_flat_parts_rank_as_one_flat_index(
    corpus: Path, encoder: str, tmp_path: Path
) -> None:
    whole = await open_retriever(RetrieverConfig([built(corpus, encoder, tmp_path / "whole")]))
    parts = [
        built(corpus, encoder, tmp_path / f"part{number}", part=f"{number}/{COUNT}")
        for number in range(1, COUNT + 1)
    ]
    async with served_parts(parts) as urls:
        # In whatever order they are named, in the option for folders too, and with two servers of a part.
        asked = await open_retriever(RetrieverConfig([urls[2], urls[0], urls[3], urls[1], urls[2]]))
        assert asked.fingerprint == whole.fingerprint, "a run over parts is the run over the whole"
        for k in (10, 150):
            expected = await rankings(whole, k)
            assert await rankings(asked, k) == expected
            ties = [pair for hits in expected for pair in pairwise(hits) if pair[0][1] == pair[1][1]]
            assert len(ties) > 10, "equal scores are among them"
            far = [pair for pair in ties if _part_of(pair[0]) != _part_of(pair[1])]
            assert far, "also of passages in different parts"
            assert all(int(one[0][1:]) < int(two[0][1:]) for one, two in ties), "the earlier one first"
        wanted = ["p19999", "nobody", "p0", "p7000"]
        assert [each.id for each in await asked.passages(wanted)] == ["p19999", "p0", "p7000"]

        with raises_message(IndexMismatchError):
            await open_retriever(RetrieverConfig(url=[urls[0], urls[2]]))
        with raises_message(IndexMismatchError):
            await open_retriever(RetrieverConfig([parts[0]]))  # nobody searches a part by mistake
        here = await open_retriever(RetrieverConfig(parts))
        assert here.fingerprint == whole.fingerprint and await rankings(here, 10) == await rankings(whole, 10)
        impatient = await open_retriever(RetrieverConfig(url=urls, retries=1, timeout_s=2))
    # A part's server has ended: no answer rather than one from three quarters of the corpus.
    with raises_message(BackendError):
        await impatient.search("baras corel", 3)
    for each in (whole, asked, here, impatient):
        await each.close()


def _part_of(hit: tuple[str, float]) -> int:
    return int(hit[0][1:]) * COUNT // PASSAGES


@pytest.mark.slow
async def test_a_part_served_alone_has_its_hop_encoder_and_is_not_re_ranked(
    encoder: str, tmp_path: Path
) -> None:
    few = write_jsonl(tmp_path / "few.jsonl", [Passage(word, "", word) for word in WORDS])
    parts = [built(few, encoder, tmp_path / number, part=f"{number}/2") for number in "12"]
    with raises_message(ConfigError):
        await open_retriever(RetrieverConfig(parts[:1], reranker=str(tmp_path)), part_alone=True)
    here = await open_retriever(RetrieverConfig(parts, hop_encoder=encoder))
    async with served_parts(parts, encoder) as urls:
        there = await open_retriever(RetrieverConfig(urls))
        assert there.has_hops and there.fingerprint == here.fingerprint
        assert search_note(await there.search(WORDS[0], 1, hop=True)) == BY_HOP_ENCODER
        await there.close()
    await here.close()


@pytest.mark.parametrize(
    "other", [IndexPart(2, 2, "another"), IndexPart(2, 3, "whole"), IndexPart(1, 2, "whole"), None], ids=str
)
def test_parts_of_several_indexes_or_not_of_all_of_one_are_refused(other: IndexPart | None) -> None:
    with raises_message(IndexMismatchError):
        require_all_parts({"one": IndexPart(1, 2, "whole"), "other": other})


def test_addresses_and_folders_are_not_mixed() -> None:
    assert RetrieverConfig(["http://a:1", "https://b"]).url == ["http://a:1", "https://b"]
    with raises_message(ConfigError):
        RetrieverConfig(["http://a:1", "indexes/b"])


@pytest.mark.slow
def test_the_notes_of_a_part_say_which_counts_are_the_whole_corpus(tmp_path: Path, encoder: str) -> None:
    passages = [Passage(f"p{number}", "", f"The river {number} ends.") for number in range(4)]
    passages += [Passage("again1", "", passages[1].text), Passage("again2", "", passages[2].text)]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", passages)
    folder = Path(built(corpus, encoder, tmp_path / "part2", part="2/2"))
    manifest = read_manifest(folder)
    assert manifest is not None and manifest.passages == 2
    assert manifest.notes[:2] == (
        "Part 2/2: 2 passages, numbers 3 to 4 of the corpus's 4.",
        "Of the whole corpus: 4 passages kept; dropped: 2 with a title and text already seen.",
    )
    assert Aliases.load(folder) == Aliases({"again2": "p2"})
