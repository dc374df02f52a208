"""Word's .docx: paragraphs, lists and tables under their headings, with notes where they are referred to.

Headers, footers, comments, deleted and hidden text and tables of contents are left out, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from corag.core.errors import DataError
from retrieval.documents.document import Document, Writer, stated_title
from retrieval.documents.formulas import word_formula_text
from retrieval.documents.omissions import CONTENTS, EDGES, HIDDEN, READINGS
from retrieval.documents.superscripts import InlineText
from retrieval.documents.word_numbering import Numbering, format_number, to_number, value
from retrieval.documents.word_package import Package, R, W
from retrieval.documents.word_symbols import symbol

_OLE = bytes.fromhex("d0cf11e0")  # what Word before 2007 wrote, and what an encrypted .docx is wrapped in
_DELETED, _COMMENTS, _PLACEHOLDERS = "deleted text", "comments", "placeholders of forms"
_CHARTS = "words in charts"
_HEADING = re.compile(r"heading ?(\d)", re.IGNORECASE)
_CONTENTS_STYLE = re.compile(
    r"(?:toc|contents|table of (?:figures|authorities)|index|(?:figure|illustration|table) index)"
    r"(?: ?\d+| heading)?|toa heading",
    re.IGNORECASE,
)
_CONTENTS_FIELD = re.compile(r"\s*(?:TOC|INDEX|TOA)\b", re.IGNORECASE)
_TO_CONTENTS = re.compile(r"\s*PAGEREF\s+_Toc", re.IGNORECASE)
_MACHINE_NAME = re.compile(r"\W*(?:description automatically generated|automatically generated)\W*", re.I)
_TITLE = 0  # above the headings, of which the highest is 1
_FEWEST_ALT_WORDS = 3  # of a picture's description; shorter ones are names
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_PICTURE = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"
# What stands around paragraphs, rows and cells: content controls, tracked insertions.
_WRAPPERS = frozenset(
    f"{W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag")
)
_WIDEST_SPAN = 63  # columns, as in Word
_FIRST_ROW = 0x20  # the bit of an older table's look that makes its first row a header


@dataclass(frozen=True, slots=True)
class _Style:
    """A style, with what it has from those that it is based on.

    Attributes:
        level: of the heading that it makes of a paragraph, None for text.
        number, place: the list and the level of it that its paragraphs belong to, "" and None without.
        contents: whether its paragraphs are those of a table of contents.
        script: "superscript", "subscript" or "".
        hidden: whether its text is not shown.
        font: its name, "" if it states none.
    """

    name: str = ""
    level: int | None = None
    number: str = ""
    place: int | None = None
    contents: bool = False
    script: str = ""
    hidden: bool = False
    font: str = ""


@dataclass(slots=True)
class _Field:
    """A field that has begun, as of contents: its instruction, and whether its result has begun."""

    instruction: str = ""
    result: bool = False


@dataclass(slots=True)
class _GatheredLine:
    """A paragraph's text as it gathers, with the notes that it refers to and the boxes in it."""

    text: InlineText = field(default_factory=InlineText)
    script: str = ""
    scripted: list[str] = field(default_factory=list)
    notes: list[tuple[str, Any]] = field(default_factory=list)
    boxes: list[Any] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)

    def add(self, text: str, script: str = "", *, note: bool = False) -> None:
        """Add text; what is raised or lowered in several runs is one script."""
        if note:
            self.end_script()
            self.text.add_raised(text, note=True)
            return
        if script != self.script:
            self.end_script()
            self.script = script
        if script:
            self.scripted.append(text)
        else:
            self.text.add(text)

    def end_script(self) -> None:
        """Write what is raised or lowered so far."""
        text = "".join(self.scripted)
        if self.script == "superscript":
            self.text.add_raised(text)
        elif self.script:
            self.text.add_lowered(text)
        self.scripted, self.script = [], ""

    def __str__(self) -> str:
        self.end_script()
        return str(self.text).strip()


def read_docx(data: bytes, title: str) -> Document:
    """Read a .docx, also one of strict Open XML. Raises :class:`DataError` if it is encrypted or broken."""
    if data.startswith(_OLE):
        raise DataError("it is encrypted or of a Word before 2007: save it as a .docx without a password.")
    package = Package(data)
    reader = _Reader(package, title, follow_fields=True)
    reader.read()
    if reader.fields:
        # One that never ends would keep all that follows out of sight.
        reader = _Reader(package, title, follow_fields=False)
        reader.read()
        reader.writer.notes.append("a field in it never ends: what follows is read")
    return reader.writer.document()


class _Reader:
    """Writes a document's parts in reading order. ``follow_fields``: whether fields end where they say."""

    def __init__(self, package: Package, title: str, *, follow_fields: bool) -> None:
        self._package = package
        stated = stated_title(package.title(), "")
        self.writer = Writer(stated or title, stated=bool(stated))
        self.fields: list[_Field] = []
        self._follow_fields = follow_fields
        self._styles, self._default = _read_styles(package)
        numbers = {identifier: style.number for identifier, style in self._styles.items()}
        self._numbering = Numbering(next(iter(package.related("numbering")), None), numbers)
        self._notes = {
            kind: {
                note.get(f"{W}id"): note
                for root in package.related(f"{kind}s")
                for note in root.iter(f"{W}{kind}")
            }
            for kind in ("footnote", "endnote")
        }
        self._counts = {"footnote": 0, "endnote": 0}
        self._waiting: list[tuple[str, Any]] = []  # notes of a table, to be written below it
        self._title: list[str] = []  # its paragraphs so far
        self._initial = ""  # a letter that is set apart, and begins the next paragraph

    def read(self) -> None:
        """Write all of the document."""
        self._write(self._package.body)
        self._end_title()
        writer = self.writer
        edges = [_all_text(part) for kind in ("header", "footer") for part in self._package.related(kind)]
        for text in dict.fromkeys(edges):
            if writer.count_words():
                writer.leave_out(EDGES, text)
            else:
                writer.block(text)
                writer.notes.append("its only text stands in its page headers: read")
        for part in self._package.related("comments"):
            writer.leave_out(_COMMENTS, _all_text(part))
        writer.notes += dict.fromkeys(self._package.notes)

    # Blocks

    def _write(self, body: Any) -> None:
        for element in _in_order(body, f"{W}p", f"{W}tbl", f"{W}altChunk", f"{W}sdt"):
            if element.tag == f"{W}p":
                self._write_paragraph(element)
            elif element.tag == f"{W}tbl":
                self._write_table(element)
            elif element.tag == f"{W}altChunk":
                self._write_chunk(element)
            elif _is_contents_control(element):
                self.writer.leave_out(CONTENTS, _all_text(element))
            else:
                self._write(element)

    def _write_paragraph(self, paragraph: Any) -> None:
        line = self._line(paragraph)
        text, style = str(line), self._style(paragraph)
        label = self._label(paragraph, style) if text else ""
        level = _outline_level(paragraph, style)
        if style.contents or line.contents:
            self.writer.leave_out(
                CONTENTS, " ".join([*line.contents, text] if style.contents else line.contents)
            )
            text = "" if style.contents else text
        if text and level == _TITLE:
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
            self.writer.heading(_TITLE, " ".join(self._title))
            self._title.clear()

    def _write_notes(self, notes: Sequence[tuple[str, Any]]) -> None:
        """Write notes below what refers to them: far from it, they would be in other passages."""
        for mark, note in notes:
            text = self._block_text(note)
            self.writer.block(f"[{mark}] {text}" if text else "")
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._write_notes(waiting)

    def _write_chunk(self, element: Any) -> None:
        """Write a document of another kind that Word would open within this one."""
        name = self._package.target(element.get(f"{R}id", ""))
        if re.search(r"\.x?html?$", name, re.IGNORECASE):
            from retrieval.documents.markup import read_html

            for block in read_html(self._package.read_bytes(name), "").blocks:
                self.writer.block(block.text, whole=block.whole)
        elif name:
            self.writer.notes.append(f"a document within it is left out ({name.rsplit('/', 1)[-1]})")

    # Tables

    def _write_table(self, table: Any) -> None:
        self._end_title()
        rows = [(row, list(_in_order(row, f"{W}tc"))) for row in self._rows(table)]
        widths = [len(cells) for _, cells in rows]
        if len(rows) < 2 or max(widths) < 2 or self._has_heading(table):  # it frames or places text
            for _, cells in rows:
                for cell in cells:
                    self._write(cell)
            return
        header = _has_header(table, max(widths))
        grid = self._grid(rows, header=header)
        self.writer.table(grid, header=header)
        self._write_notes(())

    def _rows(self, table: Any) -> Iterator[Any]:
        for row in _in_order(table, f"{W}tr"):
            if row.find(f"{W}trPr/{W}del") is None:
                yield row
            else:
                self.writer.leave_out(_DELETED, _all_text(row))

    def _has_heading(self, table: Any) -> bool:
        return any(
            _outline_level(paragraph, self._style(paragraph)) is not None for paragraph in table.iter(f"{W}p")
        )

    def _grid(self, rows: Sequence[tuple[Any, Sequence[Any]]], *, header: bool) -> list[list[str]]:
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
                merged = cell.find(f"{W}tcPr/{W}vMerge")
                goes_on = merged is not None and merged.get(f"{W}val", "continue") == "continue"
                text = above.get(len(texts), "") if goes_on else self._block_text(cell)
                above[len(texts)] = text
                width = to_number(value(cell.find(f"{W}tcPr"), "gridSpan"), 1)
                repeated = text if header and not grid else ""
                texts += [text] + [repeated] * (min(width, _WIDEST_SPAN) - 1)
            grid.append(texts)
        return grid

    def _block_text(self, parent: Any) -> str:
        """Return the text of a cell or note; what it refers to waits until the table has ended."""
        parts = []
        for element in _in_order(parent, f"{W}p", f"{W}tbl"):
            if element.tag == f"{W}p":
                line = self._line(element)
                text, style = str(line), self._style(element)
                label = self._label(element, style) if text else ""
                parts.append(f"{label} {text}" if label else text)
                parts += [self._block_text(box) for box in line.boxes]
                self._waiting += line.notes
                if line.contents:
                    self.writer.leave_out(CONTENTS, " ".join(line.contents))
            else:
                for row in self._rows(element):
                    cells = [self._block_text(cell) for cell in _in_order(row, f"{W}tc")]
                    parts.append(" | ".join(filter(None, cells)))
        return "\n".join(filter(None, parts))

    # Lines

    def _style(self, paragraph: Any) -> _Style:
        identifier = value(paragraph.find(f"{W}pPr"), "pStyle") or self._default
        if identifier in self._styles:
            return self._styles[identifier]
        # Without its part of styles a document still tells by their names what they are.
        heading = _HEADING.fullmatch(identifier)
        level = int(heading[1]) if heading else _TITLE if identifier == "Title" else None
        return _Style(identifier, level, contents=bool(_CONTENTS_STYLE.fullmatch(identifier)))

    def _label(self, paragraph: Any, style: _Style) -> str:
        """Return the number that Word gives a paragraph, "-" for a bullet, "" for none."""
        own = paragraph.find(f"{W}pPr/{W}numPr")
        number = value(own, "numId") or style.number
        if not number or number == "0":
            return ""
        place: int | None = to_number(value(own, "ilvl"), -1)
        if place == -1:
            identifier = value(paragraph.find(f"{W}pPr"), "pStyle") or self._default
            place = self._numbering.level_of_style(number, identifier)
        return self._numbering.label(number, style.place or 0 if place is None else place)

    def _line(self, paragraph: Any) -> _GatheredLine:
        line = _GatheredLine()
        self._gather(paragraph, line)
        if self.fields and not self._follow_fields:
            self.fields.clear()
        return line

    def _gather(self, parent: Any, line: _GatheredLine) -> None:
        """Add what is in a part of a paragraph to its line."""
        for element in parent.iterchildren():
            tag = element.tag
            if tag == f"{W}r":
                self._gather_run(element, line)
            elif tag == f"{W}del":
                self.writer.leave_out(_DELETED, _all_text(element, f"{W}delText", f"{W}t"))
            elif tag == f"{W}moveFrom":
                continue  # it stands where it was moved to
            elif tag == f"{W}fldSimple":
                of_contents = _CONTENTS_FIELD.match(element.get(f"{W}instr", ""))
                if of_contents and self._follow_fields:
                    line.contents.append(_all_text(element))
                else:
                    self._gather(element, line)
            elif tag == f"{W}sdt" and element.find(f"{W}sdtPr/{W}showingPlcHdr") is not None:
                self.writer.leave_out(_PLACEHOLDERS, _all_text(element))
            elif tag.startswith(_MATH):
                self._add(line, word_formula_text(element))
            elif tag not in (f"{W}pPr", f"{W}sdtPr"):
                self._gather(element, line)

    def _gather_run(self, run: Any, line: _GatheredLine) -> None:
        properties = run.find(f"{W}rPr")
        style = self._styles.get(value(properties, "rStyle"), _Style())
        script = value(properties, "vertAlign") or style.script
        script = script if script in ("superscript", "subscript") else ""
        hidden = _is_on(properties, "vanish", otherwise=style.hidden)
        fonts = None if properties is None else properties.find(f"{W}rFonts")
        font = style.font if fonts is None else fonts.get(f"{W}ascii", "")
        for element in run.iterchildren():
            tag = element.tag
            if tag == f"{W}t":
                text = _plain(element.text or "", font)
                if hidden:
                    self.writer.leave_out(HIDDEN, text)
                else:
                    self._add(line, text, script)
            elif tag in _CHARACTERS:
                self._add(line, _CHARACTERS[tag], script if tag == f"{W}noBreakHyphen" else "")
            elif tag == f"{W}sym":
                code = element.get(f"{W}char", "")
                number = int(code, 16) if re.fullmatch(r"[0-9A-Fa-f]{1,6}", code) else 0
                self._add(
                    line, symbol(number, element.get(f"{W}font", "")) if number < 0x110000 else "", script
                )
            elif tag in (f"{W}footnoteReference", f"{W}endnoteReference"):
                self._refer(element, line, tag.removeprefix(W).removesuffix("Reference"))
            elif tag == f"{W}fldChar":
                self._field(element.get(f"{W}fldCharType", ""))
            elif tag == f"{W}instrText":
                if self.fields and not self.fields[-1].result:
                    self.fields[-1].instruction += element.text or ""
            elif tag == f"{W}ruby":
                self._gather_ruby(element, line)
            elif tag == f"{_COMPATIBLE}AlternateContent":
                choice = element.find(f"{_COMPATIBLE}Choice")
                fallback = element.find(f"{_COMPATIBLE}Fallback")
                self._gather_drawing(fallback if choice is None or not len(choice) else choice, line)
            elif tag in (f"{W}drawing", f"{W}pict", f"{W}object"):
                self._gather_drawing(element, line)

    def _gather_ruby(self, element: Any, line: _GatheredLine) -> None:
        for base in element.iter(f"{W}rubyBase"):
            self._gather(base, line)
        self.writer.leave_out(READINGS, "".join(map(_all_text, element.iter(f"{W}rt"))))

    def _add(self, line: _GatheredLine, text: str, script: str = "", *, note: bool = False) -> None:
        """Add text to a line, unless it is a field's instruction or part of a table of contents."""
        if self._follow_fields and self.fields:
            if any(_CONTENTS_FIELD.match(each.instruction) for each in self.fields):
                line.contents.append(text)
                return
            if any(_TO_CONTENTS.match(each.instruction) for each in self.fields):
                return  # the page of a table of contents whose field is gone
            if not all(each.result for each in self.fields):
                return
        line.add(text, script, note=note)

    def _field(self, event: str) -> None:
        if event == "begin":
            self.fields.append(_Field())
        elif event == "separate" and self.fields:
            self.fields[-1].result = True
        elif event == "end" and self.fields:
            self.fields.pop()

    def _refer(self, reference: Any, line: _GatheredLine, kind: str) -> None:
        """Add the mark of a note, and keep the note for below the paragraph."""
        note = self._notes[kind].get(reference.get(f"{W}id"))
        if note is None:
            return
        self._counts[kind] += 1
        mark = format_number(self._counts[kind], "lowerRoman" if kind == "endnote" else "decimal")
        self._add(line, mark, note=True)
        line.notes.append((mark, note))

    def _gather_drawing(self, drawing: Any, line: _GatheredLine) -> None:
        """Add the text boxes, the description and the diagram's words of a drawing."""
        boxes = [box for box in drawing.iter(f"{W}txbxContent") if _outermost(box, drawing)]
        line.boxes += boxes
        for picture in drawing.iter(_PICTURE):
            text = _MACHINE_NAME.sub("", picture.get("descr", "")).strip()
            if len(text.split()) >= _FEWEST_ALT_WORDS:
                line.add(f" {text} ")
        for pointer in drawing.iter(f"{_DIAGRAM}relIds"):
            part = self._package.read(self._package.target(pointer.get(f"{R}dm", "")))
            for paragraph in () if part is None else part.iter(f"{_DRAWING}p"):
                if text := "".join(run.text or "" for run in paragraph.iter(f"{_DRAWING}t")).strip():
                    line.add(f"\n{text}")
        for pointer in drawing.iter(f"{_CHART}chart"):
            part = self._package.read(self._package.target(pointer.get(f"{R}id", "")))
            words = () if part is None else part.iter(f"{_DRAWING}t", f"{_CHART}v")
            self.writer.leave_out(_CHARTS, " ".join(word.text or "" for word in words))


_CHARACTERS = {
    f"{W}tab": "\t",
    f"{W}ptab": "\t",
    f"{W}br": "\n",
    f"{W}cr": "\n",
    f"{W}noBreakHyphen": "-",
}


def _read_styles(package: Package) -> tuple[dict[str, _Style], str]:
    """Return the styles by id, and the id of that of paragraphs which name none."""
    elements, default = {}, ""
    for root in package.related("styles"):
        for element in root.iter(f"{W}style"):
            identifier = element.get(f"{W}styleId", "")
            elements[identifier] = element
            if element.get(f"{W}type") == "paragraph" and element.get(f"{W}default") in ("1", "true", "on"):
                default = identifier
    return {identifier: _read_style(identifier, elements) for identifier in elements}, default


def _read_style(identifier: str, elements: dict[str, Any]) -> _Style:
    chain, name = [], value(elements[identifier], "name")
    while identifier in elements and elements[identifier] not in chain:
        chain.append(elements[identifier])
        identifier = value(chain[-1], "basedOn")

    def first(path: str, attribute: str = "val") -> str:
        found = (style.find("/".join(f"{W}{part}" for part in path.split("/"))) for style in chain)
        return next((str(each.get(f"{W}{attribute}", "")) for each in found if each is not None), "")

    names = [value(style, "name") for style in chain]
    headings = [_HEADING.fullmatch(each) for each in names]
    level = next((int(heading[1]) for heading in headings if heading), None)
    if level is None and "Title" in names:
        level = _TITLE
    outline = first("pPr/outlineLvl")
    if level is None and outline.isdecimal() and int(outline) < 9:
        level = int(outline) + 1
    place = first("pPr/numPr/ilvl")
    contents = any(_CONTENTS_STYLE.fullmatch(each) for each in names)
    return _Style(
        name,
        None if contents else level,
        first("pPr/numPr/numId"),
        int(place) if place.isdecimal() else None,
        contents,
        first("rPr/vertAlign"),
        any(_is_on(style.find(f"{W}rPr"), "vanish") for style in chain),
        first("rPr/rFonts", "ascii"),
    )


def _outline_level(paragraph: Any, style: _Style) -> int | None:
    if style.level is not None:
        return style.level
    own = value(paragraph.find(f"{W}pPr"), "outlineLvl")
    return int(own) + 1 if own.isdecimal() and int(own) < 9 and not style.contents else None


def _in_order(parent: Any, *tags: str) -> Iterator[Any]:
    """Yield elements of these tags, those in content controls included."""
    for element in parent.iterchildren():
        if element.tag in tags:
            yield element
        elif element.tag in _WRAPPERS:
            yield from _in_order(element, *tags)


def _is_contents_control(control: Any) -> bool:
    gallery = control.find(f"{W}sdtPr/{W}docPartObj/{W}docPartGallery")
    return gallery is not None and gallery.get(f"{W}val") in ("Table of Contents", "Table of Figures")


def _has_header(table: Any, columns: int) -> bool:
    first = next(_in_order(table, f"{W}tr"))
    if first.find(f"{W}trPr/{W}tblHeader") is not None:
        return True
    # Word gives every table a look with a first row of its own. In two columns there mostly are names and
    # values, whose first row is no header.
    if columns < 3:
        return False
    look = table.find(f"{W}tblPr/{W}tblLook")
    if look is None:
        return False
    attribute = look.get(f"{W}firstRow")
    if attribute:
        return attribute in ("1", "true", "on")
    code = look.get(f"{W}val", "0")
    return bool(int(code, 16) & _FIRST_ROW) if re.fullmatch(r"[0-9A-Fa-f]{1,8}", code) else False


def _is_initial(paragraph: Any) -> bool:
    frame = paragraph.find(f"{W}pPr/{W}framePr")
    return frame is not None and frame.get(f"{W}dropCap") in ("drop", "margin")


def _is_on(properties: Any, name: str, *, otherwise: bool = False) -> bool:
    switch = None if properties is None else properties.find(f"{W}{name}")
    return otherwise if switch is None else switch.get(f"{W}val", "1") not in ("0", "false", "off")


def _plain(text: str, font: str) -> str:
    """Return text whose font shows other signs than its codes say in Unicode."""
    if font in ("Symbol", "Wingdings") or any("\uf020" <= letter <= "\uf0ff" for letter in text):
        return "".join(
            symbol(ord(letter), font) if font == "Symbol" or "\uf020" <= letter <= "\uf0ff" else letter
            for letter in text
        )
    return text


def _outermost(box: Any, drawing: Any) -> bool:
    """Whether a text box is in no other, and in the form that is read of those that there are."""
    for above in box.iterancestors():
        if above is drawing:
            return True
        if above.tag in (f"{W}txbxContent", f"{_COMPATIBLE}Fallback"):
            return False
    return True


def _all_text(element: Any, *tags: str) -> str:
    """Return all text below an element, to be counted."""
    tags = tags or (f"{W}t",)
    paragraphs = (f"{W}p", f"{W}tab", f"{W}br")
    return "".join(
        " " if part.tag in paragraphs else part.text or "" for part in element.iter(*tags, *paragraphs)
    )
