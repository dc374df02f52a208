"""What docling has read, as it exports it (``docling FILES --to json``): scans, and tables of PDFs.

docling itself is not installed with corag, since its versions exclude those of corag's libraries: it runs in
an environment of its own. Its export names the file that it was made of and the page of each part.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from corag.core.errors import DataError
from retrieval.documents.document import Document, Writer
from retrieval.documents.omissions import CONTENTS, DRAWINGS, EDGES

_SCHEMA = "DoclingDocument"
_SLIDES = "presentation"  # in the type of a file whose pages are slides
_MARKER = "-"


def read_export(data: bytes, title: str) -> Document:
    """Read a document as docling exported it; its ``source`` is the file that docling read.

    Page headers and footers, tables of contents and texts within pictures are left out and counted. Raises
    :class:`DataError` for any other JSON.
    """
    try:
        export = orjson.loads(data.removeprefix(BOM_UTF8))  # as PowerShell writes
    except orjson.JSONDecodeError as error:
        raise DataError(
            f"it is damaged, or no export of docling ({error}): convert the file again."
        ) from None
    if not isinstance(export, dict) or export.get("schema_name") != _SCHEMA:
        raise DataError("it is JSON, but no export of docling: write passages as JSON lines (.jsonl).")
    origin = export.get("origin") or {}
    writer = Writer(Path(origin.get("filename") or title).stem.replace("_", " "))
    place = "slide {}".format if _SLIDES in origin.get("mimetype", "") else None
    for item in _in_order(export):
        number = item["prov"][0]["page_no"] if item.get("prov") else 0
        _write(writer, item, place(number) if place and number else number)
    document = writer.document()
    return Document(
        document.title, document.blocks, document.notes, document.left_out, origin.get("filename") or ""
    )


def _in_order(export: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the texts and tables of an export in reading order, each once; those of pictures as drawings."""
    names: set[str] = set()

    def walk(references: Sequence[Mapping[str, str]], *, in_picture: bool) -> Iterator[Mapping[str, Any]]:
        for reference in references:
            name = reference["$ref"]
            if name in names:
                continue
            names.add(name)
            kind, number = name.removeprefix("#/").split("/")
            item = export[kind][int(number)]
            # A table or picture has its captions by name; some exports have them among its children, too.
            yield from walk(item.get("captions", ()), in_picture=False)
            if kind in ("texts", "tables"):
                yield {**item, "label": "drawn"} if in_picture else item
            yield from walk(item.get("children", ()), in_picture=in_picture or kind == "pictures")
            yield from walk(item.get("footnotes", ()), in_picture=False)

    return walk(export["body"]["children"], in_picture=False)


def _write(writer: Writer, item: Mapping[str, Any], page: int | str) -> None:
    label, text = item["label"], item.get("text", "")
    if label == "document_index":
        writer.leave_out(CONTENTS, _table_text(item))
    elif "data" in item:
        grid = item["data"]["grid"]
        header = bool(grid) and any(cell.get("column_header") for cell in grid[0])
        writer.table([[cell["text"] for cell in row] for row in grid], header=header, page=page)
    elif label == "drawn":
        writer.leave_out(DRAWINGS, text)
    elif label in ("page_header", "page_footer") or (
        item.get("content_layer") == "furniture" and label != "footnote"
    ):
        writer.leave_out(EDGES, text)
    elif label == "title":
        # Each slide has one; of another document it is the title of all.
        writer.heading(2 if isinstance(page, str) else 1, text, page=page)
    elif label == "section_header":
        writer.heading(item.get("level", 1) + 1, text, page=page)
    elif label == "list_item":
        writer.block(f"{item.get('marker') or _MARKER} {text}", page=page)
    else:
        writer.block(text, page=page, whole=label == "code")


def _table_text(item: Mapping[str, Any]) -> str:
    grid = item.get("data", {}).get("grid", ())
    return " ".join(cell["text"] for row in grid for cell in row) or item.get("text", "")
