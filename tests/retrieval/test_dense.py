"""Dense search: FAISS against a brute-force oracle, Pyserini's layout, resumable encoding."""

import asyncio
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.types import Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.dense.build import INDEX
from retrieval.dense.encoder import Encoder, encoder_folder
from retrieval.dense.faiss_build import build_faiss, count_ivf_lists
from retrieval.dense.fingerprint import model_fingerprint
from retrieval.dense.placement import Precision
from retrieval.dense.ready_vectors import ReadyVectors, open_vectors
from retrieval.dense.search import FaissIndex
from retrieval.index.build import build_index
from retrieval.index.place import building_folder
from retrieval.index.store import PassageStore, storing
from retrieval.search.pipeline import open_retriever
from retrieval.search.rerank import RerankedRetriever
from tests.fakes import WordRetriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, static_encoder

pytestmark = pytest.mark.slow

QUERIES = [
    "Which river flows through Town03?",
    "who started out selling honey",
    "an old bridge",
    "Town21 mayor",
]


async def test_faiss_flat_equals_brute_force(index_of: Callable[[str], str], passages: list[Passage]) -> None:
    encoder = Encoder("default")
    vectors = encoder.encode([passage.contents for passage in passages])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    scores = encoder.encode(QUERIES) @ vectors.T
    retriever = await open_retriever(RetrieverConfig([index_of("dense")]))
    together = await asyncio.gather(*(retriever.search(query, 10) for query in QUERIES))
    for row, hits in zip(scores, together, strict=True):
        best = np.argsort(-row, kind="stable")[:10]
        assert [hit.score for hit in hits] == pytest.approx(row[best].tolist(), abs=1e-5)
        assert {hit.passage for hit in hits[:9]} <= {passages[place] for place in best}  # the tenth may tie
    assert [len(await retriever.search(QUERIES[0], k)) for k in (1, 500)] == [1, len(passages)]
    assert await retriever.search("  ", 5) == ()
    await retriever.close()


async def test_pyserinis_layout_in_both_directions(index_of: Callable[[str], str], tmp_path: Path) -> None:
    ours, texts = await open_retriever(RetrieverConfig([index_of("dense")])), index_of("bm25")  # starts Java
    from pyserini.search.faiss import FaissSearcher

    pyserini = FaissSearcher(index_of("dense"), query_encoder=object())
    vector = Encoder("default").encode([QUERIES[0]])
    expected = [
        (hit.passage.id, pytest.approx(hit.score, abs=1e-5)) for hit in await ours.search(QUERIES[0], 5)
    ]
    assert [(hit.docid, hit.score) for hit in pyserini.search(vector, 5)] == expected

    bare = tmp_path / "prebuilt"
    bare.mkdir()
    for name in ("index", "docid"):
        shutil.copy(Path(index_of("dense"), name), bare / name)
    with raises_message(IndexMismatchError):
        await open_retriever(RetrieverConfig([str(bare)]))
    theirs = await open_retriever(RetrieverConfig([str(bare)], encoder="default", passages_from=texts))
    assert await theirs.search(QUERIES[0], 5) == await ours.search(QUERIES[0], 5)
    await ours.close()
    await theirs.close()


async def test_a_folder_of_pyserinis_is_searched_by_the_encoder_that_made_it(
    index_of: Callable[[str], str], passages: list[Passage], tmp_path: Path
) -> None:
    """Right in dimension and count, but pooled otherwise: as DPR's folders are with a bare model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    model = SentenceTransformer(str(encoder_folder("default")), device="cpu")
    model[1] = Pooling(384, pooling_mode="cls")
    model.save(str(tmp_path / "first_token"))
    bare = tmp_path / "prebuilt"
    bare.mkdir()
    shutil.copy(Path(index_of("dense"), "docid"), bare)
    vectors = Encoder(str(tmp_path / "first_token")).encode([passage.contents for passage in passages])
    for kind in ("Flat", "IVF4,Flat"):
        index = faiss.index_factory(384, kind, faiss.METRIC_INNER_PRODUCT)
        index.train(vectors)
        index.add(vectors)
        faiss.write_index(index, str(bare / "index"))
        config = RetrieverConfig([str(bare)], encoder="default", passages_from=index_of("bm25"))
        with raises_message(IndexMismatchError):
            await open_retriever(config)
        # Whoever says that passages have an encoder of their own has it checked.
        by_passages = replace(config, passage_encoder=str(tmp_path / "first_token"))
        await (await open_retriever(by_passages)).close()
        await (await open_retriever(replace(config, encoder=str(tmp_path / "first_token")))).close()


def clustered_shards(folder: Path, rows: int = 10_000) -> tuple[ReadyVectors, NDArray[np.float32]]:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(200, 32))
    noise = 0.4 * generator.normal(size=(rows, 32))
    vectors = (centres[generator.integers(200, size=rows)] + noise).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    files = []
    for number, part in enumerate(np.array_split(vectors, 3)):
        files.append(folder / f"{number}.npy")
        np.save(files[-1], part)
    return open_vectors(files, 32, "encoder"), vectors


def test_indexes_that_are_not_exact_find_most_true_neighbours(tmp_path: Path) -> None:
    """And those that are compressed find nearly all, once candidates are scored by the vectors themselves."""
    shards, vectors = clustered_shards(tmp_path)
    truth = np.argsort(-(vectors[:50] @ vectors.T), axis=1)[:, :10]
    for kind, refine, least, most in (
        ("flat", None, 1.0, 1.0),
        ("hnsw", None, 0.95, 1.0),
        ("sq8", None, 0.95, 1.0),
        ("ivfpq", "none", 0.7, 0.9),
        ("ivfpq", "sq8", 0.96, 1.0),
        ("ivfpq", "fp16", 0.98, 1.0),
    ):
        config = IndexConfig(
            [], "", kind="dense", faiss=kind, refine=refine, pq_bytes=16, hnsw_ef_construction=40, threads=2
        )  # type: ignore[arg-type]
        folder = tmp_path / f"{kind}-{refine}"
        folder.mkdir()
        note = build_faiss(shards, folder, config)
        index = FaissIndex(folder / INDEX, str, ef_search=128, nprobe=128, threads=2)
        hits = index.search(vectors[:50], 10)
        names = [{int(name) for name, _ in matches} for matches in hits]
        recall = np.mean([len(each & set(row)) / 10 for each, row in zip(names, truth.tolist(), strict=True)])
        assert least <= recall <= most, (kind, refine)
        if kind == "flat":
            assert note == ""
        else:
            told = re.match(
                r"recall@10 of 1,000 of its own vectors against exact search: (0\.\d+|1\.000)", note
            )
            assert told and float(told[1]) == pytest.approx(recall, abs=0.05)
        if refine == "fp16":
            row, score = hits[0][0]
            assert score == pytest.approx(float(vectors[0] @ vectors[int(row)]), abs=1e-3)
        index.close()


def test_which_of_equal_vectors_are_found_does_not_matter(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 16)).astype(np.float32)
    np.save(
        tmp_path / "0.npy", np.repeat(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 25, axis=0)
    )
    config = IndexConfig([], "", kind="dense", faiss="sq8", threads=1)
    note = build_faiss(open_vectors([tmp_path / "0.npy"], 16, "encoder"), tmp_path, config)
    assert note == "recall@10 of 750 of its own vectors against exact search: 1.000."


def test_a_refined_index_pads_where_it_finds_too_few(tmp_path: Path) -> None:
    shards, vectors = clustered_shards(tmp_path)
    config = IndexConfig([], "", kind="dense", faiss="ivfpq", pq_bytes=16, ivf_lists=256, threads=2)
    build_faiss(shards, tmp_path, config)
    index = FaissIndex(tmp_path / INDEX, str, ef_search=1, nprobe=1, threads=2)
    (hits,) = index.search(vectors[:1], 2_000)  # of one list of 256
    assert 0 < len(hits) < 2_000 and [score for _, score in hits] == sorted(
        [s for _, s in hits], reverse=True
    )
    index.close()


def test_what_cannot_be_trained_is_refused_before_encoding(corpus: Path, tmp_path: Path) -> None:
    with raises_message(ConfigError):
        build_index(IndexConfig([str(corpus)], str(tmp_path / "out"), kind="dense", faiss="ivfpq"), ignore)
    with raises_message(ConfigError):
        count_ivf_lists(IndexConfig([], "", pq_bytes=60), 20_000, 384)


def test_encoding_goes_on_where_it_was_interrupted(
    corpus: Path, index_of: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.dense.build._REPORT_EVERY_S", 0.0)
    out = str(tmp_path / "dense")
    config = IndexConfig([str(corpus)], out, kind="dense", shard_size=32, overwrite=True)
    told: list[str] = []

    def interrupt(line: str) -> None:
        told.extend([line] if "encoded" in line else ())
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(config, interrupt)
    first = building_folder(tmp_path / "dense") / "shards" / "000000000000.npy"
    written = first.stat().st_mtime_ns
    assert written and told[0].startswith("32 of 72 passages encoded")
    with raises_message(IndexMismatchError):
        build_index(replace(config, shard_size=16, overwrite=False), ignore)
    told.clear()
    stamps: list[int] = []

    def watch(line: str) -> None:
        if "encoded" in line:
            told.append(line)
            stamps.append(first.stat().st_mtime_ns)

    build_index(config, watch)
    assert told[0].startswith("64 of 72 passages encoded") and set(stamps) == {written}
    assert Path(config.out, "index").read_bytes() == Path(index_of("dense"), "index").read_bytes()
    assert not (tmp_path / "dense" / "shards").exists()


async def test_searching_with_another_encoder_is_refused(
    index_of: Callable[[str], str], tiny_encoder: str
) -> None:
    with raises_message(IndexMismatchError):
        await open_retriever(RetrieverConfig([index_of("dense")], encoder=tiny_encoder))
    same = await open_retriever(RetrieverConfig([index_of("dense")], encoder=str(encoder_folder("default"))))
    await same.close()


def test_passages_longer_than_the_encoder_reads_are_counted(tmp_path: Path, tiny_encoder: str) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "text": "short"}\n{"id": "2", "text": "%s"}\n' % ("word " * 40))
    told: list[str] = []
    manifest = build_index(
        IndexConfig(
            [str(corpus)], str(tmp_path / "out"), kind="dense", encoder=tiny_encoder, max_passage_tokens=32
        ),
        told.append,
    )
    note = (
        "1 of 2 passages are longer than the 32 tokens that the encoder reads: their ends, 22.2% of all "
        "tokens, are in no vector."
    )
    assert told.count(note) == 1 and note in manifest.notes, "3 and 42 tokens, of which 10 are cut"
    assert told.index(note) < next(n for n, line in enumerate(told) if "passages encoded" in line)
    with raises_message(ConfigError):
        Encoder(tiny_encoder, max_tokens=1_000)


def test_encoders_that_are_not_there() -> None:
    with raises_message(ConfigError):
        Encoder("./no/such/encoder")
    assert encoder_folder("intfloat/e5-base-v2") == "intfloat/e5-base-v2"


def test_the_store_tells_apart_ids_whose_hashes_are_equal(
    passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.index.store.hash_text", lambda identifier: len(identifier))
    assert list(storing(iter(passages), tmp_path)) == passages
    store = PassageStore(tmp_path)
    ids = [passage.id for passage in passages]
    assert store.passages([*ids, "zz", "a-longer-id"]) == dict(zip(ids, passages, strict=True))
    store.close()


def test_a_reranker_is_identified_by_its_weights(tmp_path: Path, tiny_reranker: str) -> None:
    from transformers import AutoModelForSequenceClassification

    inner = WordRetriever(())
    place = tmp_path / "model"
    shutil.copytree(tiny_reranker, place)
    before = RerankedRetriever(inner, str(place), 5).fingerprint
    assert RerankedRetriever(inner, tiny_reranker, 5).fingerprint == before, "wherever it lies"
    model = AutoModelForSequenceClassification.from_pretrained(place)
    model.classifier.bias.data += 1
    model.save_pretrained(place)
    assert RerankedRetriever(inner, str(place), 5).fingerprint != before


@pytest.mark.parametrize(
    ("device", "capability", "asked", "expected"),
    [
        ("cuda:0", (9, 0), "auto", "bfloat16"),
        ("cuda:0", (8, 0), "float32", "float32"),
        ("cuda:0", (7, 5), "auto", "auto"),  # a T4, which has no bfloat16
        ("cpu", (0, 0), "auto", "auto"),
    ],
)
def test_passages_are_encoded_in_bfloat16_on_a_gpu_and_queries_as_they_were(
    device: str, capability: tuple[int, int], asked: Precision, expected: str
) -> None:
    """36M passages took a day in float32, which was the default."""
    encoding = IndexConfig(["corpus"], "out", kind="dense", encoder_dtype=asked).placement
    assert encoding.dtype_on(device, capability) == expected
    assert RetrieverConfig(["index"], encoder_dtype=asked).placement.dtype_on(device, capability) == asked


async def test_an_encoder_in_bfloat16_is_part_of_an_index_and_of_a_search(
    index_of: Callable[[str], str], corpus: Path, tmp_path: Path
) -> None:
    whole, rounded = index_of("dense"), str(tmp_path / "rounded")
    config = IndexConfig(
        [str(corpus)], rounded, kind="dense", encoder_dtype="bfloat16", device="cpu", batch_size=8
    )
    manifest = build_index(config, ignore)
    assert manifest.settings.detail("encoder_dtype") == "bfloat16"
    with pytest.raises(IndexMismatchError):
        build_index(replace(config, encoder_dtype="auto"), ignore)
    encoder = Encoder("default", placement=replace(config, out=whole).placement)
    exact, rough = Encoder("default"), encoder.encode(QUERIES)
    assert encoder.fingerprint == exact.fingerprint, "the same weights"
    assert np.abs(np.linalg.norm(rough, axis=1) - 1).max() < 1e-6, "bfloat16 alone is off by 0.002"
    assert 1e-5 < 1 - (rough * exact.encode(QUERIES)).sum(1).min() < 1e-2
    fingerprints = {}
    for name, options in {
        "plain": {},
        "placed": {"device": "cpu", "encoder_batch": 2, "search_device": "cpu"},
        "rounded": {"encoder_dtype": "bfloat16"},
    }.items():
        retriever = await open_retriever(RetrieverConfig([whole], **options))  # type: ignore[arg-type]
        fingerprints[name] = retriever.fingerprint
        assert len(await retriever.search(QUERIES[0], 3)) == 3
        await retriever.close()
    assert fingerprints["plain"] == fingerprints["placed"] != fingerprints["rounded"]


def test_an_encoder_for_dot_products_keeps_the_length_of_its_vectors(tmp_path: Path) -> None:
    """Contriever, DPR: by cosine they would rank otherwise than they were trained to."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(static_encoder(tmp_path / "cosine"), device="cpu")
    assert np.abs(np.linalg.norm(Encoder(str(tmp_path / "cosine")).encode(QUERIES), axis=1) - 1).max() < 1e-5
    model.similarity_fn_name = "dot"
    model.save(str(tmp_path / "dot"))
    own = model.encode(QUERIES, convert_to_numpy=True)
    assert np.abs(np.linalg.norm(own, axis=1) - 1).max() > 0.01
    assert np.allclose(Encoder(str(tmp_path / "dot")).encode(QUERIES), own, atol=1e-5)


def test_a_table_of_word_vectors_is_another_one_whichever_rows_were_trained(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(static_encoder(tmp_path), device="cpu")
    before = model_fingerprint(model)
    assert model_fingerprint(model) == before
    model[0].embedding.weight.data[2000:3000] += 0.1
    assert model_fingerprint(model) != before


async def test_a_reranker_takes_the_same_options_as_the_encoder(
    index_of: Callable[[str], str], tiny_reranker: str
) -> None:
    plain = RetrieverConfig([index_of("bm25")], reranker=tiny_reranker)
    fingerprints, scores = [], []
    for config in (
        plain,
        replace(plain, device="cpu", encoder_batch=3),
        replace(plain, encoder_dtype="bfloat16"),
    ):
        retriever = await open_retriever(config)
        scores.append([hit.score for hit in await retriever.search(QUERIES[0], 5)])
        fingerprints.append(retriever.fingerprint)
        await retriever.close()
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5) and scores[0] == pytest.approx(scores[2], abs=0.05)
