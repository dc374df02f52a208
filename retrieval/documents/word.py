"""Word's .docx: paragraphs, lists and tables under their headings, with notes where they are referred to.

Headers, footers, comments, deleted and hidden text and tables of contents are left out, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from retrieval.documents.document import Document, Writer, stated_title
from retrieval.documents.left_out import COMMENTS, CONTENTS, DELETED, EDGES, EMBEDDED
from retrieval.documents.word_lines import LineReader
from retrieval.documents.word_numbering import to_number, value
from retrieval.documents.word_package import Package, W, all_text, in_order
from retrieval.documents.word_styles import TITLE

_WIDEST_SPAN = 63  # columns, as in Word
_FIRST_ROW = 0x20  # the bit of an older table's look that makes its first row a header


def read_docx(data: bytes, title: str) -> Document:
    """Read a .docx, also one of strict Open XML. Raises :class:`DataError` if it is encrypted or broken."""
    package = Package(data)
    reader = _Reader(package, title, follow_fields=True)
    reader.read()
    if reader.lines.fields:
        # One that never ends would keep all that follows out of sight.
        reader = _Reader(package, title, follow_fields=False)
        reader.read()
        reader.writer.notes.append("a field in it never ends: what follows is read")
    return reader.writer.document()


class _Reader:
    """Writes a document's parts in reading order. ``follow_fields``: whether fields end where they say."""

    def __init__(self, package: Package, title: str, *, follow_fields: bool) -> None:
        self._package = package
        own_title = stated_title(package.title(), "")
        self.writer = Writer(own_title or title, is_title_stated=bool(own_title))
        self.lines = LineReader(package, self.writer, follow_fields=follow_fields)
        self._waiting: list[tuple[str, Any]] = []  # notes of a table, to be written below it
        self._title: list[str] = []  # its paragraphs so far
        self._initial = ""  # a letter that is set apart, and begins the next paragraph

    def read(self) -> None:
        """Write all of the document."""
        self._write(self._package.body)
        self._end_title()
        writer = self.writer
        edges = [
            all_text(part) for kind in ("header", "footer") for part in self._package.related_roots(kind)
        ]
        for text in dict.fromkeys(edges):
            writer.leave_out(EDGES, text)
        for part in self._package.related_roots("comments"):
            writer.leave_out(COMMENTS, all_text(part))
        writer.notes += dict.fromkeys(self._package.notes)

    # Blocks

    def _write(self, body: Any) -> None:
        for element in in_order(body, f"{W}p", f"{W}tbl", f"{W}altChunk", f"{W}sdt"):
            if element.tag == f"{W}p":
                self._write_paragraph(element)
            elif element.tag == f"{W}tbl":
                self._write_table(element)
            elif element.tag == f"{W}altChunk":
                self.writer.pass_over(EMBEDDED)  # a document of another kind, which Word would open here
            elif _is_contents_control(element):
                self.writer.leave_out(CONTENTS, all_text(element))
            else:
                self._write(element)

    def _write_paragraph(self, paragraph: Any) -> None:
        line = self.lines.read(paragraph)
        text, style = str(line), self.lines.styles.paragraph(paragraph)
        label = self.lines.label(paragraph) if text else ""
        level = self.lines.styles.outline_level(paragraph)
        if style.contents or line.contents:
            self.writer.leave_out(
                CONTENTS, " ".join([*line.contents, text] if style.contents else line.contents)
            )
            text = "" if style.contents else text
        if text and level == TITLE:
            self._title.append(text)
        elif text:
            self._end_title()
            if _is_initial(paragraph):
                self._initial = text
                return
            text, self._initial = self._initial + text, ""
            if level is not None:
                self.writer.heading(level, f"{label} {text}" if label not in ("", "-") else text)
            else:
                self.writer.block(f"{label} {text}" if label else text)
        self._write_notes(line.notes)
        for box in line.boxes:
            self._write(box)

    def _end_title(self) -> None:
        if self._title:
            self.writer.heading(TITLE, " ".join(self._title))
            self._title.clear()

    def _write_notes(self, notes: Sequence[tuple[str, Any]]) -> None:
        """Write notes below what refers to them: far from it, they would be in other passages."""
        for mark, note in notes:
            text = self._block_text(note)
            self.writer.block(f"[{mark}] {text}" if text else "")
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._write_notes(waiting)

    # Tables

    def _write_table(self, table: Any) -> None:
        self._end_title()
        rows = [(row, list(in_order(row, f"{W}tc"))) for row in self._rows(table)]
        widths = [len(cells) for _, cells in rows]
        if len(rows) < 2 or max(widths) < 2 or self._has_heading(table):  # it frames or places text
            for _, cells in rows:
                for cell in cells:
                    self._write(cell)
            return
        header = min(_count_header_rows(table, max(widths)), len(rows) - 1)
        self.writer.table(self._grid(rows, header), header=header)
        self._write_notes(())

    def _rows(self, table: Any) -> Iterator[Any]:
        for row in in_order(table, f"{W}tr"):
            if row.find(f"{W}trPr/{W}del") is None:
                yield row
            else:
                self.writer.leave_out(DELETED, all_text(row))

    def _has_heading(self, table: Any) -> bool:
        return any(
            self.lines.styles.outline_level(paragraph) is not None for paragraph in table.iter(f"{W}p")
        )

    def _grid(self, rows: Sequence[tuple[Any, Sequence[Any]]], header: int) -> list[list[str]]:
        """Return the texts of cells, each in its column.

        A cell over several rows counts in each. One over several columns names all of them in a header, and
        else stands in the first.
        """
        grid: list[list[str]] = []
        above: dict[int, str] = {}
        for row, cells in rows:
            before = to_number(value(row.find(f"{W}trPr"), "gridBefore"), 0)
            texts = [""] * min(before, _WIDEST_SPAN)
            for cell in cells:
                merge = cell.find(f"{W}tcPr/{W}vMerge")
                goes_on = merge is not None and merge.get(f"{W}val", "continue") == "continue"
                text = above.get(len(texts), "") if goes_on else self._block_text(cell)
                above[len(texts)] = text
                width = to_number(value(cell.find(f"{W}tcPr"), "gridSpan"), 1)
                filler = text if len(grid) < header else ""
                texts += [text] + [filler] * (min(width, _WIDEST_SPAN) - 1)
            grid.append(texts)
        return grid

    def _block_text(self, parent: Any) -> str:
        """Return the text of a cell or note; what it refers to waits until the table has ended."""
        parts = []
        for element in in_order(parent, f"{W}p", f"{W}tbl"):
            if element.tag == f"{W}p":
                line = self.lines.read(element)
                text = str(line)
                label = self.lines.label(element) if text else ""
                parts.append(f"{label} {text}" if label else text)
                parts += [self._block_text(box) for box in line.boxes]
                self._waiting += line.notes
                if line.contents:
                    self.writer.leave_out(CONTENTS, " ".join(line.contents))
            else:
                for row in self._rows(element):
                    cells = [self._block_text(cell) for cell in in_order(row, f"{W}tc")]
                    parts.append(" | ".join(filter(None, cells)))
        return "\n".join(filter(None, parts))


def _is_contents_control(control: Any) -> bool:
    gallery = control.find(f"{W}sdtPr/{W}docPartObj/{W}docPartGallery")
    return gallery is not None and gallery.get(f"{W}val") in ("Table of Contents", "Table of Figures")


def _count_header_rows(table: Any, columns: int) -> int:
    """Return how many of a table's first rows name its columns."""
    rows = takewhile(lambda row: row.find(f"{W}trPr/{W}tblHeader") is not None, in_order(table, f"{W}tr"))
    if count := sum(1 for _ in rows):
        return count
    # Word gives every table a look with a first row of its own. In two columns there mostly are names and
    # values, whose first row is no header.
    if columns < 3:
        return 0
    look = table.find(f"{W}tblPr/{W}tblLook")
    if look is None:
        return 0
    attribute = look.get(f"{W}firstRow")
    if attribute:
        return int(attribute in ("1", "true", "on"))
    code = look.get(f"{W}val", "0")
    return int(bool(int(code, 16) & _FIRST_ROW)) if re.fullmatch(r"[0-9A-Fa-f]{1,8}", code) else 0


def _is_initial(paragraph: Any) -> bool:
    frame = paragraph.find(f"{W}pPr/{W}framePr")
    return frame is not None and frame.get(f"{W}dropCap") in ("drop", "margin")
