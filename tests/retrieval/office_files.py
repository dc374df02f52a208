"""Presentations, workbooks, e-books, mails and notebooks, written by the tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from email.message import EmailMessage

import orjson
from openpyxl import Workbook
from openpyxl.styles import Font

_NAMESPACE = "urn:oasis:names:tc:opendocument:xmlns:container"
_OPF = "http://www.idpf.org/2007/opf"


def xlsx_bytes(sheets: Mapping[str, Sequence[Sequence[object]]], *, bold: bool = False) -> bytes:
    """Return a workbook. ``bold``: the first rows of its sheets are."""
    book, file = Workbook(), io.BytesIO()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
        for cell in sheet[1] if bold else ():
            cell.font = Font(bold=True)
    book.save(file)
    return file.getvalue()


def epub_bytes(title: str, pages: Mapping[str, str], encrypted: str = "") -> bytes:
    """Return an e-book of these pages, behind a table of contents. ``encrypted``: a part said to be so."""
    manifest = "".join(
        f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"/>'
        for name in reversed(pages)
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in pages)
    navigation = '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            f'<container xmlns="{_NAMESPACE}"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        )
        archive.writestr(
            "OEBPS/book.opf",
            f'<package xmlns="{_OPF}"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
            f"<dc:title>{title}</dc:title></metadata><manifest>{navigation}{manifest}</manifest>"
            f'<spine><itemref idref="nav"/>{spine}</spine></package>',
        )
        archive.writestr("OEBPS/nav.xhtml", "<html><body><nav><ol><li>Contents</li></ol></nav></body></html>")
        for name, body in pages.items():
            page = (
                f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{title}</title></head>{body}</html>'
            )
            archive.writestr(f"OEBPS/{name}.xhtml", page)
        if encrypted:
            archive.writestr(
                "META-INF/encryption.xml",
                f'<encryption xmlns="{_NAMESPACE}"><CipherReference URI="{encrypted}"/></encryption>',
            )
    return file.getvalue()


def eml_bytes(
    subject: str, text: str, *, page: str = "", attached: Sequence[str] = (), charset: str = "utf-8"
) -> bytes:
    """Return a mail with a plain text, the same as a page, and attachments of these names."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = (
        subject,
        "Ada <ada@example.org>",
        "Bob <bob@example.org>",
    )
    message["Date"] = "Mon, 02 Feb 2026 10:00:00 +0000"
    if text:
        message.set_content(text, charset=charset)
    if page and text:
        message.add_alternative(page, subtype="html")
    elif page:
        message.set_content(page, subtype="html")
    for name in attached:
        message.add_attachment(b"x", maintype="application", subtype="pdf", filename=name)
    return message.as_bytes()


def ipynb_bytes(cells: Sequence[tuple[str, str, Sequence[Mapping[str, object]]]]) -> bytes:
    """Return a notebook of (type, source, outputs) cells."""
    return orjson.dumps(
        {
            "cells": [
                {"cell_type": kind, "source": source.splitlines(keepends=True), "outputs": outputs}
                for kind, source, outputs in cells
            ],
            "nbformat": 4,
        }
    )


def damaged(data: bytes, part: str, content: bytes | None = None) -> bytes:
    """Return a zip of parts with one of them damaged: missing, or with this content."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as whole, zipfile.ZipFile(file, "w") as broken:
        for name in whole.namelist():
            if name != part:
                broken.writestr(name, whole.read(name))
            elif content is not None:
                broken.writestr(name, content)
    return file.getvalue()


def flipped(data: bytes, text: bytes) -> bytes:
    """Return a zip whose parts are stored, with a byte of a text changed: the checksum is wrong."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as whole, zipfile.ZipFile(file, "w") as stored:
        for name in whole.namelist():
            stored.writestr(name, whole.read(name))
    changed = file.getvalue()
    assert text in changed
    return changed.replace(text, b"?" + text[1:], 1)
