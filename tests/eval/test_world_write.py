"""A world's folder: complete, equal in every process, in the formats that the rest of the house reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corag.core.errors import DataError
from corag.core.system.files import read_jsonl
from corag.core.types import passage_id
from eval.datasets.world import WorldManifest, write_world
from tests.messages import raises_message

NAMES = ["corpus.jsonl", "demonstrations.txt", "dev.jsonl", "manifest.json", "test.jsonl", "train.jsonl"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, passages=1050, train=60, dev=20, test=20, report=lambda line: None)
    return folder


def test_other_processes_and_hash_seeds_write_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from eval.datasets.world import write_world; import sys; "
        "write_world(Path(sys.argv[1]), passages=1050, train=60, dev=20, test=20, report=print)"
    )
    for hash_seed in ("1", "77"):
        other = tmp_path / hash_seed
        subprocess.run(
            [sys.executable, "-c", code, str(other)],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        assert sorted(path.name for path in other.iterdir()) == NAMES
        assert all((other / name).read_bytes() == (folder / name).read_bytes() for name in NAMES)


def test_a_seed_gives_the_world_that_it_always_gave(folder: Path) -> None:
    manifest = WorldManifest(**json.loads((folder / "manifest.json").read_text()))
    assert (manifest.version, manifest.fingerprint) == (1, "2b28ece0bcfb5ec0"), (
        "raise VERSION if this is meant"
    )


def test_another_seed_is_another_world(folder: Path, tmp_path: Path) -> None:
    write_world(tmp_path, seed=1, passages=1050, train=60, dev=20, test=20, report=lambda line: None)
    mine, other = (
        {record["title"] for record in read_jsonl(path / "corpus.jsonl")} for path in (folder, tmp_path)
    )
    assert len(mine & other) < 0.01 * len(mine)


def test_pages_refer_to_the_things_they_tell_of_on_request(folder: Path, tmp_path: Path) -> None:
    write_world(tmp_path, passages=1050, train=60, dev=20, test=20, references=True)
    plain, linked = (list(read_jsonl(path / "corpus.jsonl")) for path in (folder, tmp_path))
    titles = {record["title"] for record in linked}
    referring = [(a, b) for a, b in zip(plain, linked, strict=True) if a["text"] != b["text"]]
    assert len(referring) > 700, "pages of things, not the passages that answer nothing"
    for before, after in referring[:700]:  # the last province is cut short
        text, _, named = after["text"].partition(" See also ")
        assert (text, after["title"]) == (before["text"], before["title"]), "all else is the same"
        for name in named.removesuffix(".").split("; see also "):
            assert name in titles or name.removeprefix("the ") in titles
            assert name in before["text"] or name.title() in before["text"].title()
    asked = [record["question"] for record in read_jsonl(folder / "test.jsonl")]
    assert asked == [record["question"] for record in read_jsonl(tmp_path / "test.jsonl")]
    found = {record["id"] for record in linked}
    assert all(set(record["supporting"]) <= found for record in read_jsonl(tmp_path / "test.jsonl"))


def test_files_hold_what_the_manifest_says(folder: Path) -> None:
    manifest = WorldManifest(**json.loads((folder / "manifest.json").read_text()))
    passages = {record["id"]: record for record in read_jsonl(folder / "corpus.jsonl")}
    assert len(passages) == manifest.passages == 1050
    assert all(
        list(p) == ["id", "title", "text"] and p["id"] == passage_id(p["title"], p["text"])
        for p in passages.values()
    )
    for split, count in (("train", manifest.train), ("dev", manifest.dev), ("test", manifest.test)):
        records = list(read_jsonl(folder / f"{split}.jsonl"))
        assert len({record["id"] for record in records}) == count
        for record in records:
            assert list(record) == [
                "id",
                "question",
                "answers",
                "supporting",
                "type",
                "hops",
                "decomposition",
            ]
            assert (
                set(record["supporting"]) <= set(passages) and len(record["decomposition"]) == record["hops"]
            )


def test_an_interrupted_rewrite_leaves_no_manifest_and_no_litter(tmp_path: Path) -> None:
    sizes = {"passages": 500, "train": 10, "dev": 0, "test": 0}
    write_world(tmp_path, **sizes, report=lambda line: None)

    def stop(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_world(tmp_path, **sizes, report=stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(NAMES) - {"manifest.json"})


def test_bad_requests_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with raises_message(DataError):
        write_world(tmp_path / "file", report=lambda line: None)
    with raises_message(DataError):
        write_world(tmp_path / "new", passages=500, train=5000, report=lambda line: None)
    assert not (tmp_path / "new").exists()
