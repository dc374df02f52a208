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


_SAVE = "save it as .docx, .html or .txt"
_UNPACK = "unpack it, and name what is in it"
_ROWS = "write its rows as JSON lines"
_PICTURE = "recognise its text (OCR) and save that"
_NO_TEXT = "leave it out"

PDF = FileType("a PDF", "give it the ending .pdf")
WORD = FileType("a Word document (.docx)", "give it the ending .docx")
HTML = FileType("a web page", "give it the ending .html")
ZIP = FileType("a ZIP archive", _UNPACK)
_PARQUET = FileType(
    "a Parquet table",
    "write its rows as JSON lines, such as with pandas: read_parquet(FILE).to_json('rows.jsonl', "
    "orient='records', lines=True)",
)
OLE = FileType("of an Office before 2007, or encrypted", f"{_SAVE}, without a password")
EXCEL = FileType("an Excel workbook", "save its sheet as .csv, or give it the ending .xlsx among documents")
POWERPOINT = FileType("a PowerPoint presentation", "give it the ending .pptx")
EPUB = FileType("an e-book (EPUB)", "give it the ending .epub")
RTF = FileType("an RTF document", "give it the ending .rtf")
MHTML = FileType("a web archive (MHTML)", "give it the ending .mht")
_STARTS = (
    (b"%PDF-", PDF),
    (rb"{\rtf", RTF),
    (b"%!PS", FileType("PostScript", "turn it into a PDF (ps2pdf)")),
    (b"PAR1", _PARQUET),
    (b"ARROW1", FileType("an Arrow table", _ROWS)),
    (b"SQLite format 3\0", FileType("an SQLite database", _ROWS)),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    (b"\x1f\x8b\x08", FileType("compressed with gzip", _UNPACK)),
    (b"\x28\xb5\x2f\xfd", FileType("compressed with zstd", _UNPACK)),
    (b"\xfd7zXZ\0", FileType("compressed with xz", _UNPACK)),
    (b"7z\xbc\xaf\x27\x1c", FileType("a 7z archive", _UNPACK)),
    (b"Rar!\x1a\x07", FileType("a RAR archive", _UNPACK)),
    (b"\x89PNG\r\n", FileType("a PNG picture", _PICTURE)),
    (b"\xff\xd8\xff", FileType("a JPEG picture", _PICTURE)),
    (b"GIF87a", FileType("a GIF picture", _PICTURE)),
    (b"GIF89a", FileType("a GIF picture", _PICTURE)),
    (b"II*\0", FileType("a TIFF picture", _PICTURE)),
    (b"MM\0*", FileType("a TIFF picture", _PICTURE)),
    (b"AT&TFORM", FileType("a DjVu document", "turn it into a PDF (ddjvu)")),
    (b"ITSF\x03\0", FileType("a help file of Windows (CHM)", "turn it into .html")),
    (b"\x93NUMPY", FileType("an array of numpy", _NO_TEXT)),
    (b"\x89HDF\r\n", FileType("an HDF5 file", _ROWS)),
    (b"\x7fELF", FileType("a program", _NO_TEXT)),
    (b"bplist00", FileType("a property list of macOS", "turn it into text (plutil)")),
    (b"OggS\0", FileType("a sound or a film (Ogg)", _NO_TEXT)),
    *((b"ID3" + version, FileType("a sound (MP3)", _NO_TEXT)) for version in (b"\x02", b"\x03", b"\x04")),
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
_TAR = slice(257, 262)
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
    if data[_TAR] == b"ustar":
        return FileType("a TAR archive", _UNPACK)
    if data[4:8] == b"ftyp" and b"\0" in data[:8]:
        return FileType("a film (MP4), or a picture of a phone's (HEIC)", _NO_TEXT)
    if data.startswith(b"RIFF") and data[8:12] in (b"WEBP", b"WAVE", b"AVI "):
        return FileType("a picture, a sound or a film (RIFF)", _NO_TEXT)
    if _WEB_ARCHIVE.match(data):
        return MHTML
    return HTML if _PAGE.match(data[:START]) else None


def _look_into_zip(data: bytes) -> FileType:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = frozenset(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        # Torn, or its first bytes alone. The names stand before the files, too.
        return next((kind for name, kind in _IN_ZIP.items() if name.encode() in data), ZIP)
    return next((kind for name, kind in _IN_ZIP.items() if name in names), ZIP)
