"""LlamaIndex: ask("Who?", one_step, llm(model, "v1"), search(index, "v1")).

``fingerprint`` says which version it is, for runs that go on: name the model, or what is searched.
"""

from collections.abc import Callable
from typing import Any

from corag import Passage


def search(index: Any, fingerprint: str) -> Callable[..., Any]:
    """Search an index, such as a VectorStoreIndex."""

    async def find(query: str, k: int) -> list[tuple[Passage, float]]:
        nodes = await index.as_retriever(similarity_top_k=k).aretrieve(query)
        return [
            (Passage(each.node_id, str(each.metadata.get("title", "")), each.text), each.score or 0.0)
            for each in nodes
        ]

    find.fingerprint = fingerprint
    return find


def llm(model: Any, fingerprint: str) -> Callable[..., Any]:
    """Ask a model to complete a prompt."""

    async def reply(prompt: str, max_tokens: int, temperature: float) -> str:
        return str((await model.acomplete(prompt, max_tokens=max_tokens, temperature=temperature)).text)

    reply.fingerprint = fingerprint
    return reply
