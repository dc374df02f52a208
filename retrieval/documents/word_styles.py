"""Word's styles: what a paragraph or a run has from its style and from those that it is based on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from retrieval.documents.word_numbering import value
from retrieval.documents.word_package import Package, W

TITLE = 0
"""The level of a document's title, above the headings, of which the highest is 1."""

_HEADING = re.compile(r"heading ?(\d)", re.IGNORECASE)
_CONTENTS_STYLE = re.compile(
    r"(?:toc|contents|table of (?:figures|authorities)|index|(?:figure|illustration|table) index)"
    r"(?: ?\d+| heading)?|toa heading",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Style:
    """A style, with what it has from those that it is based on.

    Attributes:
        level: of the heading that it makes of a paragraph, None for text.
        number, place: the list and the level of it that its paragraphs belong to, "" and None without.
        contents: whether its paragraphs are those of a table of contents.
        script: "superscript", "subscript" or "".
        hidden: whether its text is not shown.
        font: its name, "" if it states none.
    """

    name: str = ""
    level: int | None = None
    number: str = ""
    place: int | None = None
    contents: bool = False
    script: str = ""
    hidden: bool = False
    font: str = ""


class Styles:
    """The styles of a document, for paragraphs and runs."""

    def __init__(self, package: Package) -> None:
        self._by_id, self._default = _read_styles(package)

    @property
    def numbers(self) -> dict[str, str]:
        """The list that each style's paragraphs belong to, by the style's id; "" for none."""
        return {identifier: style.number for identifier, style in self._by_id.items()}

    def identifier(self, paragraph: Any) -> str:
        """Return the id of a paragraph's style."""
        return value(paragraph.find(f"{W}pPr"), "pStyle") or self._default

    def paragraph(self, paragraph: Any) -> Style:
        """Return a paragraph's style."""
        return self._by_id.get(self.identifier(paragraph), Style())

    def run(self, properties: Any) -> Style:
        """Return the style that a run's properties name, a plain one if they name none."""
        return self._by_id.get(value(properties, "rStyle"), Style())

    def outline_level(self, paragraph: Any) -> int | None:
        """Return the level of the heading that a paragraph is, None for text."""
        style = self.paragraph(paragraph)
        if style.level is not None:
            return style.level
        outline = value(paragraph.find(f"{W}pPr"), "outlineLvl")
        return int(outline) + 1 if outline.isdecimal() and int(outline) < 9 and not style.contents else None


def _read_styles(package: Package) -> tuple[dict[str, Style], str]:
    """Return the styles by id, and the id of that of paragraphs which name none."""
    elements, default = {}, ""
    for root in package.related_roots("styles"):
        for element in root.iter(f"{W}style"):
            identifier = element.get(f"{W}styleId", "")
            elements[identifier] = element
            if element.get(f"{W}type") == "paragraph" and element.get(f"{W}default") in ("1", "true", "on"):
                default = identifier
    return {identifier: _read_style(identifier, elements) for identifier in elements}, default


def _read_style(identifier: str, elements: dict[str, Any]) -> Style:
    chain, name = [], value(elements[identifier], "name")
    while identifier in elements and elements[identifier] not in chain:
        chain.append(elements[identifier])
        identifier = value(chain[-1], "basedOn")

    def first(path: str, attribute: str = "val") -> str:
        elements = (style.find("/".join(f"{W}{part}" for part in path.split("/"))) for style in chain)
        return next((str(each.get(f"{W}{attribute}", "")) for each in elements if each is not None), "")

    names = [value(style, "name") for style in chain]
    headings = [_HEADING.fullmatch(each) for each in names]
    level = next((int(heading[1]) for heading in headings if heading), None)
    if level is None and "Title" in names:
        level = TITLE
    outline = first("pPr/outlineLvl")
    if level is None and outline.isdecimal() and int(outline) < 9:
        level = int(outline) + 1
    list_level = first("pPr/numPr/ilvl")
    contents = any(_CONTENTS_STYLE.fullmatch(each) for each in names)
    return Style(
        name,
        None if contents else level,
        first("pPr/numPr/numId"),
        int(list_level) if list_level.isdecimal() else None,
        contents,
        first("rPr/vertAlign"),
        any(is_on(style.find(f"{W}rPr"), "vanish") for style in chain),
        first("rPr/rFonts", "ascii"),
    )


def is_on(properties: Any, name: str, *, otherwise: bool = False) -> bool:
    """Whether properties switch something on; ``otherwise``: what holds where they do not name it."""
    switch = None if properties is None else properties.find(f"{W}{name}")
    return otherwise if switch is None else switch.get(f"{W}val", "1") not in ("0", "false", "off")
