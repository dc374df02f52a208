"""Index folders: built once, reused, refused with the difference named, never half-open."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError, DataError, IndexMismatchError
from corag.core.runs.provenance import PROVENANCE, Provenance
from corag.core.types import Passage
from eval.experiment import extensions  # noqa: F401 - the preset of IRCoT
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.index.manifest import (
    HASHES,
    INDEX_FILE,
    IndexSettings,
    hash_corpus,
    read_manifest,
    write_manifest,
)
from retrieval.index.place import begin_build
from retrieval.lucene.java import require_passages
from retrieval.search.pipeline import open_retriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, write_jsonl

pytestmark = pytest.mark.slow


@pytest.fixture
def built(corpus: Path, tmp_path: Path) -> IndexConfig:
    config = IndexConfig([str(corpus)], str(tmp_path / "bm25"))
    build_index(config, ignore)
    return config


def test_the_manifest_tells_what_was_built(index_of: Callable[[str], str], corpus: Path) -> None:
    manifest = read_manifest(Path(index_of("dense")))
    assert manifest is not None
    assert (manifest.settings.kind, manifest.passages, manifest.settings.dimension) == ("dense", 72, 384)
    assert manifest.settings.corpus[0].bytes == corpus.stat().st_size
    assert {"pyserini", "sentence-transformers"} <= dict(manifest.versions).keys()
    assert {"index", "docid", "passages.jsonl"} <= dict(manifest.files).keys()


def test_the_same_index_is_reused_wherever_the_corpus_lies(
    built: IndexConfig, passages: list[Passage], tmp_path: Path
) -> None:
    before = Path(built.out, INDEX_FILE).stat().st_mtime_ns
    moved = write_jsonl(tmp_path / "moved.jsonl", passages)
    told: list[str] = []
    build_index(replace(built, corpus=[str(moved)], threads=1), told.append)
    assert told == [f"the index '{built.out}' is already there (72 passages): nothing to do."]
    assert Path(built.out, INDEX_FILE).stat().st_mtime_ns == before


def test_another_index_is_refused_unless_overwritten(
    built: IndexConfig, passages: list[Passage], tmp_path: Path
) -> None:
    fewer = replace(built, corpus=[str(write_jsonl(tmp_path / "fewer.jsonl", passages[:10]))])
    with raises_message(IndexMismatchError):
        build_index(fewer, ignore)
    assert build_index(replace(fewer, overwrite=True), ignore).passages == 10


def test_foreign_files_are_never_touched(built: IndexConfig, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("x")
    with raises_message(IndexMismatchError):
        build_index(replace(built, out=str(tmp_path / "home"), overwrite=True), ignore)
    assert (tmp_path / "home" / "thesis.tex").exists()


def test_a_broken_corpus_leaves_no_index_and_can_be_mended(tmp_path: Path, passages: list[Passage]) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", passages)
    whole = corpus.read_text()
    corpus.write_text(whole + '{"id": \n')
    config = IndexConfig([str(corpus)], str(tmp_path / "bm25"), strict=True)
    with raises_message(DataError):
        build_index(config, ignore)
    assert read_manifest(tmp_path / "bm25") is None
    corpus.write_text(whole)
    assert build_index(config, ignore).passages == 72


async def test_what_cannot_be_opened_says_what_to_do(built: IndexConfig, tmp_path: Path) -> None:
    folder = Path(built.out)
    (tmp_path / "empty").mkdir()
    for name, message in (
        (tmp_path / "empty", "not a complete index.*corag index"),
        (tmp_path / "nowhere", "no index folder.*nowhere"),
        ("beir-v1.0.0-hotpotqa.flatt", "did you mean 'beir-v1.0.0-hotpotqa.flat"),
    ):
        with pytest.raises(IndexMismatchError, match=message):
            await open_retriever(RetrieverConfig([str(name)]))
    documents = next(folder.glob("*.fdt"))
    contents = documents.read_bytes()
    documents.write_bytes(contents[:-1])
    size = (
        f"has {len(contents) - 1:,} bytes, but {len(contents):,} were written: it is damaged. Build it again"
    )
    with pytest.raises(IndexMismatchError, match=size):  # Lucene's files differ by a byte from run to run
        await open_retriever(RetrieverConfig([built.out]))
    documents.unlink()
    with pytest.raises(IndexMismatchError, match=f"lacks its file '{documents.name}'"):
        await open_retriever(RetrieverConfig([built.out]))
    (folder / INDEX_FILE).write_text(json.dumps({"kind": "bm25"}))
    with raises_message(IndexMismatchError):
        await open_retriever(RetrieverConfig([built.out]))


async def test_an_index_or_a_server_but_not_both() -> None:
    for config in (RetrieverConfig(), RetrieverConfig(["a"], ["http://localhost:1"])):
        with raises_message(ConfigError):
            await open_retriever(config)


async def test_fingerprints_follow_what_is_found_not_where_it_lies(
    built: IndexConfig, index_of: Callable[[str], str]
) -> None:
    configs = [
        RetrieverConfig([built.out]),
        RetrieverConfig([index_of("bm25")]),
        RetrieverConfig([built.out], bm25="ircot"),
    ]
    opened = [await open_retriever(config) for config in configs]
    same, also, other = (each.fingerprint for each in opened)
    assert same == also != other
    for each in opened:
        await each.close()


def test_what_does_not_say_what_was_begun_is_not_gone_on_with(corpus: Path, tmp_path: Path) -> None:
    """The vectors may be another encoder's."""
    settings = IndexSettings("bm25", hash_corpus([corpus]), (("format", "jsonl"),))
    folder = tmp_path / "begun"
    building = begin_build(folder, settings, overwrite=False).building
    (building / "shards").mkdir()
    for text in ("", "{}", "[1]"):
        (building / "corag_building.json").write_text(text)
        with raises_message(IndexMismatchError):
            begin_build(folder, settings, overwrite=False)
    begin_build(folder, settings, overwrite=True)
    assert not (building / "shards").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_stamp_of_something_else_makes_no_folder_ours(
    overwrite: bool, corpus: Path, tmp_path: Path
) -> None:
    """Cells of sweeps have one: their answers would be emptied out for an index."""
    cell = tmp_path / "cell"
    Provenance({"seed": 0}).finish(cell / PROVENANCE)
    (cell / "traces.jsonl").write_text("x")
    settings = IndexSettings("bm25", hash_corpus([corpus]))
    with raises_message(IndexMismatchError):
        begin_build(cell, settings, overwrite=overwrite)
    assert (cell / "traces.jsonl").exists()


def rewrite(file: Path, **changes: Any) -> None:
    """Change fields of a JSON object; None takes one out."""
    record = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in record.items() if value is not None}))


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A folder that is an index as far as its manifest goes."""
    index = tmp_path / "sealed"
    index.mkdir()
    for name in ("index", "docid"):
        (index / name).write_text(name)
    details = (("query_prefix", "query: "), ("max_passage_tokens", "256"))
    write_manifest(index, IndexSettings("dense", (), details, "default", "abc", 384), 72, ())
    return index


def test_doctor_reads_the_manifest_too(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = sealed / INDEX_FILE
    assert main(["doctor", str(sealed)]) == 0
    whole = file.read_text()
    settings = json.loads(whole)["settings"]
    prefix = [["query_prefix", ""], ["max_passage_tokens", "256"]]
    for change in (
        {"passages": 71},
        {"settings": settings | {"dimension": 383}},
        {"settings": settings | {"details": prefix}},
        {"files": [["index", 5]]},
    ):
        file.write_text(whole)
        rewrite(file, **change)
        assert main(["doctor", str(sealed)]) == 1
        assert f"not as built: {INDEX_FILE}. " in capsys.readouterr().out
    file.write_text(whole)
    assert main(["doctor", str(sealed)]) == 0


async def test_a_manifest_that_lists_no_files_opens_nothing(
    sealed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(sealed / INDEX_FILE, files=[])
    with raises_message(IndexMismatchError):
        await open_retriever(RetrieverConfig([str(sealed)]))
    assert main(["doctor", str(sealed)]) == 1


def test_doctor_reads_an_index_whole(
    index_of: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = shutil.copytree(index_of("bm25"), tmp_path / "index")
    assert main(["doctor", str(index)]) == 0
    assert "all as they were built" in capsys.readouterr().out
    largest = max((file for file in index.iterdir()), key=lambda file: file.stat().st_size)
    contents = largest.read_bytes()
    largest.write_bytes(contents[:1000] + bytes(3000) + contents[4000:])
    assert main(["doctor", index_of("bm25"), str(index)]) == 1
    good, bad = capsys.readouterr().out.splitlines()
    assert good.startswith("  ok ") and bad.startswith(f"  DAMAGED {index}: not as built: {largest.name}. ")
    (index / HASHES).unlink()
    assert main(["doctor", str(index)]) == 1
    assert f"lacks its file '{HASHES}'" in capsys.readouterr().out


def test_the_same_build_again_has_the_same_manifest(built: IndexConfig) -> None:
    """What was made from an index knows it by its manifest."""
    again = replace(built, overwrite=True, threads=1)
    build_index(again, ignore)
    before = Path(built.out, INDEX_FILE).read_bytes()
    build_index(again, ignore)
    assert Path(built.out, INDEX_FILE).read_bytes() == before


async def test_vectors_of_another_dimension_in_a_file_of_the_right_size_are_refused(
    index_of: Callable[[str], str], tmp_path: Path
) -> None:
    import faiss

    index = shutil.copytree(index_of("dense"), tmp_path / "index")
    vectors = faiss.read_index(str(index / "index")).reconstruct_n(0, 72)
    halves = faiss.IndexFlatIP(192)
    halves.add(vectors.reshape(144, 192))
    size = (index / "index").stat().st_size
    faiss.write_index(halves, str(index / "index"))
    assert (index / "index").stat().st_size == size
    with pytest.raises(IndexMismatchError, match="has 144 and 72 passages, but its manifest says 72"):
        await open_retriever(RetrieverConfig([str(index)]))


def test_what_lucene_could_not_write_is_told(tmp_path: Path) -> None:
    """On a full disk it logs an error, and goes on."""
    with raises_message(DataError):
        require_passages(tmp_path, 5)
