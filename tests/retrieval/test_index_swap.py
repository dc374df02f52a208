"""An index is updated while others search it; whatever interrupts that, the same command goes on."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from corag.core.errors import ConfigError, DataError, IndexMismatchError
from corag.core.protocols import Retriever
from corag.core.system.folder_lock import lock_folder
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.index.place import building_folder
from retrieval.search.pipeline import open_retriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore

pytestmark = pytest.mark.slow

BEASTS = ("Zebras", "Yaks", "Wolves", "Voles", "Tapirs", "Seals")


def write_documents(folder: Path, places: str) -> Path:
    """Write seven documents that all name these places; one has the same text as another."""
    (folder / "again").mkdir(parents=True, exist_ok=True)
    for number, beast in enumerate(BEASTS):
        (folder / f"{number}.txt").write_text(f"{beast} live in {places}.")
    (folder / "again/0.txt").write_text(f"{BEASTS[0]} live in {places}.")
    return folder


@pytest.fixture
def config(tmp_path: Path) -> IndexConfig:
    docs = write_documents(tmp_path / "docs", "Zanzibar")
    config = IndexConfig([str(docs)], str(tmp_path / "index"))
    build_index(config, ignore)
    return config


async def texts(retriever: Retriever, query: str = "zebras") -> set[str]:
    return {hit.passage.text for hit in await retriever.search(query, 3)}


async def search(folder: Path, query: str = "zebras") -> set[str]:
    retriever = await open_retriever(RetrieverConfig([str(folder)]))
    try:
        return await texts(retriever, query)
    finally:
        await retriever.close()


OLD, NEW = {"Zebras live in Zanzibar."}, {"Zebras live in Zambia."}

# Ends itself by kill -9 when Python is about to open, rename or remove its n-th file of the build.
KILLED = """
import os, signal, sys
from corag.cli.main import main

at, seen = int(sys.argv[1]), 0
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir")

def hook(event, arguments):
    global seen
    if event in EVENTS and "index" in str(arguments[0]):
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
main(["index", sys.argv[2], "--out", sys.argv[3]])
print("events", seen)
"""


def update(config: IndexConfig, at: int) -> tuple[int, str]:
    """Update an index in a process that ends itself at the ``at``-th event; return its status and output."""
    command = [sys.executable, "-c", KILLED, str(at), *config.corpus, config.out]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    return result.returncode, result.stdout


@pytest.mark.drill
async def test_killed_at_any_moment_an_update_leaves_the_old_index_or_the_new_one(
    config: IndexConfig,
) -> None:
    docs, out = Path(config.corpus[0]), Path(config.out)
    write_documents(docs, "Zambia")
    status, output = update(config, 0)
    assert status == 0 and await search(out) == NEW
    count = int(output.split()[-1])
    assert count > 30
    build_index(config, ignore)
    places, answers = ["Zanzibar", "Zambia"], []
    # Spread over the build, and each of the last, around the swap.
    for at in (*range(1, count - 8, (count - 8) // 5), *range(count - 7, count)):
        write_documents(docs, places[0])
        status, output = update(config, at)
        assert status == -signal.SIGKILL, f"moment {at}: {output}"
        if out.exists():  # but between two renames
            (answer,) = await search(out)
            answers.append(places[0] in answer)
            assert answer in {f"Zebras live in {place}." for place in places}
        build_index(config, ignore)
        assert await search(out) == {f"Zebras live in {places[0]}."}
        assert not building_folder(out).exists()
        places.reverse()
    assert len(answers) >= 10 and set(answers) == {False, True}, "before the swap the old one, then the new"


async def test_whoever_has_opened_an_index_keeps_it(config: IndexConfig) -> None:
    out = Path(config.out)
    reader = await open_retriever(RetrieverConfig([config.out], cache_size=0))
    write_documents(Path(config.corpus[0]), "Zambia")
    build_index(config, ignore)
    assert await texts(reader) == OLD and await search(out) == NEW
    (passage,) = [hit.passage for hit in await reader.search("yaks", 1)]
    assert await reader.passages([passage.id]) == (passage,)
    await reader.close()


async def test_a_link_to_an_index_stays_a_link(config: IndexConfig, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(config.out)
    write_documents(Path(config.corpus[0]), "Zambia")
    build_index(IndexConfig(config.corpus, str(link)), ignore)
    assert link.is_symlink() and await search(link) == await search(Path(config.out)) == NEW


@pytest.mark.parametrize("overwrite", [False, True])
async def test_a_complete_build_that_was_not_renamed_is_taken_as_it_is(
    config: IndexConfig, overwrite: bool
) -> None:
    write_documents(Path(config.corpus[0]), "Zambia")
    (in_the_way := Path(config.out).with_name(".index.replaced")).touch()
    with pytest.raises(DataError):
        build_index(config, ignore)
    in_the_way.unlink()
    assert await search(Path(config.out)) == OLD
    told: list[str] = []
    build_index(replace(config, overwrite=overwrite), told.append)
    assert not told and await search(Path(config.out)) == NEW


def test_a_second_builder_is_told_of_the_first(config: IndexConfig) -> None:
    write_documents(Path(config.corpus[0]), "Zambia")
    with lock_folder(Path(config.out), work="corag index", beside=True), raises_message(ConfigError):
        build_index(config, ignore)
    assert build_index(config, ignore).passages == 6


async def test_an_update_from_which_most_files_are_missing_is_refused(config: IndexConfig) -> None:
    docs, out = Path(config.corpus[0]), Path(config.out)
    for name in ("0.txt", "1.txt", "2.txt", "3.txt", "again/0.txt"):
        (docs / name).unlink()
    with raises_message(IndexMismatchError):
        build_index(config, ignore)
    assert await search(out) == OLD
    below = docs / "below"
    below.mkdir()
    for number in (4, 5):
        (docs / f"{number}.txt").rename(below / f"{number}.txt")
    with raises_message(IndexMismatchError):
        build_index(IndexConfig([str(below)], config.out), ignore)
    assert build_index(IndexConfig([str(below)], config.out, overwrite=True), ignore).passages == 2
    assert await search(out) != OLD


def test_a_folder_of_the_users_own_is_not_built_in(config: IndexConfig) -> None:
    notes = building_folder(Path(config.out)) / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    write_documents(Path(config.corpus[0]), "Zambia")
    with raises_message(IndexMismatchError):
        build_index(config, ignore)
    assert notes.read_text() == "mine"
