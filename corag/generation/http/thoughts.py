"""Thoughts of models behind servers that fill in the chat template themselves.

vLLM is asked to switch them off, by arguments of the template; another server only with --model.thinking off,
since some refuse such fields. Where a model thinks all the same, a reply has room for thoughts besides its
own tokens, and is read without them. They cannot be closed: one that used up all of that leaves an empty
reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corag.core.prompting.shorten import longest_beginning
from corag.core.protocols import Completion, Generation, Sampling
from corag.core.types import TokenUsage
from corag.generation.config import ModelConfig
from corag.generation.http.profiles import Served
from corag.generation.http.wire import Reply
from corag.generation.thinking import SWITCHES
from corag.generation.thinking_generator import thinking_budget

_WORD_END = re.compile(r"(?<=\S)(?=\s)|$")
_OFF = ("enable_thinking", "thinking")  # the switches of most families


def thought_settings(config: ModelConfig, served: Served) -> dict[str, Any]:
    """Return what each conversation is sent with: arguments of the template, "off" switches among them."""
    arguments = dict(config.template_args)
    is_off = config.thinking == "off" or (config.thinking == "auto" and served.profile.template_args)
    if is_off and not arguments.keys() & SWITCHES.keys():
        arguments |= {name: SWITCHES[name][0] for name in _OFF}
    return {"chat_template_kwargs": arguments} if arguments else {}


@dataclass(frozen=True, slots=True)
class ServerThoughts:
    """What becomes of a server's thoughts.

    Attributes:
        settings: what each conversation is sent with.
        budget: tokens for thoughts besides a reply's own; 0 for a model that has none.
        keeps_thoughts: replies are left as they are.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    budget: int = 0
    keeps_thoughts: bool = False

    @classmethod
    def of(cls, config: ModelConfig, served: Served) -> ServerThoughts:
        """Return what the options and a server come to."""
        keeps_thoughts = config.thinking == "keep"
        has_budget = served.thinks and not keeps_thoughts
        budget = thinking_budget(config.max_thinking_tokens, served.window) if has_budget else 0
        return cls(thought_settings(config, served), budget, keeps_thoughts)

    @property
    def identity(self) -> str:
        """What tells it from a model that never thinks, "" for such a one."""
        parts = [f"{name}={value}" for name, value in sorted(self.settings.items())]
        parts += [f"budget={self.budget}"] * (self.budget > 0) + ["kept"] * self.keeps_thoughts
        return f":thinking={','.join(parts)}" if parts else ""

    def widen(self, sampling: Sampling) -> Sampling:
        """Return a reply's sampling with room for thoughts before it."""
        return replace(sampling, max_tokens=sampling.max_tokens + self.budget) if self.budget else sampling

    def split(
        self,
        generation: Generation,
        replies: Sequence[Reply],
        sampling: Sampling,
        count: Callable[[str], int],
    ) -> Generation:
        """Tell what thoughts cost from what the replies did, and hold replies to their own limit of tokens.

        ``sampling``: as it was requested, not widened; ``count``: of a text's tokens.
        """
        thoughts = tuple(reply.thought for reply in replies)
        if not any(thoughts) or self.keeps_thoughts:
            return generation
        usage = generation.usage
        counts = [reply.thought_tokens for reply in replies]
        tokens = (
            sum(each for each in counts if each is not None)
            if None not in counts
            else sum(count(thought) for thought in thoughts)
        )
        tokens = min(tokens, usage.generated)
        return replace(
            generation,
            completions=tuple(
                _limit_completion(each, sampling, count) if thought else each
                for each, thought in zip(generation.completions, thoughts, strict=True)
            ),
            usage=replace(
                usage,
                generated=usage.generated - tokens,
                computed_generated=max(0, usage.computed_generated - tokens),
            ),
            thinking=TokenUsage(generated=tokens, computed_generated=tokens),
            thoughts=thoughts,
            thoughts_cut=sum(reply.thought_cut for reply in replies),
        )


def _limit_completion(completion: Completion, sampling: Sampling, count: Callable[[str], int]) -> Completion:
    """Return a completion of at most its own tokens: what thoughts left over of their room is not for it."""
    text, limit = completion.text, sampling.max_tokens
    if completion.logprobs is not None or count(text) <= limit:
        return completion
    ends = [match.end() for match in _WORD_END.finditer(text)]
    return replace(completion, text=longest_beginning(text, ends, limit, count), finish_reason="length")
