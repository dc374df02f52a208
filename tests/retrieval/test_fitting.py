"""Passages as long as the encoder reads: --passage_words auto."""

from pathlib import Path

import pytest

from corag.core.language.words import count_words
from corag.core.types import Passage
from retrieval.config import IndexConfig
from retrieval.dense.encoder import Encoder
from retrieval.dense.fitting import fitting_words, split_to_fit
from retrieval.index.build import build_index
from retrieval.index.store import PassageStore
from tests.retrieval.conftest import static_encoder
from tests.tiny import save_tiny_encoder

pytestmark = pytest.mark.slow

PROSE = " ".join(f"Town number {n} lies on the river Issel, and has {n} bridges." for n in range(200))
TEXTS = {
    "prose": PROSE,
    "German": " ".join(
        f"Die Wasserwirtschaftsverwaltung {n} genehmigt Grundwasserentnahmen." for n in range(90)
    ),
    "numbers": "\n".join(f"{n * 7919 % 100003}.{n} | {n * 104729 % 65537}-{n}" for n in range(300)),
    "Chinese": "".join(f"第{n}图书馆每天早上八点开门，晚上十点关门。" for n in range(60)),
    "a word": "/a" * 50,
    "one long sentence": " ".join(f"and then {n}" for n in range(300)),
}


@pytest.fixture(scope="module")
def short_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder that reads 64 tokens, and has a prompt for documents."""
    settings = {"prompts": {"query": "query: ", "passage": "passage: "}}
    return save_tiny_encoder(tmp_path_factory.mktemp("short"), settings, max_tokens=64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in TEXTS.items():
        (docs / f"{name}.txt").write_text(text, encoding="utf-8")
    return docs


def build(docs: Path, out: Path, encoder: str, **options: object) -> tuple[list[str], list[Passage]]:
    lines: list[str] = []
    build_index(IndexConfig([str(docs)], str(out), kind="dense", encoder=encoder, **options), lines.append)  # type: ignore[arg-type]
    store = PassageStore(out)
    passages = list(store.rows(0, len(store)))
    store.close()
    return lines, passages


def test_with_auto_the_encoder_reads_every_passage_whole(
    folder: Path, short_encoder: str, tmp_path: Path
) -> None:
    lines, _ = build(folder, tmp_path / "usual", short_encoder)
    (cut,) = [line for line in lines if "longer than the 64 tokens" in line]
    assert cut.endswith("Add passage_words=auto, and passages are cut to what it reads.")
    encoder = Encoder(short_encoder)
    lines, passages = build(folder, tmp_path / "auto", short_encoder, passage_words="auto")
    tokens = encoder.count_tokens(f"passage: {passage.contents}" for passage in passages)
    too_long = {passage.source for passage, count in zip(passages, tokens, strict=True) if count > 64}
    assert too_long == {"a word.txt"}, "a word cannot be cut"
    (cut,) = [line for line in lines if "longer than the 64 tokens" in line]
    assert cut.startswith("1 of ")
    for name, text in TEXTS.items():
        texts = [passage.text for passage in passages if passage.source == f"{name}.txt"]
        assert "".join("".join(texts).split()) == "".join(text.split()), f"{name}: nothing is lost"
    prose = [count_words(passage.text) for passage in passages if passage.source == "prose.txt"]
    assert min(prose) >= 15, "none of them is a short rest"
    lines, again = build(folder, tmp_path / "auto", short_encoder, passage_words="auto")
    assert again == passages and "nothing to do" in lines[-1]


def test_how_many_words_follows_from_the_encoder_alone(short_encoder: str, tmp_path: Path) -> None:
    assert fitting_words(Encoder(short_encoder), "") == int(0.6 * 62)
    assert fitting_words(Encoder(short_encoder), "passage: ") == int(0.6 * 60)
    assert fitting_words(Encoder("default"), "") == 152
    assert fitting_words(Encoder("default", 250), "") < 152
    assert fitting_words(Encoder(static_encoder(tmp_path / "static")), "") == 180, "it reads any length"


def test_what_fits_stays_as_it_is(short_encoder: str) -> None:
    short, blank = Passage("s", "Title", "Two words.", "a.pdf", 3), Passage("b", "", "")
    assert list(split_to_fit([short, blank], Encoder(short_encoder), "")) == [short, blank]
    (first, *rest) = split_to_fit([Passage("l", "Title", PROSE, "a.pdf", 3)], Encoder(short_encoder), "")
    assert rest and {(each.title, each.source, each.page) for each in (first, *rest)} == {
        ("Title", "a.pdf", 3)
    }
    assert len({each.id for each in (first, *rest)}) == len(rest) + 1
