"""Jupyter's notebooks, by way of Markdown: text, code and what it printed."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from corag.core.errors import DataError
from retrieval.documents.document import Document
from retrieval.documents.left_out import PICTURES
from retrieval.documents.markdown import read_markdown

_TICKS = re.compile("`{3,}")
_TERMINAL = re.compile("\x1b\\[[0-9;]*m")  # colours


def read_notebook(data: bytes, title: str) -> Document:
    """Read an .ipynb of format 4: its cells in order, and their outputs as far as they are text.

    Raises :class:`DataError` for what is no notebook, or an older one.
    """
    try:
        notebook = orjson.loads(data.removeprefix(BOM_UTF8))  # as PowerShell writes
    except orjson.JSONDecodeError as error:
        raise DataError(f"it is damaged, or no notebook ({error}): save it again in Jupyter.") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise DataError(
            "it has no list of cells, so it is no notebook of format 4: run `jupyter nbconvert --to notebook "
            "--nbformat 4 FILE`."
        )
    cells = [cell for cell in cells if isinstance(cell, dict)]
    text = "\n\n".join(part for cell in cells for part in _parts(cell))
    document = read_markdown(text.encode("utf-8", "replace"), title)
    pictures = sum(map(_is_picture, (output for cell in cells for output in cell.get("outputs") or ())))
    return replace(document, left_out=dict(Counter(document.left_out) + Counter({PICTURES: pictures})))


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = _text(cell.get("source"))
    if cell.get("cell_type") == "markdown":
        yield source
        return
    if source.strip():
        yield _fence(source)
    for output in cell.get("outputs") or ():
        data = output.get("data") or {}
        # A table of pandas is there as HTML, too; its text is as the reader of a terminal sees it.
        text = _text(output.get("text") or data.get("text/markdown") or data.get("text/plain"))
        if text.strip():
            yield text if "text/markdown" in data else _fence(_TERMINAL.sub("", text))


def _is_picture(output: Mapping[str, Any]) -> bool:
    return any(kind.startswith("image/") for kind in output.get("data") or ())


def _text(lines: Any) -> str:
    """Return a text that may be stored as a list of lines."""
    return "".join(map(str, lines)) if isinstance(lines, list) else lines if isinstance(lines, str) else ""


def _fence(code: str) -> str:
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(code))])
    return f"{fence}\n{code.rstrip()}\n{fence}"
