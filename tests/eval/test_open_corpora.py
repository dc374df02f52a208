"""HotpotQA open, on a small corpus in BEIR's layout: gold passages by judgements, and by title."""

import json
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from corag.cli.main import main
from corag.core.types import Question
from eval.datasets.load import load_questions
from eval.experiment.executor import RemoteHandle
from eval.experiment.gold import match_gold
from retrieval.index.manifest import HASHES, INDEX_FILE
from retrieval.index.store import STORE_FILES
from retrieval.search.pipeline import open_retriever
from retrieval.search.places import open_passages
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import QUESTION, WORLD

# BEIR's ids are those of Wikipedia's pages.
CORPUS = [
    {"_id": str(700 + n), "title": each.title, "text": each.text, "metadata": {}}
    for n, each in enumerate(WORLD)
]
GOLD = ["The Glass Orchard", "Mara Velden", "Tarn Hollow"]
OFFICIAL = {
    "_id": "5a8b", "question": QUESTION.text, "answer": "Issel", "type": "bridge",
    "supporting_facts": [[title, 0] for title in GOLD],
    "context": [[each.title, [f" {each.text}"]] for each in WORLD],
}  # fmt: skip


@pytest.fixture(scope="module")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in BEIR's layout with its BM25 index, and a copy of that as Pyserini's prebuilt ones are."""
    folder = tmp_path_factory.mktemp("hotpotqa")
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CORPUS))
    query = {"_id": "5a8b", "text": QUESTION.text, "metadata": {"answer": "Issel", "supporting_facts": []}}
    (folder / "queries.jsonl").write_text(json.dumps(query) + "\n")
    judged = "".join(f"5a8b\t{each['_id']}\t1\n" for each in CORPUS if each["title"] in GOLD)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    for name in ("index", "prebuilt"):
        assert main(["index", str(folder / "corpus.jsonl"), "--out", str(folder / name)]) == 0
    for name in (*STORE_FILES, INDEX_FILE, HASHES):
        (folder / "prebuilt" / name).unlink()
    return folder


@pytest.mark.parametrize("index", ["index", "prebuilt"])
def test_recall_is_right_on_an_open_corpus(
    beir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    index: str,
) -> None:
    @asynccontextmanager
    async def scripted(setup: Any) -> Any:
        retriever = await open_retriever(setup.retriever)
        yield ScriptedGenerator(lambda _: "Issel"), retriever
        await retriever.close()

    monkeypatch.setattr("eval.experiment.open_executor.open_backends", scripted)
    wide = OFFICIAL | {"context": [["Glassware", ["Glassware is made of sand."]]]}
    for name, record in (("distractor", OFFICIAL), ("fullwiki", wide)):
        (tmp_path / f"{name}.json").write_text(json.dumps([record]))
    judged = ["--dataset", "beir", "--questions", beir / "qrels/test.tsv", "--scorer", "hotpotqa"]
    official = [
        ["--dataset", "hotpotqa", "--questions", tmp_path / f"{name}.json"]
        for name in ("distractor", "fullwiki")
    ]
    for number, questions in enumerate([judged, *official]):
        out = tmp_path / f"runs-{number}"
        options = ["--method", "one_step", "--one_step.k", 2, "--retriever.index", beir / index, "--out", out]
        capsys.readouterr()
        assert main(list(map(str, ["run", *questions, *options]))) == 0
        said = capsys.readouterr().err
        assert ("count by title, such as 'The Glass Orchard'" in said) == bool(number)
        assert main(["table", str(out / "one_step"), "--answer_recall", "--json"]) == 0
        figures = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]["one_step"]
        assert figures["recall"] == pytest.approx(2 / 3, abs=1e-4), "two of three, by whichever ids"
        assert figures["em"] == 1.0 and "answer_recall" in figures


async def matched(questions: Sequence[Question], index: Any, *folders: object) -> list[tuple[str, ...]]:
    return [each.supporting for each in await match_gold(questions, index, list(map(str, folders)))]


async def test_titles_are_looked_up_wherever_the_index_is(
    beir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = OFFICIAL | {"_id": "q2", "supporting_facts": [["Mara Velden", 0], ["Renamed since", 0]]}
    (tmp_path / "q.json").write_text(json.dumps([OFFICIAL, renamed]))
    questions = load_questions(tmp_path / "q.json", "hotpotqa")
    by_title = tuple(f"title:{title}" for title in GOLD)
    for index, folder in (
        (RemoteHandle("elsewhere"), "index"),  # in workers, with passages beside the index
        (RemoteHandle("elsewhere"), "prebuilt"),  # without: Lucene has the texts
        (WordRetriever(WORLD), "no/index/here"),  # open here, or a server's
    ):
        where = beir / folder
        assert await matched(questions, index, where) == [by_title, ()], folder
        said = " ".join(capsys.readouterr().err.split())
        assert "of 1 of 2 questions have other ids in the index: they count by title" in said
        assert "lacks gold passages of 1 of 2 questions, such as 'Renamed since'" in said
    assert await matched(questions, RemoteHandle("elsewhere"), "no/index/here") == [
        each.supporting for each in questions
    ], "nobody can tell"


async def test_ids_that_the_index_has_are_kept(tmp_path: Path, beir: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps([OFFICIAL]))
    assert (
        main(["index", str(tmp_path / "q.json"), "--format", "hotpotqa", "--out", str(tmp_path / "i")]) == 0
    )
    questions = load_questions(tmp_path / "q.json", "hotpotqa")
    assert await matched(questions, RemoteHandle("x"), tmp_path / "i") == [questions[0].supporting]
    source = open_passages(str(beir / "prebuilt"))
    assert source is not None and source.passages(["700"])["700"].title == GOLD[0]
    source.close()
