"""Encoders and re-rankers behind a URL, as vLLM, TEI and Ollama serve them."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corag.core.errors import (
    BackendError,
    ConfigError,
    IndexMismatchError,
    RequestRefusedError,
    SearchFailedError,
)
from corag.core.types import Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.dense.encoder import Encoder
from retrieval.dense.placement import Placement
from retrieval.dense.search import FaissIndex
from retrieval.dense.vector_check import sample_rows
from retrieval.http import models
from retrieval.http.models import ServedEncoder, ServedReranker
from retrieval.index.build import build_index
from retrieval.index.manifest import read_manifest
from retrieval.search.pipeline import open_retriever
from tests.messages import raises_message
from tests.retrieval import model_servers
from tests.retrieval.conftest import ignore, search, static_encoder, write_jsonl
from tests.retrieval.model_servers import Kind, ModelStandIn, score_of, vector_of
from tests.serving import free_port

SOON = Placement(timeout_s=2.0, retries=2)
KINDS: tuple[Kind, ...] = ("vllm", "tei", "ollama")
TOWNS = [Passage(str(i), f"Town{i}", f"Town{i} lies on the river number{i}.") for i in range(80)]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_PAUSE_S", 0.001)


def built(url: str, tmp_path: Path, name: str = "index", **options: Any) -> str:
    """Index the towns with a served encoder."""
    corpus, out = write_jsonl(tmp_path / "corpus.jsonl", TOWNS), str(tmp_path / name)
    build_index(IndexConfig([str(corpus)], out, kind="dense", encoder=url, **options), ignore)
    return out


async def best(folder: str, query: str, **options: Any) -> list[str]:
    return [hit.id for hit in await search(folder, query, timeout_s=2, retries=2, **options)]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_index_is_built_and_searched_with_a_served_encoder(kind: Kind, tmp_path: Path) -> None:
    with ModelStandIn(kind) as server:
        folder = built(f"{server.url}/v1", tmp_path)
        manifest = read_manifest(Path(folder))
        assert manifest is not None
        assert manifest.settings.encoder == f"{server.url}/v1#BAAI/bge-m3", "server and model are on record"
        assert manifest.settings.dimension == 64
        assert (await best(folder, "Town17 river number17"))[0] == "17"
        sizes = [len(body["input"]) for _, body in server.asked]
        assert max(sizes) == 32 and len(sizes) <= 8, "batches, and no more than TEI takes"
        assert all("dimensions" not in body for _, body in server.asked)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_have_length_1_and_the_texts_order(kind: Kind) -> None:
    texts = [f"Town{i} lies on river {i}" for i in range(70)]
    with ModelStandIn(kind) as server:
        vectors = ServedEncoder(server.url, SOON).encode(texts, prompt="query: ")
    expected = np.stack([vector_of(f"query: {text}", 64) for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors.dtype == np.float32 and np.allclose(vectors, expected, atol=1e-6)


def test_vllm_cuts_what_is_too_long_as_the_others_do() -> None:
    with ModelStandIn("vllm") as server:
        long, begin = ServedEncoder(server.url, SOON).encode(["word " * 40 + "river " * 40, "word " * 40])
        assert np.allclose(long, begin)
        scores = ServedReranker(server.url, SOON).score([("river", ["word " * 90, "a river"])])
        assert scores[0] == [0.0, 1.0]


async def test_an_index_of_a_server_is_opened_with_the_same_model_here(
    tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Encoder(tiny_encoder)
    monkeypatch.setattr(model_servers, "vector_of", lambda text, _: local.encode([text])[0])
    with ModelStandIn("vllm") as server:
        folder = built(server.url, tmp_path)
    assert (await best(folder, TOWNS[17].contents, encoder=tiny_encoder))[0] == "17"


@pytest.mark.parametrize("made_by", ["IVF16,SQ8", "HNSW8_SQ8"])
def test_the_check_of_vectors_leaves_searches_as_deep_as_they_are_set(made_by: str, tmp_path: Path) -> None:
    import faiss

    encoder = Encoder(static_encoder(tmp_path / "static"))
    towns = [Passage(str(i), f"Town{i}", f"Town{i} lies on the river number{i}.") for i in range(700)]
    vectors = encoder.encode([town.contents for town in towns])
    index = faiss.index_factory(64, made_by, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "index"))
    found = {}
    for depth in (1, 64):
        opened = FaissIndex(tmp_path / "index", str, ef_search=depth, nprobe=depth, threads=1)
        found[depth] = opened.search(vectors[:20], 100)
        opened.check("the vectors", [towns[row] for row in sample_rows(700)], encoder, prefix="")
        assert opened.search(vectors[:20], 100) == found[depth]
    assert found[1] != found[64], "the depth tells"


async def test_connections_end_with_the_last_retriever_that_has_them(tmp_path: Path) -> None:
    with ModelStandIn("vllm") as encoder, ModelStandIn("hosted") as reranker:
        config = RetrieverConfig([built(encoder.url, tmp_path)], reranker=f"{reranker.url}#bge-m3")
        first, second = await open_retriever(config), await open_retriever(config)
        for each in (first, second):
            await each.search("Town17", 3)
        await first.close()
        assert [hit.id for hit in await second.search("Town18 lies on", 1)] == ["18"], "they share an encoder"
        assert encoder.connections and reranker.connections
        await second.close()
        await second.close()
        for _ in range(100):
            if not encoder.connections and not reranker.connections:
                break
            await asyncio.sleep(0.05)
        assert not encoder.connections and not reranker.connections


async def test_a_refused_text_is_named_and_the_others_are_answered(tmp_path: Path) -> None:
    with ModelStandIn("hosted") as server:
        folder, long = built(server.url, tmp_path), "river " * 90
        retriever = await open_retriever(RetrieverConfig([folder], timeout_s=2, retries=0))
        asked = await asyncio.gather(
            *(retriever.search(query, 3) for query in ("Town17", long, "Town18 lies on")),
            return_exceptions=True,
        )
        assert isinstance(asked[1], SearchFailedError) and "maximum context length" in str(asked[1])
        assert [hits[0].id for hits in (asked[0], asked[2])] == ["17", "18"]  # type: ignore[index]
        await retriever.close()
        with raises_message(RequestRefusedError):
            ServedEncoder(server.url, SOON).encode(["a town", long, "a river"])


async def test_the_server_may_move_but_not_serve_another_model(tmp_path: Path) -> None:
    with ModelStandIn("vllm") as server, ModelStandIn("tei") as moved:
        folder = built(server.url, tmp_path)
        assert (await best(folder, "Town17", encoder=moved.url))[0] == "17"
        with ModelStandIn("vllm", dimension=32) as other, raises_message(IndexMismatchError):
            await best(folder, "Town17", encoder=other.url)
        renamed = ModelStandIn("vllm", models=["bge-m3"])
        with renamed:
            assert (await best(folder, "Town17", encoder=renamed.url))[0] == "17", "its vectors are the same"
        unlike = ModelStandIn("vllm")
        unlike.garble = lambda reply: {
            **reply,
            "data": [each | {"embedding": [1.0] * 64} for each in reply["data"]],
        }
        with unlike, raises_message(IndexMismatchError):
            await best(folder, "Town17", encoder=unlike.url)


def test_of_several_models_one_is_named() -> None:
    with ModelStandIn("ollama", models=["nomic-embed-text:latest", "qwen3-embedding:0.6b"]) as server:
        with raises_message(ConfigError):
            ServedEncoder(f"{server.url}/v1", SOON)
        encoder = ServedEncoder(f"{server.url}/v1#nomic-embed-text:latest", SOON)
        assert encoder.resolve_prompt("auto", "document") == "search_document: ", "known by its name"
        with raises_message(BackendError):
            ServedEncoder(f"{server.url}/v1#no-such-model", SOON)


@pytest.mark.parametrize("server_of", [ServedEncoder, ServedReranker])
def test_a_server_of_another_model_than_the_named_one_is_refused(server_of: Any) -> None:
    """TEI ignores the name of a request: an index would go by a model that never saw it."""
    if server_of is ServedEncoder:
        with ModelStandIn("tei") as server:
            with raises_message(ConfigError):
                server_of(f"{server.url}#intfloat/e5-base", SOON)
            assert server_of(f"{server.url}#bge-m3", SOON).fingerprint
    with ModelStandIn("hosted", models=["bge-m3:latest", "other"]) as server:
        server.garble = lambda reply: reply | {"model": "org/other"}
        with raises_message(ConfigError):
            server_of(f"{server.url}#bge-m3:latest", SOON)
        for name in ("bge-m3", "org/BGE-M3", ""):  # a tag less, an owner more, no name
            server.garble = lambda reply, name=name: reply | {"model": name}
            assert server_of(f"{server.url}#bge-m3:latest", SOON).fingerprint
    with ModelStandIn("vllm", models=["mine"]) as server:
        server.garble = lambda reply: reply | {"model": "its first name"}
        assert server_of(f"{server.url}#mine", SOON).fingerprint


def test_keys_come_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORAG_ENCODER_API_KEY", "sk-encoder")
    with ModelStandIn("vllm") as server:
        ServedEncoder(server.url, SOON)
        assert server.headers["authorization"] == "Bearer sk-encoder"
        ServedReranker(server.url, SOON)
        assert "authorization" not in server.headers, "another provider's key is not shown to this one"
        server.faults = iter([401])
        with raises_message(BackendError):
            ServedReranker(server.url, SOON)
    for address in ("http://bob:secret@localhost:8000", "http://localhost:8000?key=secret"):
        with raises_message(ConfigError):
            ServedEncoder(address, SOON)


def test_a_busy_server_is_asked_again_and_a_dead_one_told_in_a_sentence() -> None:
    with ModelStandIn("tei") as server:
        encoder = ServedEncoder(server.url, SOON)
        server.faults = iter([429, 503])
        assert encoder.encode(["a river"]).shape == (1, 64)
        server.faults = iter([503] * 9)
        with raises_message(BackendError):
            encoder.encode(["a river"])
    with raises_message(BackendError):
        ServedEncoder(f"http://127.0.0.1:{free_port()}/v1", SOON)
    for kind in ("ollama", "tei"):  # the one has no such address, the other a protocol of its own
        with ModelStandIn(kind) as server, raises_message(BackendError):
            ServedReranker(server.url, SOON)


MALFORMED: dict[str, Callable[[Any], Any]] = {
    "a page": lambda reply: "<html>Welcome</html>",
    "one too few": lambda reply: reply | {"data": reply["data"][1:]},
    "twice the same": lambda reply: reply | {"data": [reply["data"][0]] * len(reply["data"])},
    "null": lambda reply: reply | {"data": [each | {"embedding": None} for each in reply["data"]]},
    "half a number": lambda reply: reply | {"data": [each | {"embedding": "AAA="} for each in reply["data"]]},
    "another model": lambda reply: reply | {"model": "other"},
    "another dimension": lambda reply: (
        reply | {"data": [each | {"embedding": [1.0] * 8} for each in reply["data"]]}
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_replies_that_are_none_are_told_in_a_sentence(name: str) -> None:
    with ModelStandIn("vllm") as server:
        encoder = ServedEncoder(server.url, SOON)
        server.garble = MALFORMED[name]
        with raises_message(BackendError):
            encoder.encode(["a river", "a town"])


@pytest.fixture
def queries() -> Iterator[list[tuple[str, list[str]]]]:
    yield [(f"Town{i} river", [town.contents for town in TOWNS[: 3 + 20 * i]]) for i in range(4)]


@pytest.mark.parametrize("kind", ["vllm", "hosted"])
def test_scores_are_in_the_passages_order(kind: Kind, queries: list[tuple[str, list[str]]]) -> None:
    with ModelStandIn(kind) as server:
        reranker = ServedReranker(f"{server.url}#BAAI/bge-m3", SOON)
        scores = reranker.score(queries)
        assert scores == [[score_of(query, text) for text in texts] for query, texts in queries]
        assert ServedReranker(f"{server.url}/rerank#BAAI/bge-m3", SOON).fingerprint == reranker.fingerprint


@pytest.mark.parametrize("kind", ["vllm", "hosted"])
async def test_hits_of_any_index_are_re_ranked_by_a_server(
    kind: Kind, index_of: Callable[[str], str]
) -> None:
    query = "Town03 lies on the river"
    with ModelStandIn(kind) as server:
        address = f"{server.url}/rerank#BAAI/bge-m3"
        retriever = await open_retriever(RetrieverConfig([index_of("bm25")], reranker=address))
        hits = await retriever.search(query, 3)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert hits[0].score == score_of(query, hits[0].passage.contents) > 0
        server.garble = lambda reply: {"results": []}
        with raises_message(BackendError):
            await retriever.search("another query of the river", 3)
        await retriever.close()
