"""What to do with files that no reader takes, by their ending: for sentences of what was left out."""

from __future__ import annotations

from collections.abc import Mapping

_OFFICE = "open it in Office or LibreOffice and save it as .docx, .pptx or .xlsx"
_PICTURE = "a picture: recognise its text (OCR), as ocrmypdf does into a .pdf"
_CODE = "no text of a document: if it is to be searched, copy it to a .txt file"
_PANDOC = "turn it into .html (pandoc FILE -o FILE.html)"
_ADVICE = {
    advice: frozenset(endings.split())
    for advice, endings in (
        (_OFFICE, ".doc .dot .ppt .pps .xls .xlsb .odt .ods .odp .wpd .wps .pages .numbers .key"),
        (_PICTURE, ".png .jpg .jpeg .gif .tif .tiff .bmp .webp .heic .svg"),
        (_PANDOC, ".tex .rst .adoc .asciidoc .org .textile .wiki .fb2 .typ"),
        ("turn it into .epub (Calibre: ebook-convert)", ".mobi .azw .azw3 .lit .chm"),
        ("turn it into .pdf", ".djvu .ps .eps .xps .oxps"),
        ("save the mails as .eml", ".msg .mbox .pst .ost"),
        ("write its records as JSON lines (.jsonl)", ".json .ndjson .xml .yaml .yml .db .sqlite .sqlite3"),
        ("a table of records: name it by itself", ".parquet .arrow .feather"),
        ("unpack it, and name what is in it", ".zip .tar .7z .rar .tgz .gz .bz2 .xz .zst"),
        (_CODE, ".py .js .ts .java .c .h .cpp .rs .go .rb .sh .sql .css .log .ini .cfg .toml .bib"),
        ("no text", ".mp3 .wav .m4a .ogg .mp4 .mov .avi .mkv .exe .dll .so .bin .ttf .woff .woff2"),
    )
}  # fmt: skip
_OTHER = "there is no reader for it: if it has text, save it as .pdf, .docx, .html or .txt"


def advise(ending: str) -> str:
    """Return what to do with a file of an ending, in small letters and with its dot.

    >>> advise(".msg")
    'save the mails as .eml'
    """
    return next((advice for advice, endings in _ADVICE.items() if ending in endings), _OTHER)


def list_unread(counts: Mapping[str, int]) -> str:
    """Return a line for each reason why files of some endings are not read, "" for none."""
    by_reason: dict[str, list[str]] = {}
    for ending, count in counts.items():
        by_reason.setdefault(advise(ending), []).append(f"{count:,} {ending}")
    return "".join(f"\n  {', '.join(files)}: {why}" for why, files in by_reason.items())
