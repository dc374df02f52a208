"""A retriever with ``retrieve(query, top_k)`` beside a generator with ``generate(prompt)``.

A generator goes as it is: ask("Who?", one_step, generator, search(retriever, "v1")).
``fingerprint`` says which version it is, for runs that go on.
"""

from collections.abc import Callable
from typing import Any


def search(retriever: Any, fingerprint: str) -> Callable[..., Any]:
    """Search; it returns texts, records ({"id": ..., "title": ..., "text": ...}), or pairs with a score."""

    def find(query: str, k: int) -> Any:
        return retriever.retrieve(query, top_k=k)

    find.fingerprint = fingerprint
    return find
