"""Rich Text Format (.rtf), by striprtf: paragraphs and rows of tables."""

from __future__ import annotations

from corag.core.errors import DataError
from retrieval.documents.document import Document, Writer

_NO_HEADINGS = (
    "headings, footnotes and lists of an .rtf are not told from paragraphs: save it as .docx for those"
)


def read_rtf(data: bytes, title: str) -> Document:
    """Read an .rtf: a block for each paragraph or row of a table.

    Raises :class:`DataError` for what is none.
    """
    from striprtf.striprtf import rtf_to_text

    if not data.lstrip().startswith(b"{\\rtf"):
        raise DataError("it is damaged, or no .rtf: open it in a word processor and save it again.")
    # Its bytes are ASCII; of others the file says by itself what they are.
    text = rtf_to_text(data.decode("latin-1"), errors="replace")
    # Characters beyond 65,535 are written in halves.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    writer = Writer(title)
    for line in text.split("\n"):
        cells = [cell for each in line.split("|") if (cell := each.strip())]
        if line.rstrip().endswith("|"):
            writer.block(" | ".join(cells), whole=True)
        else:
            writer.block(line)
    writer.notes.append(_NO_HEADINGS)
    return writer.document()
