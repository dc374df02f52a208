"""A site's navigation is left out of its pages, counted, and nothing that only one page says is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from corag.core.types import Passage
from retrieval.corpora.formats import read_corpus
from retrieval.corpora.sifting import CorpusReport
from retrieval.documents.document import Block, Document
from retrieval.documents.passages import Cutting
from retrieval.documents.reading import DocumentCorpus, EarlierIndex, write_reports
from retrieval.documents.site import REPEATED_NAVIGATION, Site, choose_sample, group_pages
from retrieval.index.store import storing

_MENU = "<div class=menu><ul><li><a href=/>Home</a><li><a href=/shop>Our shop</a></ul></div>"
_FOOT = "<div><a href=/imprint>Imprint</a> <a href=/jobs>Jobs</a></div><div>© Acme, call 555-0199</div>"


def write_pages(folder: Path, count: int, menu: str = _MENU, foot: str = _FOOT) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        text = f"<h1>Town {number}</h1><p>It has {number} mills.</p><p>Salt and rope.</p>"
        (folder / f"{number:03d}.html").write_text(f"<body>Acme atlas{menu}{text}{foot}</body>")


def texts_of(folder: Path, report: CorpusReport) -> dict[str, str]:
    texts: dict[str, str] = {}
    for passage in read_corpus([folder], "documents", report):
        texts[passage.source] = f"{texts.get(passage.source, '')}\n{passage.text}".strip()
    return texts


def test_menus_are_left_out_of_all_pages_and_other_repeats_stay_in_one(tmp_path: Path) -> None:
    write_pages(tmp_path, 60)
    report = CorpusReport()
    texts = texts_of(tmp_path, report)
    whole = [name for name, text in texts.items() if "555-0199" in text]
    assert len(whole) == 1 and texts[whole[0]].startswith("Acme atlas")
    for number, (name, text) in enumerate(texts.items()):
        assert "Home" not in text and "Imprint" not in text
        if name not in whole:
            assert text == f"It has {number} mills.\nSalt and rope."
    counts = {file.left_out[REPEATED_NAVIGATION] for file in report.files if file.file not in whole}
    assert counts == {2 + 2 + 3 + 2 + 4}
    (note,) = DocumentCorpus([tmp_path]).notes(report)
    assert note.startswith(f"left out of the text of 60 file(s): {REPEATED_NAVIGATION} (")


def test_a_few_pages_and_pages_of_other_sites_keep_what_they_have(tmp_path: Path) -> None:
    write_pages(tmp_path / "a", 3)
    for number in range(5):
        write_pages(tmp_path / "b" / str(number), 1, _MENU.replace("shop", f"shop {number}"), "")
    texts = texts_of(tmp_path, CorpusReport())
    assert all("Our shop" in text for text in texts.values())
    assert sum("- Home" in text for text in texts.values()) == 3


def test_copies_of_a_document_are_no_navigation() -> None:
    blocks = tuple(Block(f"Rule {number} says that whoever comes must pay for it.") for number in range(9))
    pages = {f"v{version}": Document("T", (*blocks, Block(f"Version {version}."))) for version in range(6)}
    site = Site.compare(pages)
    assert site.texts
    assert all(site.trim(page, name) == page for name, page in pages.items())
    menu = Document("T", (Block("Home", linked=True),))
    assert Site.compare(dict.fromkeys("abcdef", menu)).trim(menu, "b") == menu


def test_pages_are_compared_where_they_part() -> None:
    assert group_pages([]) == {}
    assert group_pages(["x/a.html", "x/b.html"]) == {"x/a.html": "", "x/b.html": ""}
    assert group_pages(["x/a.html", "x/y/b.html"]) == {"x/a.html": "", "x/y/b.html": "y"}
    names = [f"{number}.html" for number in range(500)]
    fewer = set(choose_sample(names[:-10]))
    assert len(fewer) == 40 and len(fewer & set(choose_sample(names))) > 35


def test_an_update_gives_what_a_fresh_index_would(tmp_path: Path) -> None:
    """When what the pages repeat has changed, pages that have not are read again."""

    def build(name: str, earlier: EarlierIndex | None) -> Mapping[str, str]:
        folder, report = tmp_path / name, CorpusReport()
        folder.mkdir()
        corpus = DocumentCorpus([tmp_path / "docs"], Cutting())
        texts: dict[str, str] = {}

        def counted() -> Iterator[Passage]:
            for passage in corpus.passages(report, earlier):
                report.passages += 1
                texts[passage.id] = passage.text
                yield passage

        list(storing(counted(), folder))
        write_reports(folder, report.files)
        return texts

    write_pages(tmp_path / "docs", 8)
    build("first", None)
    for number in range(8, 30):
        page = tmp_path / "docs" / f"{number:03d}.html"
        page.write_text(f"<h1>Town {number}</h1>{_MENU if number % 2 else ''}<p>It has {number} mills.</p>")
    updated = build("second", EarlierIndex(tmp_path / "first"))
    assert updated == build("fresh", None)
