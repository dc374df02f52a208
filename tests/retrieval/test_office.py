"""Presentations, workbooks, tables, notebooks, mails, e-books, RTF: text, its order, places for citations."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import orjson
import pytest

from corag.core.errors import DataError
from retrieval.corpora.formats import detect_format, read_corpus
from retrieval.corpora.sifting import CorpusReport
from retrieval.documents.reading import DocumentCorpus
from tests.retrieval.document_files import docx_bytes
from tests.retrieval.office_files import damaged, eml_bytes, epub_bytes, flipped, ipynb_bytes, xlsx_bytes
from tests.retrieval.test_documents import note_of, read


def left_out_of(file: Path) -> Mapping[str, int]:
    """Return what was seen in a file and not read."""
    report = CorpusReport()
    list(read_corpus([file], "documents", report))
    return report.files[0].left_out


def cited(file: Path, content: str | bytes = "") -> list[tuple[str, str]]:
    """Return how an answer names each passage, and its text."""
    return [(passage.citation, passage.text) for passage in read(file, content)]


# Tables


def test_a_row_of_a_csv_file_is_a_passage_that_names_its_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A document beside it.")
    table = 'Name,Role,Since\nAda,mayor,1931\n\nBob,"clerk, and\nporter",\n'
    (tmp_path / "town_staff.csv").write_text(table)
    passages = list(read_corpus([tmp_path], "auto", CorpusReport()))
    assert [(each.citation, each.text) for each in passages[1:]] == [
        ("town staff (town_staff.csv, row 2)", "Name: Ada | Role: mayor | Since: 1931"),
        ("town staff (town_staff.csv, row 4)", "Name: Bob | Role: clerk, and porter"),
    ]
    assert detect_format([tmp_path / "town_staff.csv"]) == "table", "alone it is passages as they stand"


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        (b"Region;2023;2024\nAlby;5,5;7\n", ["Region: Alby | 2023: 5,5 | 2024: 7"]),
        (b"Region\t2023\nAlby\t5\n", ["Region: Alby | 2023: 5"]),
        ("Ort;Größe\nKöln;groß\n".encode("cp1252"), ["Ort: Köln | Größe: groß"]),
        (b"just one column\nof words\n", ["just one column", "of words"]),
        ("a,b\r\n1,x\u2028y\r\n2,z\x0bz\r\n".encode(), ["a: 1 | b: x y", "a: 2 | b: z z"]),
    ],
)
def test_the_layout_of_a_table_is_found_out(tmp_path: Path, table: bytes, texts: list[str]) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(table)
    assert [passage.text for passage in read_corpus([file], "documents", CorpusReport())] == texts
    assert ("cp1252" in note_of(file)) == (b"\xf6" in table), "a guess of the encoding is told"


def test_an_odd_mark_in_a_table_takes_no_other_rows_with_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,note\n1,"open" mark\n2,fine\n3,"never closed\n4,fine\n5,too\n')
    passages = list(read_corpus([tmp_path / "t.csv"], "documents", CorpusReport()))
    assert [(each.page, each.text) for each in passages] == [
        ("row 2", 'id: 1 | note: "open" mark'),
        ("row 3", "id: 2 | note: fine"),
        ("row 4", 'id: 3 | note: "never closed'),
        ("row 5", "id: 4 | note: fine"),
        ("row 6", "id: 5 | note: too"),
    ]
    assert note_of(tmp_path / "t.csv").count("is read with its marks") == 2


def test_a_workbook_gives_the_rows_of_its_sheets(tmp_path: Path) -> None:
    sheets = {
        "Costs": [
            ["Bridges of the county"],
            [],
            ["Town", 2023, 2024],
            ["Alby", 3.0, 0.25],
            ["Corford", "=B4", None],
        ],
        "Staff": [["Ada", "mayor"], ["Bob", "clerk"]],
    }
    file = tmp_path / "book.xlsx"
    assert cited(file, xlsx_bytes(sheets)) == [
        (
            "book > Costs > Bridges of the county (book.xlsx, sheet Costs, row 4)",
            "Town: Alby | 2023: 3 | 2024: 0.25",
        ),
        ("book > Costs > Bridges of the county (book.xlsx, sheet Costs, row 5)", "Town: Corford"),
        ("book > Staff (book.xlsx, sheet Staff, row 1)", "Ada | mayor"),
        ("book > Staff (book.xlsx, sheet Staff, row 2)", "Bob | clerk"),
    ]
    assert "1 formula(s) have no stored value" in note_of(file)
    bold = xlsx_bytes({"Sheet1": [["Name", "Role"], ["Ada", "mayor"]]}, bold=True)
    assert cited(tmp_path / "one.xlsx", bold) == [
        ("one (one.xlsx, sheet Sheet1, row 2)", "Name: Ada | Role: mayor")
    ]


def test_values_of_a_workbook_are_as_a_reader_sees_them_and_hidden_sheets_are_counted(tmp_path: Path) -> None:
    import datetime

    from openpyxl import load_workbook

    day = datetime.datetime(2026, 1, 31)
    book = load_workbook(
        io.BytesIO(xlsx_bytes({"A": [["Day", "Share", "Done"], [day, 0.25, True]], "B": [["secret"]]}))
    )
    book["A"]["B2"].number_format = "0%"
    book["B"].sheet_state = "hidden"
    book.save(tmp_path / "b.xlsx")
    (passage,) = read(tmp_path / "b.xlsx")
    assert passage.text == "Day: 2026-01-31 | Share: 25% | Done: TRUE"
    report = CorpusReport()
    list(read_corpus([tmp_path / "b.xlsx"], "auto", report))
    assert report.files[0].left_out == {"hidden sheets": 1}


def test_figures_of_a_workbook_are_what_it_shows_and_an_empty_result_is_a_result(tmp_path: Path) -> None:
    from openpyxl import load_workbook

    book = load_workbook(
        io.BytesIO(xlsx_bytes({"A": [["Name", "Rate", "Note"], ["a", 25, '=IF(A1="","","")']]}))
    )
    book["A"]["B2"].number_format = '0"%"'
    book.save(tmp_path / "bare.xlsx")
    assert "1 formula(s) have no stored value" in note_of(tmp_path / "bare.xlsx")
    # As Excel stores the formula: its text is empty.
    part = "xl/worksheets/sheet1.xml"
    with ZipFile(tmp_path / "bare.xlsx") as archive:
        xml = archive.read(part).replace(b'<c r="C2">', b'<c r="C2" t="str">')
    (tmp_path / "b.xlsx").write_bytes(damaged((tmp_path / "bare.xlsx").read_bytes(), part, xml))
    assert note_of(tmp_path / "b.xlsx") == ""
    assert [passage.text for passage in read(tmp_path / "b.xlsx")] == ["Name: a | Rate: 25%"]


def edited(book: bytes, change: Callable[[Any], None]) -> bytes:
    """Return a workbook that openpyxl has changed."""
    from openpyxl import load_workbook

    opened, file = load_workbook(io.BytesIO(book)), io.BytesIO()
    change(opened.worksheets[0])
    opened.save(file)
    return file.getvalue()


def test_merged_cells_of_a_sheet_name_all_of_their_columns_and_rows(tmp_path: Path) -> None:
    rows = [
        ["Bridges of the county"],
        ["Town", "Costs", None, "Tolls", None],
        [None, 2023, 2024, 2023, 2024],
        ["Alby", 3, 4, 5, 6],
        [None, 7, 8, None, None],
        ["Corford", "closed", None, 1, 2],
    ]

    def merge(sheet: Any) -> None:
        for cells in ("A1:E1", "A2:A3", "B2:C2", "D2:E2", "A4:A5", "B6:C6"):
            sheet.merge_cells(cells)

    book = edited(xlsx_bytes({"Sheet": rows}), merge)
    assert cited(tmp_path / "b.xlsx", book) == [
        (f"b > Bridges of the county (b.xlsx, sheet Sheet, row {row})", text)
        for row, text in (
            (4, "Town: Alby | Costs 2023: 3 | Costs 2024: 4 | Tolls 2023: 5 | Tolls 2024: 6"),
            (5, "Town: Alby | Costs 2023: 7 | Costs 2024: 8"),
            (6, "Town: Corford | Costs 2023: closed | Tolls 2023: 1 | Tolls 2024: 2"),
        )
    ]


def test_hidden_rows_and_columns_of_a_sheet_are_counted(tmp_path: Path) -> None:
    rows = [
        ["Town", "Made", "Margin", "Sold"], ["Alby", "salt", "12 euros", "ink"],
        ["Bren", "rope", "3 euros", "-"], ["Esby", "tar", "-", "wax"],
    ]  # fmt: skip

    def hide(sheet: Any) -> None:
        sheet.row_dimensions[3].hidden = True
        sheet.column_dimensions["C"].hidden = True

    texts = [text for _, text in cited(tmp_path / "b.xlsx", edited(xlsx_bytes({"S": rows}), hide))]
    assert texts == ["Town: Alby | Made: salt | Sold: ink", "Town: Esby | Made: tar | Sold: wax"]
    assert left_out_of(tmp_path / "b.xlsx") == {"hidden parts": 9}


# Presentations


def test_a_presentation_gives_its_slides_in_the_order_of_reading(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx", reason="corag[docs] brings it")
    inches = pptx.util.Inches
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[0])
    slide.shapes.title.text, slide.placeholders[1].text = "Bridges of Alby", "A talk"
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "History"
    frame = slide.placeholders[1].text_frame
    frame.text = "Built in 1931."
    frame.add_paragraph().text = "Red at first."
    frame.paragraphs[1].level = 1
    slide.notes_slide.notes_text_frame.text = "Say who paid."
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    table = slide.shapes.add_table(2, 2, inches(1), inches(3), inches(4), inches(1)).table
    for cell, text in zip(table.iter_cells(), ("Year", "Cost", "1931", "2 million"), strict=True):
        cell.text = text
    for text, left in (("right", 5), ("left", 1)):
        slide.shapes.add_textbox(inches(left), inches(1), inches(2), inches(1)).text_frame.text = text
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "Questions?"
    # A diagram (SmartArt) is a frame whose content is of another kind.
    chart = pytest.importorskip("pptx.chart.data").CategoryChartData()
    chart.categories = ["x"]
    chart.add_series("s", (1,))
    kind = pptx.enum.chart.XL_CHART_TYPE.PIE
    frame = slide.shapes.add_chart(kind, inches(1), inches(5), inches(1), inches(1), chart)
    data = frame.element.graphic.graphicData
    data.set("uri", "http://schemas.openxmlformats.org/drawingml/2006/diagram")
    hidden = deck.slides.add_slide(deck.slide_layouts[5])
    hidden.shapes.title.text = "Old figures"
    hidden.element.set("show", "0")
    hidden.notes_slide.notes_text_frame.text = "Not these."
    secret = slide.shapes.add_textbox(0, 0, 9, 9)
    secret.text_frame.text = "No more"
    secret.element.nvSpPr.cNvPr.set("hidden", "1")
    deck.save(tmp_path / "deck.pptx")
    assert cited(tmp_path / "deck.pptx") == [
        ("deck > Bridges of Alby (deck.pptx, slide 1)", "A talk"),
        ("deck > History (deck.pptx, slide 2)", "Built in 1931.\n- Red at first.\nSay who paid."),
        ("deck > Slide 3 (deck.pptx, slide 3)", "left\nright\nYear: 1931 | Cost: 2 million"),
        ("deck (deck.pptx, slide 4)", "Questions?"),
    ]
    report = CorpusReport()
    list(read_corpus([tmp_path / "deck.pptx"], "auto", report))
    assert report.files[0].left_out == {"hidden slides": 4, "diagrams": 1, "hidden parts": 2}


# Notebooks, mails, e-books, RTF


def test_a_notebook_gives_text_code_and_what_was_printed(tmp_path: Path) -> None:
    cells = [
        ("markdown", "# Study\n\nWe count *bridges*.", []),
        ("code", 'n = 2\nprint("```", n)', [{"output_type": "stream", "text": ["``` 2\n"]}]),
        ("markdown", "## Result", []),
        ("code", "n * 2", [{"data": {"text/plain": "4", "image/png": "iVBOR"}}]),
    ]
    assert cited(tmp_path / "study.ipynb", ipynb_bytes(cells)) == [
        ("Study (study.ipynb)", 'We count bridges.\nn = 2\nprint("```", n)\n``` 2'),
        ("Study > Result (study.ipynb)", "n * 2\n4"),
    ]


def test_errors_and_what_a_notebook_shows_of_an_object_are_read_or_counted(tmp_path: Path) -> None:
    error = {"output_type": "error", "ename": "KeyError", "evalue": "'Alby'",
             "traceback": ["\x1b[31mKeyError\x1b[0m", "KeyError: 'Alby'"]}  # fmt: skip
    shown = {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>Salt</b> is sold."}
    plot = {"application/vnd.plotly.v1+json": {}, "text/html": "<script>plot()</script>"}
    formula = {"text/plain": "<IPython.core.display.Math object>", "text/latex": "a = b"}
    figure = {"text/plain": "<Figure size 640x480 with 1 Axes>", "image/png": "iVBOR"}
    outputs = [error, *({"data": data} for data in (shown, plot, formula, figure))]
    (passage,) = read(tmp_path / "a.ipynb", ipynb_bytes([("code", "f()", outputs)]))
    assert passage.text.splitlines() == ["f()", "KeyError", "KeyError: 'Alby'", "Salt is sold.", "a = b"]
    assert left_out_of(tmp_path / "a.ipynb") == {"pictures": 1, "embedded files and media": 1}


def test_a_mail_gives_who_wrote_what_and_names_its_attachments(tmp_path: Path) -> None:
    text, page = "Dear Bob,\n\nthirty days are fine.\n", "<p>Dear Bob,</p><p>thirty days are fine.</p>"
    mail = eml_bytes("Leave für Åse", text, page=page, attached=["form.pdf"])
    (passage,) = read(tmp_path / "mail.eml", mail)
    assert passage.citation == "Leave für Åse (mail.eml)"
    assert passage.text.splitlines() == [
        "From: Ada <ada@example.org>", "To: Bob <bob@example.org>", "Date: Mon, 02 Feb 2026 10:00:00 +0000",
        "Dear Bob,", "thirty days are fine.",
    ]  # fmt: skip
    assert note_of(tmp_path / "mail.eml") == "attachments are not read: form.pdf: save them beside it"
    fuller = eml_bytes(
        "News", "See the page.", page=f"<h2>Bridges</h2><p>{'Many words stand here. ' * 5}</p>"
    )
    assert "See the page" not in " ".join(each.text for each in read(tmp_path / "news.eml", fuller))
    assert read(tmp_path / "news.eml")[1].title == "News > Bridges"
    (latin,) = read(tmp_path / "latin.eml", eml_bytes("Maß", "Straße", charset="iso-8859-1"))
    assert latin.text.endswith("Straße")


def test_all_texts_of_a_mail_are_read_in_their_order(tmp_path: Path) -> None:
    forwarded = EmailMessage()
    forwarded["From"], forwarded["Subject"] = "Cid <cid@example.org>", "Bridge"
    forwarded.set_content("It is red.\n")
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "Ada <ada@example.org>", "Two towns"
    mail.set_content("On towns\n\nAlby is old.\n")
    mail.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="map.pdf")
    for text, kind in (("Corford is new.\n", "plain"), ("<p>Dunholm is rich.</p>", "html")):
        mail.add_attachment(text, subtype=kind, disposition="inline")
    for disposition in ("inline", "attachment"):
        mail.add_attachment(forwarded, disposition=disposition)
    mail.add_attachment("Not read.", filename="more.txt")
    (passage,) = read(tmp_path / "a.eml", mail.as_bytes())
    assert passage.text.splitlines() == [
        "From: Ada <ada@example.org>", "On towns", "Alby is old.", "Corford is new.", "Dunholm is rich.",
        *("Subject: Bridge", "From: Cid <cid@example.org>", "It is red.") * 2,
    ]  # fmt: skip
    note = "attachments are not read: map.pdf, more.txt: save them beside it"
    assert note_of(tmp_path / "a.eml") == note and left_out_of(tmp_path / "a.eml") == {"attachments": 2}
    torn = b"Subject: T\nContent-Type: multipart/mixed; boundary=x\n\nIts boundary is gone.\n"
    assert [each.text for each in read(tmp_path / "b.eml", torn)] == ["Its boundary is gone."]


def test_a_mail_whose_sender_is_no_address_is_read_all_the_same(tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "a.eml", b"From: <\nTo: bob@example.org\nSubject: Keys\n\nUnder the mat.\n")
    assert passage.title == "Keys" and passage.text == "From: <\nTo: bob@example.org\nUnder the mat."


def test_a_saved_page_is_read_as_a_page(tmp_path: Path) -> None:
    saved = (
        b"From: <Saved by Blink>\nSubject: Towns\nMIME-Version: 1.0\n"
        b'Content-Type: multipart/related; boundary="x"\n\n--x\nContent-Type: text/html; charset=utf-8\n\n'
        b"<nav>Home</nav><h1>Alby</h1><p>It is old.</p>\n--x\nContent-Type: image/png\n\nabc\n--x--\n"
    )
    passage = read(tmp_path / "towns.mhtml", saved)[-1]
    assert (passage.citation, passage.text) == ("Towns > Alby (towns.mhtml)", "It is old.")


def test_an_e_book_gives_its_pages_in_their_order(tmp_path: Path) -> None:
    pages = {
        "zwei": "<body><h1>Chapter 1</h1><p>It began.</p></body>",
        "eins": "<body><h1>Chapter 2</h1><h2>The end</h2><p>It ended.</p></body>",
    }
    file = tmp_path / "bridge.epub"
    assert cited(file, epub_bytes("The Bridge", pages)) == [
        ("The Bridge > Chapter 1 (bridge.epub)", "It began."),
        ("The Bridge > Chapter 2 > The end (bridge.epub)", "It ended."),
    ]
    assert cited(file, epub_bytes("The Bridge", pages, encrypted="OEBPS/font.ttf")), "fonts often are"


def test_rtf_gives_paragraphs_and_characters_of_its_code_page(tmp_path: Path) -> None:
    pytest.importorskip("striprtf", reason="corag[docs] brings it")
    start = rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\info{\title T}}"
    text = rb"Stra\'dfe \u8364? \u-10179?\u-8704?.\par "
    (passage,) = read(tmp_path / "a.rtf", start + text + rb"Second.\par \trowd Alby\cell 3\cell\row}")
    assert passage.text == "Straße € \U0001f600.\nSecond.\nAlby | 3"
    assert "headings" in note_of(tmp_path / "a.rtf")


def test_pictures_and_notes_of_rtf_are_no_part_of_its_paragraphs(tmp_path: Path) -> None:
    """A picture's bytes may be braces, and signs that striprtf takes for a character of no Unicode."""
    pytest.importorskip("striprtf", reason="corag[docs] brings it")
    picture = rb"{\*\shppict{\pict\pngblip\bin }}{\nonshppict{\pict\bin5 }}{\x}}"
    note, header = rb"{\footnote \pard Stra\'dfe.}", rb"{\header Old atlas}"
    text = rb"{\rtf1\ansi" + header + rb"Before " + picture + rb"after" + note + rb".\par {\pict 0a0b}}"
    assert read(tmp_path / "a.rtf", text)[0].text == "Before after.\nStraße."
    assert left_out_of(tmp_path / "a.rtf") == {"pictures": 2, "page headers and footers": 2}


def test_hidden_text_of_rtf_is_counted(tmp_path: Path) -> None:
    pytest.importorskip("striprtf", reason="corag[docs] brings it")
    hidden = rb"{\fs20\v ask {\b the} guild}made \v and kept\v0  here{\deleted  not}.\par Next.}"
    (passage,) = read(tmp_path / "a.rtf", rb"{\rtf1\ansi\viewkind4 Salt is " + hidden)
    assert passage.text == "Salt is made here.\nNext."
    assert left_out_of(tmp_path / "a.rtf") == {"hidden parts": 5, "deleted text": 1}


# Web pages without what is around the text


def test_the_main_text_of_a_page_is_read_alone_if_that_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura", reason="corag[web] brings it")
    teaser = "<li><a href='/x'>Another story</a> that everyone reads today.</li>"
    text = "<p>The bridge was built in 1931, when the old ferry had sunk, and it was painted red.</p>"
    table = "<table><tr><th>Year</th><th>Cost</th></tr><tr><td>1931</td><td>2 million</td></tr></table>"
    page = (
        f"<title>Bridges</title><body><div class='sidebar'><ul>{teaser * 5}</ul></div>"
        f"<article><h2>History</h2>{text * 3}{table}</article><div class='footer'>Subscribe now!</div></body>"
    )
    (tmp_path / "page.html").write_text(page)
    corpus, report = DocumentCorpus([tmp_path], main=True), CorpusReport()
    (passage,) = corpus.passages(report)
    assert (passage.title, passage.text.splitlines()[-1]) == (
        "Bridges > History",
        "Year: 1931 | Cost: 2 million",
    )
    assert "Another story" not in passage.text and "Subscribe" not in passage.text
    assert report.files[0].left_out["what stands around the main text"] > 30
    whole = " ".join(each.text for each in DocumentCorpus([tmp_path]).passages(CorpusReport()))
    assert "Another story" in whole


# What cannot be read, and what is left out


def test_the_pages_of_an_e_book_that_can_be_read_are_and_the_others_are_named(tmp_path: Path) -> None:
    book = epub_bytes("T", {name: f"<body><p>Page {name}.</p></body>" for name in "abc"})
    file = tmp_path / "a.epub"
    for broken in (damaged(book, "OEBPS/b.xhtml"), flipped(book, b"Page b")):
        assert [each.text for each in read(file, broken)] == ["Page a.\nPage c."]
        assert re.match(r"page OEBPS/b\.xhtml cannot be read \(.+\)$", note_of(file))
    nothing = epub_bytes("T", {"a": "<body><p>Page a.</p></body>"})
    with pytest.raises(
        DataError, match=r"there is no text in it but .* \(1 words\); page OEBPS/a.xhtml cannot be read \("
    ):
        read(file, flipped(nothing, b"Page a"))


def test_the_sheets_of_a_workbook_that_can_be_read_are_and_the_others_are_named(tmp_path: Path) -> None:
    rows = [["Town", "Made", "Sold"], ["Alby", "salt", "ink"]]
    book, part = xlsx_bytes({"North": rows, "South": rows}), "xl/worksheets/sheet2.xml"
    file, first = (
        tmp_path / "a.xlsx",
        ("a > North (a.xlsx, sheet North, row 2)", "Town: Alby | Made: salt | Sold: ink"),
    )
    for content in (None, b"", b"no sheet"):
        assert cited(file, damaged(book, part, content)) == [first]
        assert re.match(r"sheet South cannot be read \(.+\)$", note_of(file))
    with ZipFile(io.BytesIO(book)) as archive:
        sheet = archive.read(part)
    assert cited(file, damaged(book, part, sheet[: sheet.index(b"</row>") + 6] + b"<row")) == [
        first, ("a > South (a.xlsx, sheet South, row 1)", "Town | Made | Sold")
    ]  # fmt: skip
    assert note_of(file).startswith("sheet South after row 1 cannot be read (")


def test_the_slides_of_a_presentation_that_can_be_read_are_and_the_others_are_named(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx", reason="corag[docs] brings it")
    deck, stream = pptx.Presentation(), io.BytesIO()
    for number in (1, 2, 3):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = f"Part {number}", f"Text {number}."
        slide.notes_slide.notes_text_frame.text = f"Note {number}."
    deck.save(stream)
    talk, file = stream.getvalue(), tmp_path / "a.pptx"
    slide_2 = "ppt/slides/slide2.xml"
    for broken in (damaged(talk, slide_2, b"<"), flipped(talk, b"Text 2.")):
        assert [each.text for each in read(file, broken)] == ["Text 1.\nNote 1.", "Text 3.\nNote 3."]
        assert re.match(r"slide 2 cannot be read \(.+\)$", note_of(file))
    assert len(read(file, flipped(talk, b"Note 3."))) == 3
    assert re.match(r"notes of slide 3 cannot be read \(.+\)$", note_of(file))
    for broken in (damaged(talk, slide_2), damaged(talk, "ppt/presentation.xml", b"<")):
        with pytest.raises(DataError, match=r"it is damaged, or no \.pptx"):
            read(file, broken)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.xlsx", b"PK\3\4 and no more", "it is damaged, or no .xlsx"),
        (
            "a.epub",
            epub_bytes("T", {"a": "<p>x</p>"}, encrypted="OEBPS/a.xhtml"),
            "it is protected against copying",
        ),
        ("a.ipynb", b"{", "it is damaged, or no notebook"),
        ("a.ipynb", orjson.dumps({"worksheets": []}), "no notebook of format 4"),
        ("a.xlsx", bytes.fromhex("d0cf11e0a1b11ae1"), "it is encrypted or of an Office before 2007"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        read(tmp_path / name, content)


def test_a_part_that_unpacks_to_more_than_it_says_is_refused_before_it_fills_the_memory(
    tmp_path: Path,
) -> None:
    file, size = io.BytesIO(), 5_000_000
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for part in ("META-INF/container.xml", "word/document.xml", "xl/workbook.xml"):
            archive.writestr(part, bytes(size))
    lying = file.getvalue().replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    for name in ("a.epub", "a.docx", "a.xlsx"):
        with pytest.raises(DataError, match="unpacks to more than it says"):
            read(tmp_path / name, lying)


def test_one_damaged_part_of_a_word_file_leaves_the_others(tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "a.docx", flipped(docx_bytes([("Normal", "Salt.")]), b"docDefaults"))
    assert passage.text == "Salt."
    assert note_of(tmp_path / "a.docx").startswith("its part word/styles.xml cannot be read (")
