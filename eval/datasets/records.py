"""The raw records of question files: files of records, lines of text, folders of ``save_to_disk``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from corag.core.errors import DataError
from corag.core.seeds import stable_hash
from corag.core.system.files import file_digest
from corag.core.system.installation import require
from corag.data.fields import Record as Fields
from corag.data.packed import content_ending, open_bytes
from corag.data.records import FileReader, OddRecordError, Record, read_records
from corag.data.text import read_lines
from eval.datasets.report import QuestionReport

PlacedRecords = Iterator[tuple[str, Fields]]
"""Records, each after the words that name its place in messages, such as "dev.jsonl, line 3"."""


def read_file_records(
    source: str, report: QuestionReport, read_file: FileReader = read_records
) -> PlacedRecords:
    """Stream the records of a question file; one that cannot be read is counted in the report.

    ``read_file``: of a dataset whose official files have a shape of their own. Raises :class:`DataError` if
    the file is not there, or is no such file at all.
    """
    if Path(source).is_dir():
        return ((f"{source}, record {n}", row) for n, row in enumerate(_saved_dataset(Path(source)), 1))
    if not Path(source).exists():
        raise DataError(
            f"there is no file '{source}': check the path, or give a split to read a Hugging Face dataset."
        )
    return _lines(source, report) if content_ending(source) == ".txt" else _records(source, report, read_file)


def source_digest(source: str) -> str:
    """Return 16 digits that identify what a question file or a saved dataset holds, "" if it is not here."""
    tables = sorted(Path(source).glob("*.arrow"))  # beside them lies the time of writing
    return stable_hash(" ".join(map(file_digest, tables))) if tables else file_digest(source)


def _records(source: str, report: QuestionReport, read_file: FileReader) -> PlacedRecords:
    for item in read_file(source, encoding=report.encoding, delimiter=report.delimiter):
        if isinstance(item, Record):
            yield item.where, item.fields
        elif isinstance(item, OddRecordError):
            report.drop(item.where, str(item).removeprefix(f"{item.where}: "))
        else:
            report.remark(source, item.text.removeprefix(f"{source}: "))


def _lines(source: str, report: QuestionReport) -> PlacedRecords:
    """Yield a question for each line of text that is not blank."""
    with open_bytes(source) as stream:
        lines = read_lines(stream, source, report.encoding, lambda note: report.remark(source, note))
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith('{"'):
                report.drop(f"{source}, line {number}", "an object of JSON: give the file the ending .jsonl")
            elif line.strip():
                yield f"{source}, line {number}", {"question": line.strip()}


def _saved_dataset(folder: Path) -> Iterable[Fields]:
    if not (folder / "state.json").is_file():
        splits = [each.parent.name for each in sorted(folder.glob("*/state.json"))]
        raise DataError(
            f"'{folder}' is a folder: name a file of it."
            if not splits
            else f"'{folder}' has the splits {', '.join(splits)}: name one, such as '{folder / splits[0]}'."
        )
    require(f"'{folder}', a dataset of Hugging Face's,", "datasets", otherwise="write it as JSONL")
    from datasets import load_from_disk  # slow to import

    rows: Iterable[Fields] = load_from_disk(str(folder))
    return rows
