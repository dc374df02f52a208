"""Types of documents by the endings of their files' names: a row of the table is a type that can be indexed.

The module of a reader is imported when a file of its type is read: what it imports comes with an extra.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from retrieval.documents.document import Document


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """A type of document.

    Attributes:
        endings: of its files' names, in small letters.
        function: module and function in this package. It gets a file's bytes and the title to take if the
            document has none of its own, and returns the document or raises :class:`DataError` with the
            reason why there is nothing to read.
        packages: the modules that must be installed for it.
        main: as ``function``, but reads the main text of a page alone; "" where there is none.
    """

    endings: tuple[str, ...]
    function: str
    packages: tuple[str, ...] = ()
    main: str = ""

    def parse(self, data: bytes, title: str, *, main: bool = False) -> Document:
        """Return the document in a file's bytes; ``main``: the main text alone, of a type that has one."""
        module, _, name = ((main and self.main) or self.function).partition(".")
        document: Document = getattr(import_module(f"{__package__}.{module}"), name)(data, title)
        return document


_LXML = ("lxml",)
_TYPES = (
    DocumentReader((".txt", ".text"), "plain.read_text"),
    DocumentReader((".md", ".markdown"), "markdown.read_markdown", _LXML),
    DocumentReader((".html", ".htm", ".xhtml"), "markup.read_html", _LXML, main="markup.read_main_html"),
    DocumentReader((".pdf",), "pdf.read_pdf", ("pypdfium2",)),
    DocumentReader((".docx",), "word.read_docx", _LXML),
    DocumentReader((".pptx", ".pptm"), "slides.read_presentation", ("lxml", "pptx")),
    DocumentReader((".xlsx", ".xlsm"), "workbook.read_workbook"),
    DocumentReader((".csv", ".tsv", ".tab"), "rows.read_table_file"),
    DocumentReader((".ipynb",), "notebook.read_notebook", _LXML),
    DocumentReader((".eml", ".mht", ".mhtml"), "mail.read_mail", _LXML),
    DocumentReader((".epub",), "ebook.read_ebook", _LXML),
    DocumentReader((".rtf",), "rich_text.read_rtf", ("striprtf",)),
)
READERS = {ending: reader for reader in _TYPES for ending in reader.endings}
"""By the ending of a file's name, in small letters."""
