"""The answers of runs as a file for people and programs that want nothing else: JSON Lines or CSV.

A line per question and run, with ``id``, ``question``, ``answer``, ``sources``, ``tokens`` (prompt plus
generated), ``stopped`` (why the method stopped) and ``error`` (in a line; "" unless the question failed;
its answer is then ""). Of several runs each line says under ``method`` which it is of.

Sources are the passages whose text stood in a prompt that led to the answer; where it is not known of any,
all that were collected. In JSON Lines they are objects with ``id``, ``title``, ``file`` and ``page``, as far
as the index knows them; in CSV they are one text, "Title (file, page 3); ...".
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.runs.rows import SavedRow
from corag.core.system.files import write_atomically
from corag.core.types import Passage

FIELDS = ("id", "question", "answer", "sources", "tokens", "stopped", "error")
_FORMATS = (".jsonl", ".csv")


def check_answers_file(file: str | Path) -> None:
    """Raise :class:`ConfigError` unless this names a .jsonl or .csv file, before hours go into answers."""
    path = Path(file)
    if path.suffix.lower() not in _FORMATS or path.is_dir():
        raise ConfigError(
            f"answers are written to a file that ends in .jsonl or .csv, but '{file}' was given: name one "
            "such as answers.csv."
        )


def write_answers(runs: Mapping[str, Mapping[str, SavedRow]], file: str | Path) -> int:
    """Write the answers of runs, by name, in the order of their rows; return how many lines there are.

    A file of that name is replaced by one rename. Raises as :func:`check_answers_file` does, and
    :class:`corag.core.errors.DataError` if it cannot be written.
    """
    check_answers_file(file)
    records = [
        ({"method": name} if len(runs) > 1 else {}) | record
        for name, rows in runs.items()
        for record in answer_records(rows)
    ]
    as_csv = Path(file).suffix.lower() == ".csv"
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    write_atomically(file, _as_csv(records, [*["method"] * (len(runs) > 1), *FIELDS]) if as_csv else lines)
    return len(records)


def answer_records(rows: Mapping[str, SavedRow]) -> Iterator[dict[str, Any]]:
    """Yield a record of :data:`FIELDS` for each row; ``sources`` are objects."""
    for name, row in rows.items():
        sources = row.sources
        read_sources = [source for source in sources if source["read"]]
        yield {
            "id": name,
            "question": row.question.text,
            "answer": row.text,
            "sources": [_source(each) for each in read_sources or sources],
            "tokens": row.total_usage.total,
            "stopped": row.answer.stopped if row.answer else "",
            "error": row.error.partition("\n")[0],  # a traceback may follow, which the run keeps
        }


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    location = {"file": source.get("source"), "page": source.get("page")}
    return {"id": source["id"], "title": source["title"]} | {
        key: each for key, each in location.items() if each
    }


def _as_csv(records: list[dict[str, Any]], fields: list[str]) -> str:
    table = io.StringIO()
    writer = csv.DictWriter(table, fields, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(record | {"sources": "; ".join(map(_citation, record["sources"]))})
    return table.getvalue()


def _citation(source: Mapping[str, Any]) -> str:
    passage = Passage(source["id"], source["title"], "", source.get("file", ""), source.get("page", 0))
    return passage.citation or passage.id
