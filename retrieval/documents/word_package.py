"""What a .docx is: a zip of XML parts that point at each other.

Read here and not by python-docx, which gives a file up for one part that is pointed at and is not there, and
for the namespaces of strict Open XML (ISO/IEC 29500), which Word writes on request. A reader of text needs a
few parts, and does without those that are missing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from lxml import etree

from corag.core.errors import DataError, reason
from retrieval.documents.archive import DAMAGE, Archive

_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_DAMAGE = "it is damaged, or no .docx: open it in Word and save it again."
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
# What stands around paragraphs, rows and cells: content controls, tracked insertions.
_WRAPPERS = frozenset(
    f"{W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag")
)


@dataclass(frozen=True, slots=True)
class Relationship:
    """What a part points at: ``kind`` is the last word of its type, as "styles"; ``target`` a part's name."""

    id: str
    kind: str
    target: str


class Package:
    """The parts of a .docx. Raises :class:`DataError` for what is no zip, or has no text part in it."""

    def __init__(self, data: bytes) -> None:
        self._archive, self.name = Archive(data, ".docx"), ""
        # Some programs write backslashes, or other cases than those they point at.
        self._names = {_key(name): name for name in self._archive.names}
        self.notes: list[str] = []
        targets = [each.target for each in self.relationships("") if each.kind == "officeDocument"]
        main_parts = [name for name in (*targets, "word/document.xml") if _key(name) in self._names]
        self.name = next(iter(main_parts), "")
        document = self.read(self.name) if self.name else None
        body = None if document is None else document.find(f"{W}body")
        if body is None:
            raise DataError(_DAMAGE)
        self.body: Any = body
        self._main_relationships = self.relationships(self.name)

    def read(self, name: str) -> Any:
        """Return the root of a part; None if it is missing or broken."""
        data = self.read_bytes(name)
        if not data:
            return None
        parser = etree.XMLParser(
            recover=True, huge_tree=True, resolve_entities=False, no_network=True, remove_comments=True
        )
        root = etree.fromstring(_STRICT.sub(_TRANSITIONAL, data), parser)
        if root is not None and parser.error_log and name == (self.name or name):
            self.notes.append(f"read in part only: its XML is broken ({parser.error_log[0].message})")
        return root

    def read_bytes(self, name: str) -> bytes:
        """Return a part's bytes, none if it is missing or broken."""
        stored_name = self._names.get(_key(name))
        if stored_name is None:
            return b""
        try:
            return self._archive.read(stored_name)
        except (DataError, *DAMAGE) as error:
            if name == self.name and isinstance(error, DataError):
                raise
            self.notes.append(f"its part {stored_name} cannot be read ({reason(error)}), and is left out")
            return b""

    def relationships(self, name: str) -> Sequence[Relationship]:
        """Return what a part points at within the file; "" for the file as a whole."""
        folder, base = posixpath.split(name)
        root = self.read(posixpath.join(folder, "_rels", f"{base}.rels"))
        if root is None:
            return ()
        return [
            Relationship(
                element.get("Id", ""),
                element.get("Type", "").rsplit("/", 1)[-1],
                posixpath.normpath(posixpath.join("/", folder, unquote(element.get("Target", "")))),
            )
            for element in root
            if isinstance(element.tag, str) and element.get("TargetMode") != "External"
        ]

    def related_roots(self, kind: str) -> list[Any]:
        """Return the roots of the parts of a kind that the text points at, such as "footnotes"."""
        roots = [self.read(each.target) for each in self._main_relationships if each.kind == kind]
        return [root for root in roots if root is not None]

    def target(self, identifier: str) -> str:
        """Return the name of the part that the text points at by this id, "" if it is not there."""
        names = (each.target for each in self._main_relationships if each.id == identifier)
        return next((name for name in names if _key(name) in self._names), "")

    def title(self) -> str:
        """Return the title in the document's properties, "" if there is none."""
        names = [each.target for each in self.relationships("") if each.kind == "core-properties"]
        for name in (*names, "docProps/core.xml"):
            core = self.read(name)
            if core is not None:
                return str(core.findtext("{http://purl.org/dc/elements/1.1/}title") or "")
        return ""


def _key(name: str) -> str:
    return name.replace("\\", "/").lstrip("/").lower()


def in_order(parent: Any, *tags: str) -> Iterator[Any]:
    """Yield elements of these tags, those in content controls included."""
    for element in parent.iterchildren():
        if element.tag in tags:
            yield element
        elif element.tag in _WRAPPERS:
            yield from in_order(element, *tags)


def all_text(element: Any, *tags: str) -> str:
    """Return all text below an element, to be counted."""
    tags = tags or (f"{W}t",)
    paragraphs = (f"{W}p", f"{W}tab", f"{W}br")
    return "".join(
        " " if part.tag in paragraphs else part.text or "" for part in element.iter(*tags, *paragraphs)
    )
