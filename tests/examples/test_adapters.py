"""The adapters of other libraries, with objects as these make them; each needs its library."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from corag import ask, ircot, one_step, run

ADAPTERS = Path(__file__).parents[2] / "examples" / "adapters"
TEXTS = ["Paris is the capital of France.", "Rome is the capital of Italy.", "Lyon is a city in France."]
ASKED = "What is the capital of France?"
RECORDS = [{"id": str(n), "question": f"{ASKED} ({n})", "answers": ["Paris"]} for n in range(3)]


def adapter(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ADAPTERS / f"from_{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def embed(text: str) -> list[float]:
    """Tell the three texts and questions about them apart."""
    return [float(word in text) for word in ("Paris", "France", "Italy", "capital")] + [0.1]


def check(model: Any, index: Any, out: Path) -> None:
    """Answer, sample and resume, by the adapter's fingerprint."""
    answer = ask(ASKED, one_step, model, index, k=2)
    assert answer.text == "Paris" and answer.passages[0].text == TEXTS[0] and len(answer.passages) == 2
    results = run(RECORDS, [one_step, ircot], model, index, out=out)
    assert not any(results.to_pandas().error)
    before = {name: (path / "traces.jsonl").read_bytes() for name, path in results.runs.items()}
    again = run(RECORDS, [one_step, ircot], model, index, out=out)
    assert before == {name: (path / "traces.jsonl").read_bytes() for name, path in again.runs.items()}
    assert ":v1" in (results.runs["one_step"] / "manifest.json").read_text()


def test_langchain(tmp_path: Path) -> None:
    models = pytest.importorskip("langchain_core.language_models.chat_models", reason="needs langchain-core")
    from langchain_core.embeddings import Embeddings
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.vectorstores import InMemoryVectorStore

    class Hashed(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return list(map(embed, texts))

        def embed_query(self, text: str) -> list[float]:
            return embed(text)

    class Reader(models.BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "reader"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
            assert options["max_tokens"] > 0 and options["temperature"] == 0
            return ChatResult(generations=[ChatGeneration(message=AIMessage("So the answer is: Paris."))])

    store = InMemoryVectorStore.from_texts(TEXTS, Hashed())
    langchain = adapter("langchain")
    check(langchain.llm(Reader(), "v1"), langchain.search(store.as_retriever(), "v1"), tmp_path)


def test_llama_index(tmp_path: Path) -> None:
    core = pytest.importorskip("llama_index.core", reason="needs llama-index-core")
    from llama_index.core import llms
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.schema import TextNode

    class Hashed(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return embed(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return embed(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return embed(text)

    class Reader(llms.CustomLLM):
        @property
        def metadata(self) -> Any:
            return llms.LLMMetadata(model_name="reader")

        def complete(self, prompt: str, formatted: bool = False, **options: Any) -> Any:
            assert options["max_tokens"] > 0
            return llms.CompletionResponse(text="So the answer is: Paris.")

        def stream_complete(self, prompt: str, formatted: bool = False, **options: Any) -> Any:
            yield self.complete(prompt, formatted, **options)

    index = core.VectorStoreIndex([TextNode(text=text) for text in TEXTS], embed_model=Hashed())
    llama_index = adapter("llama_index")
    check(llama_index.llm(Reader(), "v1"), llama_index.search(index, "v1"), tmp_path)


def test_other_names(tmp_path: Path) -> None:
    class Generator:
        fingerprint = "v1"

        def generate(self, prompt: str) -> str:
            return "So the answer is: Paris."

    class Retriever:
        def retrieve(self, query: str, top_k: int) -> list[dict[str, Any]]:
            return [{"id": str(place), "text": text, "score": 1.0} for place, text in enumerate(TEXTS)][
                :top_k
            ]

    check(Generator(), adapter("other_names").search(Retriever(), "v1"), tmp_path)


@pytest.mark.slow
def test_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    from corag.generation.models import model_folder

    generate = transformers.pipeline("text-generation", model=model_folder("default"), dtype="float32")
    answer = ask(
        ASKED, one_step, adapter("transformers").llm(generate, "v1"), lambda query, k: TEXTS[:k], k=1
    )
    assert "Paris" in answer.text and not answer.error, answer.error
