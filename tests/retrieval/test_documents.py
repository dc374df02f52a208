"""Documents of one's own: read, cut, indexed, searched, changed and indexed again."""

import gzip
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.core.errors import ConfigError, DataError
from corag.core.language.words import count_words
from corag.core.runs.provenance import PROVENANCE
from corag.core.runs.rows import Row, SavedRow
from corag.core.tools import SearchStep
from corag.core.types import Answer, Hit, Passage, Question, passage_id
from eval.experiment import extensions  # noqa: F401 - formats that messages list
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.corpora.formats import detect_format, read_corpus
from retrieval.corpora.passages import passage_from_record
from retrieval.corpora.sifting import CorpusReport
from retrieval.documents.document import Block, Document
from retrieval.documents.files import find_documents
from retrieval.documents.passages import Cutting, cut
from retrieval.documents.reading import FILES, DocumentCorpus, write_reports
from retrieval.index.build import build_index
from retrieval.index.manifest import INDEX_FILE, SHARDS
from retrieval.index.place import begin_build, building_folder, is_ours
from retrieval.index.store import TEXTS, PassageStore, storing
from retrieval.search.pipeline import open_retriever
from tests.messages import raises_message
from tests.retrieval.conftest import ignore, search
from tests.retrieval.document_files import docx_bytes, encrypted, pdf_bytes, prose, write_folder
from tests.retrieval.test_http import served


def read(file: Path, content: str | bytes = "") -> list[Passage]:
    """Write a document if there is content for it, and return its passages; a refusal raises."""
    if content:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_corpus([file], "documents", CorpusReport()))


def note_of(file: Path) -> str:
    report = CorpusReport()
    list(read_corpus([file], "documents", report))
    return report.files[0].note


# What each kind of document gives


def test_markdown_gives_its_headings_lists_tables_and_code(tmp_path: Path) -> None:
    text = """---
title: Staff handbook
---
# Handbook

Read *all* of [it](https://example.org).

## Leave

1. Ask.
2. Wait
   a day.

| Grade | Days |
| --- | --- |
| junior | 25 |
| senior | 30 |

### Form

```
name:  Ada
days:  3
```
"""
    general, leave, form = read(tmp_path / "staff.md", text)
    assert (general.title, general.text) == ("Staff handbook", "Read all of it.")
    assert leave.title == "Staff handbook > Leave"
    assert leave.text.splitlines() == [
        "1. Ask.", "2. Wait a day.", "Grade: junior | Days: 25", "Grade: senior | Days: 30",
    ]  # fmt: skip
    assert (form.title, form.text) == ("Staff handbook > Leave > Form", "name:  Ada\ndays:  3")
    assert {passage.source for passage in (general, leave, form)} == {"staff.md"}
    (ruled,) = read(tmp_path / "ruled.md", "---\nNote: this: is text.\n\n---\n\nMore.\n")
    assert "is text" in ruled.text
    several = read(tmp_path / "two.md", "---\ntitle: Both\n---\n# One\n\nUno.\n\n# Two\n\nDue.\n")
    assert [passage.title for passage in several] == ["Both > One", "Both > Two"]


def test_html_gives_what_a_reader_sees(tmp_path: Path) -> None:
    page = """<!DOCTYPE html><html><head><title>Atlas: towns</title><style>p {color: red}</style></head><body>
    <nav><a href="/">Home</a></nav><div role="banner">Atlas of everything</div>
    <main><h1>Towns<a class="headerlink" href="#towns">¶</a></h1>
    <p>Alby&nbsp;lies <b>on the</b> Ar&shy;len.<br>It is old.</p>
    <p hidden>Not this.</p><p style="display: none">Nor this.</p><script>let nor = "this"</script>
    <ul><li><p>glass</p></li><li>salt</li></ul>
    <table><tr><th>Town</th><th>Made</th></tr><tr><td>Alby</td><td><code>salt</code>, ink</td></tr></table>
    <table><tr><td><h2>Placed by a table</h2>Text.</td></tr></table>
    </main><footer>Imprint</footer></body></html>"""
    towns, placed = read(tmp_path / "towns.html", page)
    assert towns.title == "Towns"
    assert towns.text.splitlines() == [
        "Alby lies on the Arlen.", "It is old.", "- glass", "- salt", "Town: Alby | Made: salt, ink",
    ]  # fmt: skip
    assert (placed.title, placed.text) == ("Towns > Placed by a table", "Text.")
    (plain,) = read(tmp_path / "plain.htm", "<title>Only a title</title>Text without a heading.")
    assert plain.title == "Only a title"


@pytest.mark.parametrize("tag", ["ul><li", "font"])
def test_html_may_nest_thousands_of_levels_deep(tmp_path: Path, tag: str) -> None:
    page = f"Begun. {f'<{tag}>' * 5000}Deep.{f'</{tag}>' * 5000}<p>Ended."
    (passage,) = read(tmp_path / "deep.html", page)
    assert passage.text.split() == ["Begun.", "Deep.", "Ended."]
    assert note_of(tmp_path / "deep.html") == "nested too deep: read without its divisions"


def test_html_says_where_it_breaks_off(tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "deep.html", f"Begun. {'<my-box>' * 3000}Deep.")
    assert passage.text == "Begun."
    assert "read in part only (Excessive depth" in note_of(tmp_path / "deep.html")


def test_a_pdf_gives_pages_without_running_lines(tmp_path: Path) -> None:
    pages = [
        [
            "The Atlas",
            "Alby makes glass and sends it to all its neigh-",
            "bours. It is old. No neighbours do.",
            "So be it.",
            "1",
        ],
        ["The Atlas", "Corford makes salt, which goes to the coast by", "cart and", "by boat.", "2"],
        ["The Atlas", "Dunholm makes rope, which nobody there has", "a use for.", "So it is sold.", "3"],
    ]
    passages = read(tmp_path / "atlas_of-towns.pdf", pdf_bytes(pages, title="Microsoft Word - atlas.doc"))
    text = "\n".join(passage.text for passage in passages)
    assert "The Atlas" not in text and not any(map(str.isdigit, text))
    assert "all its neighbours. It is old. No neighbours do." in passages[0].text
    assert [(passage.title, passage.origin) for passage in passages] == [
        ("atlas of-towns", f"atlas_of-towns.pdf, page {number}") for number in (1, 2, 3)
    ]


def test_rows_of_figures_at_a_pages_edge_are_no_running_lines(tmp_path: Path) -> None:
    """Running lines are the same on every page, or have one number that counts pages."""
    pages = [
        [f"ACME report, page {p + 3} of 9"]
        + [f"{1000 + p * 10 + row} {p * 7 + row * 3} {row * 13 + p}" for row in range(8)]
        for p in range(4)
    ]
    (passages) = read(tmp_path / "figures.pdf", pdf_bytes(pages))
    text = "\n".join(passage.text for passage in passages)
    assert "ACME" not in text
    assert all(row in text.replace("\n", " ") for page in pages for row in page[1:])


def test_a_sentence_that_a_page_ends_belongs_to_where_it_begins(tmp_path: Path) -> None:
    pages = [
        ["Alby makes glass. The carts that take its salt to the coast do not"],
        ["stop on their way. Dunholm makes rope."],
    ]
    file = tmp_path / "carts.pdf"
    file.write_bytes(pdf_bytes(pages, title="Carts"))
    first, second, third = DocumentCorpus([file], Cutting(words=15)).passages(CorpusReport())
    assert (first.text, first.page) == ("Alby makes glass.", 1)
    assert second.text == "The carts that take its salt to the coast do not stop on their way."
    assert (second.page, third.page, third.origin) == (1, 2, "carts.pdf, page 2")


def test_a_pdf_that_anyone_may_open_is_read_though_it_is_encrypted(tmp_path: Path) -> None:
    assert read(tmp_path / "open.pdf", encrypted(pdf_bytes([["Read me."]]), ""))[0].text == "Read me."


def test_word_gives_headings_lists_and_tables(tmp_path: Path) -> None:
    parts = [
        ("Title", "Handbook"),
        ("Heading 1", "Leave"),
        ("Normal", "Ask first."),
        ("List Bullet", "then go"),
        ("Heading 1", "Pay"),
    ]
    file = tmp_path / "staff.docx"
    file.write_bytes(docx_bytes(parts, [["Grade", "Euro", "Days"], ["junior", "3,000", "25"]]))
    leave, pay = read(file)
    assert (leave.title, leave.text) == ("Handbook > Leave", "Ask first.\n- then go")
    assert (pay.title, pay.text) == ("Handbook > Pay", "Grade: junior | Euro: 3,000 | Days: 25")


_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word_table(file: Path, rows: str) -> str:
    """Write a Word file with a table of these rows, and return its text."""
    document, content = docx.Document(), io.BytesIO()
    document.element.body.insert(0, docx.oxml.parse_xml(f"<w:tbl {_W}>{rows}</w:tbl>"))
    document.save(content)
    return read(file, content.getvalue())[0].text


def word_cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>"


def test_word_tables_keep_what_stands_in_controls_and_merged_cells(tmp_path: Path) -> None:
    def within(content: str) -> str:
        return f"<w:sdt><w:sdtContent>{content}</w:sdtContent></w:sdt>"

    controlled = within(f"<w:tr>{word_cell('Name')}{within(word_cell('Ada'))}</w:tr>")
    born = "Born</w:t><w:noBreakHyphen/><w:t>in"
    text = word_table(tmp_path / "a.docx", f"{controlled}<w:tr>{word_cell(born)}{word_cell('1815')}</w:tr>")
    assert text.splitlines() == ["Name | Ada", "Born-in | 1815"]
    wide = word_cell("Score", '<w:gridSpan w:val="2"/>')
    header = f"<w:trPr><w:tblHeader/></w:trPr>{word_cell('Name')}{wide}"
    first = word_cell("Ada", '<w:vMerge w:val="restart"/>') + word_cell("1") + word_cell("2")
    second = word_cell("", "<w:vMerge/>") + word_cell("3") + word_cell("4")
    rows = "".join(f"<w:tr>{row}</w:tr>" for row in (header, first, second))
    assert word_table(tmp_path / "b.docx", rows).splitlines() == [
        "Name: Ada | Score: 1 | Score: 2", "Name: Ada | Score: 3 | Score: 4",
    ]  # fmt: skip


def test_in_a_word_table_of_two_columns_a_first_row_is_a_header_only_if_it_says_so(tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "two.docx", docx_bytes([], [["Name", "Ada"], ["Born", "1815"]]))
    assert passage.text.splitlines() == ["Name | Ada", "Born | 1815"]


def html_lines(file: Path, page: str) -> list[str]:
    return [line for passage in read(file, page) for line in passage.text.splitlines()]


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        (
            "<table><tr><th colspan=2>Ada Lovelace</th></tr><tr><th>Born</th><td>1815</td></tr></table>",
            ["Ada Lovelace", "Born | 1815"],
        ),
        (
            "<table><tr><th>A</th><th>B</th></tr><tr><td>1</td></tr><tr><td>2</td><td>3</td></tr></table>",
            ["A | B", "1", "A: 2 | B: 3"],
        ),
        (
            "<table><tr><th>Name</th><th colspan=2>Score</th></tr><tr><td rowspan=2>Ada</td><td>1</td>"
            "<td>2</td></tr><tr><td>3</td><td>4</td></tr></table>",
            ["Name: Ada | Score: 1 | Score: 2", "Name: Ada | Score: 3 | Score: 4"],
        ),
        (
            "<table><thead><tr><td>Town</td><td colspan=2>Cost</td></tr><tr><td></td><td>2023</td>"
            "<td>2024</td></tr></thead><tr><td>Alby</td><td>3</td><td>4</td></tr></table>",
            ["Town: Alby | Cost 2023: 3 | Cost 2024: 4"],
        ),
        (
            "<table><tr><td></td><td>2023</td><td>2024</td></tr><tr><td>Alby</td><td>3</td><td>4</td></tr>"
            "<tr><td>Esby</td><td></td><td>5</td></tr></table>",
            ["Alby | 2023: 3 | 2024: 4", "Esby | 2024: 5"],
        ),
        ("<pre>line one<br>line two</pre>", ["line one", "line two"]),
        (
            "<p>If <math><mi>a</mi><mo>=</mo><mi>b</mi><annotation>a = b</annotation></math>, an <nobr>x-y"
            "</nobr> or <button>Copy</button>a <own-x>z</own-x>.</p>",
            ["If a=b, an x-y or a z."],
        ),
        (
            "<table><tr><th>Y</th><th>S</th></tr><tr><td>1</td><td><i hidden>0</i>2</td></tr></table>",
            ["Y: 1 | S: 2"],
        ),
        ("<ol><li>one<ul hidden><li>x</li></ul></li><li>two</li></ol>", ["1. one", "2. two"]),
    ],
)
def test_html_as_it_is_written(tmp_path: Path, page: str, lines: list[str]) -> None:
    assert html_lines(tmp_path / "page.html", page) == lines


def test_merged_cells_of_a_broken_page_do_not_fill_the_memory(tmp_path: Path) -> None:
    rows = "".join(f"<tr><td colspan=1000 rowspan=1000>a</td><td>b{row}</td></tr>" for row in range(300))
    lines = html_lines(tmp_path / "a.html", f"<table>{rows}</table>")
    assert lines[0] == "a | b0" and lines[-1].endswith(" | b299")


def test_headings_in_html_keep_their_words_apart_and_no_scripts(tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "a.html", "<h1>First<br>Second</h1><h2>A<script>var z</script></h2>Text.")
    assert passage.title == "First Second > A"


def test_a_heading_with_nothing_below_it_is_text(tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "a.md", "# Facts\n\n## The capital is Paris.\n\n## The river is the Seine.")
    assert (passage.title, passage.text) == ("Facts", "The capital is Paris.\nThe river is the Seine.")
    parent, child = read(tmp_path / "b.md", "# A\n\n# B\n\n## C\n\nText.")
    assert (parent.text, child.title, child.text) == ("A", "b > B > C", "Text.")


@pytest.mark.parametrize(
    ("beginning", "title"),
    [
        ("Fire safety (2024)\n\n", "Fire safety (2024)"),
        ("\n  FIRE SAFETY\n===========\n", "FIRE SAFETY"),
        ("Fire safety\n", "f 12"),  # goes on in the next line
        ("Dear Ms Orm,\n\n", "f 12"),
        ("- Alarms\n\n", "f 12"),
        (f"{'Fire and water ' * 6}\n\n", "f 12"),
    ],
)
def test_a_first_line_by_itself_is_a_texts_title(beginning: str, title: str, tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "f_12.txt", f"{beginning}The bell rings twice.\n\nGo to the yard.\n")
    assert passage.title == title and passage.text.endswith("The bell rings twice.\nGo to the yard.")
    assert (title in passage.text) is False
    (alone,) = read(tmp_path / "f_12.txt", "Fire safety\n")
    assert (alone.title, alone.text) == ("f 12", "Fire safety"), "nothing stands below it"


@pytest.mark.parametrize(
    "text",
    [
        "The mayor of Orvale is Ada Petrel\n\nThe mayor of Ostra is Bob Orm\n\nThe mayor of Rill is Cid\n",
        "From: Ada Orm <a@b.c>\n\nHello Bob.\n",
        "Chapter 1\n\nIt began.\n\nChapter 2\n\nIt ended.\n",
    ],
)
def test_the_first_of_several_records_is_no_title(text: str, tmp_path: Path) -> None:
    (passage,) = read(tmp_path / "f_12.txt", text)
    assert passage.title == "f 12" and text.split("\n")[0] in passage.text


def test_text_gives_paragraphs_whose_lines_were_broken_to_fit(tmp_path: Path) -> None:
    text = (
        "The town of Alby lies on the river Arlen, and has for as long as anyone\n"
        "remembers. It makes glass.\n"
        "Its neighbours are many, and each of them buys what the town can make in a\n"
        "year.\n\n=====\n- one\n- two\n"
    )
    (passage,) = read(tmp_path / "alby.txt", text)
    assert passage.text.splitlines() == [
        "The town of Alby lies on the river Arlen, and has for as long as anyone remembers. It makes glass.",
        "Its neighbours are many, and each of them buys what the town can make in a year.",
        "- one",
        "- two",
    ]


@pytest.mark.parametrize(
    ("name", "content", "text", "note"),
    [
        ("utf16.txt", "Fluß".encode("utf-16"), "Fluß", ""),
        ("latin.txt", "Fluß – ja".encode("cp1252"), "Fluß – ja", "not UTF-8: read as cp1252"),
        ("old.html", '<meta charset="iso-8859-2">Łódź'.encode("iso-8859-2"), "Łódź", ""),
        ("lied.html", '<meta charset="utf-8">Köln'.encode("latin-1"), "Köln", "not UTF-8: read as cp1252"),
        ("web.html", '<meta charset="ISO-8859-1">“Köln”'.encode("cp1252"), "“Köln”", ""),
        ("key.txt", "The key: " + "QUJD" * 300, "The key:", "left out 1 string(s) of over 1,000 characters"),
        ("odd.md", b"A\x01B", "AB", ""),
    ],
)
def test_encodings_are_found_and_guesses_are_told(
    tmp_path: Path, name: str, content: bytes | str, text: str, note: str
) -> None:
    assert read(tmp_path / name, content)[0].text == text
    told = note_of(tmp_path / name)
    assert told.startswith(note) and bool(told) == bool(note)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.txt", b" \n", "it is empty."),
        ("blank.html", b"<p> </p>", "there is no text in it."),
        ("picture.txt", b"\x89PNG\x00", "it is binary data"),
        ("broken.pdf", b"%PDF-1.4 and no more", "it is damaged, or no PDF"),
        ("broken.docx", b"PK and no more", "it is damaged, or no .docx"),
        ("secret.pdf", encrypted(pdf_bytes([["Read me."]]), "key"), "it is encrypted: save a copy without"),
        ("scan.pdf", pdf_bytes([[], []]), "there is no text in its 2 pages: are they pictures"),
        ("bad.jsonl", b'{"id": 1}\n{"id": 2}', "line 1: expected a text under 'text' or"),
        ("half.jsonl", b'{"id": "1", "text": "\\ud800"}', "half of a character"),
        ("notes.rst", b"Text.", "its ending is none of .csv, .docx, .eml,"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / name
    good.write_text("The rest goes on.")
    bad.write_bytes(content)
    report = CorpusReport()
    assert [passage.text for passage in read_corpus([bad, good], "auto", report)] == ["The rest goes on."]
    assert [file.file for file in report.refused] == [name] and reason in report.refused[0].refused
    with pytest.raises(DataError, match=rf"no passage was found in .*\n  {name}: "):
        list(read_corpus([bad], "documents", CorpusReport()))


def _zip(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.pdf"])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (_zip("[Content_Types].xml", "xl/workbook.bin"), "a binary Excel workbook (.xlsb), whatever"),
        (_zip("mimetype", "content.xml"), "an OpenDocument file, whatever"),
        (b"PAR1\x15\x04\x15", "a Parquet table, whatever its ending says: give it the ending .parquet"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "an archive, whatever"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "a picture, whatever its ending says: recognise its text"),
    ],
)
def test_a_file_of_another_type_is_refused_by_its_first_bytes(
    tmp_path: Path, name: str, content: bytes, what: str
) -> None:
    for data in (content, gzip.compress(content)):
        (tmp_path / name).write_bytes(data)
        (tmp_path / "good.txt").write_text("The rest goes on.")
        report = CorpusReport()
        assert [passage.text for passage in read_corpus([tmp_path], "auto", report)] == ["The rest goes on."]
        assert report.refused[0].refused.startswith(f"it is {what}")


def test_a_file_of_another_type_is_read_as_what_it_is(tmp_path: Path) -> None:
    page = b"\n<!-- saved -->\n<!DOCTYPE html><title>Alby</title><nav>Home</nav><p>It makes glass."
    contents = {
        "a PDF": (pdf_bytes([["It makes glass."]]), "pdf"),
        "a Word document (.docx)": (docx_bytes([("Normal", "It makes glass.")]), "docx"),
        "a web page": (page, "html"),
    }
    for what, (content, own) in contents.items():
        for ending in ("txt", "md", "html", "pdf", "docx", "jsonl"):
            file = tmp_path / f"a.{ending}"
            assert [passage.text for passage in read(file, content)] == ["It makes glass."]
            note = f"it is {what}, whatever its ending says: read as such"
            assert note_of(file) == ("" if ending == own else note), (what, ending)


def test_compressed_documents_are_unpacked(tmp_path: Path) -> None:
    plain, packed = "It makes glass.", tmp_path / "my_notes.txt.gz"
    (passage,) = read(packed, gzip.compress(plain.encode()))
    assert (passage.title, passage.text, passage.source) == ("my notes", plain, "my_notes.txt.gz")
    assert note_of(packed) == "" and detect_format([packed]) == "documents"
    assert [passage.text for passage in read_corpus([tmp_path], "auto", CorpusReport())] == [plain]
    assert read(packed, plain)[0].text == plain, "a plain file under that name"
    assert read(tmp_path / "page.html", gzip.compress(b"<p>It makes glass.</p>"))[0].text == plain
    assert note_of(tmp_path / "page.html") == "it is compressed with gzip, whatever its ending says: unpacked"
    (tmp_path / "torn.txt.gz").write_bytes(gzip.compress(os.urandom(5000))[:3000])
    report = CorpusReport()
    assert len(list(read_corpus([tmp_path], "auto", report))) == 2
    assert report.refused[0].refused == (
        "its gzip data are damaged (Compressed file ended before the end-of-stream marker was reached): "
        "it was not copied whole."
    )


def test_records_among_documents_are_passages_as_they_stand(tmp_path: Path) -> None:
    records = [{"id": "a", "title": "T", "text": "x " * 300}, {"text": "y", "source": "book", "page": 4}]
    (tmp_path / "facts.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "notes.txt").write_text("Text.")
    first, second, text = read_corpus([tmp_path], "auto", CorpusReport())
    assert (first.id, first.text, first.origin) == ("a", "x " * 300, "facts.jsonl")
    assert (second.origin, text.origin) == ("book, page 4", "notes.txt")


# Cutting


def cut_up(blocks: Sequence[Block], words: int, overlap: int = 0) -> list[str]:
    document = Document("T", tuple(blocks))
    return [passage.text for passage in cut(document, "f", Cutting(words, overlap))]


_SENTENCES = st.lists(
    st.lists(st.sampled_from(["town", "Mr. Hill", "salt", "3.5", "東京"]), min_size=1, max_size=30),
    max_size=20,
)


@given(st.lists(_SENTENCES, max_size=4), st.integers(1, 40), st.booleans())
def test_no_word_is_lost_and_no_passage_is_longer(
    paragraphs: list[list[list[str]]], words: int, whole: bool
) -> None:
    blocks = [
        Block(" ".join(f"The {' '.join(sentence)} end." for sentence in sentences), whole=whole)
        for sentences in paragraphs
        if sentences
    ]
    parts = cut_up(blocks, words)
    assert "".join("".join(parts).split()) == "".join("".join(block.text for block in blocks).split())
    assert all(0 < count_words(part) <= words for part in parts)


def test_passages_end_with_sentences_and_are_about_equally_long() -> None:
    sentences = [f"Town {number} sells salt to its friends." for number in range(28)]
    parts = cut_up([Block(" ".join(sentences))], 180)
    assert [count_words(part) for part in parts] == [98, 98], "not 175 and a rest of 21"
    assert " ".join(parts) == " ".join(sentences)


def test_a_passage_would_rather_end_with_its_paragraph() -> None:
    blocks = [Block(f"Alby {number} {'is old ' * 13}." + " So it is." * 1) for number in range(4)]
    parts = cut_up(blocks, 70)
    assert all(part.startswith("Alby") for part in parts)


def test_a_section_begins_a_passage_with_its_path_as_title() -> None:
    document = Document("Book", (Block("One."), Block("Two.", ("A",)), Block("Three.", ("A", "B"))))
    passages = list(cut(document, "f", Cutting()))
    assert [passage.title for passage in passages] == ["Book", "Book > A", "Book > A > B"]
    assert passages[1].id == passage_id("Book > A", "Two.")


def test_a_sentence_longer_than_a_passage_is_cut_between_words() -> None:
    parts = cut_up([Block("word " * 100)], 30)
    assert [len(part.split()) for part in parts] == [25, 25, 25, 25]


@pytest.mark.parametrize(
    "sentence",
    [
        "杭州是浙江省的省会，它位于钱塘江边。",
        "เชียงใหม่เป็นเมืองที่ใหญ่ที่สุดในภาคเหนือ",
        "ရန်ကုန်သည်မြန်မာနိုင်ငံ၏မြို့တော်ဟောင်းဖြစ်သည်",
    ],
)
def test_passages_of_scripts_without_spaces_have_the_size_that_is_asked_for(sentence: str) -> None:
    text = sentence * 60
    parts = cut_up([Block(text)], 50)
    assert "".join(parts) == text, "and nothing is put between"
    sizes = [count_words(part) for part in parts]
    assert all(30 <= size <= 50 for size in sizes), sizes


def test_code_stays_whole_if_it_fits_and_is_cut_between_lines_else() -> None:
    code = Block("for it in them:\n    do(it). Now()\n    done(it)", whole=True)
    assert cut_up([Block("See:"), code], 20) == [f"See:\n{code.text}"]
    assert cut_up([code], 4) == ["for it in them:", "    do(it). Now()\n    done(it)"]


def test_overlap_repeats_whole_sentences_within_the_length() -> None:
    sentences = [f"Sentence {number} is here." for number in range(10)]
    parts = cut_up([Block(" ".join(sentences))], 16, overlap=5)
    assert parts[1].startswith("Sentence 1 is here. Sentence 2") or parts[1].startswith(parts[0][-19:])
    assert all(count_words(part) <= 16 for part in parts)
    for words, overlap in ((0, 0), (10, 10), (10, -1)):
        with raises_message(ConfigError):
            Cutting(words, overlap)


# Which files are read


def test_a_folder_is_walked_in_a_fixed_order_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    for name in (
        "b.TXT",
        "a/z.md",
        "a/B.md",
        "c.png",
        "d.png",
        "e",
        ".f.txt",
        ".g/h.txt",
        "ix/i.txt",
        "z.htm",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "ix" / INDEX_FILE).write_text("{}")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    found = find_documents([tmp_path])
    assert [file.name for file in found.files] == ["a/B.md", "a/z.md", "b.TXT", "gone.txt", "z.htm"]
    assert found.left_out == {
        "files of other endings": 3, "hidden files and folders": 2, "index folders": 1,
    }  # fmt: skip
    assert found.skipped == {".png": 2, "without an ending": 1}
    report = CorpusReport()
    list(read_corpus([tmp_path], "auto", report))
    assert [file.refused for file in report.refused] == ["it cannot be opened: No such file or directory."]


def test_pipes_and_closed_folders_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "closed/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    os.mkfifo(tmp_path / "pipe.txt")

    # By hand: permissions do not bind the superuser.
    def refusing(opened: Callable[[Path], object]) -> Callable[[Path], object]:
        def call(path: Path) -> object:
            if Path(path).name == "closed":
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path)

        return call

    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr("retrieval.documents.files.is_ours", refusing(is_ours))
    found = find_documents([tmp_path, tmp_path / "pipe.txt"])
    assert [file.name for file in found.files] == ["a.txt"]
    assert found.left_out == {"folders that cannot be opened": 1, "pipes and the like": 2}
    assert found.closed == ("closed",)


def test_linked_folders_are_entered_once(tmp_path: Path) -> None:
    for name in ("docs/b/x.txt", "elsewhere/y.txt", "elsewhere/in/z.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name, target in (("docs/a", "docs/b"), ("docs/c", "elsewhere"), ("elsewhere/in/up", "."),
                         ("docs/d", "elsewhere/in"), ("docs/gone", "nowhere")):  # fmt: skip
        (tmp_path / name).symlink_to(tmp_path / target)
    found = find_documents([tmp_path / "docs"])
    assert [file.name for file in found.files] == ["b/x.txt", "c/in/z.txt", "c/y.txt"]
    # "a" and "d" are read elsewhere; "up" leads to the folder of all, with "docs" and "elsewhere" in it.
    assert found.left_out == {"folders met again, as by links": 4, "files of other endings": 1}


def test_a_refusal_may_name_a_file_whose_name_is_no_utf8(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_text("{")
    (tmp_path / "a.txt").write_text("Text.")
    report = CorpusReport()
    list(read_corpus([tmp_path], "auto", report))
    write_reports(tmp_path, report.files)
    assert "line 1: not valid JSON" in report.refused[0].refused


def test_names_are_relative_to_what_all_files_have_in_common(tmp_path: Path) -> None:
    for name in ("a/x.txt", "b/x.txt", "b/c/y.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def names(*paths: str) -> list[str]:
        return [file.name for file in find_documents([tmp_path / path for path in paths]).files]

    assert names("b") == ["c/y.txt", "x.txt"]
    assert names("b/x.txt") == ["x.txt"]
    assert names("a", "b") == ["a/x.txt", "b/c/y.txt", "b/x.txt"]
    assert names("b", "b/x.txt") == ["c/y.txt", "x.txt"], "no file twice"
    with raises_message(DataError):
        names("nowhere")


def test_the_format_follows_from_folders_and_endings(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.json", "a", "a.txt", "a.rst"):
        (tmp_path / name).write_text("x")
    formats = {
        name: detect_format([tmp_path / part for part in name.split()])
        for name in ("a.jsonl", "a.json", "a", "a.txt")
    }
    assert formats == {"a.jsonl": "jsonl", "a.json": "jsonl", "a": "jsonl", "a.txt": "documents"}
    assert (
        detect_format([tmp_path]) == detect_format([tmp_path / "a.jsonl", tmp_path / "a.txt"]) == "documents"
    )
    assert detect_format([tmp_path / "a.txt"], "dpr") == "dpr", "what is said counts"
    with raises_message(ConfigError):
        detect_format([tmp_path / "a.rst"])
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"x")
    with raises_message(DataError):
        list(read_corpus([tmp_path / "pictures"], "auto", CorpusReport()))
    for name in ("a.zip", "a.tar.gz"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(ConfigError, match="unpack it, and name what is in it"):
            detect_format([tmp_path / name])
    with raises_message(DataError):
        detect_format([tmp_path / "nowhere.txt"])


# Source and page on their way


def test_source_and_page_are_kept_and_other_records_stay_as_they_were(tmp_path: Path) -> None:
    cut_out, plain = Passage("1", "T", "x", "a.pdf", 3), Passage("2", "T", "y")
    assert list(storing([cut_out, plain], tmp_path)) == [cut_out, plain]
    assert (tmp_path / TEXTS).read_text() == '["1","T","x","a.pdf",3]\n["2","T","y"]\n'
    store = PassageStore(tmp_path)
    assert store.passages(["1", "2"]) == {"1": cut_out, "2": plain}
    store.close()
    record = {"id": "1", "title": "T", "text": "x", "source": "a.pdf", "page": 3}
    assert passage_from_record(record, "") == cut_out
    assert passage_from_record(record | {"source": {"url": "u"}}, "") == Passage("1", "T", "x")
    step = SearchStep("q", "", 2, (Hit(cut_out, 2.0), Hit(plain, 1.0)), 0.1, 0.0, False)
    written = json.loads(Row(Question("q", "Q?"), Answer("a"), (step,), {}, 1.0).to_json())
    assert written["steps"][0]["hits"] == [
        {"id": "1", "title": "T", "score": 2.0, "source": "a.pdf", "page": 3},
        {"id": "2", "title": "T", "score": 1.0},
    ]
    (back,) = SavedRow.from_json(written).steps
    assert isinstance(back, SearchStep)
    assert [hit.passage for hit in back.hits] == [replace(cut_out, text=""), replace(plain, text="")]


# The folder of 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("documents") / "atlas")


@pytest.fixture
def docs(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder that a test may change."""
    return shutil.copytree(folder, tmp_path / "atlas")


def test_of_200_files_198_are_read_and_two_refused(folder: Path) -> None:
    assert (folder / "large.txt").stat().st_size > 5_000_000
    report = CorpusReport()
    passages = list(read_corpus([folder], "auto", report))
    assert len(report.files) == 200 and len(passages) == report.passages
    assert {file.file for file in report.refused} == {"broken.pdf", "empty.txt"}
    assert {file.file: file.note for file in report.files if file.note} == {
        "latin1.txt": "not UTF-8: read as cp1252, a guess"
    }
    by_kind = {Path(passage.source).parts[0]: 0 for passage in passages}
    for passage in passages:
        by_kind[Path(passage.source).parts[0]] += 1
    by_kind.pop("large.txt")
    assert by_kind == {
        "facts.jsonl": 1, "latin1.txt": 1, "notes": 80, "office": 12, "scans": 30, "web": 76, "wiki": 150,
    }  # fmt: skip
    assert all(count_words(passage.text) <= 180 for passage in passages)
    assert str(report) == f"198 of 200 files read, {report.passages:,} passages kept"


# Indexes of documents


@pytest.mark.slow
async def test_a_folder_is_indexed_searched_changed_and_brought_up_to_date(
    docs: Path, tmp_path: Path
) -> None:
    config, told = IndexConfig([str(docs)], str(tmp_path / "bm25")), list[str]()
    first = build_index(config, told.append)
    assert told[-5:] == [
        f"198 of 200 files read, {first.passages:,} passages kept.",
        "2 file(s) could not be read:\n  broken.pdf: it is damaged, or no PDF (Data format "
        "error): export or download it again.\n  empty.txt: it is empty.",
        "notes on 1 file(s):\n  latin1.txt: not UTF-8: read as cp1252, a guess",
        "seen in 38 file(s) and not read: navigation (38 words); documents.jsonl has the counts of each.",
        "left out of the folders: files of other endings (3), hidden files and folders (2).\n"
        "  2 .png: a picture: recognise its text (OCR), as ocrmypdf does into a .pdf\n"
        "  1 .dwg: there is no reader for it: if it has text, save it as .pdf, .docx, .html or .txt",
    ]
    (hit,) = await search(tmp_path / "bm25", "Esmouth number 172 glass", 1)
    assert (hit.passage.source, hit.passage.page, hit.passage.title) == ("scans/town_172.pdf", 2, "Town 172")
    lucene = await open_retriever(RetrieverConfig([str(tmp_path / "bm25")]))
    async with served(lucene) as url:
        remote = await open_retriever(RetrieverConfig(url=[url]))
        assert [each.passage for each in await remote.search("Esmouth number 172 glass", 1)] == [hit.passage]
        await remote.close()
    await lucene.close()
    again: list[str] = []
    assert build_index(config, again.append) == first
    assert again == [
        f"the index '{config.out}' is already there ({first.passages:,} passages): nothing to do."
    ]

    (docs / "empty.txt").write_text("Zebras live in Zanzibar.")
    (docs / "notes/town_003.txt").write_text("Yaks live in Yakutsk.")
    (docs / "wiki/new.md").write_text("# New\n\nXerus is a squirrel.")
    (docs / "office/town_190.docx").unlink()
    told.clear()
    second = build_index(config, told.append)
    assert told[0] == (
        "since this index was built: 2 changed (empty.txt, notes/town_003.txt), 1 new (wiki/new.md), 1 gone "
        "(office/town_190.docx); unchanged: 197."
    )
    assert second.passages == first.passages + 1 and second.fingerprint != first.fingerprint
    found = {hit.passage.source for hit in await search(tmp_path / "bm25", "Zanzibar Yakutsk xerus")}
    assert found == {"empty.txt", "notes/town_003.txt", "wiki/new.md"}
    assert not [hit for hit in await search(tmp_path / "bm25", "190") if hit.passage.source.endswith("docx")]
    assert not building_folder(tmp_path / "bm25").exists()
    fresh = build_index(replace(config, out=str(tmp_path / "fresh")), ignore)
    assert fresh.fingerprint == second.fingerprint
    for name in (TEXTS, FILES):
        assert (tmp_path / "bm25" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()


@pytest.mark.slow
async def test_a_repeat_comes_back_when_what_it_repeats_is_gone(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    for name in ("a/x.txt", "b/x.txt"):
        (docs / name).parent.mkdir(parents=True)
        (docs / name).write_text("Zebras live in Zanzibar.")
    config = IndexConfig([str(docs)], str(tmp_path / "bm25"))
    assert build_index(config, ignore).passages == 1
    (docs / "a/x.txt").write_text("Yaks live in Yakutsk.")
    assert build_index(config, ignore).passages == 2
    assert [hit.passage.source for hit in await search(tmp_path / "bm25", "zebras")] == ["b/x.txt"]


@pytest.mark.slow
async def test_an_update_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(5):
        (docs / f"{number}.txt").write_text(prose(number, 3))
    config = IndexConfig([str(docs)], str(tmp_path / "bm25"))
    first = build_index(config, ignore)
    # Begun with other files than those that it is finished with.
    begun = replace(first.settings, corpus=first.settings.corpus[:4])
    place = begin_build(Path(config.out), begun, overwrite=False, updates=True)
    (place.building / TEXTS).write_text("torn")
    sources = {hit.passage.source for hit in await search(Path(config.out), prose(2, 1), 9)}
    assert "2.txt" in sources, "the old index is searched meanwhile"
    (docs / "2.txt").write_text("Zebras live in Zanzibar.")
    told: list[str] = []
    assert build_index(config, told.append).passages == 5
    assert told[0].startswith("since this index was built: 1 changed (2.txt); unchanged: 4.")
    fresh = build_index(replace(config, out=str(tmp_path / "fresh")), ignore)
    assert (Path(config.out) / TEXTS).read_bytes() == (tmp_path / "fresh" / TEXTS).read_bytes()
    assert not place.building.exists() and not (Path(config.out) / PROVENANCE).exists()
    assert build_index(config, ignore).fingerprint == fresh.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("faiss", ["flat", "hnsw"])
async def test_vectors_of_unchanged_passages_are_taken_over(tmp_path: Path, faiss: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(30):
        (docs / f"{number:02d}.md").write_text(f"# Town {number}\n\n{prose(number, 5)}\n")
    config = IndexConfig([str(docs)], str(tmp_path / "dense"), kind="dense", faiss=faiss, shard_size=8)  # type: ignore[arg-type]
    build_index(config, ignore)
    (docs / "04.md").write_text("# Zebras\n\nThey live in Zanzibar.\n")
    (docs / "new.md").write_text("# Yaks\n\nThey live in Yakutsk.\n")
    (docs / "09.md").unlink()
    told: list[str] = []
    build_index(config, told.append)
    assert "vectors: 28 taken over, 2 encoded." in told
    build_index(replace(config, out=str(tmp_path / "fresh")), ignore)
    for query in ("animals in Zanzibar", "Which town sold clocks?", "yaks"):
        updated, fresh = [await search(tmp_path / name, query, 5) for name in ("dense", "fresh")]
        assert [hit.passage for hit in updated] == [hit.passage for hit in fresh]
        assert [hit.score for hit in updated] == pytest.approx([hit.score for hit in fresh], abs=1e-5)


@pytest.mark.slow
async def test_an_index_stays_if_none_of_its_documents_can_be_read_any_more(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("Zebras live in Zanzibar.")
    (docs / "b.txt").write_text("")
    config = IndexConfig([str(docs)], str(tmp_path / "bm25"))
    build_index(config, ignore)
    (docs / "a.txt").write_text("")
    with raises_message(DataError):
        build_index(config, ignore)
    assert [hit.passage.source for hit in await search(tmp_path / "bm25", "zebras")] == ["a.txt"]


@pytest.mark.slow
def test_passages_of_an_interrupted_encoding_do_not_count_as_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(10):
        (docs / f"{number}.txt").write_text(prose(number, 3))
    config = IndexConfig([str(docs)], str(tmp_path / "dense"), kind="dense", shard_size=8)
    build_index(config, ignore)
    (docs / "3.txt").write_text("Zebras live in Zanzibar.")
    with monkeypatch.context() as patch:
        patch.setattr("retrieval.index.vectors.build_faiss", None)
        with pytest.raises(TypeError):
            build_index(config, ignore)
    next((building_folder(tmp_path / "dense") / SHARDS).glob("*8.npy")).unlink()
    told: list[str] = []
    build_index(config, told.append)
    assert "vectors: 2 taken over, 0 encoded, 8 of the interrupted build." in told


@pytest.mark.slow
def test_a_further_folder_does_not_make_all_files_strange(tmp_path: Path) -> None:
    for name in ("docs/a.txt", "other/b.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(prose(len(name), 3))
    config = IndexConfig([str(tmp_path / "docs")], str(tmp_path / "bm25"))
    assert build_index(config, ignore).passages == 1
    both = [str(tmp_path / "docs"), str(tmp_path / "other/b.txt")]
    assert build_index(replace(config, corpus=both), ignore).passages == 2
