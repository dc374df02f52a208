"""BM25 in other languages than English, and queries that are longer than a retriever reads.

An index's analyser is that of its searches; what does not fit is said.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.protocols import NotedHits, Retriever, search_note
from corag.core.types import Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.index.manifest import IndexManifest
from retrieval.lucene.languages import (
    LANGUAGES,
    ScriptCounter,
    check_language,
    count_terms,
    open_analyzer,
    prepare,
)
from retrieval.search.pipeline import open_retriever

TEXTS = {
    "de": ("Die Häuser stehen am Fluss.", "Am Berg wächst Wein.", "Haus"),
    "zh": ("杭州是浙江省的省会，位于钱塘江边。", "这座山上种葡萄。", "浙江的省会"),
    "ja": ("東京は日本の首都です。", "山で葡萄を作っています。", "日本の首都"),
    "ko": ("서울은 한국의 수도이다.", "산에서 포도를 기른다.", "한국 수도"),
    "th": ("เชียงใหม่เป็นเมืองที่ใหญ่ที่สุดในภาคเหนือ", "บนภูเขามีไร่องุ่น", "เมืองใหญ่ภาคเหนือ"),
    "km": ("ភ្នំពេញជារាជធានីនៃប្រទេសកម្ពុជា", "នៅលើភ្នំមានទំពាំងបាយជូរ", "រាជធានីនៃប្រទេស"),
    "ar": ("تقع المدينة على ضفة النهر الكبير.", "ينمو العنب على الجبل.", "مدينة والنهر"),
    "hi": ("दिल्ली भारत की राजधानी है।", "पहाड़ पर अंगूर उगते हैं।", "भारत राजधानी"),
    "ru": ("Города стоят на большой реке.", "На горе растёт виноград.", "город у реки"),
    "el": ("Οι πόλεις βρίσκονται στο ποτάμι.", "Στο βουνό φυτρώνει σταφύλι.", "πόλη"),
    "standard": ("Bæjarins hús standa við ána.", "Vínviður vex á fjallinu.", "hús"),
}


def build(folder: Path, texts: list[str], **options: object) -> tuple[str, IndexManifest, list[str]]:
    corpus, reports = folder / "corpus.jsonl", list[str]()
    corpus.write_text(
        "".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts))
    )
    config = IndexConfig([str(corpus)], str(folder / "index"), **options)  # type: ignore[arg-type]
    return str(folder / "index"), build_index(config, reports.append), reports


async def found(retriever: Retriever, query: str) -> list[str]:
    return [hit.passage.id for hit in await retriever.search(query, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("language", TEXTS)
async def test_an_index_is_searched_by_its_own_languages_analyser(language: str, tmp_path: Path) -> None:
    *texts, query = TEXTS[language]
    index, manifest, reports = build(tmp_path, texts, language=language)
    assert manifest.settings.detail("language") == language
    assert len(reports) == 1, "nothing is said of a text that fits"
    retriever = await open_retriever(RetrieverConfig([index]))
    assert await found(retriever, query) == ["0"]
    (passage,) = await retriever.passages(["0"])
    assert passage.text == texts[0], "the passage itself stays as it was"
    await retriever.close()
    with pytest.raises(IndexMismatchError, match="was built with the analyser for"):
        await open_retriever(RetrieverConfig([index], language="en"))


@pytest.mark.slow
async def test_what_the_english_analyser_does_not_fit_is_said(tmp_path: Path) -> None:
    index, manifest, reports = build(tmp_path, list(TEXTS["ja"][:2]))
    note = (
        "100% of the letters are Hiragana, Chinese characters, but the analyser is for English: index with "
        "language=ja (Japanese)."
    )
    assert reports[1:] == [note] and manifest.notes[1:] == (note,)
    assert manifest.settings.details == (("format", "jsonl"),), "an English index is what it was"
    retriever = await open_retriever(RetrieverConfig([index]))
    await retriever.close()


@pytest.mark.parametrize(
    ("texts", "language", "note"),
    [
        (["Oslo lies on a fjord."], "en", ""),
        (["Tokyo (東京) is the capital of Japan, a country of islands."], "en", ""),
        (["杭州是浙江省的省会。"], "zh", ""),
        (["杭州是浙江省的省会。"], "en", "language=zh (Chinese) or ja (Japanese) or ko (Korean)."),
        (
            ["Москва стоит на реке."],
            "en",
            "100% of the letters are Cyrillic, but the analyser is for English",
        ),
        (["Oslo lies on a fjord."], "ru", "and the code of their language, such as en"),
        (["ქალაქი მდინარეზე"], "en", "language=standard (the words as they stand)"),
        (["杭州是浙江省的省会。", "Москва"], "standard", ""),
        (["1998, 2001"], "en", ""),
    ],
)
def test_letters_are_counted_by_script(texts: list[str], language: str, note: str) -> None:
    counter = ScriptCounter()
    passages = [Passage(text, "", text) for text in texts]
    assert list(counter.watch(passages)) == passages
    said = counter.analyzer_note(language)
    assert note in said and bool(note) == bool(said)
    assert bool(counter.encoder_note()) == (texts[0][0] not in "OT1")


def test_texts_are_composed_and_words_set_apart_where_lucene_cannot() -> None:
    assert prepare("Zu\u0308rich", "de") == "Z\u00fcrich"
    assert prepare("រាជធានីនៃប្រទេស", "km") == "រាជធានី នៃ ប្រទេស"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("chinese", "did you mean 'zh'?"),
        ("zh-CN", "did you mean 'zh'?"),
        ("xx", r"Known: en \(English\), ar"),
    ],
)
def test_an_unknown_language_is_refused_with_the_right_one(code: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_language(code)
    with pytest.raises(ConfigError, match="no analyser for the language"):
        IndexConfig([], "", language=code)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_analyser_is_there(language: str) -> None:
    if language != "en":
        assert count_terms(open_analyzer(language), "one two") == 2


@pytest.mark.slow
@pytest.mark.parametrize("bm25", ["pyserini", "ircot"])
async def test_a_query_of_too_many_terms_is_searched_by_its_first_ones(
    index_of: Callable[[str], str], bm25: str
) -> None:
    from eval.experiment import extensions  # noqa: F401 - the preset of IRCoT

    retriever = await open_retriever(RetrieverConfig([index_of("bm25")], bm25=bm25))
    padding = " ".join(f"w{number}" for number in range(1_023))
    short = await retriever.search(f"Corvane {padding}", 3)
    assert short and search_note(short) == "", "1,024 terms are not too many, in two fields either"
    long = await retriever.search(f"Corvane {padding} Town07 mayor", 3)
    assert tuple(long) == tuple(short)
    assert search_note(long) == (
        "BM25 searched for the first 1,024 of the query's 1,026 words: Lucene takes 1,024 different terms"
    )
    repeated = await retriever.search("Corvane " * 5_000, 3)
    assert repeated and search_note(repeated) == "", "it is different terms that count"
    unspaced = await retriever.search("Corvane," + ",".join(f"w{number}" for number in range(2_000)), 3)
    assert [hit.passage.id for hit in unspaced] == [hit.passage.id for hit in short]
    assert isinstance(unspaced, NotedHits)
    await retriever.close()


@pytest.mark.slow
async def test_a_query_longer_than_a_model_reads_is_said(
    index_of: Callable[[str], str], tiny_reranker: str
) -> None:
    retriever = await open_retriever(RetrieverConfig([index_of("dense")]))
    assert search_note(await retriever.search("bridge " * 40, 2)) == ""
    assert search_note(await retriever.search("bridge " * 400, 2)) == (
        "the encoder read the first 256 of the query's 402 tokens"
    )
    await retriever.close()
    reranked = await open_retriever(
        RetrieverConfig([index_of("bm25")], reranker=tiny_reranker, rerank_depth=5)
    )
    assert search_note(await reranked.search("bridge " * 40, 2)) == ""
    assert search_note(await reranked.search("bridge " * 400, 2)) == (
        "the re-ranker reads 512 tokens of query and passage together; the query has 402"
    )
    await reranked.close()
    fused = await open_retriever(RetrieverConfig([index_of("bm25"), index_of("dense")]))
    query = " ".join(f"w{number}" for number in range(1_500))
    assert search_note(await fused.search(query, 2)).count(";") == 1, "each index has its own limit"
    assert search_note(await fused.search(query, 2)).count(";") == 1, "and remembered hits keep what was said"
    await fused.close()
