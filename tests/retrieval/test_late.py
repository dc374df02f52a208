"""Late interaction, with a tiny random model: an index with a vector per token, searched by MaxSim."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from retrieval.build import build_index
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.dense.encoder import Encoder
from retrieval.dense.late import LENGTHS, TOKENS, LateEncoder, TokenVectors, encode_tokens
from retrieval.open import open_retriever
from retrieval.store import PassageStore
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, save_tiny_bert


@pytest.fixture(scope="module")
def late_model(tmp_path_factory):
    """A folder with a late-interaction model: one random layer, 16 numbers per token."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from transformers import BertConfig, BertModel

    torch.manual_seed(2)
    folder = tmp_path_factory.mktemp("late")
    config = BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    save_tiny_bert(BertModel(config), folder / "bert")
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    modules = [
        Transformer(str(folder / "bert"), query_length=12, document_length=32),
        Dense(64, 16, bias=False, activation_function=torch.nn.Identity(), **tokens),
        MultiVectorMask(skiplist_words=["."]),
        Normalize(module_input_name="token_embeddings"),
    ]
    prompts = {"query": "question: ", "document": "text: "}
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save(str(folder / "model"))
    return str(folder / "model")


def config_of(corpus, out, late_model, **options):
    return IndexConfig([str(corpus)], str(out), kind="late", encoder=late_model, **options)


@pytest.fixture(scope="module")
def late_index(corpus, late_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index") / "late"
    build_index(config_of(corpus, folder, late_model), ignore)
    return folder


def search(index, query, k=5, **options):
    async def one():
        retriever = await open_retriever(RetrieverConfig(index=[str(index)], **options))
        try:
            return await retriever.search(query, k), retriever.fingerprint
        finally:
            await retriever.close()

    return asyncio.run(one())


def test_hits_are_those_of_the_librarys_own_maxsim(late_index, late_model, passages):
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(late_model, device="cpu")
    queries = ["Which river does Town03 lie on?", "Who sold honey?"]
    documents = model.encode_document([passage.contents for passage in passages])
    expected = model.similarity(model.encode_query(queries), documents).numpy()
    for query, scores in zip(queries, expected, strict=True):
        hits, _ = search(late_index, query)
        assert [hit.score for hit in hits] == pytest.approx(sorted(scores, reverse=True)[:5], abs=5e-3)
        by_id = {passage.id: score for passage, score in zip(passages, scores, strict=True)}
        assert all(by_id[hit.id] == pytest.approx(hit.score, abs=5e-3) for hit in hits)
        assert hits[0].text == next(each.text for each in passages if each.id == hits[0].id)


def test_scores_do_not_depend_on_what_else_is_asked(late_index, late_model, monkeypatch):
    encoder, store = LateEncoder(late_model), PassageStore(late_index)
    vectors = TokenVectors(late_index, 16, len(store))
    queries = encoder.encode_tokens(["salt", "Who was mayor?", "rope"], prompt="question: ", kind="query")
    together = vectors.nearest(queries, 7)
    monkeypatch.setattr("retrieval.dense.late._BLOCK", 300)
    assert [vectors.nearest([query], 7)[0] for query in queries] == together
    assert len(vectors.nearest(queries[:1], 1000)[0]) == len(store)


def test_fewer_hits_are_the_first_of_more_where_scores_are_equal(tmp_path, monkeypatch):
    kinds = np.eye(4, dtype=np.float16)
    passages = np.random.default_rng(3).integers(0, 4, 400)  # a hundred have the very same score
    kinds[passages].tofile(tmp_path / TOKENS)
    np.ones(len(passages), np.int32).tofile(tmp_path / LENGTHS)
    vectors = TokenVectors(tmp_path, 4, len(passages))
    for query, same in ((kinds[:1], passages == 0), (np.zeros((1, 4), np.float16), passages >= 0)):
        first = np.flatnonzero(same).tolist()
        for k in (1, 3, 5, 20):
            assert [row for row, _ in vectors.nearest([query], k)[0]] == first[:k]
    monkeypatch.setattr("retrieval.dense.late._MOST_UNDECIDED", 2)
    assert [row for row, _ in vectors.nearest([query], 3)[0]] == [0, 1, 2]


def test_what_is_for_one_vector_a_passage_is_refused(late_index):
    for options in ({"hop_encoder": "default"}, {"nprobe": 3}, {"ef_search": 3}):
        with raises_message(ConfigError):
            search(late_index, "salt", **options)


def test_an_interrupted_build_goes_on_where_it_was(late_index, late_model, tmp_path):
    encoder, store = LateEncoder(late_model), PassageStore(late_index)
    whole = [(late_index / name).read_bytes() for name in (TOKENS, LENGTHS)]
    (tmp_path / TOKENS).write_bytes(whole[0][:5_001])  # torn within a vector
    (tmp_path / LENGTHS).write_bytes(whole[1][:121])
    encoded = []
    encode_tokens(store, encoder, tmp_path, "text: ", encoded.append)
    assert np.array_equal(np.fromfile(tmp_path / LENGTHS, np.int32), np.frombuffer(whole[1], np.int32))
    again = np.fromfile(tmp_path / TOKENS, np.float16).astype(float)
    assert np.allclose(again, np.frombuffer(whole[0], np.float16).astype(float), atol=2e-3)
    assert (tmp_path / TOKENS).read_bytes()[:4_000] == whole[0][:4_000]


def test_a_long_query_is_told_and_long_passages_are_counted(late_index, late_model, corpus, tmp_path):
    hits, _ = search(late_index, "river " * 40)
    assert "the encoder read the first 12 of the query's" in hits.note
    told = []
    build_index(config_of(corpus, tmp_path / "short", late_model, max_passage_tokens=8), told.append)
    assert any("are longer than the 8 tokens that the encoder reads" in line for line in told)
    lengths = np.fromfile(tmp_path / "short" / LENGTHS, np.int32)
    assert lengths.max() <= 8


def test_models_of_the_other_kind_are_refused(late_model, tiny_encoder, corpus, tmp_path):
    """The library would load them, with weights that nobody trained."""
    with raises_message(ConfigError):
        Encoder(late_model)
    with raises_message(ConfigError):
        LateEncoder(tiny_encoder)
    with raises_message(ConfigError):
        build_index(config_of(corpus, tmp_path / "default", "default"), ignore)
    with raises_message(ConfigError):
        config = config_of(corpus, tmp_path / "x", late_model)
        build_index(replace(config, faiss="hnsw"), ignore)


def test_torn_vectors_are_refused_when_an_index_is_opened(late_index, tmp_path):
    import shutil

    torn = tmp_path / "torn"
    shutil.copytree(late_index, torn)
    content = (torn / TOKENS).read_bytes()
    (torn / TOKENS).write_bytes(content[:-32])
    with pytest.raises(IndexMismatchError, match=r"torn"):
        search(torn, "salt")
    assert Path(late_index, TOKENS).read_bytes() == content
