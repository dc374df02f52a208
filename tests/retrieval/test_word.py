"""Word files as programs write them: numbers, notes, fields, broken pointers, strict Open XML."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from zipfile import ZipFile

import pytest

from retrieval.documents.document import Document
from retrieval.documents.word import read_docx

_MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_NAMES = (
    f'xmlns:w="{_MAIN}" xmlns:r="{_RELATIONS}" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    ' xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"'
)
_STYLES = """
<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/></w:style>
<w:style w:type="paragraph" w:styleId="T"><w:name w:val="Title"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/><w:pPr><w:numPr>
<w:numId w:val="1"/></w:numPr><w:outlineLvl w:val="0"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="berschrift2"><w:name w:val="heading 2"/><w:pPr><w:numPr>
<w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Own"><w:name w:val="Clause"/><w:basedOn w:val="berschrift2"/></w:style>
<w:style w:type="paragraph" w:styleId="V1"><w:name w:val="toc 1"/></w:style>
<w:style w:type="character" w:styleId="Raised"><w:name w:val="raised"/><w:rPr>
<w:vertAlign w:val="superscript"/></w:rPr></w:style>
"""


def level(place: int, form: str, text: str, more: str = "") -> str:
    return (
        f'<w:lvl w:ilvl="{place}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


_NUMBERING = (
    '<w:abstractNum w:abstractNumId="0">'
    + level(0, "decimal", "%1.", '<w:pStyle w:val="berschrift1"/>')
    + level(1, "decimal", "%1.%2")
    + '</w:abstractNum><w:abstractNum w:abstractNumId="1">'
    + level(0, "lowerLetter", "(%1)")
    + level(1, "lowerRoman", "%2.")
    + level(2, "bullet", "\uf0b7")
    + '</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    '<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num><w:num w:numId="3"><w:abstractNumId w:val="1"/>'
    '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride></w:num>'
)


def word_file(
    body: str, more: Mapping[str, str] | None = None, *, strict: bool = False, relations: str = ""
) -> bytes:
    """Return a .docx with this body, and more parts by their names, such as "footnotes"."""
    parts = {"styles": _STYLES, "numbering": _NUMBERING, **(more or {})}
    files = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}"><Relationship Id="rId1" '
        f'Type="{_RELATIONS}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f"<w:document {_NAMES}><w:body>{body}</w:body></w:document>",
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{_PACKAGE}">'
        + "".join(
            f'<Relationship Id="{name}" Type="{_RELATIONS}/{name}" Target="{name}.xml"/>' for name in parts
        )
        + f"{relations}</Relationships>",
        **{f"word/{name}.xml": f"<w:{name} {_NAMES}>{content}</w:{name}>" for name, content in parts.items()},
    }
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        for name, content in files.items():
            if strict:
                pattern = (
                    r"http://schemas\.openxmlformats\.org/(wordprocessingml|officeDocument|drawingml)/2006/"
                )
                content = re.sub(pattern, r"http://purl.oclc.org/ooxml/\1/", content)
            archive.writestr(name, content)
    return file.getvalue()


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(content: str, style: str = "", properties: str = "") -> str:
    content = content if content.startswith("<") else run(content)
    styled = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{styled}{properties}</w:pPr>{content}</w:p>"


def listed(text: str, number: int, place: int) -> str:
    numbers = f'<w:numPr><w:ilvl w:val="{place}"/><w:numId w:val="{number}"/></w:numPr>'
    return paragraph(text, properties=numbers)


def begin(instruction: str) -> str:
    return (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        f'<w:r><w:instrText xml:space="preserve">{instruction}</w:instrText></w:r>'
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'
    )


END = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'


def lines(document: Document) -> list[str]:
    return [" > ".join((*block.headings, block.text)) for block in document.blocks]


def read(body: str, **parts: str) -> Document:
    return read_docx(word_file(body, parts), "file")


@pytest.mark.parametrize("strict", [False, True])
def test_headings_and_lists_keep_the_numbers_that_word_counts(strict: bool) -> None:
    body = (
        paragraph("Contract", "T")
        + paragraph("Scope", "berschrift1")
        + paragraph("Parties", "berschrift2")
        + paragraph("Two of them.")
        + paragraph("Dates", "Own")
        + "".join(listed(*item) for item in (("first", 2, 0), ("inner", 2, 1), ("next", 2, 1), ("dot", 2, 2)))
        + listed("second", 2, 0)
        + paragraph("Price", "berschrift1")
        + paragraph("Sum", "berschrift2")
        + listed("restarted", 3, 0)
    )
    document = read_docx(word_file(body, strict=strict), "file")
    assert document.title == "Contract"
    assert lines(document) == [
        "1. Scope > 1.1 Parties > Two of them.",
        "1. Scope > 1.2 Dates > (a) first",
        "1. Scope > 1.2 Dates > i. inner",
        "1. Scope > 1.2 Dates > ii. next",
        "1. Scope > 1.2 Dates > - dot",
        "1. Scope > 1.2 Dates > (b) second",
        "2. Price > 2.1 Sum > (e) restarted",
    ]


def test_a_pointer_to_a_part_that_is_not_there_costs_that_part_alone() -> None:
    dangling = f'<Relationship Id="x" Type="{_RELATIONS}/image" Target="media/gone.png"/>'
    dangling += f'<Relationship Id="y" Type="{_RELATIONS}/footnotes" Target="NULL"/>'
    file = word_file(paragraph("Head", "berschrift1") + paragraph("Text."), relations=dangling)
    assert lines(read_docx(file, "file")) == ["Text."]
    # Neither are styles needed.
    bare = io.BytesIO()
    with ZipFile(bare, "w") as archive:
        body = paragraph("Head", "Heading1") + paragraph("Text.")
        archive.writestr("word\\document.xml", f"<w:document {_NAMES}><w:body>{body}</w:body></w:document>")
    document = read_docx(bare.getvalue(), "file")
    assert lines(document) == ["Head", "Text."]


def test_raised_figures_and_marks_of_notes_stand_apart() -> None:
    raised, lowered = '<w:vertAlign w:val="superscript"/>', '<w:vertAlign w:val="subscript"/>'
    note = '<w:r><w:rPr><w:rStyle w:val="Raised"/></w:rPr><w:footnoteReference w:id="2"/></w:r>'
    body = paragraph(
        run("About 10") + run("-", raised) + run("6", raised)
        + run(" of H") + run("2", lowered) + run("O, the 19") + run("th", raised)
        + run(" town") + run("1,2", raised) + run(" and 5 km") + run("2", '<w:rStyle w:val="Raised"/>')
        + run(", a note") + note + run(".")
    )  # fmt: skip
    footnotes = "".join(
        f'<w:footnote w:id="{number}">{paragraph(text)}</w:footnote>'
        for number, text in ((0, "----"), (2, "See below."))
    )
    assert lines(read(body, footnotes=footnotes)) == [
        "About 10^-6 of H2O, the 19th town [1,2] and 5 km^2, a note [1].",
        "[1] See below.",
    ]


def test_tables_of_contents_are_left_out_by_field_style_or_control_and_counted() -> None:
    control = (
        '<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
        f"<w:sdtContent>{paragraph('Contents of it')}</w:sdtContent></w:sdt>"
    )
    field = (
        paragraph(begin("TOC \\o") + run("One ") + begin("PAGEREF _Toc1") + run("3") + END)
        + paragraph(run("Two 4"))
        + paragraph(END)
    )
    body = control + field + paragraph("Three 5", "V1") + paragraph("One", "berschrift1") + paragraph("Text.")
    document = read(body)
    assert lines(document) == ["Text."]
    assert document.left_out == {"tables of contents and indexes": 9}


def test_a_field_that_never_ends_keeps_nothing_out() -> None:
    document = read(paragraph(begin("TOC") + run("One 3")) + paragraph("All the rest."))
    assert lines(document) == ["One 3", "All the rest."]
    assert document.notes == ("a field in it never ends: what follows is read",)


def test_what_is_no_text_of_the_document_is_counted() -> None:
    deleted = (
        "<w:del><w:r><w:delText>two words</w:delText></w:r></w:del><w:ins><w:r><w:t>three</w:t></w:r></w:ins>"
    )
    hidden = run(" secret", "<w:vanish/>")
    content = "<w:sdtContent><w:r><w:t>Click here</w:t></w:r></w:sdtContent>"
    placeholder = f"<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr>{content}</w:sdt>"
    document = read(
        paragraph(run("One, ") + deleted + hidden + placeholder)
        + f"<w:sdt><w:sdtContent>{paragraph('In a control.')}</w:sdtContent></w:sdt>",
        comments=f"<w:comment>{paragraph('Is it?')}</w:comment>",
        header=paragraph("Our Company Ltd"),
    )
    assert lines(document) == ["One, three", "In a control."]
    assert document.left_out == {
        "deleted text": 2, "hidden parts": 1, "form fields and buttons": 2, "comments": 2,
        "page headers and footers": 3,
    }  # fmt: skip


def test_boxes_pictures_formulas_symbols_and_readings() -> None:
    box = (
        "<mc:AlternateContent><mc:Choice><w:drawing><wp:docPr descr='A map of the town'/><w:txbxContent>"
        f"{paragraph('Boxed.')}</w:txbxContent></w:drawing></mc:Choice><mc:Fallback><w:pict><w:txbxContent>"
        f"{paragraph('Boxed.')}</w:txbxContent></w:pict></mc:Fallback></mc:AlternateContent>"
    )
    formula = (
        "<m:oMath><m:f><m:num><m:r><m:t>a</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
        "<m:sSup><m:e><m:r><m:t>+10</m:t></m:r></m:e><m:sup><m:r><m:t>6</m:t></m:r></m:sup></m:sSup></m:oMath>"
    )
    symbols = '<w:r><w:sym w:font="Symbol" w:char="F061"/><w:t> x</w:t><w:softHyphen/><w:t>y</w:t></w:r>'
    ruby = (
        "<w:r><w:ruby><w:rt><w:r><w:t>とう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東</w:t></w:r></w:rubyBase>"
        "</w:ruby></w:r>"
    )
    body = (
        paragraph(run("See") + f"<w:r>{box}</w:r>")
        + paragraph(formula)
        + paragraph(symbols)
        + paragraph(ruby)
    )
    assert lines(read(body)) == ["See A map of the town", "Boxed.", "a/2+10^6", "α xy", "東"]


def test_what_is_chosen_in_a_form_is_read() -> None:
    def field(form: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{form}</w:ffData></w:fldChar></w:r>{END}'

    entries = '<w:listEntry w:val="Salt"/><w:listEntry w:val="Rope"/>'
    chosen = field(f'<w:ddList><w:result w:val="1"/>{entries}</w:ddList>')
    checked, default = '<w:checked/><w:default w:val="0"/>', '<w:default w:val="0"/>'
    boxes = "".join(field(f"<w:checkBox>{state}</w:checkBox>") for state in (checked, default))
    assert lines(read(paragraph(run("Made: ") + chosen + boxes))) == ["Made: Rope☒☐"]


def test_tables_may_hold_tables_lists_and_notes() -> None:
    def cell(content: str) -> str:
        return f"<w:tc>{content}</w:tc>"

    inner = f"<w:tbl><w:tr>{cell(paragraph('x'))}{cell(paragraph('y'))}</w:tr></w:tbl>"
    note = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    rows = (
        f"<w:tr>{cell(paragraph('Name'))}{cell(listed('one', 2, 0) + listed('two', 2, 0))}</w:tr>"
        f"<w:tr>{cell(inner)}{cell(paragraph(run('sum') + note))}</w:tr>"
        f"<w:tr><w:trPr><w:del/></w:trPr>{cell(paragraph('gone'))}{cell(paragraph('too'))}</w:tr>"
    )
    footnotes = f'<w:footnote w:id="2">{paragraph("In euro.")}</w:footnote>'
    document = read(f"<w:tbl>{rows}</w:tbl>{paragraph('After.')}", footnotes=footnotes)
    assert lines(document) == ["Name | (a) one (b) two", "x | y | sum [1]", "[1] In euro.", "After."]
    assert document.left_out == {"deleted text": 2}
