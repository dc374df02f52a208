"""Retrievers and models of other libraries, as their users have them, through four methods.

Each is skipped where its library is not installed: none of them is needed to work on this project. With all::

    pip install langchain-community langchain-openai llama-index-core llama-index-retrievers-bm25 dspy \
        rank_bm25 bm25s
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from corag import (
    CoRAGConfig,
    Question,
    Tools,
    ask,
    closed_book,
    corag,
    ircot,
    one_step,
    open_index,
    run,
)  # fmt: skip
from tests.eval.test_own_methods import served_app

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Kenya": "Nairobi",
    "Peru": "Lima",
}  # fmt: skip
TEXTS = [f"{capital} is the capital of {country}." for country, capital in CAPITALS.items()]
RECORDS = [
    {"id": country, "question": f"Which city is the capital of {country}?", "answers": [capital]}
    for country, capital in CAPITALS.items()
]
METHODS: Any = {
    "closed_book": closed_book, "one_step": one_step, "ircot": ircot,
    "corag": (corag, CoRAGConfig(preset="small_model", max_hops=2)),
}  # fmt: skip


def reply_to(prompt: str) -> str:
    """Know nothing but what the passages say of the country that was named last."""
    named = re.findall("|".join(CAPITALS), prompt)
    told = re.search(rf"(\w+) is the capital of {named[-1]}\.", prompt) if named else None
    return f"So the answer is: {told[1] if told else 'unknown'}."


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return re.findall(r"\w+", text.lower())


def embed(text: str) -> list[float]:
    """Embed a text by its words, hashed into 64 numbers."""
    vector = [0.001] * 64
    for word in words(text):
        vector[hashlib.md5(word.encode()).digest()[0] % 64] += 1.0
    return vector


# Retrievers


def langchain_bm25() -> Any:
    retrievers = pytest.importorskip("langchain_community.retrievers")
    pytest.importorskip("rank_bm25")
    return retrievers.BM25Retriever.from_texts(TEXTS, preprocess_func=words)


def langchain_vector_store() -> Any:
    stores = pytest.importorskip("langchain_core.vectorstores")
    from langchain_core.embeddings import Embeddings

    class Hashed(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return list(map(embed, texts))

        def embed_query(self, text: str) -> list[float]:
            return embed(text)

    return stores.InMemoryVectorStore.from_texts(TEXTS, Hashed())


def llama_index_bm25() -> Any:
    bm25 = pytest.importorskip("llama_index.retrievers.bm25")
    from llama_index.core.schema import TextNode

    nodes = [TextNode(text=text, id_=f"node {number}") for number, text in enumerate(TEXTS)]
    return bm25.BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=2)


def llama_index_vectors() -> Any:
    core = pytest.importorskip("llama_index.core")
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.schema import TextNode

    class Hashed(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return embed(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return embed(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return embed(text)

    nodes = [TextNode(text=text, id_=f"node {number}") for number, text in enumerate(TEXTS)]
    return core.VectorStoreIndex(nodes, embed_model=Hashed())


def dspy_embeddings() -> Any:
    dspy = pytest.importorskip("dspy")
    import numpy as np

    return dspy.Embeddings(corpus=TEXTS, embedder=lambda texts: np.array(list(map(embed, texts))), k=6)


def rank_bm25_function() -> Any:
    rank_bm25 = pytest.importorskip("rank_bm25")
    bm25 = rank_bm25.BM25Okapi([words(text) for text in TEXTS])
    return lambda query, k: bm25.get_top_n(words(query), TEXTS, n=k)


def bm25s_function() -> Any:
    bm25s = pytest.importorskip("bm25s")
    bm25 = bm25s.BM25(corpus=TEXTS)
    bm25.index(bm25s.tokenize(TEXTS, show_progress=False), show_progress=False)

    def search(query: str, k: int) -> Any:
        tokens = bm25s.tokenize(query, show_progress=False)
        return bm25.retrieve(tokens, k=min(k, len(TEXTS)), show_progress=False)

    return search


RETRIEVERS = (
    langchain_bm25, langchain_vector_store, llama_index_bm25, llama_index_vectors, dspy_embeddings,
    rank_bm25_function, bm25s_function, lambda: TEXTS,
)  # fmt: skip


# Models

REQUESTS: list[dict[str, Any]] = []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that speaks OpenAI's protocol and replies with ``reply_to``."""

    async def complete(request: Request) -> JSONResponse:
        body = await request.json()
        REQUESTS.append(body)
        prompt = "\n\n".join(each["content"] for each in body["messages"])
        message = {"role": "assistant", "content": reply_to(prompt)}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
        if body.get("logprobs"):
            sent = re.findall(r"\s*\S+", message["content"])
            tokens = [{"token": word, "logprob": -0.5, "bytes": None, "top_logprobs": []} for word in sent]
            choice["logprobs"] = {"content": tokens}
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 5, "total_tokens": 0}
        return JSONResponse(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [choice],
                "usage": usage,
            }
        )

    app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    with served_app(app) as url:
        yield f"{url}/v1"


def langchain_chat_openai(url: str) -> Any:
    langchain_openai = pytest.importorskip("langchain_openai")
    return langchain_openai.ChatOpenAI(model="m", base_url=url, api_key="none", max_retries=0)


def langchain_chat_model(url: str) -> Any:
    models = pytest.importorskip("langchain_core.language_models.chat_models")
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Reader(models.BaseChatModel):
        temperature: float = 1.0

        @property
        def _llm_type(self) -> str:
            return "reader"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            assert self.temperature in (0, 0.7), "what a method asks for; repeated sub-queries are sampled"
            text = reply_to("\n\n".join(str(each.content) for each in messages))
            return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    return Reader()


def langchain_llm(url: str) -> Any:
    models = pytest.importorskip("langchain_core.language_models.llms")

    class Reader(models.LLM):
        @property
        def _llm_type(self) -> str:
            return "reader"

        def _call(self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> str:
            return reply_to(prompt)

    return Reader()


def langchain_chain(url: str) -> Any:
    pytest.importorskip("langchain_openai")
    from langchain_core.output_parsers import StrOutputParser

    return langchain_chat_openai(url) | StrOutputParser()


def llama_index_llm(url: str) -> Any:
    llms = pytest.importorskip("llama_index.core.llms")

    class Reader(llms.CustomLLM):
        @property
        def metadata(self) -> Any:
            return llms.LLMMetadata(model_name="reader")

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return llms.CompletionResponse(text=reply_to(prompt))

        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            yield llms.CompletionResponse(text=reply_to(prompt))

    return Reader()


def dspy_lm(url: str) -> Any:
    dspy = pytest.importorskip("dspy")
    return dspy.LM("openai/m", api_base=url, api_key="none", num_retries=0, temperature=0.3, max_tokens=99)


MODELS = (
    langchain_chat_openai, langchain_chat_model, langchain_llm, langchain_chain, llama_index_llm, dspy_lm,
    lambda url: reply_to,
)  # fmt: skip


def check(model: Any, index: Any, out: Path) -> None:
    """Answer with four methods, see the table and the report, and resume."""
    with open_index(index) as opened:
        results = run(RECORDS, METHODS, model, opened, out=out)
        page = results.report(out / "report.html", opened)
    frame = results.to_pandas()
    assert not any(frame.error)
    em = {name: round(rows.em.mean(), 2) for name, rows in frame.groupby("run")}
    print("figures:", json.dumps(em), "tokens:", int(frame.tokens.sum()))  # pytest -s shows them
    assert em["closed_book"] == 0 and em["one_step"] == em["ircot"] == em["corag"] == 1, (
        "the passages tell it"
    )
    assert page.stat().st_size > 20_000 and "one_step" in str(results.compare("closed_book"))
    before = {name: (path / "traces.jsonl").read_bytes() for name, path in results.runs.items()}
    again = run(RECORDS, METHODS, model, index, out=out)
    assert before == {name: (path / "traces.jsonl").read_bytes() for name, path in again.runs.items()}


@pytest.mark.parametrize("make", RETRIEVERS, ids=lambda each: each.__name__)
def test_retrievers_of_other_libraries_are_searched(make: Callable[[], Any], tmp_path: Path) -> None:
    index = make()
    answer = ask(RECORDS[0]["question"], one_step, reply_to, index, k=4)
    assert len(answer.passages) == 4, "as many as the method asks for"
    assert answer.passages[0].text == TEXTS[0], "the best first"
    check(reply_to, index, tmp_path)


@pytest.mark.parametrize("make", MODELS, ids=lambda each: each.__name__)
def test_models_of_other_libraries_are_asked(make: Callable[[str], Any], server: str, tmp_path: Path) -> None:
    check(make(server), TEXTS, tmp_path)


@pytest.mark.parametrize("make", [langchain_chat_openai, dspy_lm], ids=lambda each: each.__name__)
def test_samples_are_drawn_each_by_itself(make: Callable[[str], Any], server: str) -> None:
    async def sample(question: Question, tools: Tools) -> str:
        await tools.generate("Who?", role="sample", max_tokens=9, temperature=0.7, n=3, stop=["."])
        return "done"

    REQUESTS.clear()
    for _ in range(2):
        assert ask("Who?", sample, make(server)).text == "done"
    drawn = 3 if make is dspy_lm else 6  # DSPy remembers a sample by its seed, which is ours
    assert len(REQUESTS) == drawn and {each["temperature"] for each in REQUESTS} == {0.7}
    assert {each.get("max_tokens") or each["max_completion_tokens"] for each in REQUESTS} == {9}


def test_log_probabilities_of_openai_are_read(server: str) -> None:
    answer = ask(RECORDS[0]["question"], "flare", langchain_chat_openai(server), TEXTS)
    assert "Paris" in answer.text and not answer.error
