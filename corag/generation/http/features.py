"""What servers support, each feature by a name, and one line that describes a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce
from typing import Literal

from corag.core.protocols import Ability
from corag.generation.http.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Features:
    """What one server, or each of several, supports.

    Attributes:
        chat: has /v1/chat/completions.
        completions: has /v1/completions that continue a text as it stands.
        templated: has completions, but puts its chat template around each text, as Ollama does.
        token_ids: completions take token ids in the place of text.
        returns_ids: completions return the ids of the tokens that were generated (vLLM).
        logprobs: returns the log-probabilities of what it generates, from before any penalty or bias.
        forced: generates a given text and returns its log-probabilities (vLLM with our plug-in).
        echo: returns the log-probabilities of the prompt's own tokens.
        steps: generates a given token and returns its log-probability (llama.cpp).
        template: fills in its chat template and returns the text (llama.cpp).
        tokenizer: splits a text into the ids that it reads.
        seeds: equal seeds give equal samples, others others.
        samples: gives several samples of one request.
        settings: takes top_k and repetition penalties, and does not refuse a request for them.
        sampling: obeys them too. Some take them and do as if they had not, as Ollama does.
        special_tokens: spells special tokens out on request.
        priorities: takes a request's priority (vLLM with --scheduling-policy priority).
        thinks: its model writes reasoning before each reply, and cannot be told not to, or was not to be.
        switched_by_template: it has been told not to by arguments of the chat template.
        switched_by_effort: it has been told not to by the reasoning effort.
    """

    chat: bool = False
    completions: bool = False
    templated: bool = False
    token_ids: bool = False
    returns_ids: bool = False
    logprobs: bool = False
    forced: bool = False
    echo: bool = False
    steps: bool = False
    template: bool = False
    tokenizer: bool = False
    seeds: bool = False
    samples: bool = False
    settings: bool = False
    sampling: bool = False
    special_tokens: bool = False
    priorities: bool = False
    thinks: bool = False
    switched_by_template: bool = False
    switched_by_effort: bool = False

    @property
    def scores(self) -> Literal["forced", "echo", "steps", ""]:
        """The fastest way to the log-probabilities of a given text, "" if there is none.

        Forced replies find the prompt in the prefix cache, an echo computes all of it again, and steps are
        a request per token.
        """
        return "forced" if self.forced else "echo" if self.echo else "steps" if self.steps else ""

    @property
    def lacks(self) -> frozenset[Ability]:
        """What methods may need and these servers do not support."""
        support = {
            Ability.LOGPROBS: self.logprobs,
            Ability.SCORES: bool(self.scores),
            Ability.SPECIAL_TOKENS: self.special_tokens,
            Ability.SAMPLING: self.sampling,
        }
        return frozenset(ability for ability, works in support.items() if not works)


# What a vLLM server supports without being probed; log-probabilities, forced replies and priorities depend on
# how it was started. Its chat route is not used: prompts go as token ids, as with the engine in process.
VLLM = Features(
    completions=True,
    token_ids=True,
    echo=True,
    tokenizer=True,
    seeds=True,
    samples=True,
    settings=True,
    sampling=True,
    special_tokens=True,
)


def shared_features(several: Iterable[Features]) -> Features:
    """Return what all of several servers support: a request may go to any of them."""

    def both(one: Features, other: Features) -> Features:
        names = [each.name for each in fields(Features)]
        return Features(**{name: getattr(one, name) and getattr(other, name) for name in names})

    return reduce(both, several)


@dataclass(slots=True, kw_only=True)
class Server(Endpoint):
    """One server, with the program that it is ("" if unknown) and what it supports.

    ``window``: context length in tokens; ``window_source``: where that number is from; ``adapters``: whether
    it serves several models, such as LoRA adapters, by name.
    """

    kind: str
    features: Features
    window: int
    window_source: str
    adapters: bool

    def describe(self) -> str:
        """Return one line about it."""
        features = self.features
        scores = {
            "forced": "yes (forced)", "echo": "yes (echo)", "steps": "yes (a request per token)", "": "no"
        }[features.scores]  # fmt: skip
        support = {
            "chat": features.chat,
            "completions": "no (it puts its chat template around them)"
            if features.templated
            else features.completions,
            "log-probabilities": features.logprobs,
            "scores of given texts": scores,
            "tokenizer": features.tokenizer,
            "seeds": features.seeds,
            "n": features.samples,
            "top_k and penalties": features.sampling,
            "adapters by model name": self.adapters,
        }
        parts = ", ".join(
            f"{name} {value if isinstance(value, str) else 'yes' if value else 'no'}"
            for name, value in support.items()
        )
        switches_off = features.switched_by_template or features.switched_by_effort
        thinks = "; it thinks before it replies" if features.thinks else ""
        thinks = "; it replies without thoughts, as it was told" if switches_off else thinks
        kind = f" ({self.kind})" if self.kind else ""
        omitted_fields = ", ".join(sorted(self.wording.omitted_fields))
        omits = f"; it takes no {omitted_fields}, so its own holds" if omitted_fields else ""
        return (
            f"{self.url}{kind} serves '{self.model}': {parts}; context {self.window} tokens "
            f"({self.window_source}){thinks}{omits}"
        )
