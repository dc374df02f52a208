"""Long units: every passage in exactly one, related ones together, none larger than was asked for."""

import json
import random
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError, DataError
from corag.core.units import load_units
from retrieval.config import IndexConfig
from retrieval.index.build import build_index
from retrieval.index.long_units import build_units, group_documents
from tests.hub import parquet
from tests.messages import raises_message
from tests.retrieval.conftest import ignore

RECORDS = [
    {
        "id": "book",
        "title": "The Glass Orchard",
        "text": "A novel by Mara Velden's hand.",
        "links": ["Mara Velden"],
    },
    {"id": "town", "title": "Tarn Hollow", "text": "A town on the Issel.", "links": ["river", "Nowhere"]},
    {"id": "writer", "title": "Mara Velden", "text": "A writer, born in Tarn Hollow.", "links": []},
    {"id": "river", "title": "Issel (river)", "text": "Water flows in it."},
    {"id": "town-2", "title": "Tarn Hollow", "text": "Its people make rope."},
    {"id": "alone", "title": "", "text": "Nothing is related to this."},
]


def corpus_of(folder: Path, records: list[dict[str, object]]) -> list[str]:
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return [str(file)]


def config_of(folder: Path, corpus: list[str], **options: object) -> IndexConfig:
    made = {f"long_unit_{name}": value for name, value in options.items()}
    out, units = str(folder / "index"), str(folder / "units.jsonl")
    return IndexConfig(corpus, out, overwrite=True, long_units=units, **made)  # type: ignore[arg-type]


def units_in(folder: Path) -> list[list[str]]:
    lines = (folder / "units.jsonl").read_text().splitlines()
    return [json.loads(line)["passages"] for line in lines]


def grouped(folder: Path, records: list[dict[str, object]], **options: object) -> tuple[list[list[str]], str]:
    config = config_of(folder, corpus_of(folder, records), **options)
    report = build_units(config, build_index(config, ignore))
    units = units_in(folder)
    assert sorted(name for unit in units for name in unit) == sorted(str(record["id"]) for record in records)
    return units, report


def test_documents_that_link_to_each_other_are_read_together(tmp_path: Path) -> None:
    units, report = grouped(tmp_path, RECORDS)
    assert units == [["book", "writer"], ["town", "town-2", "river"], ["alone"]], (
        "titles, ids; in the corpus's order"
    )
    assert report.endswith(
        ": 3 units of 5 documents, 4 of them linked (by field); 10.0 words on average, 13 at most."
    )


def test_a_folder_of_tables_is_grouped_as_the_same_records_in_a_file(tmp_path: Path) -> None:
    """What 'corag index' takes is what can be grouped: Parquet folders, data sets of the hub."""
    folder = tmp_path / "tables"
    folder.mkdir()
    records = [{"text": "", **record, "links": record.get("links", [])} for record in RECORDS]
    for number in range(2):
        (folder / f"train-0000{number}-of-00002.parquet").write_bytes(
            parquet(records[3 * number : 3 * number + 3])
        )
    build_index(config_of(tmp_path, [str(folder)]), ignore)
    assert units_in(tmp_path) == grouped(tmp_path, RECORDS)[0]


def test_mentions_of_titles_stand_in_for_links(tmp_path: Path) -> None:
    units, report = grouped(tmp_path, RECORDS, links="mentions")
    assert units == [["book", "town", "town-2", "writer", "river"], ["alone"]]
    assert "(by mentions)" in report
    units, _ = grouped(tmp_path, RECORDS, links="mentions", words=14)
    assert units == [["book", "writer"], ["town", "town-2", "river"], ["alone"]]


def test_without_links_a_unit_is_a_title(tmp_path: Path) -> None:
    bare = [{key: value for key, value in record.items() if key != "links"} for record in RECORDS]
    by_title = [["book"], ["town", "town-2"], ["writer"], ["river"], ["alone"]]
    units, report = grouped(tmp_path, bare)
    assert units == by_title and "(by title)" in report
    assert grouped(tmp_path, RECORDS, links="title")[0] == by_title
    with raises_message(DataError):
        grouped(tmp_path, bare, links="field")


@pytest.mark.parametrize(
    ("text", "related"),
    [
        ("She read Middlemarch yesterday.", True),
        ("She read middlemarch.", False),
        ("He met Annabel.", False),  # two documents have that name
    ],
)
def test_what_counts_as_a_mention(tmp_path: Path, text: str, related: bool) -> None:
    titles = ["Reading", "Middlemarch (novel)", "Annabel (film)", "Annabel (singer)"]
    records: list[dict[str, object]] = [{"id": title, "title": title, "text": "text"} for title in titles]
    units, _ = grouped(tmp_path, [{**records[0], "text": text}, *records[1:]], links="mentions")
    assert (titles[:2] in units) == related and len(units) == (3 if related else 4)


def test_a_long_document_is_split_between_passages(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [
        {"id": f"p{number}", "title": "Long", "text": f"{number} " + "word " * 9} for number in range(5)
    ]
    records.append({"id": "huge", "title": "Huge", "text": "word " * 50})
    units, report = grouped(tmp_path, records, words=25)
    assert units == [["p0", "p1"], ["p2", "p3"], ["p4"], ["huge"]], "a passage is never cut"
    assert "50 at most" in report


def test_groups_by_hand() -> None:
    # A star: its leaves come first and stay apart, then the centre takes the smallest groups that fit.
    assert group_documents([1, 6, 3, 4], [[1, 2, 3], [0], [0], [0]], 8) == [[0, 2, 3], [1]]
    # A chain grows together over documents that are not related themselves.
    assert group_documents([1] * 4, [[1], [0, 2], [1, 3], [2]], 4) == [[0, 1, 2, 3]]
    assert group_documents([9], [[]], 3) == [[0]]


def test_random_graphs_are_partitioned_within_the_size() -> None:
    for seed in range(30):
        draw = random.Random(seed)
        sizes = [draw.randint(1, 20) for _ in range(60)]
        neighbours: list[list[int]] = [[] for _ in sizes]
        for _ in range(90):
            one, other = draw.sample(range(60), 2)
            if other not in neighbours[one]:
                neighbours[one].append(other)
                neighbours[other].append(one)
        groups = group_documents(sizes, neighbours, 40)
        assert sorted(member for group in groups for member in group) == list(range(60))
        assert all(sum(sizes[member] for member in group) <= 40 for group in groups)
        assert groups == group_documents(sizes, neighbours, 40) and len(groups) < 60


def test_the_command_writes_what_longrag_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus,) = corpus_of(tmp_path, RECORDS)
    out = tmp_path / "made" / "units.jsonl"
    index = ["index", corpus, "--out", str(tmp_path / "index"), "--long_units", str(out)]
    for _ in range(2):  # the second time the index is there already
        assert main([*index, "--long_unit_words", "100"]) == 0
        assert f"{out}: 3 units of 5 documents, 4 of them linked (by field)" in capsys.readouterr().err
    units = load_units(str(out))
    assert units["book"] is units["writer"] and units["book"].passage_ids == ("book", "writer")


def test_impossible_options_are_refused(tmp_path: Path) -> None:
    with raises_message(ConfigError):
        IndexConfig([], "", long_unit_words=0)
    with raises_message(DataError):
        grouped(tmp_path, [{**RECORDS[0], "links": "Mara Velden"}])


def test_of_own_documents_each_file_is_a_document(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# Tarn Hollow\n\nOne.\n\n## The Old Bridge\n\nTwo.\n")
    texts = ["Three lie in Tarn Hollow.", "It is near the Old Bridge.", "see a.md", "No."]
    for number, text in enumerate(texts):
        (docs / f"{number}.txt").write_text(text)
    for links, sizes in (("auto", [1, 1, 1, 1, 2]), ("mentions", [5, 1])):
        build_index(config_of(tmp_path, [str(docs)], links=links), ignore)
        assert [len(unit) for unit in units_in(tmp_path)] == sizes
