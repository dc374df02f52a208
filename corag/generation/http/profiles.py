"""What servers understand: two profiles, and what one server was found to be when it was opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from corag.core.errors import ConfigError
from corag.core.protocols import Ability


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """What all servers of one kind understand, beside chats and completions.

    Attributes:
        name: of the kind.
        token_ids: completions take token ids and return those that they generate, so with a known tokenizer
            prompts are rendered here. Given texts are scored by that: as forced replies where our plug-in is,
            else as log-probabilities of the prompt.
        settings: requests have top_k, min_p, penalties of repetition, tokens that end a reply, and special
            tokens spelled out. A server without has its own, unseen.
        template_args: arguments of the chat template may be sent unasked, to switch thoughts off.
    """

    name: str
    token_ids: bool
    settings: bool
    template_args: bool


VLLM = ServerProfile("vLLM", token_ids=True, settings=True, template_args=True)
OPENAI = ServerProfile("OpenAI's protocol", token_ids=False, settings=False, template_args=False)
BY_OWNER = MappingProxyType({"vllm": VLLM})
"""Profiles by the owner that a server names in its list of models; :data:`OPENAI` for all others."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model as one server serves it, or several do alike.

    Attributes:
        profile: what the server understands.
        model: the name that it is asked by.
        window: context length in tokens.
        window_source: where that number is from.
        chat: it has chats.
        completions: it has completions.
        logprobs: it returns the model's own log-probabilities of what it generates.
        scores: it returns log-probabilities of given texts.
        forced: it generates a given text (our plug-in), which finds the prompt in its cache.
        priorities: it takes requests' priorities.
        thinks: its model writes thoughts before each reply.
    """

    profile: ServerProfile
    model: str
    window: int
    window_source: str
    chat: bool = False
    completions: bool = False
    logprobs: bool = False
    scores: bool = False
    forced: bool = False
    priorities: bool = False
    thinks: bool = False

    @property
    def lacks(self) -> frozenset[Ability]:
        """What methods may need and the server cannot do."""
        support = {
            Ability.LOGPROBS: self.logprobs,
            Ability.SCORES: self.scores,
            Ability.SPECIAL_TOKENS: self.profile.settings,
            Ability.SAMPLING: self.profile.settings,
        }
        return frozenset(ability for ability, works in support.items() if not works)

    def describe(self, url: str) -> str:
        """Return one sentence about it."""
        routes = " and ".join(["chat"] * self.chat + ["completions"] * self.completions)
        lacks = [ability for ability in Ability if ability in self.lacks]
        parts = [
            f"{url} ({self.profile.name}) serves '{self.model}': {routes}",
            f"context {self.window} tokens ({self.window_source})",
            f"without {', '.join(lacks)}" if lacks else "",
            "it computes a prompt again for each score, without the plug-in"
            if self.scores and not self.forced
            else "",
            "it thinks before it replies" if self.thinks else "",
        ]
        return "; ".join(filter(None, parts)) + "."


def share(servers: Sequence[Served], urls: Sequence[str]) -> Served:
    """Return what servers are that serve one model alike, with the shortest of their windows.

    Raises :class:`ConfigError` if they differ: a request may go to any of them.
    """
    least = min(servers, key=lambda server: server.window)
    for url, server in zip(urls, servers, strict=True):
        if replace(server, window=least.window, window_source=least.window_source) != replace(
            servers[0], window=least.window, window_source=least.window_source
        ):
            raise ConfigError(
                f"the servers of 'model.urls' differ: {servers[0].describe(urls[0])[:-1]}, but "
                f"{server.describe(url)[:-1]}. Start them alike, under one --served-model-name, or leave one "
                "of them out."
            )
    return least
