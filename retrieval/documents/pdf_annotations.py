"""What stands on a PDF's page beside its text: values of form fields, comments, pictures."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pypdfium2
from pypdfium2 import raw as pdfium

from corag.core.language.words import count_words
from retrieval.documents.document import clean
from retrieval.documents.left_out import BLANK_FIELDS, COMMENTS, HIDDEN_PARTS, MARKS, PICTURES

_INVISIBLE = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
_CHOICES = (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX)
_TICKS = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
_NO_COMMENTS = (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP)  # they describe, or repeat, another one
_MARKED_TEXT = range(pdfium.FPDF_ANNOT_HIGHLIGHT, pdfium.FPDF_ANNOT_STRIKEOUT + 1)  # which is read
_SMALLEST_PICTURE = 1296.0  # square points, half an inch by half an inch: smaller ones have no text


@dataclass(frozen=True, slots=True)
class BesideText:
    """What stands on a page beside its text.

    Attributes:
        fields: what is filled in: each value behind its field's name, and text that is set on the page.
        left_out: the rest, by kind; see :mod:`retrieval.documents.left_out`.
    """

    fields: Sequence[str] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def read_beside_text(page: pypdfium2.PdfPage) -> BesideText:
    """Read a page's form fields, and count its comments and pictures."""
    fields: dict[str, str] = {}  # by full name: a choice has several places on a page
    left_out = Counter({PICTURES: _count_pictures(page)})
    for annotation in _annotations(page):
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        is_field = kind == pdfium.FPDF_ANNOT_WIDGET and page.formenv
        if is_field:
            name, text = _read_field(page.formenv, annotation)
        else:
            text = _text(partial(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents"))
        if pdfium.FPDFAnnot_GetFlags(annotation) & _INVISIBLE:
            left_out[HIDDEN_PARTS] += count_words(text)
        elif is_field:
            fields[name] = fields.get(name) or text
        elif text and kind == pdfium.FPDF_ANNOT_FREETEXT:  # as programs write into forms without fields
            fields[text] = text
        elif text and kind not in _NO_COMMENTS:
            left_out[COMMENTS] += count_words(text)
        elif kind not in (*_NO_COMMENTS, *_MARKED_TEXT):
            left_out[MARKS] += 1
    filled_in = [text for text in fields.values() if text]
    left_out[BLANK_FIELDS] = len(fields) - len(filled_in)
    return BesideText(filled_in, left_out)


def _annotations(page: pypdfium2.PdfPage) -> Iterator[Any]:
    for number in range(pdfium.FPDFPage_GetAnnotCount(page)):
        if annotation := pdfium.FPDFPage_GetAnnot(page, number):
            yield annotation
            pdfium.FPDFPage_CloseAnnot(annotation)


def _read_field(form: Any, annotation: Any) -> tuple[str, str]:
    """Return a form field's full name, and its value behind the name that is shown, "" if it has none."""
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    name = _text(partial(pdfium.FPDFAnnot_GetFormFieldName, form, annotation))
    shown = _text(partial(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation)) or name
    value = ""
    if kind in _TICKS:
        if pdfium.FPDFAnnot_IsChecked(form, annotation):
            value = _text(partial(pdfium.FPDFAnnot_GetFormFieldExportValue, form, annotation))
    elif kind in _CHOICES:
        label = partial(pdfium.FPDFAnnot_GetOptionLabel, form, annotation)
        options = range(pdfium.FPDFAnnot_GetOptionCount(form, annotation))
        chosen = [option for option in options if pdfium.FPDFAnnot_IsOptionSelected(form, annotation, option)]
        value = ", ".join(_text(partial(label, option)) for option in chosen)
    if not value and kind not in _TICKS:
        value = _text(partial(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation))
    return name, f"{shown}: {value}" if value else ""


def _text(read: Callable[[Any, int], int]) -> str:
    """Return a text that PDFium writes into a buffer, as UTF-16; without one it returns the text's size."""
    buffer = ctypes.create_string_buffer(read(None, 0))
    read(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), len(buffer))
    lines = clean(buffer.raw.decode("utf-16-le", "replace")).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def _count_pictures(page: pypdfium2.PdfPage) -> int:
    count = 0
    with suppress(pypdfium2.PdfiumError):  # which is of a broken picture, and not of text
        for picture in page.get_objects([pdfium.FPDF_PAGEOBJ_IMAGE]):
            left, bottom, right, top = picture.get_bounds()
            # What is within a drawing has its own measure.
            count += picture.level > 0 or (right - left) * (top - bottom) >= _SMALLEST_PICTURE
    return count
