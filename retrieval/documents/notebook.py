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
from retrieval.documents.left_out import EMBEDDED, PICTURES
from retrieval.documents.markdown import read_markdown

_TICKS = re.compile("`{3,}")
_OBJECT = re.compile(r"<[\w.]+ .*>", re.DOTALL)  # which the notebook shows in another way
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
    unread = Counter(_unread_kind(output) for cell in cells for output in cell.get("outputs") or ())
    del unread[""]
    return replace(document, left_out=dict(Counter(document.left_out) + unread))


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = _text(cell.get("source"))
    if cell.get("cell_type") == "markdown":
        yield source
        return
    if source.strip():
        yield _fence(source)
    yield from filter(None, map(_shown, cell.get("outputs") or ()))


def _shown(output: Mapping[str, Any]) -> str:
    """Return the text that an output shows, as Markdown."""
    data = output.get("data") or {}
    # A table of pandas is there as HTML, too; its text is as the reader of a terminal sees it.
    error = output.get("traceback") or filter(None, (output.get("ename"), output.get("evalue")))
    plain = _text(output.get("text") or data.get("text/plain")) or "\n".join(error)
    markup = _text(data.get("text/markdown"))
    if not plain or (len(data) > 1 and _OBJECT.fullmatch(plain)):
        markup, plain = markup or _text(data.get("text/html") or data.get("text/latex")), ""
    return markup or (_fence(_TERMINAL.sub("", plain)) if plain.strip() else "")


def _unread_kind(output: Mapping[str, Any]) -> str:
    kinds = " ".join(output.get("data") or ())
    if "image/" in kinds:
        return PICTURES
    return EMBEDDED if "application/" in kinds and "text/plain" not in kinds else ""


def _text(lines: Any) -> str:
    """Return a text that may be stored as a list of lines."""
    return "".join(map(str, lines)) if isinstance(lines, list) else lines if isinstance(lines, str) else ""


def _fence(code: str) -> str:
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(code))])
    return f"{fence}\n{code.rstrip()}\n{fence}"
