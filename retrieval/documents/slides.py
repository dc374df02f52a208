"""PowerPoint's presentations: titles, texts, tables and notes of each slide, by python-pptx."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from lxml import etree

from corag.core.errors import DataError, reason
from retrieval.documents.archive import Archive
from retrieval.documents.document import Document, Writer, describe_unread, picture_description, stated_title
from retrieval.documents.formulas import word_formula_text
from retrieval.documents.left_out import (
    CHARTS,
    COMMENTS,
    DIAGRAMS,
    EDGES,
    EMBEDDED,
    HIDDEN_PARTS,
    HIDDEN_SLIDES,
    PICTURES,
)

_FOOTERS = ("DATE", "FOOTER", "SLIDE_NUMBER", "HEADER")
_PARTS = re.compile(r"ppt/(slides|notesSlides)/[^/]+\.xml$")
_ROOTS = {"slides": "sld", "notesSlides": "notes"}
_COMMENTS = re.compile(r"ppt/comments/[^/]+\.xml$")
_EMPTY = (  # such a part without shapes
    '<p:{0} xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"><p:cSld><p:spTree><p:nvGrpSpPr/>'
    "<p:grpSpPr/></p:spTree></p:cSld></p:{0}>"
)
_FORMS = "{http://schemas.openxmlformats.org/markup-compatibility/2006}AlternateContent"
_FORMULA = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SHAPES = ("}sp", "}pic", "}graphicFrame", "}grpSp")
_FRAMES = {"/chart": CHARTS, "/diagram": DIAGRAMS}  # by what a frame holds
_LINE = 200_000  # of PowerPoint's units (914,400 to an inch): shapes that begin so near stand side by side


def read_presentation(data: bytes, title: str) -> Document:
    """Read a .pptx: a section for each slide, whose blocks stand at the place "slide N".

    Shapes are read from top to bottom, those side by side from left to right. Speakers' notes follow their
    slide. Hidden slides, footers, comments, pictures, charts and diagrams are left out and counted; slides
    that cannot be read are named in a note. Raises :class:`DataError` for what is no presentation.
    """
    archive = Archive(data, ".pptx")
    archive.check()
    presentation, problems = _open(data)
    own_title = stated_title(presentation.core_properties.title, "")
    writer = Writer(own_title or title, is_title_stated=bool(own_title))
    unread: dict[str, str] = {}
    for number, slide in enumerate(presentation.slides, 1):
        location = f"slide {number}"
        if problem := problems.get(slide.part.partname[1:]):
            unread[location] = problem
            continue
        if slide.has_notes_slide and (problem := problems.get(slide.notes_slide.part.partname[1:])):
            unread[f"notes of {location}"] = problem
        if slide.element.get("show") == "0":
            parts = [slide, slide.notes_slide] if slide.has_notes_slide else [slide]
            texts = [text for part in parts for text in part.element.xpath(".//a:t/text()")]
            writer.leave_out(HIDDEN_SLIDES, " ".join(texts))
        else:
            _write_slide(writer, slide, location)
    for name in filter(_COMMENTS.match, archive.names):
        with contextlib.suppress(Exception):  # as above
            writer.leave_out(COMMENTS, " ".join(etree.fromstring(archive.read(name)).itertext()))
    writer.notes += describe_unread(unread)
    return writer.document()


def _open(data: bytes) -> tuple[Any, dict[str, str]]:
    """Return a presentation, and why parts of it cannot be read: slides, notes and media, which are empty.

    The library gives a whole file up for one of them.
    """
    try:
        return _load(data), {}
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the library
        damage = reason(error)
    try:
        repaired_data, problems = _empty_broken_parts(data)
        return _load(repaired_data), problems
    except Exception:  # noqa: BLE001 - as above
        raise DataError(f"it is damaged, or no .pptx ({damage}): open it and save it again.") from None


def _load(data: bytes) -> Any:
    from pptx import Presentation

    presentation = Presentation(io.BytesIO(data))
    for slide in presentation.slides:  # it opens without those that are missing, and fails here
        _ = slide.slide_layout
    return presentation


def _empty_broken_parts(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a presentation whose broken parts are empty, and what was wrong with each."""
    problems: dict[str, str] = {}
    file = io.BytesIO()
    with ZipFile(io.BytesIO(data)) as archive, ZipFile(file, "w", ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            kind = _PARTS.match(name)
            try:
                content = archive.read(name)
                if kind:
                    etree.fromstring(content)
            except Exception as error:  # noqa: BLE001 - as above
                problems[name] = reason(error)
                content = _EMPTY.format(_ROOTS[kind[1]]).encode() if kind else b""
            copy.writestr(name, content)
    return file.getvalue(), problems


def _show_all(slide: Any) -> None:
    """Put formulas, and shapes that are there in several forms, where the library sees them."""
    for forms in [*slide.element.iter(_FORMS)]:
        shapes = ([shape for shape in form if shape.tag.endswith(_SHAPES)] for form in forms)
        for shape in next(filter(None, shapes), ()):
            forms.addprevious(shape)
    for formula in [*slide.element.iter(_FORMULA)]:
        run = formula.makeelement(f"{_DRAWING}r")
        formula.addprevious(run)
        etree.SubElement(run, f"{_DRAWING}t").text = "".join(map(word_formula_text, formula))


def _write_slide(writer: Writer, slide: Any, location: str) -> None:
    _show_all(slide)
    heading = slide.shapes.title
    # A slide without a title ends the section of the one before it.
    name = " ".join(heading.text_frame.text.split()) if heading is not None else ""
    writer.heading(2, name or location.capitalize(), page=location)
    for shape in _in_reading_order(slide.shapes):
        if heading is not None and shape.shape_id == heading.shape_id:
            continue
        if shape.element.xpath("./*/p:cNvPr[@hidden='1' or @hidden='true']"):
            writer.leave_out(HIDDEN_PARTS, " ".join(shape.element.xpath(".//a:t/text()")))
        elif shape.is_placeholder and shape.placeholder_format.type.name in _FOOTERS:
            writer.leave_out(EDGES, shape.text_frame.text if shape.has_text_frame else "")
        elif shape.has_text_frame:
            for paragraph in shape.text_frame.paragraphs:
                text = " ".join(paragraph.text.split())
                # An indented level is a list's.
                writer.block(f"- {text}" if paragraph.level else text, page=location)
        elif getattr(shape, "has_table", False):  # python-pptx: not every kind of shape has it
            rows = [[cell.text for cell in row.cells] for row in shape.table.rows]
            writer.table(rows, header=int(shape.table.first_row), page=location)
        elif kind := _kind_of_drawing(shape):
            text = picture_description(" ".join(shape.element.xpath("./*/p:cNvPr/@descr")))
            writer.block(text, page=location)
            writer.pass_over(kind, int(kind != PICTURES or not text))
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None:
        for line in frame.text.splitlines():
            writer.block(line, page=location)


def _kind_of_drawing(shape: Any) -> str:
    """Return what a shape shows that has no text, "" for lines and the like."""
    for uri in shape.element.xpath("./a:graphic/a:graphicData/@uri"):
        return next((kind for word, kind in _FRAMES.items() if uri.endswith(word)), EMBEDDED)
    if shape.element.xpath(".//a:videoFile | .//a:audioFile | .//a:quickTimeFile"):
        return EMBEDDED
    return PICTURES if shape.element.xpath("self::p:pic | .//a:blip") else ""


def _in_reading_order(shapes: Iterable[Any]) -> Iterator[Any]:
    """Yield the shapes of a slide as they are read, see :func:`read_presentation`; those of a group together.

    One without a position of its own (it has its layout's) comes before the others, in the file's order.
    """
    for shape in sorted(shapes, key=lambda shape: ((shape.top or 0) // _LINE, shape.left or 0)):
        if shape.element.tag.endswith("}grpSp"):
            yield from _in_reading_order(shape.shapes)
        else:
            yield shape
