"""LangChain: ask("Who?", one_step, llm(chat_model, "v1"), search(retriever, "v1")).

``fingerprint`` says which version it is, for runs that go on: name the model, or what is searched.
"""

from collections.abc import Callable
from typing import Any

from corag import Passage


def search(retriever: Any, fingerprint: str) -> Callable[..., Any]:
    """Search what has ``ainvoke``; one of a vector store (``store.as_retriever()``) is given how many."""

    async def find(query: str, k: int) -> list[Passage]:
        documents = (await retriever.ainvoke(query, k=k))[:k]
        return [
            Passage(each.id or each.page_content, str(each.metadata.get("title", "")), each.page_content)
            for each in documents
        ]

    find.fingerprint = fingerprint
    return find


def llm(model: Any, fingerprint: str) -> Callable[..., Any]:
    """Ask a chat model."""

    async def reply(messages: Any, max_tokens: int, temperature: float, stop: list[str]) -> str:
        options = {"max_tokens": max_tokens, "temperature": temperature, "stop": stop or None}
        return str((await model.ainvoke(messages, **options)).text)

    reply.fingerprint = fingerprint
    return reply
