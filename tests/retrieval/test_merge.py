"""Parts of an index, encoded apart, become one index: that which is built in one go."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.types import Passage
from retrieval.config import IndexConfig
from retrieval.dense.build import INDEX
from retrieval.index.build import build_index
from retrieval.index.manifest import HASHES, IndexManifest, read_manifest
from retrieval.index.place import building_folder
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, static_encoder, write_jsonl

pytestmark = pytest.mark.slow

WORDS = ("bar", "cor", "dun", "fen", "gal", "hoth", "ith", "jor", "kel", "lom")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return static_encoder(tmp_path_factory.mktemp("static"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = (f"{a} {b} {c} {d}" for a in WORDS for b in WORDS for c in WORDS for d in WORDS)
    passages = [Passage(f"p{number}", "", text) for number, text in zip(range(10_000), texts, strict=True)]
    passages.insert(7_000, Passage("again", "", passages[3].text))  # in another part than what it repeats
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", passages)


def built(corpus: Path, encoder: str, out: Path, **options: object) -> str:
    config = IndexConfig([str(corpus)], str(out), kind="dense", encoder=encoder, **options)  # type: ignore[arg-type]
    build_index(config, ignore)
    return str(out)


def manifest_of(folder: str) -> IndexManifest:
    manifest = read_manifest(Path(folder))
    assert manifest is not None
    return manifest


def without_recall(folder: str) -> IndexManifest:
    """Return a manifest without the figure: many vectors tie here."""
    manifest = manifest_of(folder)
    return replace(manifest, notes=tuple(re.sub(r": \d\.\d+", "", note) for note in manifest.notes))


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivfpq"])
def test_merged_parts_are_the_index_built_in_one_go(
    kind: str, corpus: Path, encoder: str, tmp_path: Path
) -> None:
    options: dict[str, object] = {"faiss": kind, "threads": 1}
    if kind == "ivfpq":
        options |= {"pq_bytes": 16, "ivf_lists": 16}
    if kind == "hnsw":
        options["hnsw_ef_construction"] = 20
    whole = built(corpus, encoder, tmp_path / "whole", **options)
    parts = [built(corpus, encoder, tmp_path / f"p{each}", part=f"{each}/3", **options) for each in (1, 2, 3)]
    merged = built(corpus, encoder, tmp_path / "merged", merge=[parts[1], parts[2], parts[0]], **options)
    assert without_recall(merged) == without_recall(whole), "notes, files and their sizes too"
    assert (Path(merged) / HASHES).read_text() == (Path(whole) / HASHES).read_text() or kind != "flat"
    queries = np.random.default_rng(0).normal(size=(20, 64)).astype(np.float32)
    one, other = (faiss.read_index(os.path.join(each, INDEX)).search(queries, 10) for each in (merged, whole))
    assert np.array_equal(one[0], other[0]), "to the last bit"


def test_parts_that_are_not_those_of_the_index_are_refused(
    corpus: Path, encoder: str, tmp_path: Path
) -> None:
    parts = [built(corpus, encoder, tmp_path / f"p{each}", part=f"{each}/2") for each in (1, 2)]
    with raises_message(IndexMismatchError):
        built(corpus, encoder, tmp_path / "merged", merge=[*parts, str(tmp_path)])
    with raises_message(IndexMismatchError):
        built(corpus, encoder, tmp_path / "merged", merge=parts, passage_prefix="passage: ")
    with raises_message(ConfigError):
        built(corpus, encoder, tmp_path / "merged", merge=parts, part="1/2")
    assert not (tmp_path / "merged").exists()


def test_a_merge_that_is_killed_goes_on(corpus: Path, encoder: str, tmp_path: Path) -> None:
    parts = [built(corpus, encoder, tmp_path / f"p{each}", part=f"{each}/2") for each in (1, 2)]
    out = tmp_path / "merged"
    words = ["index", str(corpus), "--kind", "dense", "--encoder", encoder, "--merge", ",".join(parts)]
    command = [sys.executable, "-m", "corag.cli", *words, "--out", str(out)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None and not (building_folder(out) / "passages.jsonl").is_file():
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert not out.exists()
    subprocess.run(command, check=True, capture_output=True)
    assert manifest_of(str(out)) == manifest_of(built(corpus, encoder, tmp_path / "whole"))
