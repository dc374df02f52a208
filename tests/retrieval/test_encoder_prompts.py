"""What an encoder brings is used: its own prompts reach the tokenizer, for queries and for documents."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corag.core.types import Passage
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.dense.encoder import Encoder
from retrieval.dense.prompts import Prompts, own_prompts, prompts_by_card
from retrieval.index.build import build_index
from retrieval.search.pipeline import open_retriever
from tests.retrieval.conftest import write_jsonl
from tests.tiny import save_tiny_encoder

WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
REPRESENT = "Represent this sentence for searching relevant passages: "
GEMMA = "<instruct>Given a web search query, retrieve relevant passages.\n<query>"
JINA = "Represent the query for retrieving evidence documents: ", "Represent the document for retrieval: "

# The prompts of public encoders' files, and what is to stand before a query and a document.
PUBLISHED: dict[str, tuple[dict[str, Any], str, str]] = {
    "E5, as it is published": ({}, "", ""),
    "E5, saved with its prompts": (
        {"prompts": {"query": "query: ", "passage": "passage: "}}, "query: ", "passage: ",
    ),
    "mxbai": ({"prompts": {"query": REPRESENT, "passage": ""}, "default_prompt_name": None}, REPRESENT, ""),
    "Qwen3": ({"prompts": {"query": WEB_SEARCH.rstrip(), "document": ""}}, WEB_SEARCH.rstrip(), ""),
    "nomic v2": (
        {"prompts": {"query": "search_query: ", "passage": "search_document: ",
                     "Classification": "classification: "}},
        "search_query: ", "search_document: ",
    ),
    "Jina v3": (
        {"prompts": {"retrieval.query": JINA[0], "retrieval.passage": JINA[1], "separation": "",
                     "classification": "", "text-matching": ""}, "default_prompt_name": None},
        *JINA,
    ),
    "BGE-Gemma2": ({"prompts": {"web_search_query": GEMMA}}, GEMMA, ""),
    "Stella": ({"prompts": {"s2p_query": WEB_SEARCH, "s2s_query": "Similar: "}}, WEB_SEARCH, ""),
    "names in capitals": (
        {"prompts": {"Retrieval-query": "Q: ", "Retrieval-document": "D: "}}, "Q: ", "D: ",
    ),
    "a default for everything": (
        {"prompts": {"retrieval": "Represent: "}, "default_prompt_name": "retrieval"},
        "Represent: ", "Represent: ",
    ),
    "the default is the queries'": (
        {"prompts": {"query": "query: "}, "default_prompt_name": "query"}, "query: ", "",
    ),
    "an empty prompt is stated beside a default": (
        {"prompts": {"document": "", "all": "Represent: "}, "default_prompt_name": "all"}, "Represent: ", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_prompts_for_searching_are_known_among_the_models_own(name: str) -> None:
    """sentence-transformers adds an empty "document", and would take it in place of the model's "passage"."""
    settings, query, document = PUBLISHED[name]
    stated = settings.get("prompts", {})
    loaded = {"query": "", "document": "", **stated}
    assert own_prompts(loaded, settings.get("default_prompt_name"), list(stated)) == Prompts(query, document)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], str]:
    """Return a folder with a tiny encoder whose file has these settings."""
    folder = Path(save_tiny_encoder(tmp_path_factory.mktemp("tiny"), {}))
    file = folder / "config_sentence_transformers.json"
    plain = json.loads(file.read_text())

    def save(settings: dict[str, Any]) -> str:
        file.write_text(json.dumps(plain | settings))
        return str(folder)

    return save


@pytest.fixture
def read_ids(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The token ids of every text that a model is given, without padding."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    forward, seen = Transformer.forward, []

    def note(self: Any, features: Any, **options: Any) -> Any:
        for ids, mask in zip(features["input_ids"], features["attention_mask"], strict=True):
            seen.append(ids[mask.bool()].tolist())
        return forward(self, features, **options)

    monkeypatch.setattr(Transformer, "forward", note)
    return seen


PASSAGE = Passage("p", "Tarn Hollow", "Tarn Hollow lies on the river Issel.")
QUERY = "Which river flows through Tarn Hollow?"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["E5, as it is published", "E5, saved with its prompts"])
def test_the_models_own_prompts_reach_the_tokenizer(
    name: str, tiny: Callable[[dict[str, Any]], str], read_ids: list[list[int]], tmp_path: Path
) -> None:
    settings, query, document = PUBLISHED[name]
    encoder = tiny(settings)
    config = IndexConfig(
        [str(write_jsonl(tmp_path / "corpus.jsonl", [PASSAGE]))],
        str(tmp_path / "out"),
        kind="dense",
        encoder=encoder,
    )
    lines: list[str] = []
    manifest = build_index(config, lines.append)
    tokenizer = Encoder(encoder)._model.tokenizer
    assert read_ids == [tokenizer(document + PASSAGE.contents)["input_ids"]]
    assert manifest.settings.detail("query_prefix") == query
    assert manifest.settings.detail("passage_prefix") == document
    message = [line for line in lines if "was trained with prompts" in line]
    assert len(message) == bool(query or document)
    assert all(repr(text) in message[0] for text in (query, document) if text)

    async def search() -> None:
        retriever = await open_retriever(RetrieverConfig([str(tmp_path / "out")]))
        await retriever.search(QUERY, 1)
        await retriever.close()

    del read_ids[:]
    asyncio.run(search())
    assert read_ids == [tokenizer(query + QUERY)["input_ids"]]


@pytest.mark.slow
def test_what_is_given_counts_more_than_what_the_model_brings(
    tiny: Callable[[dict[str, Any]], str], read_ids: list[list[int]], tmp_path: Path
) -> None:
    corpus = str(write_jsonl(tmp_path / "corpus.jsonl", [PASSAGE]))
    encoder = tiny({"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "query"})
    tokenizer = Encoder(encoder)._model.tokenizer
    for number, prefix in enumerate(("", "title and text: ")):
        lines: list[str] = []
        config = IndexConfig([corpus], str(tmp_path / str(number)), kind="dense", encoder=encoder,
                             query_prefix=prefix, passage_prefix=prefix)  # fmt: skip
        manifest = build_index(config, lines.append)
        assert read_ids.pop() == tokenizer(prefix + PASSAGE.contents)["input_ids"]
        assert manifest.settings.detail("query_prefix") == prefix and not any(
            "prompts" in line for line in lines
        )


@pytest.mark.slow
def test_an_encoder_that_is_known_to_want_prompts_and_brings_none_gets_them(tmp_path: Path) -> None:
    corpus = str(write_jsonl(tmp_path / "corpus.jsonl", [PASSAGE]))
    named = Path(save_tiny_encoder(tmp_path)).rename(tmp_path / "e5-small-v2")
    lines: list[str] = []
    manifest = build_index(
        IndexConfig([corpus], str(tmp_path / "a"), kind="dense", encoder=str(named)), lines.append
    )
    assert manifest.settings.detail("query_prefix") == "query: "
    assert manifest.settings.detail("passage_prefix") == "passage: "
    assert any("was trained with prompts, which are used" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [
        ("intfloat/e5-large-v2", "query: ", "passage: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("BAAI/bge-base-en-v1.5", REPRESENT, ""),
        ("BAAI/bge-large-zh-v1.5", "为这个句子生成表示以用于检索相关文章：", ""),
        ("intfloat/multilingual-e5-large-instruct", WEB_SEARCH, ""),
        ("intfloat/e5-mistral-7b-instruct", WEB_SEARCH, ""),
        ("http://localhost:11434/v1#qwen3-embedding:0.6b", WEB_SEARCH.rstrip(), ""),
        ("mixedbread-ai/mxbai-embed-large-v1", REPRESENT, ""),
        ("Snowflake/snowflake-arctic-embed-m-v1.5", REPRESENT, ""),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "query: ", ""),
        ("embeddinggemma:latest", "task: search result | query: ", "title: none | text: "),
    ],
)
def test_what_model_cards_ask_for(name: str, query: str, document: str) -> None:
    assert prompts_by_card(name) == Prompts(query, document)


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "BAAI/bge-m3",
        "models/rose5-base",
    ],
)
def test_no_prompts_are_asked_for_by_other_cards(name: str) -> None:
    assert prompts_by_card(name) is None
