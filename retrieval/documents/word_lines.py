"""The lines of a Word document: a paragraph's runs, fields, notes, formulas and drawings as one text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from retrieval.documents.document import Writer, picture_description
from retrieval.documents.formulas import word_formula_text
from retrieval.documents.left_out import (
    CHART_WORDS,
    DELETED,
    EMBEDDED,
    FORMS,
    HIDDEN_PARTS,
    PICTURES,
    READINGS,
)
from retrieval.documents.superscripts import InlineText
from retrieval.documents.word_numbering import Numbering, format_number, to_number, value
from retrieval.documents.word_package import Package, R, W, all_text
from retrieval.documents.word_styles import Styles, is_on
from retrieval.documents.word_symbols import symbol

_CONTENTS_FIELD = re.compile(r"\s*(?:TOC|INDEX|TOA)\b", re.IGNORECASE)
_TO_CONTENTS = re.compile(r"\s*PAGEREF\s+_Toc", re.IGNORECASE)
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_IMAGE_DATA = "{urn:schemas-microsoft-com:vml}imagedata"
_PICTURE = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"
_CHARACTERS = {
    f"{W}tab": "\t",
    f"{W}ptab": "\t",
    f"{W}br": "\n",
    f"{W}cr": "\n",
    f"{W}noBreakHyphen": "-",
}


@dataclass(slots=True)
class _Field:
    """A field that has begun, as of contents: its instruction, and whether its result has begun."""

    instruction: str = ""
    result: bool = False


@dataclass(slots=True)
class WordLine:
    """A paragraph's text as it gathers, with the notes that it refers to and the boxes in it."""

    text: InlineText = field(default_factory=InlineText)
    script: str = ""
    script_texts: list[str] = field(default_factory=list)
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
            self.script_texts.append(text)
        else:
            self.text.add(text)

    def end_script(self) -> None:
        """Write what is raised or lowered so far."""
        text = "".join(self.script_texts)
        if self.script == "superscript":
            self.text.add_raised(text)
        elif self.script:
            self.text.add_lowered(text)
        self.script_texts, self.script = [], ""

    def __str__(self) -> str:
        self.end_script()
        return str(self.text).strip()


class LineReader:
    """Reads paragraphs one after another: fields and the numbers of lists and notes run through all of them.

    Args:
        package: the document.
        writer: counts what is left out.
        follow_fields: whether fields end where they say.
    """

    def __init__(self, package: Package, writer: Writer, *, follow_fields: bool) -> None:
        self._package, self._writer, self._follow_fields = package, writer, follow_fields
        self.styles = Styles(package)
        self.fields: list[_Field] = []
        self._numbering = Numbering(next(iter(package.related_roots("numbering")), None), self.styles.numbers)
        self._notes = {
            kind: {
                note.get(f"{W}id"): note
                for root in package.related_roots(f"{kind}s")
                for note in root.iter(f"{W}{kind}")
            }
            for kind in ("footnote", "endnote")
        }
        self._counts = {"footnote": 0, "endnote": 0}

    def label(self, paragraph: Any) -> str:
        """Return the number that Word gives a paragraph, "-" for a bullet, "" for none."""
        style = self.styles.paragraph(paragraph)
        numbering = paragraph.find(f"{W}pPr/{W}numPr")
        number = value(numbering, "numId") or style.number
        if not number or number == "0":
            return ""
        position: int | None = to_number(value(numbering, "ilvl"), -1)
        if position == -1:
            position = self._numbering.level_of_style(number, self.styles.identifier(paragraph))
        return self._numbering.label(number, style.place or 0 if position is None else position)

    def read(self, paragraph: Any) -> WordLine:
        """Return a paragraph's text, with what it refers to."""
        line = WordLine()
        self._gather(paragraph, line)
        if self.fields and not self._follow_fields:
            self.fields.clear()
        return line

    def _gather(self, parent: Any, line: WordLine) -> None:
        """Add what is in a part of a paragraph to its line."""
        for element in parent.iterchildren():
            tag = element.tag
            if tag == f"{W}r":
                self._gather_run(element, line)
            elif tag == f"{W}del":
                self._writer.leave_out(DELETED, all_text(element, f"{W}delText", f"{W}t"))
            elif tag == f"{W}moveFrom":
                continue  # it stands where it was moved to
            elif tag == f"{W}fldSimple":
                of_contents = _CONTENTS_FIELD.match(element.get(f"{W}instr", ""))
                if of_contents and self._follow_fields:
                    line.contents.append(all_text(element))
                else:
                    self._gather(element, line)
            elif tag == f"{W}sdt" and element.find(f"{W}sdtPr/{W}showingPlcHdr") is not None:
                self._writer.leave_out(FORMS, all_text(element))
            elif tag.startswith(_MATH):
                self._add(line, word_formula_text(element))
            elif tag not in (f"{W}pPr", f"{W}sdtPr"):
                self._gather(element, line)

    def _gather_run(self, run: Any, line: WordLine) -> None:
        properties = run.find(f"{W}rPr")
        style = self.styles.run(properties)
        script = value(properties, "vertAlign") or style.script
        script = script if script in ("superscript", "subscript") else ""
        is_hidden = is_on(properties, "vanish", otherwise=style.hidden)
        fonts = None if properties is None else properties.find(f"{W}rFonts")
        font = style.font if fonts is None else fonts.get(f"{W}ascii", "")
        for element in run.iterchildren():
            tag = element.tag
            if tag == f"{W}t":
                text = _plain(element.text or "", font)
                if is_hidden:
                    self._writer.leave_out(HIDDEN_PARTS, text)
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
                self._add(line, _form_value(element.find(f"{W}ffData")))
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

    def _gather_ruby(self, element: Any, line: WordLine) -> None:
        for base in element.iter(f"{W}rubyBase"):
            self._gather(base, line)
        self._writer.leave_out(READINGS, "".join(map(all_text, element.iter(f"{W}rt"))))

    def _add(self, line: WordLine, text: str, script: str = "", *, note: bool = False) -> None:
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

    def _refer(self, reference: Any, line: WordLine, kind: str) -> None:
        """Add the mark of a note, and keep the note for below the paragraph."""
        note = self._notes[kind].get(reference.get(f"{W}id"))
        if note is None:
            return
        self._counts[kind] += 1
        mark = format_number(self._counts[kind], "lowerRoman" if kind == "endnote" else "decimal")
        self._add(line, mark, note=True)
        line.notes.append((mark, note))

    def _gather_drawing(self, drawing: Any, line: WordLine) -> None:
        """Add the text boxes, the description and the diagram's words of a drawing."""
        boxes = [box for box in drawing.iter(f"{W}txbxContent") if _outermost(box, drawing)]
        line.boxes += boxes
        descriptions = [picture_description(picture.get("descr", "")) for picture in drawing.iter(_PICTURE)]
        for text in filter(None, descriptions):
            line.add(f" {text} ")
        if drawing.tag == f"{W}object":
            self._writer.pass_over(EMBEDDED)
        elif not any(descriptions):
            self._writer.pass_over(PICTURES, sum(1 for _ in drawing.iter(f"{_DRAWING}blip", _IMAGE_DATA)))
        for pointer in drawing.iter(f"{_DIAGRAM}relIds"):
            part = self._package.read(self._package.target(pointer.get(f"{R}dm", "")))
            for paragraph in () if part is None else part.iter(f"{_DRAWING}p"):
                if text := "".join(run.text or "" for run in paragraph.iter(f"{_DRAWING}t")).strip():
                    line.add(f"\n{text}")
        for pointer in drawing.iter(f"{_CHART}chart"):
            part = self._package.read(self._package.target(pointer.get(f"{R}id", "")))
            words = () if part is None else part.iter(f"{_DRAWING}t", f"{_CHART}v")
            self._writer.leave_out(CHART_WORDS, " ".join(word.text or "" for word in words))


def _form_value(form: Any) -> str:
    """Return what is chosen in a form field of the old kind, whose value stands in no run."""
    for choice in () if form is None else form.iter(f"{W}ddList", f"{W}checkBox"):
        if choice.tag == f"{W}checkBox":
            return "☒" if is_on(choice, "checked", otherwise=is_on(choice, "default")) else "☐"
        entries = choice.findall(f"{W}listEntry")
        chosen = to_number(value(choice, "result"), 0)
        return str(entries[chosen].get(f"{W}val", "")) if chosen < len(entries) else ""
    return ""


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
