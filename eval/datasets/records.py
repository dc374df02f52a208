"""The raw records of question files, in all the containers that such files come in.

JSON Lines, JSON (a list, SQuAD's articles, columns, a mapping of ids to records), tables (.csv, .tsv), Excel,
Parquet, a folder of Hugging Face's ``save_to_disk``, and lines of text. A record that cannot be read is
counted in the report, and reading goes on.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.core.compression import content_name
from corag.core.errors import DataError, reason
from corag.core.files import open_text, parse_json
from corag.core.installation import require
from eval.datasets.fields import Record
from eval.datasets.report import QuestionReport

PlacedRecords = Iterator[tuple[str, Record]]
"""Records, each after the words that name its place in messages, such as "dev.jsonl, line 3"."""

_LISTS = ("data", "examples", "questions", "items", "records", "rows", "samples", "test_cases", "results")
_QUESTION_COLUMNS = ("question", "query", "user_input", "prompt")
_SEPARATORS = "\t;,|"
# First bytes say more than a name: a table may be an Excel file that somebody called .csv.
_EXCEL, _PARQUET, _OLD_EXCEL = b"PK\x03\x04", b"PAR1", b"\xd0\xcf\x11\xe0"


def read_file_records(source: str, report: QuestionReport) -> PlacedRecords:
    """Stream the records of a question file.

    Raises :class:`DataError` if it is not there, or is no such file at all.
    """
    path = Path(source)
    if path.is_dir():
        return _rows(_saved_dataset(path), source)
    if not path.is_file():
        raise DataError(
            f"there is no file '{source}': check the path, or give a split to read a Hugging Face dataset."
        )
    with path.open("rb") as stream:
        first = stream.read(4)
    suffix = Path(content_name(source)).suffix.lower()
    if first == _EXCEL:
        return _sheet_records(source, report)
    if first == _PARQUET:
        return _rows(_parquet_rows(source), source)
    if first == _OLD_EXCEL:
        raise DataError(f"{source} is a file of an older Excel: save it as .xlsx or .csv.")
    if suffix in (".csv", ".tsv", ".tab"):
        return _table_records(source, "," if suffix == ".csv" else "\t", report)
    if suffix == ".txt":
        return _lines(source, report)
    return _json_records(source, report)


def _rows(rows: Iterable[Record], source: str) -> PlacedRecords:
    return ((f"{source}, record {number}", row) for number, row in enumerate(rows, 1))


def _lines(source: str, report: QuestionReport) -> PlacedRecords:
    """Yield a question for each line of text that is not blank."""
    with open_text(source, report.count_strays()) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield f"{source}, line {number}", {"question": line.strip()}


# JSON


def _json_records(source: str, report: QuestionReport) -> PlacedRecords:
    """Yield the records of JSON Lines or of one JSON value, whichever the first line shows."""
    with open_text(source, report.count_strays()) as stream:
        lines = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
        first, second = next(lines, None), next(lines, None)
        if first is None:
            return
        value = _parse_or_none(first[1])
        if isinstance(value, dict) and (second is not None or list_records(value, source) == [value]):
            several = [first, second] if second is not None else [first]
            yield from _json_lines(source, itertools.chain(several, lines), report)
            return
    with open_text(source, report.count_strays(is_reopened=True)) as stream:
        text = stream.read()
    try:
        records = list_records(parse_json(text), source)
    except json.JSONDecodeError as error:
        yield from _broken_json(source, text, error, report)
        return
    yield from _objects(_rows(records, source), report)


def _json_lines(source: str, lines: Iterable[tuple[int, str]], report: QuestionReport) -> PlacedRecords:
    def parse_lines() -> Iterator[tuple[str, Any]]:
        for number, line in lines:
            where = f"{source}, line {number}"
            try:
                yield where, parse_json(line)
            except json.JSONDecodeError as error:
                report.drop(where, f"not valid JSON ({error.msg.removesuffix(' at')})")

    return _objects(parse_lines(), report)


def _objects(values: Iterable[tuple[str, Any]], report: QuestionReport) -> PlacedRecords:
    for where, value in values:
        if isinstance(value, dict):
            yield where, value
        else:
            report.drop(where, f"expected a JSON object, found {type(value).__name__}")


def _broken_json(
    source: str, text: str, error: json.JSONDecodeError, report: QuestionReport
) -> PlacedRecords:
    """Yield what can be read of a file that is not one JSON value.

    That is: JSON Lines of which the first is broken, objects printed over several lines each, and a list up
    to its first mistake.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if any(isinstance(_parse_or_none(line), dict) for _, line in lines):
        yield from _json_lines(source, lines, report)
        return
    decoder, position, number = json.JSONDecoder(), text.find("[") + 1 if text.lstrip()[:1] == "[" else 0, 0
    while match := re.compile(r"[\s,]*(?=\{)").match(text, position):
        try:
            value, position = decoder.raw_decode(text, match.end())
            json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            break
        number += 1
        yield f"{source}, record {number}", value
    if text[position:].strip(" \r\n\t,]"):
        message = f"not valid JSON ({error.msg.removesuffix(' at')} at line {error.lineno})"
        if not number:
            raise DataError(f"{source}, line {error.lineno}: {message}.")
        report.drop(f"{source}, record {number + 1}", f"{message}: it and what follows cannot be read")


def _parse_or_none(text: str) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError:
        return None


def list_records(data: Any, source: str) -> list[Any]:
    """Return the records of a JSON value, which may be a list, columns, or wrap them.

    Raises :class:`DataError` for a value that holds none.
    """
    if isinstance(data, list):
        return _unfold_articles(data)
    if isinstance(data, dict) and not data:
        return [data]
    if isinstance(data, dict):
        by_name = {name.lower(): value for name, value in data.items()}
        if isinstance(by_name.get("queries"), dict) and "relevant_docs" in by_name:
            return _query_mapping(by_name)
        inner_list = next((by_name[name] for name in _LISTS if isinstance(by_name.get(name), list)), None)
        if inner_list is not None and not (inner_list and isinstance(inner_list[0], str)):
            return _unfold_articles(inner_list)
        if all(isinstance(value, dict) for value in data.values()):
            return _columns_or_ids(data, source)
        if all(isinstance(value, list) for value in data.values()):
            return _zip_columns(data, source)
        return [data]  # one question
    raise DataError(
        f"{source}: expected a JSON list of objects or one object per line, found {type(data).__name__}."
    )


def _unfold_articles(records: list[Any]) -> list[Any]:
    """Return SQuAD's questions, which lie in paragraphs of articles; other records as they are."""
    return [
        question
        for record in records
        for question in (
            [
                qa
                for paragraph in record["paragraphs"]
                for qa in (paragraph.get("qas", ()) if isinstance(paragraph, dict) else ())
            ]
            if isinstance(record, dict)
            and isinstance(record.get("paragraphs"), list)
            and any(isinstance(each, dict) and "qas" in each for each in record["paragraphs"])
            else [record]
        )
    ]


def _query_mapping(data: Mapping[str, Any]) -> list[Any]:
    """Return the records of ``{"queries": {id: text}, "relevant_docs": {id: [passage id]}}`` (LlamaIndex)."""
    relevant = data["relevant_docs"] if isinstance(data["relevant_docs"], dict) else {}
    return [
        {"id": name, "question": text, "supporting": relevant.get(name)}
        for name, text in data["queries"].items()
    ]


def _columns_or_ids(data: Mapping[str, Mapping[str, Any]], source: str) -> list[Any]:
    """Return records of ``{column: {row: value}}``, as pandas writes them, or of ``{id: record}``."""
    names = {name.lower() for name in data}
    rows = next(iter(data.values()))
    have_same_rows = all(column.keys() == rows.keys() for column in data.values())
    if not names.isdisjoint(_QUESTION_COLUMNS):
        if not have_same_rows:
            raise DataError(
                f"{source}: the columns have different rows: expected the same rows in each column."
            )
        return [{name: column[row] for name, column in data.items()} for row in rows]
    if not names.isdisjoint(("input", "inputs")):
        return [data]  # one record, of inputs and outputs
    return [{"id": name, **record} for name, record in data.items()]


def _zip_columns(data: Mapping[str, Sequence[Any]], source: str) -> list[Any]:
    if len({len(column) for column in data.values()}) > 1:
        raise DataError(f"{source}: the columns have different rows: expected the same number in each.")
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]


# Tables


def _pass_over(_: object) -> None:
    """Say nothing of the encoding: the file is opened once more."""


def _table_records(source: str, separator: str, report: QuestionReport) -> PlacedRecords:
    csv.field_size_limit(sys.maxsize)  # a cell may hold all paragraphs of a question; csv allows 128 KB
    with open_text(source, report.count_strays(), _pass_over) as stream:
        header = stream.readline()
    counts = {each: _outside_quotes(header).count(each) for each in _SEPARATORS}
    if not counts[separator] and max(counts.values()):
        separator = max(counts, key=lambda each: counts[each])
        report.remark(f"{source}, line 1", f"columns are separated by {separator!r}")
    without_quotes = separator == "\t" and _is_unquoted(source, counts["\t"])

    def remark_guess(guess: str) -> None:
        report.remark(source, guess)

    strict = report.strict
    with open_text(source, report.count_strays(is_reopened=True), None if strict else remark_guess) as stream:
        reader = csv.reader(
            stream, delimiter=separator, quoting=csv.QUOTE_NONE if without_quotes else csv.QUOTE_MINIMAL
        )

        def rows() -> Iterator[tuple[str, list[str]]]:
            before = 0
            for row in reader:
                # A cell may have line breaks, so a row is called by the line on which it begins.
                yield (
                    f"{source}, line {before + 1}",
                    [_unquote(cell) for cell in row] if without_quotes else row,
                )
                before = reader.line_num

        yield from _cells_to_records(rows(), report)


def _cells_to_records(
    rows: Iterator[tuple[str, list[Any]]],
    report: QuestionReport,
    empty: Callable[[Any], bool] = lambda c: not c,
) -> PlacedRecords:
    """Yield a record for each row below the header."""
    header: list[str] | None = None
    for where, row in rows:
        if not row or (header is None and all(empty(cell) for cell in row)):
            continue
        if header is None:
            header = [str(cell or "").strip() for cell in row]
        elif all(empty(cell) for cell in row):
            report.drop(where, "the row is empty")
        elif len(row) != len(header):
            report.drop(where, "the row does not have as many cells as the header has names")
        else:
            yield where, dict(zip(header, row, strict=True))


def _outside_quotes(line: str) -> str:
    return re.sub(r'"[^"]*"', "", line)


def _is_unquoted(source: str, tabs: int) -> bool:
    """Whether quotes of a tab-separated file are signs like others: every line has the header's tabs."""
    with open_text(source, _pass_over, _pass_over) as stream:
        return all(line.count("\t") == tabs for line in stream if line.strip())


def _unquote(cell: str) -> str:
    """Take away the quotes of a cell that is quoted after all, as pandas does with those that hold some."""
    inner = cell[1:-1]
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else cell


def _sheet_records(source: str, report: QuestionReport) -> PlacedRecords:
    """Yield the rows of an Excel file's first sheet that has any."""
    from openpyxl import load_workbook  # slow to import

    with Path(source).open("rb") as stream:
        try:
            book = load_workbook(stream, read_only=True, data_only=True)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the library
            raise DataError(
                f"{source} cannot be read as an Excel file ({reason(error)}): save it as .csv."
            ) from None
        sheets = [sheet for sheet in book.worksheets if next(sheet.iter_rows(values_only=True), None)]
        if len(sheets) > 1:
            others = ", ".join(f"'{sheet.title}'" for sheet in sheets[1:])
            report.remark(source, f"the sheet '{sheets[0].title}' is read; others are not: {others}")
        if sheets:
            rows = _sheet_rows(sheets[0].iter_rows(values_only=True), source)
            yield from _cells_to_records(rows, report, lambda cell: cell in (None, ""))


def _sheet_rows(rows: Iterable[Sequence[Any]], source: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the cells of each row, as many as the first has: sheets have formatted, but empty columns."""
    width = 0
    for number, cells in enumerate(rows, 1):
        row = list(cells)
        while row and row[-1] is None and (not width or len(row) > width):
            row.pop()
        width = width or len(row)
        yield f"{source}, row {number}", row + [None] * (width - len(row))


# Arrow


def _parquet_rows(source: str) -> Iterator[Record]:
    require(f"'{source}'", "pyarrow", otherwise="write the file as JSONL")
    from pyarrow import ArrowException  # slow to import
    from pyarrow.parquet import ParquetFile

    try:
        for batch in ParquetFile(source).iter_batches():
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise DataError(f"{source} cannot be read as a Parquet file: {reason(error)}") from None


def _saved_dataset(folder: Path) -> Iterable[Record]:
    if not (folder / "state.json").is_file():
        splits = [each.parent.name for each in sorted(folder.glob("*/state.json"))]
        raise DataError(
            f"'{folder}' is a folder: name a file of it."
            if not splits
            else f"'{folder}' has the splits {', '.join(splits)}: name one, such as '{folder / splits[0]}'."
        )
    require(f"'{folder}', a dataset of Hugging Face's,", "datasets", otherwise="write it as JSONL")
    from datasets import load_from_disk  # slow to import

    rows: Iterable[Record] = load_from_disk(str(folder))
    return rows
