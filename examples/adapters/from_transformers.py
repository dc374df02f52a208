"""A bare pipeline of transformers: ask("Who?", closed_book, llm(pipeline("text-generation"), "v1")).

``fingerprint`` says which version it is, for runs that go on. ``open_model("NAME", backend="transformers")``
does more: batches, scores, adapters, seeds.
"""

from collections.abc import Callable
from typing import Any


def llm(generate: Any, fingerprint: str) -> Callable[..., Any]:
    """Ask a pipeline of a chat model."""

    def reply(messages: Any, max_tokens: int, temperature: float) -> str:
        sampling = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
        replies = generate(messages, max_new_tokens=max_tokens, return_full_text=False, **sampling)
        return str(replies[0]["generated_text"])

    reply.fingerprint = fingerprint
    return reply
