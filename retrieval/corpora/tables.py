"""Tables as records: CSV and its relatives, Parquet, Arrow.

How a text table is written is found out (:mod:`retrieval.corpora.table_layout`); what was found is in
:attr:`InputTable.description`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from corag.core.errors import DataError
from corag.core.files import open_text
from corag.core.installation import require
from retrieval.corpora.records import Columns, OddRecordError
from retrieval.corpora.table_layout import Layout, split_rows

TEXT_TABLES = (".csv", ".tsv", ".tab")
ARROW_TABLES = (".parquet", ".arrow", ".feather")
_BATCH = 1000  # rows of an Arrow file that are read at once

Row = tuple[str, dict[str, Any]] | OddRecordError
"""A row's place and its cells by column, or why it is no record."""


@dataclass
class InputTable:
    """A table that is being read: call :attr:`rows` once. ``description``: what was found of its layout."""

    rows: Callable[[], Iterator[Row]]
    description: str = ""


def is_table(ending: str) -> bool:
    """Whether files of this ending are tables."""
    return ending in (*TEXT_TABLES, *ARROW_TABLES)


def read_table(
    path: Path, columns: Columns, order: Sequence[str] = (), take_strays: Callable[[int], None] | None = None
) -> InputTable:
    """Open a table by its ending; what is none of Arrow's is text.

    Args:
        path: the file.
        columns: names of its columns, where they are none of the usual ones.
        order: names of the columns of a table without a header; () to guess them.
        take_strays: takes numbers of bytes that are not UTF-8, see :func:`corag.core.files.open_text`.

    Raises:
        DataError: if it cannot be opened, or has none of the ``columns``.
    """
    if path.suffix.lower() in ARROW_TABLES:
        return InputTable(lambda: _arrow_rows(path))
    layout = Layout.of(path, columns, order)
    table = InputTable(lambda: iter(()), layout.description)

    def rows() -> Iterator[Row]:
        yield from _text_rows(path, layout, take_strays)
        table.description = layout.description  # rows that broke the rule are counted by now

    table.rows = rows
    return table


def _text_rows(path: Path, layout: Layout, take_strays: Callable[[int], None] | None) -> Iterator[Row]:
    """Stream the rows below the header."""
    width, header = len(layout.names), layout.header

    def is_whole() -> bool:
        with open_text(path, lambda _: None, lambda _: None) as stream:
            return layout.dialect.reads_whole(islice(stream, layout.comments, None))

    with open_text(path, take_strays, lambda _: None) as stream:  # said in the layout's description
        lines = islice(stream, layout.comments, None)
        for below, row in split_rows(lines, layout, is_whole):
            number = layout.comments + below
            if row and header:
                header = False
            elif len(row) == width:
                yield f"{path}, line {number}", dict(zip(layout.names, row, strict=True))
            elif row:
                yield OddRecordError(
                    f"{path}, line {number}",
                    "with another number of cells",
                    f"expected {width} columns ({', '.join(layout.names)}), found {len(row)}.",
                )


def _arrow_rows(path: Path) -> Iterator[Row]:
    """Stream the rows of a Parquet or Arrow file, without columns of vectors and bytes."""
    require(f"'{path}'", "pyarrow", otherwise="write the file as JSONL")
    import pyarrow as arrow
    from pyarrow import ipc, parquet

    number = 0
    try:
        if path.suffix.lower() == ".parquet":
            file = parquet.ParquetFile(path)
            names = _readable_columns(file.schema_arrow)
            batches: Iterable[Any] = file.iter_batches(batch_size=_BATCH, columns=names)
        else:
            batches = _arrow_batches(path, ipc, arrow)
        for batch in batches:
            names = _readable_columns(batch.schema)
            for row in batch.select(names).to_pylist():
                number += 1
                yield f"{path}, row {number}", row
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}': check the path.") from None
    except arrow.ArrowException as error:
        raise DataError(
            f"{path}: it is damaged, or no {path.suffix.lower()[1:]} file ({error!s:.100}): copy it again."
        ) from None


def _arrow_batches(path: Path, ipc: Any, arrow: Any) -> Iterator[Any]:
    with arrow.memory_map(str(path)) as stream:
        try:
            file = ipc.open_file(stream)
        except arrow.ArrowInvalid:  # as Hugging Face's datasets write it
            stream.seek(0)
            yield from ipc.open_stream(stream)
            return
        yield from (file.get_batch(number) for number in range(file.num_record_batches))


def _readable_columns(schema: Any) -> list[str]:
    """Return the columns but those of vectors and bytes, which are no text."""
    return [
        each.name
        for each in schema
        if not re.search(r"(?:list|array).*(?:float|double)|binary", str(each.type))
    ]
