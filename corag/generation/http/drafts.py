"""Requests that show whether a vLLM server forces tokens into the right replies while it drafts.

With speculative decoding a request has a row for each draft token, and a plug-in that takes the place of a
request in the batch for its row forces other requests' tokens. A single short prompt shows nothing of it: it
meets no draft, and has the first row. So several replies are forced at once, behind prompts whose repetition
is what drafts are taken from, and parts of the targets go on as the prompts do.
"""

from __future__ import annotations

from typing import Any

from corag.core.replies import list_at, value_at
from corag.generation.forced import FORCED_TOKENS

_PHRASE = (5, 6, 8, 9)
_TIMES = 15
# Each follows the prompt for a while, where a draft fits, and leaves it for what no model would write there.
_TARGETS = ((5, 6, 8, 9, 5, 7, 3, 7), (7, 5, 6, 8, 9, 5, 6, 3), (3, 7, 3, 5, 6, 8, 7, 9))


def bodies(model: str) -> list[dict[str, Any]]:
    """Return completions to send at the same time; each holds what it must generate."""
    return [
        {
            "model": model,
            "prompt": [*_PHRASE * _TIMES],
            "max_tokens": len(target),
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "vllm_xargs": {FORCED_TOKENS: list(target)},
        }
        for target in _TARGETS
    ]


def is_as_forced(body: dict[str, Any], reply: Any) -> bool:
    """Whether a reply generated what its request forced."""
    ids = list_at(value_at(reply, "choices", 0, kind=dict), "token_ids", kind=int)
    forced_ids: list[int] = body["vllm_xargs"][FORCED_TOKENS]
    return list(ids) == forced_ids
