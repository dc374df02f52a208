"""Documents of every kind, written by the tests: small PDF and Word files, and a folder of 200 mixed ones."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import docx
from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, Fit, NameObject

TOWNS = [
    start + end for start in ("Al", "Bren", "Cor", "Dun", "Es") for end in ("by", "ford", "holm", "mouth")
]
TRADES = ("glass", "paper", "salt", "clocks", "rope", "ink", "tiles", "honey")


def pdf_bytes(pages: Sequence[Sequence[str]], title: str = "") -> bytes:
    """Return a PDF with lines of text on its pages."""
    return drawn_pdf(
        ["14 TL 72 770 Td " + " ".join(f"{shown(line)} Tj T*" for line in page) for page in pages], title
    )


def shown(text: str) -> str:
    """Return a text as operators of a page take it."""
    return "(" + text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") + ")"


def drawn_pdf(pages: Sequence[str], title: str = "", font: str = "") -> bytes:
    """Return a PDF whose pages are drawn by these operators, written by hand: header, objects, their offsets.

    Each page begins in Helvetica (/F1) of 11 points; /F2 is bold. ``font``: what else its description says.
    """
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica {font or '/Encoding /WinAnsiEncoding'} >>",
        f"<< /Title ({title}) >>",
    ]
    for number, operators in enumerate(pages):
        drawn = f"BT /F1 11 Tf {operators} ET"
        bold = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >>"
        resources = f"/Resources << /Font << /F1 3 0 R /F2 {bold} >> >> /MediaBox [0 0 595 842]"
        objects.append(f"<< /Type /Page /Parent 2 0 R {resources} /Contents {6 + 2 * number} 0 R >>")
        objects.append(f"<< /Length {len(drawn.encode('cp1252'))} >>\nstream\n{drawn}\nendstream")
    file, offsets = io.BytesIO(), []
    file.write(b"%PDF-1.4\n")
    for number, content in enumerate(objects, 1):
        offsets.append(file.tell())
        file.write(f"{number} 0 obj\n{content}\nendobj\n".encode("cp1252"))
    start = file.tell()
    entries = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    file.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{entries}".encode())
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{start}\n%%EOF\n"
    file.write(trailer.encode())
    return file.getvalue()


def structured(
    pdf: bytes,
    outline: Sequence[tuple[int, str, int, float | None]] = (),
    labels: Mapping[int, tuple[str, int]] = MappingProxyType({}),
) -> bytes:
    """Return a PDF with an outline and page labels.

    ``outline``: (level, title, page from 0, height on the page) of each entry; ``labels``: by first page, the
    style ("/D" for digits, "/r" for small roman numbers) and the first number.
    """
    writer, file = PdfWriter(clone_from=io.BytesIO(pdf)), io.BytesIO()
    above: dict[int, Any] = {}
    for level, title, page, height in outline:
        fit = Fit.xyz(top=height) if height is not None else Fit.fit()
        above[level] = writer.add_outline_item(title, page, parent=above.get(level - 1), fit=fit)
    ends = [*list(labels)[1:], len(writer.pages)]
    for (first, (style, start)), end in zip(labels.items(), ends, strict=False):
        writer.set_page_label(first, end - 1, style=style, start=start)
    writer.write(file)
    return file.getvalue()


def annotated(pdf: bytes, *annotations: Mapping[str, Any]) -> bytes:
    """Return a PDF with annotations on its first page; those of a field's type ("/FT") are a form's."""
    writer, file, fields = PdfWriter(clone_from=io.BytesIO(pdf)), io.BytesIO(), ArrayObject()
    for annotation in annotations:
        added = writer.add_annotation(0, {"/Type": "/Annot", "/Rect": [72, 600, 272, 620], **annotation})
        if "/FT" in annotation:
            fields.append(added.indirect_reference)
    if fields:
        writer.root_object[NameObject("/AcroForm")] = DictionaryObject({NameObject("/Fields"): fields})
    writer.write(file)
    return file.getvalue()


def encrypted(pdf: bytes, password: str) -> bytes:
    """Return a PDF that opens with this password alone."""
    writer, file = PdfWriter(clone_from=io.BytesIO(pdf)), io.BytesIO()
    writer.encrypt(password, algorithm="AES-256")
    writer.write(file)
    return file.getvalue()


def docx_bytes(parts: Sequence[tuple[str, str]], table: Sequence[Sequence[str]] = ()) -> bytes:
    """Return a Word file of (style, text) paragraphs and, at its end, a table."""
    document, file = docx.Document(), io.BytesIO()
    for style, text in parts:
        document.add_paragraph(text, style=style)
    if table:
        grid = document.add_table(len(table), len(table[0]))
        for row, cells in zip(grid.rows, table, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    document.save(file)
    return file.getvalue()


def prose(number: int, sentences: int) -> str:
    """Return sentences about one town; each has the town, the number and its place in it."""
    town = TOWNS[number % len(TOWNS)]
    sold = [TRADES[(number + place) % len(TRADES)] for place in range(sentences)]
    told = (f"{town} number {number} sold {what} to {many} others." for many, what in enumerate(sold, 2))
    return " ".join(told)


def write_folder(folder: Path) -> Path:
    """Write 200 documents: text, Markdown, HTML, PDF, Word, a broken PDF, an empty file, one of 5 MB, one in
    Latin-1; and beside them three pictures, a hidden file and a hidden folder.
    """
    for number in range(80):
        _write(folder / f"notes/town_{number:03d}.txt", prose(number, 8))
    for number in range(80, 130):
        text = f"# Town {number}\n\n{prose(number, 6)}\n\n## Trade\n\n- salt\n- rope\n\n{prose(number, 30)}\n"
        _write(folder / f"wiki/town_{number:03d}.md", text)
    for number in range(130, 168):
        body = f"<h1>Town {number}</h1><p>{prose(number, 7)}</p><h2>Trade</h2><p>Ink &amp; rope.</p>"
        page = f"<title>Town {number} - Atlas</title><body><nav>Home</nav>{body}</body>"
        _write(folder / f"web/town_{number:03d}.html", page)
    for number in range(168, 183):
        lines = prose(number, 8).replace(". ", ".\n").split("\n")
        pages = [lines[:4], lines[4:]]
        _write(folder / f"scans/town_{number:03d}.pdf", pdf_bytes(pages, title=f"Town {number}"))
    for number in range(183, 195):
        parts = [("Heading 1", f"Town {number}"), ("Normal", prose(number, 9)), ("List Bullet", "salt")]
        _write(folder / f"office/town_{number:03d}.docx", docx_bytes(parts))
    _write(folder / "facts.jsonl", '{"id": "f1", "title": "Fact", "text": "Alby has a bridge."}\n')
    _write(folder / "broken.pdf", pdf_bytes([["Never read."]])[:200])
    _write(folder / "empty.txt", "")
    _write(folder / "large.txt", "\n\n".join(prose(number, 40) for number in range(1000, 4000)))
    _write(folder / "latin1.txt", "Der Fluß fließt durch Köln, sagt Åse.".encode("latin-1"))
    for name in ("map.png", "photo.PNG", "plan.dwg", ".DS_Store", ".git/config"):
        _write(folder / name, b"\x00\x01")
    return folder


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
