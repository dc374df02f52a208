"""Gold passages by file, page or title, since the ids of a folder's passages are hashes of their text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.errors import DataError
from corag.core.types import Passage, Question
from corag.generation.config import ModelConfig
from eval.experiment.gold import match_gold
from eval.experiment.run import RunConfig, answer_dataset, run_environment
from eval.tables.results import table_of_runs
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.aliases import Aliases
from retrieval.index.build import build_index
from retrieval.index.store import PassageStore, storing
from retrieval.search.batched import BatchedRetriever
from retrieval.search.pipeline import open_retriever
from tests.eval.report_runs import Page
from tests.eval.runs import make_run, row
from tests.fakes import WordRetriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore
from tests.retrieval.test_http import served

PASSAGES = [
    Passage("1", "Handbook > Leave > Sick leave", "Ill for three days.", "staff/handbook.pdf", 3),
    Passage("2", "Handbook > Travel", "First class.", "staff/handbook.pdf", 4),
    Passage("3", "Pumps", "TR-9 pumps.", "manuals/tr9.md"),
    Passage("4", "Readme", "Read me.", "manuals/readme.md"),
    Passage("5", "Readme", "Read me, too.", "staff/readme.md"),
]


@pytest.fixture
def index(tmp_path: Path) -> str:
    list(storing(PASSAGES, tmp_path))
    return str(tmp_path)


async def gold(index: str, *supporting: str) -> tuple[str, ...]:
    question = Question("q", "Who?", ("X",), supporting)
    (matched,) = await match_gold([question], WordRetriever(PASSAGES), [index])
    return matched.supporting


async def test_files_pages_and_titles_are_gold_as_well_as_ids(index: str) -> None:
    assert await gold(index, "manuals/tr9.md", "2") == ("file:manuals/tr9.md", "2")
    assert await gold(index, "tr9.md") == await gold(index, "my/manuals/tr9.md") == ("file:manuals/tr9.md",)
    assert await gold(index, "handbook.pdf, page 3") == ("file:staff/handbook.pdf, page 3",)
    assert await gold(index, "Handbook > Leave") == ("title:Handbook > Leave",)
    assert await gold(index, "title:Pumps", "file:tr9.md") == ("title:Pumps", "file:manuals/tr9.md")


async def test_files_of_a_store_are_gold_beside_an_index_without_one(index: str, tmp_path: Path) -> None:
    (without := tmp_path / "without").mkdir()
    asked = [Question("q", "Who?", ("X",), ("tr9.md",))]
    (matched,) = await match_gold(asked, WordRetriever(PASSAGES), [index, str(without)])
    assert matched.supporting == ("file:manuals/tr9.md",)


async def test_what_is_nothing_in_the_index_leaves_no_recall_and_is_told(
    index: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await gold(index, "manuals/tr8.md") == ()
    assert "lacks gold passages of 1 of 1 questions, such as 'manuals/tr8.md'" in " ".join(
        capsys.readouterr().err.split()
    )
    with raises_message(DataError):
        await gold(index, "readme.md")
    assert await gold(index, "manuals/readme.md") == ("file:manuals/readme.md",)


async def test_a_name_of_several_files_is_refused_before_anything_opens(index: str, tmp_path: Path) -> None:
    model = ModelConfig(name=str(tmp_path / "no model"), backend="transformers")
    places = {"retriever": RetrieverConfig([index]), "out": str(tmp_path / "out")}
    config = RunConfig(questions="q.jsonl", model=model, **places)
    with raises_message(DataError):
        await answer_dataset(config, [Question("q", "Who?", ("X",), ("readme.md",))])


async def test_an_index_and_a_model_may_have_a_colon_in_their_names(index: str, tmp_path: Path) -> None:
    Path(index).rename(named := tmp_path.parent / f"{tmp_path.name}:v2")
    assert await gold(str(named), "tr9.md") == ("file:manuals/tr9.md",)
    assert ModelConfig(name=str(named), backend="vllm").backend == "vllm"
    assert ModelConfig(name="mine.py:model", backend="vllm").backend == "python"


async def test_beside_a_retriever_of_ones_own_gold_passages_count_as_they_stand(index: str) -> None:
    asked = [Question("1", "Who?", ("X",), ("tr9.md",)), Question("2", "Who?", ("X",), ("mine-7",))]
    assert await match_gold(asked, WordRetriever(PASSAGES), [index, "mine.py:search"]) == asked


async def test_a_part_of_a_document_counts_as_it_wherever_the_index_is_by_now(
    index: str, tmp_path: Path
) -> None:
    Aliases(numbered=True).save(Path(index))
    config = RunConfig(questions="questions.jsonl")
    async with served(BatchedRetriever(PassageStore(Path(index)), "x", Path(index))) as url:
        opened = await open_retriever(RetrieverConfig(url=[url], links="titles"))
        start = run_environment(config, {"method": "one_step", "retriever": ""}, opened)
        await opened.close()
    asked = Question("1", "Who?", ("X",), ("p9",))
    run = make_run(tmp_path / "run", [row(asked, "X", ["p1", "p9#2"])], **start)
    assert table_of_runs({"run": run}).to_json()["runs"]["run"]["recall"] == 1


@pytest.mark.parametrize(
    ("index", "gold", "titles"),
    [
        ("nowhere", ("title:About p1", "title:About p9"), ()),
        ("mine.py:search", ("About p1", "About p9"), ()),
        ("mine.py:search", ("h1", "h9"), ("About p1", "About p9")),
    ],
    ids=[
        "titles of an index",
        "names of an own retriever",
        "titles of an own retriever",
    ],
)
def test_a_report_finds_the_gold_passages_that_a_table_counts(
    tmp_path: Path, index: str, gold: tuple[str, ...], titles: tuple[str, ...]
) -> None:
    asked = [Question(name, "Who?", ("X",), gold, titles=titles) for name in "abc"]
    asked[2] = replace(asked[2], supporting=())
    rows = [row(each, "X", ids) for each, ids in zip(asked, (["p0", "p1"], ["p0"], ["p1"]), strict=True)]
    start = {"retriever": {"index": [index], "url": []}}
    run = make_run(tmp_path / "run", rows, **start)
    closed = {"method": "closed_book", "retriever": ""}
    without = make_run(tmp_path / "without", [row(each, "X") for each in asked], closed, **start)
    assert main(["table", str(run), str(without), "--report", str(tmp_path / "report.html")]) == 0
    page = Page(tmp_path / "report.html")
    table = table_of_runs({"run": run, "without": without}).to_json()["runs"]
    shares = []
    for each in asked[:2]:
        shown, ids = page.trace("run", each.id), page.ids
        shares.append(sum(place > 0 for _, place in shown["places"]) / len(shown["places"]))
        assert [ids[number] for number in shown.get("gold", [])] == ["p1"] * (each.id == "a"), (
            "the mark of chips"
        )
        assert page.gold(each.id)["supporting"] == [number for number, _ in shown["places"]], (
            "none is missing on the card"
        )
    recall = [each["recall"] for each in page.index["rows"][0]]
    assert shares == recall[:2] == [0.5, 0.0] and sum(shares) / 2 == table["run"]["recall"]
    for name, question in (("run", "c"), ("without", "a")):
        assert "places" not in page.trace(name, question), "what has no recall has missed nothing"
    assert recall[2] is None and table["without"]["recall"] is None


@pytest.mark.slow
def test_documents_of_ones_own_are_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = tmp_path / "docs"
    (docs / "manuals").mkdir(parents=True)
    for name, text in (
        ("tr9.md", "# Pumps\n\nThe TR-9 takes valve 12."),
        ("vg.md", "# Valves\n\nVG-68 is blue."),
    ):
        (docs / "manuals" / name).write_text(text)
    out = str(tmp_path / "index")
    config = IndexConfig([str(docs)], out)
    build_index(config, ignore)
    capsys.readouterr()
    assert main(["search", out, "which", "valve", "takes", "the", "TR-9", "--k", "1", "--json"]) == 0
    *shown, line = capsys.readouterr().out.splitlines()
    hit = json.loads(line)
    assert (hit["source"], hit["title"], hit["rank"]) == ("manuals/tr9.md", "Pumps", 1)
    assert "Pumps (manuals/tr9.md)" in shown[0] and hit["id"] in shown[1] and "valve 12" in shown[2]
    assert main(["search", out, "zebras"]) == 0 and "has any of these words" in capsys.readouterr().out
    assert main(["search", out]) == 2 and "no query was given" in capsys.readouterr().err


async def test_titles_beside_gold_that_the_index_has_take_nothing_away(index: str) -> None:
    async def matched(*titles: str) -> tuple[str, ...]:
        question = Question("q", "Who?", ("X",), ("handbook.pdf, page 3",), titles=titles)
        return (await match_gold([question], WordRetriever(PASSAGES), [index]))[0].supporting

    assert await matched("Leave") == ("file:staff/handbook.pdf, page 3",)
    assert await matched("Handbook > Leave") == ("title:Handbook > Leave",)
    hashed = Question("q", "Who?", ("X",), ("0123456789abcdef",), titles=("Handbook > Leave",))
    (by_title,) = await match_gold([hashed], WordRetriever(PASSAGES), [index])
    assert by_title.supporting == ("title:Handbook > Leave",), "a heading above it is a passage's title, too"
