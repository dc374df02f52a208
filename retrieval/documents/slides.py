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
from retrieval.documents.document import Document, Writer, describe_unread, stated_title
from retrieval.documents.left_out import (
    CHARTS,
    COMMENTS,
    DIAGRAMS,
    EDGES,
    EMBEDDED,
    HIDDEN_SLIDES,
    PICTURES,
)

_FOOTERS = ("DATE", "FOOTER", "SLIDE_NUMBER", "HEADER")
_SLIDES = "ppt/_rels/presentation.xml.rels"  # names the slides
_PARTS = re.compile(r"ppt/(slides|notesSlides|slideLayouts)/[^/]+\.xml$")
_ROOTS = {"slides": "sld", "notesSlides": "notes", "slideLayouts": "sldLayout"}
_COMMENTS = re.compile(r"ppt/comments/[^/]+\.xml$")
_RELATIONS = re.compile(r"ppt/slides/_rels/[^/]+\.rels$")  # name the layout and the notes of a slide
_OFFICE = "http://schemas.openxmlformats.org"
_ONLY_LAYOUT = (
    f'<Relationships xmlns="{_OFFICE}/package/2006/relationships"><Relationship Id="rId1" '
    f'Type="{_OFFICE}/officeDocument/2006/relationships/slideLayout" Target="../slideLayouts/{{0}}"/>'
    "</Relationships>"
)
_EMPTY = (  # such a part without shapes
    '<p:{0} xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"><p:cSld><p:spTree><p:nvGrpSpPr/>'
    "<p:grpSpPr/></p:spTree></p:cSld></p:{0}>"
)
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
        if problem := problems.get(_relations_of(slide.part.partname[1:])):
            unread[f"layout and notes of {location}"] = problem
        if problem := problems.get(slide.slide_layout.part.partname[1:]):
            unread[f"layout of {location}"] = problem
        if slide.has_notes_slide and (problem := problems.get(slide.notes_slide.part.partname[1:])):
            unread[f"notes of {location}"] = problem
        if slide.element.get("show") == "0":
            writer.leave_out(HIDDEN_SLIDES, "\n".join(_texts(slide.shapes)))
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
    from pptx import Presentation

    try:
        presentation = Presentation(io.BytesIO(data))
        for slide in presentation.slides:  # it opens without those that are missing, and fails here
            _ = slide.slide_layout
        if not _missing_parts(data):
            return presentation, {}
        damage = "parts are missing"
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the library
        damage = reason(error)
    try:
        repaired_data, problems = _empty_broken_parts(data)
        return Presentation(io.BytesIO(repaired_data)), problems
    except Exception:  # noqa: BLE001 - as above
        raise DataError(f"it is damaged, or no .pptx ({damage}): open it and save it again.") from None


def _empty_broken_parts(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a presentation whose broken and missing parts are empty, and what was wrong with each."""
    problems: dict[str, str] = {}
    file = io.BytesIO()
    with ZipFile(io.BytesIO(data)) as archive, ZipFile(file, "w", ZIP_DEFLATED) as copy:
        names = [*archive.namelist(), *_missing_parts(data)]
        layouts = sorted(name.rpartition("/")[2] for name in names if _is_layout(name))
        for name in names:
            kind, relations = _PARTS.match(name), _RELATIONS.match(name)
            try:
                content = archive.read(name)
                if kind or relations:
                    etree.fromstring(content)
            except Exception as error:  # noqa: BLE001 - as above
                problems[name] = reason(error)
                content = _EMPTY.format(_ROOTS[kind[1]]).encode() if kind else b""
                if relations and layouts:
                    content = _ONLY_LAYOUT.format(layouts[0]).encode()
            copy.writestr(name, content)
    return file.getvalue(), problems


def _missing_parts(data: bytes) -> list[str]:
    """Return the parts of slides that are named in a presentation but are not there."""
    with ZipFile(io.BytesIO(data)) as archive:
        there = set(archive.namelist())
        paths = re.findall(rb'Target="/?(?:ppt/)?(slides/[^"]+)"', archive.read(_SLIDES))
        slides = [f"ppt/{name.decode()}" for name in paths]
        relations = [_relations_of(name) for name in slides]
        notes = []
        for name in there.intersection(relations):
            with contextlib.suppress(Exception):  # what is damaged is found when it is repaired
                notes += re.findall(rb'Target="(?:\.\.|/ppt)/(notesSlides/[^"]+)"', archive.read(name))
    parts = [*slides, *relations, *(f"ppt/{name.decode()}" for name in notes)]
    return [name for name in dict.fromkeys(parts) if name not in there]


def _relations_of(part: str) -> str:
    folder, _, name = part.rpartition("/")
    return f"{folder}/_rels/{name}.rels"


def _is_layout(name: str) -> bool:
    kind = _PARTS.match(name)
    return kind is not None and kind[1] == "slideLayouts"


def _write_slide(writer: Writer, slide: Any, location: str) -> None:
    heading = slide.shapes.title
    # A slide without a title ends the section of the one before it.
    name = " ".join(heading.text_frame.text.split()) if heading is not None else ""
    writer.heading(2, name or location.capitalize(), page=location)
    for shape in _in_reading_order(slide.shapes):
        if heading is not None and shape.shape_id == heading.shape_id:
            continue
        if _is_footer(shape):
            writer.leave_out(EDGES, shape.text_frame.text if shape.has_text_frame else "")
        elif shape.has_text_frame:
            for line in _lines(shape):
                writer.block(line, page=location)
        elif getattr(shape, "has_table", False):  # python-pptx: not every kind of shape has it
            rows = [[cell.text for cell in row.cells] for row in shape.table.rows]
            writer.table(rows, header=int(shape.table.first_row), page=location)
        elif kind := _kind_of_drawing(shape):
            writer.pass_over(kind)
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None:
        for line in frame.text.splitlines():
            writer.block(line, page=location)


def _kind_of_drawing(shape: Any) -> str:
    """Return what a shape shows that has no text, "" for lines and the like."""
    from pptx.shapes.graphfrm import GraphicFrame
    from pptx.shapes.picture import Movie, Picture
    from pptx.shapes.placeholder import PlaceholderPicture

    if isinstance(shape, GraphicFrame):
        uri = shape.element.graphic.graphicData.get("uri", "")
        return next((kind for word, kind in _FRAMES.items() if uri.endswith(word)), EMBEDDED)
    if isinstance(shape, Movie):
        return EMBEDDED
    return PICTURES if isinstance(shape, Picture | PlaceholderPicture) else ""


def _in_reading_order(shapes: Iterable[Any]) -> Iterator[Any]:
    """Yield the shapes of a slide as they are read, see :func:`read_presentation`; those of a group together.

    One without a position of its own (it has its layout's) comes before the others, in the file's order.
    """
    from pptx.shapes.group import GroupShape

    for shape in sorted(shapes, key=lambda shape: ((shape.top or 0) // _LINE, shape.left or 0)):
        if isinstance(shape, GroupShape):
            yield from _in_reading_order(shape.shapes)
        else:
            yield shape


def _lines(shape: Any) -> Iterator[str]:
    """Yield the paragraphs of a shape; those of an indented level are items of a list."""
    for paragraph in shape.text_frame.paragraphs:
        if text := " ".join(paragraph.text.split()):
            yield f"- {text}" if paragraph.level else text


def _texts(shapes: Iterable[Any]) -> Iterator[str]:
    return (shape.text_frame.text for shape in _in_reading_order(shapes) if shape.has_text_frame)


def _is_footer(shape: Any) -> bool:
    return shape.is_placeholder and shape.placeholder_format.type.name in _FOOTERS
