"""The service's addresses, and the right one for a wrong one."""

from __future__ import annotations

from collections.abc import Mapping

ADDRESSES: Mapping[str, str] = {
    "/v1": "GET",
    "/v1/models": "GET",
    "/v1/chat/completions": "POST",
    "/v1/answers": "GET",
    "/v1/passages": "GET",
    "/mcp": "GET, POST, DELETE",
}
_ID_ALONE = ("/v1/answers", "/v1/passages")
_WITH_ID = ("/v1/models", *_ID_ALONE)
# Endings of addresses that others have, with what is there in their place.
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("api/chat", "api/generate", "api/tags", "api/show", "api/version"),
        "Ollama's protocol is not spoken here: choose OpenAI's, with a base address that ends in /v1",
    ),
    "messages": "Anthropic's protocol is not spoken here: choose OpenAI's, with a base address that ends in "
    "/v1",
    "responses": "OpenAI's responses are not spoken here: choose its chat completions",
    "embeddings": "no embeddings are made here: name another service for them",
    "rerank": "nothing is ranked here: name another service for it",
    "moderations": "nothing is moderated here: name another service for it",
    "speech": "no audio is made here: name another service for it",
    "transcriptions": "no audio is read here: name another service for it",
    "generations": "no images are made here: name another service for them",
}


def allowed_methods(path: str) -> str:
    """Return the methods that an address takes, as an Allow header has them; "" if there is no such address.

    >>> allowed_methods("/v1/models/corag"), allowed_methods("/v1/chat/completions"), allowed_methods("/v2")
    ('GET, HEAD, OPTIONS', 'POST, HEAD, OPTIONS', '')
    """
    address = next((each for each in _WITH_ID if path.startswith(f"{each}/")), path.rstrip("/"))
    if address not in ADDRESSES:
        return ""
    return f"{ADDRESSES[address]}, HEAD, OPTIONS"


def wrong_address(path: str) -> str:
    """Return a sentence on an address where nothing is. It never repeats what the caller wrote.

    >>> wrong_address("/v1/v1/chat/completions")
    'there is nothing at this address: write /v1/chat/completions (a base address ends in one /v1).'
    """
    parts = [part for part in path.lower().split("/") if part]
    for address in sorted(ADDRESSES, key=len, reverse=True):
        words = address.removeprefix("/v1").strip("/").split("/")
        if words == [""]:
            continue
        for end in range(len(parts), len(words) - 1, -1):
            # An id may stand behind some of them, but nothing behind the others.
            if parts[end - len(words) : end] == words and (end == len(parts) or address in _WITH_ID):
                behind = "/ID" if end < len(parts) or address in _ID_ALONE else ""
                base = " (a base address ends in one /v1)" if address.startswith("/v1") else ""
                return f"there is nothing at this address: write {address}{behind}{base}."
    tail = "/".join(parts)
    for ending, sentence in _ELSEWHERE.items():
        if tail.endswith(ending):
            return f"there is nothing at this address: {sentence}."
    return (
        "there is nothing at this address: questions go to /v1/chat/completions, /v1/models lists the "
        "presets, agents use /mcp."
    )
