"""What a file is by its first bytes: names are changed, and downloads are saved under wrong ones."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileType:
    """A type of file that is not plain text.

    Attributes:
        name: what it is called in a sentence, such as "a PDF".
        advice: what to do with it where it cannot be read.
    """

    name: str
    advice: str

    def __str__(self) -> str:
        return self.name


_ROWS, _LEFT_OUT = "write its rows as JSON lines", "leave it out"
PDF = FileType("a PDF", "give it the ending .pdf")
WORD = FileType("a Word document (.docx)", "give it the ending .docx")
HTML = FileType("a web page", "give it the ending .html")
ZIP = FileType("a ZIP archive", "unpack it, and name what is in it")
_ARCHIVE = FileType("an archive", ZIP.advice)
PARQUET = FileType("a Parquet table", "give it the ending .parquet")
OLE = FileType(
    "of an Office before 2007, or encrypted", "save it as .docx, .html or .txt, without a password"
)
EXCEL = FileType("an Excel workbook", "save its sheet as .csv, or give it the ending .xlsx among documents")
POWERPOINT = FileType("a PowerPoint presentation", "give it the ending .pptx")
EPUB = FileType("an e-book (EPUB)", "give it the ending .epub")
RTF = FileType("an RTF document", "give it the ending .rtf")
MHTML = FileType("a web archive (MHTML)", "give it the ending .mht")
_PICTURE = FileType("a picture", "recognise its text (OCR) and save that")
_OTHER = FileType("a sound, a film or a program", _LEFT_OUT)
_ARCHIVES = (
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ\0",
    b"BZh",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
)
_STARTS = (
    (b"%PDF-", PDF),
    (rb"{\rtf", RTF),
    (b"%!PS", FileType("PostScript", "turn it into a PDF (ps2pdf)")),
    (b"PAR1", PARQUET),
    (b"ARROW1", FileType("an Arrow table", "give it the ending .arrow")),
    (b"SQLite format 3\0", FileType("an SQLite database", _ROWS)),
    (b"\x93NUMPY", FileType("an array of numpy", _LEFT_OUT)),
    (b"\x89HDF\r\n", FileType("an HDF5 file", _ROWS)),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    *((start, _ARCHIVE) for start in _ARCHIVES),
    *((start, _PICTURE) for start in (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")),
    (b"AT&TFORM", FileType("a DjVu document", "turn it into a PDF (ddjvu)")),
    *((start, _OTHER) for start in (b"\x7fELF", b"OggS\0", b"ID3\x02", b"ID3\x03", b"ID3\x04")),
)
# By a file that is in the archive. Many formats are archives under a name of their own.
_IN_ZIP = {
    "word/document.xml": WORD,
    "xl/workbook.xml": EXCEL,
    "xl/workbook.bin": FileType("a binary Excel workbook (.xlsb)", "save it as .xlsx"),
    "ppt/presentation.xml": POWERPOINT,
    "META-INF/container.xml": EPUB,
    "content.xml": FileType("an OpenDocument file", "save it as .docx, or a sheet as .csv"),
}
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--.{0,1000}?-->\s*)*<(?:!doctype\s+html|html)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_WEB_ARCHIVE = re.compile(rb"From: <?Saved by |MIME-Version: 1\.0\s+Content-Type: multipart/related", re.I)
_PDF_BEHIND = re.compile(rb"(?<![ -=?-~])%PDF-[0-9]")  # no sentence about PDFs, nor a string with one
START = 2048
"""Bytes of a file that tell what it is."""


def detect_file_type(data: bytes) -> FileType | None:
    """Return what a file is by its first bytes, or by all of them; None for text and what is not known.

    Of an archive, what is in it says more: if ``data`` are all bytes of it, that is looked at.

    >>> print(detect_file_type(b"%PDF-1.7 ..."), detect_file_type(b"A report."))
    a PDF None
    """
    for start, file_type in _STARTS:
        if data.startswith(start):
            return file_type
    if data.startswith(b"PK\x03\x04"):
        return _look_into_zip(data)
    if data[257:262] == b"ustar":
        return _ARCHIVE
    if data.startswith(b"RIFF") or (data[4:8] == b"ftyp" and b"\0" in data[:8]):
        return _OTHER
    if _WEB_ARCHIVE.match(data):
        return MHTML
    # Readers of PDFs look for their first line in 1,024 bytes, since some senders put others before it.
    if _PDF_BEHIND.search(data, 0, 1024) and b"startxref" in data:
        return PDF
    return HTML if _PAGE.match(data[:START]) else None


def _look_into_zip(data: bytes) -> FileType:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = frozenset(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        # Torn, or its first bytes alone. The names stand before the files, too.
        return next((kind for name, kind in _IN_ZIP.items() if name.encode() in data), ZIP)
    return next((kind for name, kind in _IN_ZIP.items() if name in names), ZIP)
