"""What a type of document is to the rest of the project: its endings, and how its bytes are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from retrieval.documents.document import Document


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """A type of document; one file in :mod:`retrieval.documents.readers` each.

    Attributes:
        endings: of its files' names, in small letters, such as (".md", ".markdown").
        parse: returns the document in a file's bytes; the second argument is its title if it has none of its
            own. Imports its library by itself: the table is read whenever a folder is. Raises
            :class:`DataError` with the reason why there is nothing to read.
        packages: the modules that must be installed for it.
        pages: whether such files may be pages of a site, which repeat its navigation.
        parse_main: as ``parse``, but returns the main text of a page alone; None where there is none.
    """

    endings: tuple[str, ...]
    parse: Callable[[bytes, str], Document]
    packages: tuple[str, ...] = ()
    pages: bool = False
    parse_main: Callable[[bytes, str], Document] | None = None
