"""PDFs as programs write them: words without blanks, superscripts, outlines, contents, forms."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.core.errors import DataError
from corag.core.types import Passage
from retrieval.corpora.formats import read_corpus
from retrieval.corpora.sifting import CorpusReport, FileReport
from retrieval.documents.contents import find_contents, fold
from retrieval.documents.pdf import read_pdf
from retrieval.documents.plain import Hyphens, join_lines, read_text
from retrieval.documents.quality import describe_quality
from tests.retrieval.document_files import annotated, drawn_pdf, pdf_bytes, prose, shown, structured


def read(file: Path, content: bytes) -> tuple[list[Passage], FileReport]:
    """Write a PDF, and return its passages and the report on it."""
    file.write_bytes(content)
    report = CorpusReport()
    passages = list(read_corpus([file], "documents", report))
    return passages, report.files[0]


def lines(first: int, count: int) -> list[str]:
    """Return sentences of prose that fill a line each."""
    return [f"{sentence}." for sentence in prose(first, count).split(".")[:count]]


# Words and letters


def test_words_without_blanks_between_them_stand_apart() -> None:
    """LaTeX moves the pen instead of drawing a blank, and its fonts have a letter where others have that."""
    widths = " ".join(["1000", *["500"] * 94])
    font = f"/FirstChar 32 /LastChar 126 /Widths [{widths}] /Encoding /WinAnsiEncoding"
    drawn = "72 700 Td [(Packages)-300(are)-300(split)-300(into)-300(sections)] TJ"
    (block,) = read_pdf(drawn_pdf([drawn], font=font), "t").blocks
    assert block.text == "Packages are split into sections"


@pytest.mark.parametrize(
    ("drawn", "text"),
    [
        ("(about 10) Tj /F1 7 Tf 4 Ts (6) Tj /F1 11 Tf 0 Ts ( cells) Tj", "about 10^6 cells"),
        ("(its areas) Tj /F1 7 Tf 4 Ts (1) Tj /F1 11 Tf 0 Ts ( by licence) Tj", "its areas [1] by licence"),
        ("(in 1,234) Tj /F1 7 Tf 4 Ts (2) Tj /F1 11 Tf 0 Ts ( cases) Tj", "in 1,234^2 cases"),
        ("(the 21) Tj /F1 7 Tf 4 Ts (st) Tj /F1 11 Tf 0 Ts ( century) Tj", "the 21st century"),
        ("/F1 6 Tf 3 Ts (3) Tj /F1 9 Tf 0 Ts (The licence may.) Tj", "3 The licence may."),
        ("(H) Tj /F1 7 Tf -2 Ts (2) Tj /F1 11 Tf 0 Ts (O is water) Tj", "H2O is water"),
        ("(x) Tj /F1 7 Tf -3 Ts (i) Tj /F1 11 Tf 0 Ts ( or y) Tj /F1 7 Tf -3 Ts (n+1) Tj", "x_i or y_(n+1)"),
        # PDFium breaks the line at a shift as large as these.
        ("(10) Tj ET BT /F1 7.7 Tf 84.4 706 Td (6) Tj ET BT /F1 11 Tf 91 700 Td (tons) Tj", "10^6 tons"),
        ("/F1 1 Tf 11 0 0 11 72 650 Tm (area) Tj 7 0 0 7 95 654 Tm (9) Tj 11 0 0 11 100 650 Tm ( of) Tj",
         "area [9] of"),
    ],
)  # fmt: skip
def test_superscripts_and_note_marks_stay_apart(drawn: str, text: str) -> None:
    (block,) = read_pdf(drawn_pdf([f"72 700 Td {drawn}"]), "t").blocks
    assert block.text == text


def test_hyphens_at_lines_ends_are_the_printers_or_words() -> None:
    known = ["Our neighbours are well known, and more of the", "members too: all parts", "of them."]
    printers = ["its neigh-", "bours and some mem-", "bers and Mem-", "bers of oth-", "ers"]
    words = ["a well-", "known town", "Nord-", "Ostsee-Kanal", "state-of-the-", "art, out-", "of-date"]
    others = ["a 32-", "bit machine", "salt -", "and rope"]
    hyphens = Hyphens([*known, *printers])
    assert join_lines(printers, hyphens) == "its neighbours and some members and Members of others"
    assert join_lines(words, hyphens) == "a well-known town Nord-Ostsee-Kanal state-of-the-art, out-of-date"
    assert join_lines(others, hyphens) == "a 32-bit machine salt - and rope"
    unbroken = ["A low-", "lying town of low houses, lying by a far-", "off sea"]
    assert join_lines(unbroken, Hyphens(unbroken)) == "A low-lying town of low houses, lying by a far-off sea"
    file = b"All mem-\nbers of the guild and well-\nknown mer\xc2\xad\n  chants. The members are well known."
    (block,) = read_text(file, "t").blocks
    assert block.text == "All members of the guild and well-known merchants. The members are well known."


# Sections, pages


def test_without_an_outline_larger_lines_are_headings() -> None:
    def drawn(*lines: tuple[int, str]) -> str:
        return "20 TL 72 770 Td " + " ".join(f"/F1 {size} Tf {shown(line)} Tj T*" for size, line in lines)

    text = [(11, line) for line in lines(0, 9)]
    labels = [(14, "Note"), text[0], (14, "Fig. 2 Carts"), text[1], (14, "and so on"), text[2]]
    pages = [
        drawn((18, "Atlas of towns"), *text[:2], (14, "1 Alby"), *text),
        drawn((14, "2 Bren, a town"), (14, "by the sea"), *text, *labels),
        drawn(*labels, *labels, *text),
    ]
    document = read_pdf(drawn_pdf(pages), "t")
    assert document.title == "Atlas of towns"
    headings = [*dict.fromkeys(block.headings for block in document.blocks)]
    assert headings == [(), ("1 Alby",), ("2 Bren, a town by the sea",)]


def test_without_an_outline_bold_lines_are_headings() -> None:
    def drawn(*lines: tuple[str, str]) -> str:
        return "20 TL 72 770 Td " + " ".join(f"/{font} 11 Tf {shown(line)} Tj T*" for font, line in lines)

    text = [("F1", line) for line in lines(0, 5)]
    pages = [drawn(("F2", "Alby"), *text, ("F2", "Bren"), ("F2", "by the sea"), *text)]
    document = read_pdf(drawn_pdf(pages), "t")
    assert [*dict.fromkeys(block.headings for block in document.blocks)] == [("Alby",), ("Bren by the sea",)]
    all_bold = read_pdf(drawn_pdf([pages[0].replace("/F1", "/F2")]), "t")
    assert {block.headings for block in all_bold.blocks} == {()}, "bold tells nothing there"


def test_of_a_books_outline_a_page_has_the_headings_that_are_printed_there() -> None:
    outline = [(0, f"Town {number}", 0, None) for number in range(80)]
    document = read_pdf(structured(pdf_bytes([["It ends here.", "Town 41", "Alby is old."]]), outline), "t")
    assert [block.headings for block in document.blocks] == [(), ("Town 41",)]
    assert document.left_out == {"headings of an outline that are not where it leads": 79}


def test_a_pdf_behind_other_bytes_is_one(tmp_path: Path) -> None:
    """PDFium and others read it; a text about PDFs stays one."""
    pdf = pdf_bytes([["Alby makes glass."]])
    (passage,), _ = read(tmp_path / "a.pdf", b"<!DOCTYPE html>\n<p>Your download:</p>\n" + pdf)
    assert passage.text == "Alby makes glass."
    assert not read(tmp_path / "a.md", b"A file that begins with %PDF-1.7 has startxref at its end.")[1].note


def test_an_outline_gives_the_titles_of_sections(tmp_path: Path) -> None:
    long = "Bren & sons: a very long name that goes on"
    pages = [
        ["Atlas of towns"],
        ["Chapter 1", "Towns of the north", "They lie by the sea.", "1.1 Alby", "Alby makes glass."],
        ["It sends it to Corford.", "1.2 Bren & sons: a very long name", "that goes on", "Bren makes rope."],
        ["Esby makes salt.", "It is old."],
    ]
    outline = [
        (0, "Towns of the north", 1, 790.0),
        (1, "Alby", 1, 740.0),
        (1, long, 2, 766.0),
        (0, "Nowhere in print", 3, 762.0),
    ]
    passages, _ = read(tmp_path / "atlas.pdf", structured(pdf_bytes(pages, title="Atlas"), outline))
    north = "Atlas > Chapter 1 Towns of the north"
    assert [(passage.title, passage.text) for passage in passages] == [
        ("Atlas", "Atlas of towns"),
        (north, "They lie by the sea."),
        (f"{north} > 1.1 Alby", "Alby makes glass."),
        (f"{north} > 1.1 Alby", "It sends it to Corford."),
        (f"{north} > 1.2 {long}", "Bren makes rope."),
        (f"{north} > 1.2 {long}", "Esby makes salt."),
        ("Atlas > Nowhere in print", "It is old."),
    ]


def test_pages_have_their_printed_numbers(tmp_path: Path) -> None:
    pages = [["Preface. Alby is old."], ["More of it."], ["Alby makes glass."], ["Corford makes salt."]]
    labels = {0: ("/r", 1), 2: ("/D", 1)}
    passages, _ = read(tmp_path / "atlas.pdf", structured(pdf_bytes(pages), labels=labels))
    assert [passage.page for passage in passages] == ["i", "ii", 1, 2]
    assert passages[1].origin == "atlas.pdf, page ii"


# Beside the text


def test_values_of_form_fields_stand_in_the_text() -> None:
    widget = {"/Subtype": "/Widget", "/FT": "/Tx"}
    pdf = annotated(
        pdf_bytes([["Please fill in."], ["Thank you."]]),
        widget | {"/T": "f1", "/TU": "Your name", "/V": "Ada Orm"},
        widget | {"/T": "town", "/V": ""},
        widget
        | {"/T": "trade", "/FT": "/Ch", "/Ff": 1 << 17, "/Opt": [["s", "Salt"], ["r", "Rope"]], "/V": "r"},
        widget | {"/T": "member", "/FT": "/Btn", "/AS": "/Yes", "/AP": {"/N": {"/Yes": {}, "/Off": {}}}},
        widget | {"/T": "guest", "/FT": "/Btn", "/AS": "/Off", "/AP": {"/N": {"/Yes": {}, "/Off": {}}}},
        widget | {"/T": "key", "/V": "for the office", "/F": 2},
        {"/Subtype": "/FreeText", "/Contents": "Paid in salt."},
    )
    document = read_pdf(pdf, "t")
    assert [block.page for block in document.blocks] == [1, 1, 1, 1, 1, 2]
    texts = ["Your name: Ada Orm", "trade: Rope", "member: Yes", "Paid in salt."]
    assert [block.text for block in document.blocks[1:5]] == texts
    assert document.left_out == {"hidden parts": 4, "form fields without a value": 2}


# What is left out


CONTENTS = [
    "Contents", "1 Towns of the north 1", "1.1 Alby . . . . . . . . . . . . 1", "1.2 Bren, a town whose name",
    "is long. . . . . . . . . . . . . 2", "2 Towns of the south 3", "2.1 Corford ......... 3",
    "2.2 Dunholm … 4",
]  # fmt: skip


def test_contents_are_left_out_and_counted(tmp_path: Path) -> None:
    pages = [CONTENTS, *(lines(number * 6, 6) for number in range(4))]
    pdf = structured(pdf_bytes(pages), labels={0: ("/r", 1), 1: ("/D", 1)})
    passages, report = read(tmp_path / "atlas.pdf", pdf)
    assert report.left_out == {"tables of contents and indexes": 31}
    assert {passage.page for passage in passages} == {1, 2, 3, 4}


def test_tables_that_look_like_contents_stay() -> None:
    menu = ["Soup ........ 5", "Bread ....... 2", "Fish ........ 9", "Salt ........ 1", "Beer ........ 4"]
    assert not find_contents(menu, {str(page) for page in range(1, 12)}), "their numbers do not rise"
    years = ["Alby founded ..... 1210", "Bren founded ..... 1377", "Corford founded ..... 1501"]
    assert not find_contents(years, {"1", "2", "3"}), "there are no such pages"
    results = ["Alby scored 1", "Bren scored 2", "Corford scored 3", "Dunholm scored 4", "Esby scored 5"]
    assert not find_contents(results, set("12345")), "without dots, and no titles of sections"
    assert find_contents(results, set("12345"), {fold(line[:-2]) for line in results}) == {0, 1, 2, 3, 4}


def test_contents_of_a_text_whose_pages_are_not_known() -> None:
    entries = [f"Town {number} ........ {number * 3}" for number in range(1, 7)]
    assert find_contents(["Preface", *entries, "Alby makes glass."]) == set(range(1, 7))
    assert not find_contents(entries[:4])


def test_a_line_that_stands_as_often_within_pages_is_no_running_line(tmp_path: Path) -> None:
    pages = [["Alby", *lines(number * 6, 3), "So be it.", "Bren", "So be it."] for number in range(4)]
    _, report = read(tmp_path / "a.pdf", pdf_bytes(pages))
    assert report.left_out == {"page headers and footers": 8}, "Alby and Bren"


def test_paragraphs_that_stand_on_several_pages_are_no_running_lines() -> None:
    terms = ["All goods are sold as seen, and the guild of Alby takes none of them", "back from its buyers."]
    thanks = ["Whoever pays within a week gets a tenth of the price back, as long as", "there is salt."]
    own = [f"{line[:-1]} and takes their rope in return for it." for line in lines(0, 18)]
    pages = [
        ["The guild of Alby", *terms, *own[3 * number : 3 * number + 3], *thanks, f"Page {number + 1}"]
        for number in range(6)
    ]
    document = read_pdf(pdf_bytes(pages), "t")
    assert document.left_out == {"page headers and footers": 6 * 4 + 6 * 2}
    text = " ".join(block.text for block in document.blocks)
    assert text.count("back from its buyers.") == text.count("as there is salt.") == 6


DRAWN = [*lines(0, 5), *CONTENTS, "Index", "salt, 2", "ink, 1, 3", "The Atlas", "* * *", "2", "ii", "Towns"]
ENTRIES = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["Towns", "Contents", "Index", "2 Salt"]),
    st.integers(0, 5),
    st.sampled_from([None, 790.0, 700.0]),
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from(DRAWN), max_size=9), min_size=1, max_size=6),
    st.lists(ENTRIES, max_size=4),
)
def test_each_word_of_a_page_is_in_a_passage_or_counted(
    pages: list[list[str]], outline: list[tuple[int, str, int, float | None]]
) -> None:
    drawn = sum(any(map(str.isalnum, word)) for page in pages for line in page for word in line.split())
    known = [(level, title, page, height) for level, title, page, height in outline if page < len(pages)]
    if known:
        known[0] = (0, *known[0][1:])
    try:
        document = read_pdf(structured(pdf_bytes(pages, title="Atlas"), known), "t")
    except DataError:
        assert not drawn
        return
    # A printed heading is in the titles of the passages below it; how often it was printed is not to be seen.
    printed = [line for page in pages for line in page if any(title in line for _, title, _, _ in known)]
    read = sum(any(map(str.isalnum, word)) for block in document.blocks for word in block.text.split())
    left_out = sum(document.left_out.values())
    assert drawn - sum(len(line.split()) for line in printed) <= read + left_out
    if not known:
        assert drawn == read + left_out


# Doubts


def test_text_of_bad_quality_is_told(tmp_path: Path) -> None:
    good = "Alby makes glass and sells it to all of its neighbours who have none. " * 8
    assert not describe_quality([good]) and not describe_quality(["Short."])
    assert not describe_quality(["दिल्ली भारत की राजधानी है। यह यमुना नदी के किनारे बसी है। " * 30])  # vowel signs
    assert not describe_quality(["שָׁלוֹם עֲלֵיכֶם מַלְאֲכֵי הַשָּׁרֵת מַלְאֲכֵי עֶלְיוֹן " * 30])
    assert not describe_quality(["東京は日本の首都であり、人口が最も多い都市である。" * 30])
    assert not describe_quality(["Der Rechtsschutzversicherungsvertrag gilt. " + good * 3])
    (glued,) = describe_quality([good.replace(" ", "").replace(".", ". ")])
    assert glued.startswith("its words may be glued together:")
    (torn,) = describe_quality([" ".join(good.replace(" ", ""))])
    assert torn.startswith("its words may be torn apart:")
    (garbled,) = describe_quality([good.replace("e", "\ufffd")])
    assert garbled.startswith("its text may be garbled:")
    assert describe_quality(["(cid:12)(cid:7)" * 40])[0].startswith("its text may be garbled: 100")
    _, report = read(tmp_path / "glued.pdf", pdf_bytes([[good[:70].replace(" ", "")] * 9, [good[:70]] * 9]))
    assert "its words may be glued together" in report.note
