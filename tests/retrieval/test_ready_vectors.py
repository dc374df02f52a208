"""Vectors that were made elsewhere become an index that finds what an encoded one finds, or a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corag.core.errors import ConfigError, DataError, IndexMismatchError
from corag.core.types import Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.dense.build import INDEX
from retrieval.dense.encoder import Encoder
from retrieval.dense.vector_check import check_vectors
from retrieval.index.build import build_index
from retrieval.index.manifest import read_manifest
from retrieval.search.pipeline import open_retriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, static_encoder, write_jsonl

pytestmark = pytest.mark.slow

QUERIES = ["Which river flows through Town03?", "who started out selling honey", "Town21 mayor"]
Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    import torch

    torch.manual_seed(0)  # messages have medians of cosines
    return Encoder(static_encoder(tmp_path_factory.mktemp("static")))


@pytest.fixture(scope="module")
def vectors(passages: list[Passage], encoder: Encoder) -> Vectors:
    return encoder.encode([passage.contents for passage in passages], kind="document")


@pytest.fixture(scope="module")
def encoded(encoder: Encoder, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same passages with their vectors made here."""
    folder = str(tmp_path_factory.mktemp("encoded") / "index")
    build_index(IndexConfig([str(corpus)], folder, kind="dense", encoder=encoder.name), ignore)
    return folder


def with_vectors(encoder: Encoder, corpus: Path, out: Path, *files: Path, **options: Any) -> str:
    names = [str(file) for file in files]
    build_index(IndexConfig([str(corpus)], str(out), encoder=encoder.name, vectors=names, **options), ignore)
    return str(out)


async def hits(folder: str, k: int = 5) -> list[list[tuple[str, float]]]:
    retriever = await open_retriever(RetrieverConfig([folder], nprobe=4))
    every = [await retriever.search(query, k) for query in QUERIES]
    await retriever.close()
    return [[(hit.passage.id, hit.score) for hit in some] for some in every]


def save_npy(folder: Path, vectors: Vectors) -> list[Path]:
    np.save(folder / "v.npy", vectors)
    return [folder / "v.npy"]


def save_half_shards(folder: Path, vectors: Vectors) -> list[Path]:
    """Shards as corag/kilt-corpus-embeddings has them; by name the tenth would come before the second."""
    import torch

    for number, some in enumerate(np.array_split(vectors, 12)):
        torch.save(torch.from_numpy(some).half(), folder / f"shard-{number}.pt")
    return [folder / "shard-*.pt"]


def save_memmap(folder: Path, vectors: Vectors) -> list[Path]:
    vectors.tofile(folder / "emb_e5.memmap")
    return [folder / "emb_e5.memmap"]


def save_faiss(kind: str, metric: str) -> Callable[[Path, Vectors], list[Path]]:
    def save(folder: Path, vectors: Vectors) -> list[Path]:
        import faiss

        index = faiss.index_factory(vectors.shape[1], kind, getattr(faiss, f"METRIC_{metric}"))
        index.train(vectors)
        index.add(vectors)
        faiss.write_index(index, str(folder / "e5_Flat.index"))
        return [folder / "e5_Flat.index"]

    return save


@pytest.mark.parametrize(
    "save",
    [
        pytest.param(save_npy, id="npy"),
        pytest.param(save_half_shards, id="shards of float16"),
        pytest.param(save_memmap, id="memmap"),
        pytest.param(save_faiss("Flat", "INNER_PRODUCT"), id="flat"),
        pytest.param(save_faiss("IVF4,Flat", "INNER_PRODUCT"), id="ivf"),
    ],
)
async def test_ready_vectors_find_what_encoding_finds(
    save: Callable[[Path, Vectors], list[Path]],
    encoder: Encoder,
    vectors: Vectors,
    corpus: Path,
    encoded: str,
    tmp_path: Path,
) -> None:
    folder = with_vectors(encoder, corpus, tmp_path / "index", *save(tmp_path, vectors))
    expected = await hits(encoded, len(vectors))
    for found, others in zip(await hits(folder), expected, strict=True):
        # Half precision may swap neighbours.
        best = [score for _, score in others[: len(found)]]
        assert [score for _, score in found] == pytest.approx(best, abs=5e-3)
        scores = dict(others)
        assert [scores[name] for name, _ in found] == pytest.approx(best, abs=5e-3)


async def test_every_record_keeps_its_row(tmp_path: Path, encoder: Encoder, passages: list[Passage]) -> None:
    """A corpus has repeats and empty texts: dropped, all rows behind them would be another passage's."""
    records = [*passages[:5], Passage("again", passages[0].title, passages[0].text), *passages[5:]]
    records.insert(3, Passage("empty", "Nothing", ""))
    corpus = write_jsonl(tmp_path / "corpus.jsonl", records)
    vectors = encoder.encode([each.contents for each in records], kind="document")
    folder = with_vectors(encoder, corpus, tmp_path / "index", *save_npy(tmp_path, vectors))
    retriever = await open_retriever(RetrieverConfig([folder]))
    best = await retriever.search(passages[0].contents, 2)
    assert [hit.passage.id for hit in best] == [passages[0].id, "again"]
    assert (await retriever.search(passages[-1].contents, 1))[0].passage == passages[-1]
    await retriever.close()


def test_the_same_vectors_are_the_same_index(
    encoder: Encoder, corpus: Path, vectors: Vectors, tmp_path: Path
) -> None:
    files, said = save_npy(tmp_path, vectors), []
    with_vectors(encoder, corpus, tmp_path / "index", *files)
    config = IndexConfig(
        [str(corpus)], str(tmp_path / "index"), encoder=encoder.name, vectors=[str(files[0])]
    )
    build_index(config, said.append)
    assert "already there" in said[-1]
    np.save(files[0], vectors[:, ::-1])
    with raises_message(IndexMismatchError):
        build_index(config, ignore)


def quoted(encoder: Encoder, passages: list[Passage]) -> Vectors:
    return encoder.encode([f'"{each.title}"\n{each.text}' for each in passages], kind="document")


def test_titles_in_quotes_are_the_same_passages(
    encoder: Encoder, corpus: Path, passages: list[Passage], tmp_path: Path
) -> None:
    with_vectors(encoder, corpus, tmp_path / "index", *save_npy(tmp_path, quoted(encoder, passages)))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param(lambda vectors: vectors[:-1], IndexMismatchError, id="one too few"),
        pytest.param(lambda vectors: np.roll(vectors, 1, axis=0), IndexMismatchError, id="a row further"),
        pytest.param(lambda vectors: vectors[:, :32], IndexMismatchError, id="another dimension"),
        pytest.param(lambda vectors: np.roll(vectors, 5, axis=1), IndexMismatchError, id="another encoder"),
        pytest.param(lambda vectors: np.full_like(vectors, np.nan), DataError, id="not finite"),
        pytest.param(lambda vectors: (100 * vectors).astype(np.int32), DataError, id="whole numbers"),
    ],
)
def test_vectors_that_are_not_the_passages_are_refused(
    change: Callable[[Vectors], Any],
    error: type[Exception],
    encoder: Encoder,
    vectors: Vectors,
    corpus: Path,
    tmp_path: Path,
) -> None:
    files = save_npy(tmp_path, change(vectors))
    with raises_message(error):
        with_vectors(encoder, corpus, tmp_path / "index", *files)
    assert not (tmp_path / "index").exists()


def test_vectors_of_others_are_refused_of_an_encoder_made_for_dot_products_too(
    encoder: Encoder, passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose vectors are long, so that products alone say nothing."""
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda *texts, **more: 20 * encode(*texts, **more))
    some = passages[:16]
    vectors = encoder.encode([each.contents for each in some], kind="document")
    check_vectors("they", some, vectors, encoder, "")
    with pytest.raises(IndexMismatchError):
        check_vectors("they", some, vectors[::-1], encoder, "")


def test_another_prefix_is_refused(
    encoder: Encoder, passages: list[Passage], corpus: Path, tmp_path: Path
) -> None:
    texts = [passage.contents for passage in passages]
    vectors = encoder.encode(texts, prompt="passage: ", kind="document")
    with raises_message(IndexMismatchError):
        with_vectors(encoder, corpus, tmp_path / "index", *save_npy(tmp_path, vectors))
    with_vectors(
        encoder, corpus, tmp_path / "index", *save_npy(tmp_path, vectors), passage_prefix="passage: "
    )


def test_lengths_other_than_one_are_kept_and_told(
    encoder: Encoder, vectors: Vectors, corpus: Path, tmp_path: Path
) -> None:
    import faiss

    longer = vectors * np.linspace(1, 5, len(vectors), dtype=np.float32)[:, None]
    folder = with_vectors(encoder, corpus, tmp_path / "index", *save_npy(tmp_path, longer))
    manifest = read_manifest(Path(folder))
    assert manifest is not None and any("lengths from 1.00 to 5.00" in note for note in manifest.notes)
    stored = faiss.read_index(os.path.join(folder, INDEX)).reconstruct_n(0, len(longer))
    assert np.array_equal(stored, longer)


def test_the_vectors_are_read_in_blocks(
    encoder: Encoder, vectors: Vectors, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the borders of blocks and files each vector is where it was."""
    import faiss

    from retrieval.dense import ready_vectors

    monkeypatch.setattr(ready_vectors, "_BLOCK", 7)
    folder = with_vectors(encoder, corpus, tmp_path / "index", *save_half_shards(tmp_path, vectors))
    stored = faiss.read_index(os.path.join(folder, INDEX)).reconstruct_n(0, len(vectors))
    assert np.array_equal(stored, vectors.astype(np.float16).astype(np.float32))
    graph = with_vectors(encoder, corpus, tmp_path / "graph", *save_npy(tmp_path, vectors), faiss="hnsw")
    stored = faiss.read_index(os.path.join(graph, INDEX)).reconstruct_n(0, len(vectors))
    assert np.array_equal(stored, vectors)


def test_what_is_no_file_of_vectors_says_so(
    encoder: Encoder, vectors: Vectors, corpus: Path, tmp_path: Path
) -> None:
    import torch

    (tmp_path / "notes.index").write_text("no vectors")
    (tmp_path / "half.npy").write_bytes(b"\x93NUMPY")
    torch.save({"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, tmp_path / "two.pt")
    (tmp_path / "cut.memmap").write_bytes(b"1234")
    (codes,) = save_faiss("IVF4,SQ8", "INNER_PRODUCT")(tmp_path, vectors)
    (array,) = save_npy(tmp_path, vectors)
    for names in (["gone.npy"], ["notes.index"], ["half.npy"], ["two.pt"], ["cut.memmap"]):
        with raises_message(DataError):
            with_vectors(encoder, corpus, tmp_path / "index", *(tmp_path / name for name in names))
    with raises_message(DataError):
        with_vectors(encoder, corpus, tmp_path / "index", codes)
    (tmp_path / "page.md").write_text("# A page\n\nof words.\n")
    with raises_message(ConfigError):
        with_vectors(encoder, tmp_path / "page.md", tmp_path / "index", array)
    with corpus.open(encoding="utf-8") as lines:
        odd = [*lines, json.dumps({"number": 7}) + "\n"]
    (tmp_path / "odd.jsonl").write_text("".join(odd), encoding="utf-8")
    with raises_message(DataError):  # its row would be the next passage's
        with_vectors(encoder, tmp_path / "odd.jsonl", tmp_path / "index", array)
