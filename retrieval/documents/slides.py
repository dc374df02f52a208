"""PowerPoint's presentations: titles, texts, tables and notes of each slide, by python-pptx."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from corag.core.errors import DataError, reason
from retrieval.documents.archive import open_archive
from retrieval.documents.document import Document, Writer, stated_title

_HIDDEN, _EDGES = "hidden slides", "page headers and footers"
_FOOTERS = ("DATE", "FOOTER", "SLIDE_NUMBER", "HEADER")
_LINE = 200_000  # of PowerPoint's units (914,400 to an inch): shapes that begin so near stand side by side


def read_presentation(data: bytes, title: str) -> Document:
    """Read a .pptx: a section for each slide, whose blocks stand at the place "slide N".

    Shapes are read from top to bottom, those side by side from left to right. Speakers' notes follow their
    slide. Hidden slides and footers are left out and counted; pictures, charts and diagrams (SmartArt) are
    named in a note. Raises :class:`DataError` for what is no presentation.
    """
    from pptx import Presentation

    open_archive(data, ".pptx")
    try:
        presentation = Presentation(io.BytesIO(data))
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the library
        raise DataError(f"it is damaged, or no .pptx ({reason(error)}): open it and save it again.") from None
    stated = stated_title(presentation.core_properties.title, "")
    writer = Writer(stated or title, stated=bool(stated))
    drawings = 0
    for number, slide in enumerate(presentation.slides, 1):
        if slide.element.get("show") == "0":
            writer.leave_out(_HIDDEN, "\n".join(_texts(slide.shapes)))
        else:
            drawings += _write_slide(writer, slide, f"slide {number}")
    if drawings:
        writer.notes.append(f"what is drawn in {drawings:,} picture(s), chart(s) and diagram(s) is not read")
    return writer.document()


def _write_slide(writer: Writer, slide: Any, place: str) -> int:
    """Write a slide; return how many of its shapes are pictures, charts and diagrams."""
    from pptx.shapes.graphfrm import GraphicFrame
    from pptx.shapes.picture import Picture
    from pptx.shapes.placeholder import PlaceholderPicture

    heading, drawings = slide.shapes.title, 0
    # A slide without a title ends the section of the one before it.
    name = " ".join(heading.text_frame.text.split()) if heading is not None else ""
    writer.heading(2, name or place.capitalize(), page=place)
    for shape in _in_reading_order(slide.shapes):
        if heading is not None and shape.shape_id == heading.shape_id:
            continue
        if _is_footer(shape):
            writer.leave_out(_EDGES, shape.text_frame.text if shape.has_text_frame else "")
        elif shape.has_text_frame:
            for line in _lines(shape):
                writer.block(line, page=place)
        elif getattr(shape, "has_table", False):
            rows = [[cell.text for cell in row.cells] for row in shape.table.rows]
            writer.table(rows, header=bool(shape.table.first_row), page=place)
        elif isinstance(shape, GraphicFrame | Picture | PlaceholderPicture):
            drawings += 1
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None:
        for line in frame.text.splitlines():
            writer.block(line, page=place)
    return drawings


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
