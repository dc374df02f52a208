"""Tables that others wrote are read as they were written: a round trip for corpora and for documents."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corag.core.errors import DataError
from retrieval.corpora.records import NO_COLUMNS, OddRecordError
from retrieval.corpora.tables import read_table
from retrieval.documents.document import Writer
from retrieval.documents.rows import read_table_file, write_rows
from tests.messages import raises_message

NAMES = ("id", "title", "text")
PIECES = ["Ada", "was born", " ", ",", ";", "|", "\t", '"', '""', '", "', "\n", "\n\n", "\\", "5.2", "'", "#"]
BOOK = "".join(f"Line {n}, of the; book\n" for n in range(3000))


def random_rows(chance: random.Random, delimiter: str) -> list[list[str]]:
    rows = [
        [
            str(number),
            "".join(chance.choices(PIECES, k=chance.randrange(4))),
            "".join(chance.choices([*PIECES, delimiter], k=chance.randrange(1, 9))),
        ]
        for number in range(chance.randrange(2, 30))
    ]
    if chance.random() < 0.3:
        chance.choice(rows)[2] = BOOK
    # At least one of the first cells is in need of marks, or of what is instead of them.
    return [["first", "", f'"A{delimiter} b"{delimiter}\nc'], *rows]


def read_rows(path: Path) -> list[list[str]]:
    rows = list(read_table(path, NO_COLUMNS).rows())
    assert not [row for row in rows if isinstance(row, OddRecordError)]
    return [list(row[1].values()) for row in rows if not isinstance(row, OddRecordError)]


def assert_round_trip(path: Path, content: str, rows: Sequence[Sequence[str]]) -> None:
    path.write_bytes(content.encode())
    assert read_rows(path) == rows
    document = read_table_file(content.encode(), "t")
    writer = Writer("t")
    write_rows(writer, [NAMES, *rows], "row {}".format, header_by_words=True)
    assert [(each.page, each.text) for each in document.blocks] == [
        (each.page, each.text) for each in writer.document().blocks
    ]


WRITERS: dict[str, dict[str, Any]] = {
    "minimal": {"quoting": csv.QUOTE_MINIMAL},
    "all": {"quoting": csv.QUOTE_ALL},
    "words": {"quoting": csv.QUOTE_NONNUMERIC},
    "none": {"quoting": csv.QUOTE_NONE, "escapechar": "\\"},
    "escaped": {"quoting": csv.QUOTE_ALL, "doublequote": False, "escapechar": "\\"},
}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_csv_writes_is_read_as_it_was(writer: str, delimiter: str, tmp_path: Path) -> None:
    for seed in range(30):
        chance = random.Random(seed)
        rows = random_rows(chance, delimiter)
        stream = io.StringIO()
        # csv.writer puts no marks around a "\n" where its rows end in "\r", unless it puts them around all.
        endings = ["\n", "\r\n", "\r"] if writer in ("all", "words", "escaped") else ["\n", "\r\n"]
        ending = chance.choice(endings)
        csv.writer(stream, delimiter=delimiter, lineterminator=ending, **WRITERS[writer]).writerows(
            [NAMES, *rows]
        )
        assert_round_trip(tmp_path / "t.csv", stream.getvalue(), rows)


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_what_pandas_writes_is_read_as_it_was(delimiter: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for seed in range(10):
        chance = random.Random(seed)
        rows = random_rows(chance, delimiter)
        quoting = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
        content = pandas.DataFrame(rows, columns=NAMES).to_csv(sep=delimiter, index=False, quoting=quoting)
        assert_round_trip(tmp_path / "t.csv", content, rows)


def test_a_note_says_which_rows_of_a_document_were_guessed() -> None:
    def read(content: str) -> tuple[list[str], tuple[str, ...]]:
        document = read_table_file(content.encode(), "t")
        return [each.text for each in document.blocks], document.notes

    rest = 'Bob,"p, q",6\nCid,r,7\n'
    rows, notes = read(f'name,note,n\nAda,"line one, x\nline two" ,5\n{rest}')  # a blank is no text
    assert rows[0] == "name: Ada | note: line one, x line two | n: 5" and len(rows) == 3 and not notes
    rows, notes = read(f'name,note,n\nAda,"open,5\n{rest * 4}')
    assert rows[1:] == ["name: Bob | note: p, q | n: 6", "name: Cid | note: r | n: 7"] * 4
    assert notes == (
        "1 row(s) whose quotation marks do not close were taken as they stand, row 2 first: a spreadsheet "
        "program may number the rows below it otherwise",
    )
    rows, notes = read('name, city\nAda, "Orvale, north"\nBob, "X, y"\n')
    assert rows == ["name: Ada | city: Orvale, north", "name: Bob | city: X, y"]
    assert notes == ("quotation marks are read by a guess: blanks before an opening mark are left out",)


def test_a_table_within_a_cell_stays_there(tmp_path: Path) -> None:
    content = 'id\ttext\n1\t"Table:\nx\t1\ny\t2\nend"\n2\tplain\n'
    (tmp_path / "t.tsv").write_text(content)
    assert read_rows(tmp_path / "t.tsv") == [["1", "Table:\nx\t1\ny\t2\nend"], ["2", "plain"]]


def test_lines_of_remarks_above_the_header_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("# made by x\nid,text\n1,a b c\n")
    table = read_table(tmp_path / "t.csv", NO_COLUMNS)
    assert [*table.rows()] == [(f"{tmp_path / 't.csv'}, line 3", {"id": "1", "text": "a b c"})]
    assert table.description.endswith("1 line(s) of '#' above are left out")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,text,text\n1,aaa,zzz\n")
    with raises_message(DataError):
        read_table(tmp_path / "t.csv", NO_COLUMNS)
