"""Thoughts of models behind servers that fill in the chat template themselves.

vLLM is asked to switch them off, by arguments of the template; another server only with --model.thinking off,
since some refuse such fields. Where a model thinks all the same, a reply has room for thoughts besides its
own tokens, and is read without them. They cannot be closed: one that used up all of that leaves an empty
reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from corag.core.prompting.shorten import longest_beginning
from corag.core.protocols import Completion
from corag.generation.config import ModelConfig
from corag.generation.http.profiles import ServerProfile
from corag.generation.thinking import SWITCHES

_WORD_END = re.compile(r"(?<=\S)(?=\s)|$")
_OFF = ("enable_thinking", "thinking")  # the switches of most families


def thought_settings(config: ModelConfig, profile: ServerProfile) -> dict[str, Any]:
    """Return what each conversation is sent with: arguments of the template, "off" switches among them."""
    arguments = dict(config.template_args)
    is_off = config.thinking == "off" or (config.thinking == "auto" and profile.template_args)
    if is_off and not arguments.keys() & SWITCHES.keys():
        arguments |= {name: SWITCHES[name][0] for name in _OFF}
    return {"chat_template_kwargs": arguments} if arguments else {}


def limit_tokens(completion: Completion, limit: int, count: Callable[[str], int]) -> Completion:
    """Return a completion of at most its own tokens: what thoughts left over of their room is not for it."""
    text = completion.text
    if completion.logprobs is not None or count(text) <= limit:
        return completion
    ends = [match.end() for match in _WORD_END.finditer(text)]
    return replace(completion, text=longest_beginning(text, ends, limit, count), finish_reason="length")
