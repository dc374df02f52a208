"""Read corpora as a stream of passages, whatever the layout of their files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from core.errors import DataError, nearest
from core.files import open_text, read_jsonl, read_records
from core.types import Passage, passage_id
from retrieval.config import CorpusFormat


@dataclass
class CorpusReport:
    """What reading a corpus kept and dropped; filled while the passages stream by."""

    kept: int = 0
    empty: int = 0
    repeated_ids: int = 0
    repeated_texts: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kept:,} passages kept; dropped: {self.empty:,} empty, {self.repeated_ids:,} with an id "
            f"already taken, {self.repeated_texts:,} with a title and text already seen"
        )


def read_corpus(paths: Sequence[str | Path], format: CorpusFormat, report: CorpusReport) -> Iterator[Passage]:
    """Stream the passages of corpus files, counting into ``report``.

    Dropped: passages without text, and all but the first of those that share an id, or title and text (spaces
    squeezed). Remembers two hashes of 8 bytes per passage, not the passages. Raises :class:`DataError` naming
    the file and line of a broken record.
    """
    if not paths:
        raise DataError("no corpus file was given: name at least one.")
    ids: set[int] = set()
    texts: set[int] = set()
    for passage in _read(paths, format):
        key = int(passage_id(passage.title, passage.text), 16)
        if not passage.text.strip():
            report.empty += 1
        elif hash(passage.id) in ids:
            report.repeated_ids += 1
        elif key in texts:
            report.repeated_texts += 1
        else:
            ids.add(hash(passage.id))
            texts.add(key)
            report.kept += 1
            yield passage
    if not report.kept:
        raise DataError(
            f"no passage was found in {', '.join(map(str, paths))} (read as '{format}'): {report}."
        )


def passage_from_record(record: dict[str, Any], where: str) -> Passage:
    """Read one JSON record: ``id``, ``_id`` or ``docid``; ``title`` and ``text``, or Pyserini's ``contents``.

    Contents are title, newline, text, or the text alone beside a ``title``. A record without an id gets one
    derived from title and text. Raises :class:`DataError` starting with ``where``.
    """
    text, title = record.get("text"), record.get("title")
    if text is None and isinstance(record.get("contents"), str):
        first, newline, rest = record["contents"].partition("\n")
        if newline and (not title or title in (first, first.strip('"'))):
            title, text = title or first.strip('"'), rest
        else:
            text = record["contents"]
    if not isinstance(text, str) or not isinstance(title or "", str):
        raise DataError(
            f"{where}: expected the fields 'id', 'title' and 'text' (or 'id' and 'contents') as strings, but "
            f"found: {', '.join(sorted(record)) or 'nothing'}."
        )
    identifier = next((record[name] for name in ("id", "_id", "docid") if record.get(name) is not None), None)
    return Passage(
        passage_id(title or "", text) if identifier is None else str(identifier), title or "", text
    )


def _read(paths: Sequence[str | Path], format: CorpusFormat) -> Iterator[Passage]:
    match format:
        case "jsonl" | "beir" | "hippo":
            for path in paths:
                for number, record in enumerate(read_records(path), 1):
                    yield passage_from_record(record, f"{path}, record {number}")
        case "dpr":
            for path in paths:
                yield from _read_dpr(path)
        case "kilt":
            for path in paths:
                yield from _read_kilt(path)
        case "hotpotqa" | "2wikimultihopqa" | "musique" | "popqa":
            from eval.datasets.paragraphs import read_pooled

            yield from read_pooled(paths, format)
        case _:
            raise DataError(f"unknown corpus format '{format}': {nearest(format, get_args(CorpusFormat))}")


def _read_dpr(path: str | Path) -> Iterator[Passage]:
    """DPR's table (also wiki18): tab-separated id, text, title.

    The header line is optional, texts may be quoted as in CSV.
    """
    csv.field_size_limit(sys.maxsize)
    with open_text(path) as lines:
        rows = csv.reader(lines, delimiter="\t")
        for row in rows:
            if len(row) != 3:
                raise DataError(
                    f"{path}, line {rows.line_num}: expected 3 columns (id, text, title), found {len(row)}."
                )
            if row != ["id", "text", "title"]:
                yield Passage(id=row[0], title=row[2], text=row[1])


def _read_kilt(path: str | Path) -> Iterator[Passage]:
    """KILT's knowledge source: an article per line, its ``text`` a list of paragraphs.

    Or corag/kilt-corpus: a passage per line.

    A paragraph becomes a passage with the id "<article id>-<place in the list>". The first one repeats the
    title and those starting with "Section::::" are headings: neither is a passage. A line with ``contents``
    gets "<wikipedia_id>-<id>", since its own id is the number of its row.
    """
    for number, article in enumerate(read_jsonl(path), 1):
        if "contents" in article:
            yield _kilt_passage(article, f"{path}, record {number}")
            continue
        identifier = article.get("wikipedia_id", article.get("_id"))
        title, paragraphs = article.get("wikipedia_title"), article.get("text")
        if identifier is None or not isinstance(title, str) or not isinstance(paragraphs, list):
            raise DataError(
                f"{path}, record {number}: expected 'wikipedia_id', 'wikipedia_title' and a list 'text', but "
                f"found: {', '.join(sorted(article))}."
            )
        for place, paragraph in enumerate(paragraphs):
            text = str(paragraph).strip()
            if text != title and not text.startswith("Section::::"):
                yield Passage(f"{identifier}-{place}", title, text)


def _kilt_passage(record: dict[str, Any], where: str) -> Passage:
    page, row = (record.get(name) for name in ("wikipedia_id", "id"))
    if page in (None, "") or row in (None, ""):
        raise DataError(
            f"{where}: a passage of KILT's pages needs 'id', 'wikipedia_id', 'title' and 'contents', but "
            f"found: {', '.join(sorted(record))}."
        )
    return replace(passage_from_record(record, where), id=f"{page}-{row}")
