"""Corpora of the hub and folders of Parquet: fetched, found in the cache, told from documents."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import eval.datasets.corpora  # noqa: F401 - the format "kilt"
from corag.core.errors import ConfigError, DataError
from corag.core.types import Passage
from retrieval.corpora.files import expand_corpus
from retrieval.corpora.formats import read_corpus
from retrieval.corpora.sifting import CorpusReport
from retrieval.index.manifest import read_manifest
from retrieval.index.store import PassageStore
from tests.hub import COMMIT, cache_files, parquet, serving
from tests.messages import raises_message

pytestmark = pytest.mark.slow

# The columns of corag/kilt-corpus; an id is the number of its row.
ROWS = [
    {
        "id": str(n),
        "contents": f"Town {n}\nTown {n} lies on river {n}.",
        "title": f"Town {n}",
        "wikipedia_id": "7",
    }
    for n in range(10)
]
SHARDS = {
    "README.md": b"---\nlicense: apache-2.0\n---\n",
    "data/train-00000-of-00002.parquet": parquet(ROWS[:6]),
    "data/train-00001-of-00002.parquet": parquet(ROWS[6:]),
}
LAST = "data/train-00001-of-00002.parquet"


def index(*options: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run 'corag index' in a process of its own: the hub's client reads its environment at the start."""
    return subprocess.run(
        [sys.executable, "-m", "corag.cli", "index", *map(str, options)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_corpus_of_the_hub_is_fetched_after_its_size_is_told_and_goes_on_by_files(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "index"
    with serving({"corag/kilt-corpus": SHARDS}) as hub:
        hub.torn[LAST] = 1000  # its connection breaks however often the client tries
        here = {"HF_HOME": str(home), "HF_ENDPOINT": hub.url}
        broken = index("hub:corag/kilt-corpus", "--out", out, **here)
        assert broken.returncode == 2 and not out.exists()
        assert "could not be fetched" in broken.stderr and "same command again" in broken.stderr
        hub.torn.clear()
        done = index("hub:corag/kilt-corpus", "--out", out, **here)
        assert done.returncode == 0, done.stderr
        assert "hub:corag/kilt-corpus: 2 files, " in done.stderr and " is fetched" in done.stderr
        assert hub.sent.count("data/train-00000-of-00002.parquet") == 1, "what is there is not fetched again"
    manifest = read_manifest(out)
    assert manifest is not None and manifest.passages == 10
    first = manifest.settings.corpus[0].path
    assert first == f"hub:corag/kilt-corpus@{COMMIT}/data/train-00000-of-00002.parquet", "on any machine"
    store = PassageStore(out)
    assert store.row(9) == Passage("9", "Town 9", "Town 9 lies on river 9."), "in the order of the rows"
    store.close()
    # Without the server, and where the network is not to be used, the copy will do: it is the same index.
    offline = index("hub:corag/kilt-corpus", "--out", out, HF_HOME=str(home), HF_HUB_OFFLINE="1")
    assert offline.returncode == 0 and "nothing to do" in offline.stderr


FIND = """
import json, sys
from corag.core.errors import CoragError
from retrieval.corpora.files import expand_corpus
said, found = [], []
for name in sys.argv[1:]:
    try:
        found.append(expand_corpus([name], said.append))
    except CoragError as error:
        found.append(str(error))
print(json.dumps([found, said]))
"""


def find(*names: str, **environment: str) -> tuple[list[object], list[str]]:
    """Return what each name means, or why it means nothing; and what was said."""
    run = subprocess.run(
        [sys.executable, "-c", FIND, *names], env=os.environ | environment, capture_output=True, text=True
    )
    found, said = json.loads(run.stdout)
    return found, said


def test_what_was_listed_is_what_is_fetched_though_the_branch_moves_on(tmp_path: Path) -> None:
    with serving({"corag/kilt-corpus": SHARDS}) as hub:
        hub.moved["corag/kilt-corpus"] = {"data/train-00000-of-00002.parquet": parquet(ROWS[:1])}
        (files,), _ = find("hub:corag/kilt-corpus", HF_HOME=str(tmp_path), HF_ENDPOINT=hub.url)
    contents = [Path(file).read_bytes() for file in files]  # type: ignore[attr-defined]
    assert contents == [SHARDS["data/train-00000-of-00002.parquet"], SHARDS[LAST]]


def test_a_cache_that_was_brought_along_is_read_without_a_network(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    folder = cache_files(hub, "corag/kilt-corpus", SHARDS)
    cache_files(hub, "torn/corpus", {LAST: SHARDS[LAST]})
    tables = {f"{name}/test-00000-of-00001.parquet": parquet(ROWS) for name in ("fever", "nq")}
    cache_files(hub, "corag/kilt", tables)
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    beir = {"corpus.jsonl": lines, "queries.jsonl": lines, "qrels/test.jsonl": lines, "README.md": b""}
    mirror = cache_files(hub, "mteb/hotpotqa", beir)
    cache_files(hub, "only/pictures", {"a.png": b""})
    found, said = find(
        "hub:corag/kilt-corpus",
        "hub:corag/kilt-corpus@main/data/train-00000*",
        "hub:corag/kilt/nq",
        "hub:mteb/hotpotqa/corpus.jsonl",
        "hub:torn/corpus",
        "hub:corag/kilt",
        "hub:mteb/hotpotqa",
        "hub:mteb/hotpotqa/corpora.jsonl",
        "hub:only/pictures",
        "hub:not/there",
        HF_HUB_CACHE=str(hub),
        HF_HUB_OFFLINE="1",
    )
    shards = [str(folder / name) for name in sorted(SHARDS) if name.startswith("data")]
    assert found[:2] == [shards, shards[:1]]
    assert [Path(str(path)).parent.name for path in found[2]] == ["nq"]  # type: ignore[attr-defined]
    assert found[3] == [str(mirror / "corpus.jsonl")]
    torn, several, beside, misspelt, pictures, missing = map(str, found[4:])
    assert "1 of 2 files 'data/train-*-of-00002' are missing, such as number 0" in torn
    assert "name one of hub:corag/kilt/fever/test-*, hub:corag/kilt/nq/test-*." in several
    assert "name one of hub:mteb/hotpotqa/corpus.jsonl, hub:mteb/hotpotqa/qrels/test.jsonl" in beside
    assert "did you mean 'corpus.jsonl'?" in misspelt
    assert "hub:only/pictures@refs/convert/parquet" in pictures
    assert "is not on this machine and could not be fetched" in missing
    assert said[0].startswith("hub:corag/kilt-corpus: 2 files, ")


@pytest.mark.parametrize("name", ["hub:squad", "hub:a/b@"])
def test_what_names_no_data_set_of_the_hub(name: str) -> None:
    with raises_message(ConfigError):
        expand_corpus([name], print)


def test_a_folder_of_parquet_is_one_corpus_and_a_folder_of_documents_is_not(tmp_path: Path) -> None:
    mirror = tmp_path / "kilt-corpus"
    for name, content in SHARDS.items():
        (mirror / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror / name).write_bytes(content)
    said: list[str] = []
    files = expand_corpus([str(mirror)], said.append)
    assert [Path(file).name for file in files] == [Path(name).name for name in sorted(SHARDS)[1:]]
    assert len(said) == 1 and "2 files of records" in said[0]
    ids = [each.id for each in read_corpus(files, "auto", CorpusReport())]
    assert ids == [row["id"] for row in ROWS], "as context_doc_ids name them"
    paged = [each.id for each in read_corpus(files, "kilt", CorpusReport())]
    assert paged[:2] == ["7-0", "7-1"]

    (mirror / "guide.md").write_text("# Guide\n")
    assert expand_corpus([str(mirror)], print) == [str(mirror)], "documents with tables among them"
    (mirror / "guide.md").unlink()
    (mirror / "data" / "test-00000-of-00001.parquet").write_bytes(parquet(ROWS))
    with raises_message(ConfigError):
        expand_corpus([str(mirror)], print)
    (mirror / "data" / "test-00000-of-00001.parquet").unlink()
    (mirror / LAST).unlink()
    with raises_message(DataError):
        expand_corpus([str(mirror)], print)
