"""Opening servers: the model that each serves, its context length and profile, what its first replies show.

A server's profile is that of the owner which its list of models names; with model.backend=server it is
vLLM's. Beyond that a few replies of some tokens tell: of vLLM, how it was started; of others, which routes
there are and whether they return log-probabilities.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corag.core.errors import BackendError, ConfigError
from corag.core.web.json_client import JsonClient, NoReplyError, RefusedError
from corag.core.web.replies import list_at, value_at
from corag.generation.config import ModelConfig
from corag.generation.http.profiles import BY_OWNER, OPENAI, VLLM, Served, ServerProfile
from corag.generation.http.thoughts import thought_settings
from corag.generation.http.wire import (
    CHAT,
    COMPLETIONS,
    MODELS,
    PLUGIN_TOKENS,
    plugin_body,
    read_first_reply,
    read_plugin_reply,
)
from corag.generation.rendering import Renderer

DEFAULT_WINDOW = 4096  # tokens, where neither server nor user says
_FIRST_TOKENS = 16  # of a first reply: some models refuse to write fewer
_MAX_NAMES = 10  # models named in a message
_NO_SUCH_ROUTE = frozenset({404, 405, 501})
# Where tokenizers differ: letters beyond ASCII, digits, an apostrophe.
_TEXT = "Ein Dutzend Äpfel, 1984 and the river's end."


async def open_servers(
    client: JsonClient, config: ModelConfig, renderer: Renderer | None, profile: ServerProfile | None
) -> list[Served]:
    """Ask all servers of a configuration at the same time.

    ``profile``: what they are known to understand, None to go by what they say. Raises :class:`BackendError`
    if one cannot be reached or answers nothing useful, :class:`ConfigError` if it has no such model, or
    another tokenizer than was configured.
    """
    openings = [_Opening(client, url, config, renderer, profile) for url in client.urls]
    return list(await asyncio.gather(*(opening.open() for opening in openings)))


@dataclass(frozen=True, slots=True)
class _Opening:
    """The requests by which one server is opened."""

    _client: JsonClient
    _url: str
    _config: ModelConfig
    _renderer: Renderer | None
    _profile: ServerProfile | None

    async def open(self) -> Served:
        """Return what the server is."""
        models = await self._list_models()
        model = self._choose_model(models)
        card = next((each for each in models if each["id"] == model), {})
        # vLLM reports a window of the base model only, not of its adapters.
        base = next((each for each in models if each["id"] == card.get("parent")), {})
        card = {**base, **{name: value for name, value in card.items() if value is not None}}
        profile = self._profile or BY_OWNER.get(str(card.get("owned_by")), OPENAI)
        window, source = self._window(card)
        served = Served(profile, model, window, source)
        if profile.token_ids:
            served = await self._ask_vllm(served)
            if self._renderer is not None:
                return served
        return await self._ask_routes(served)

    # The model

    async def _list_models(self) -> Sequence[Mapping[str, Any]]:
        """Return the models that a server lists; none if it has no list."""
        try:
            return await self._client.open(self._url + MODELS, None, _read_models)
        except RefusedError as refusal:
            if refusal.status in _NO_SUCH_ROUTE and self._profile is None:
                return ()  # as some proxies
            raise BackendError(f"{refusal}. Is this a server of models? See 'model.urls'.") from None

    def _choose_model(self, models: Sequence[Mapping[str, Any]]) -> str:
        """Return the served name of the model that is configured, or of the only one."""
        config = self._config
        name = config.adapter or config.name
        for model in models:
            if name in (model["id"], model.get("root")):
                return str(model["id"])
        is_named = bool(config.adapter) or config.name != ModelConfig.name
        if not models and is_named:
            return name
        # For vLLM's servers the name is that of the tokenizer's folder, which need not be the server's.
        if len(models) == 1 and not config.adapter and (self._profile is not None or not is_named):
            return str(models[0]["id"])
        if not models:
            raise ConfigError(
                f"the server {self._url} does not list its models: correct 'model.urls', or name the model "
                "with 'model.name'."
            )
        names = [str(model["id"]) for model in models]
        listing = ", ".join(names[:_MAX_NAMES]) + (" and others" if len(names) > _MAX_NAMES else "")
        raise ConfigError(
            f"the server {self._url} serves {listing}, but not '{name}': name one of its models with "
            f"'model.{'adapter' if config.adapter else 'name'}'."
        )

    def _window(self, card: Mapping[str, Any]) -> tuple[int, str]:
        """Return the context length, and where it is from."""
        names = ("max_model_len", "context_length", "max_context_length")
        stated = next((card[name] for name in names if isinstance(card.get(name), int) and card[name] > 0), 0)
        limit = self._config.max_context
        if limit and (not stated or limit <= stated):
            return limit, "by 'model.max_context'"
        if stated:
            return stated, "by its list of models"
        if self._profile is VLLM:
            raise BackendError(
                f"{self._url} does not tell its context length, as vLLM servers do: for servers of other "
                "kinds write model.backend=openai."
            )
        return DEFAULT_WINDOW, "a guess, it does not tell: set 'model.max_context'"

    # First replies

    async def _ask_vllm(self, served: Served) -> Served:
        """Find out how a vLLM server was started: with priorities, our plug-in, raw log-probabilities."""
        await self._require_same_tokenizer(served.model)
        url, body = self._url + COMPLETIONS, plugin_body(served.model)
        try:
            try:
                ids, raw = await self._client.open(url, body | {"priority": 1}, read_plugin_reply)
                priorities = True
            except RefusedError:
                ids, raw = await self._client.open(url, body, read_plugin_reply)
                priorities = False
        except RefusedError as refusal:
            raise BackendError(f"{refusal}. A vLLM server completes token ids.") from None
        if ids is None:
            raise BackendError(
                f"the server {self._url} does not return token ids: use a vLLM server of version 0.10.2 or "
                "later."
            )
        if not raw:
            raise ConfigError(
                f"the server {self._url} does not report the model's own log-probabilities, by which answers "
                "are scored and some methods decide: start it with --logprobs-mode raw_logprobs, vLLM's "
                "default."
            )
        return replace(
            served,
            completions=True,
            logprobs=True,
            scores=self._renderer is not None,
            forced=ids == PLUGIN_TOKENS,
            priorities=priorities,
        )

    async def _require_same_tokenizer(self, model: str) -> None:
        """Refuse a server whose tokenizer splits a text otherwise: it would read our ids as other words."""
        if self._renderer is None:
            return
        url = self._url.removesuffix("/v1") + "/tokenize"
        body = {"model": model, "prompt": _TEXT, "add_special_tokens": False}
        try:
            ids = await self._client.open(url, body, lambda reply: list_at(reply, "tokens", kind=int))
        except (RefusedError, NoReplyError):
            return  # a router before it may not have the address
        if list(ids) != self._renderer.text_ids(_TEXT):
            name = self._config.tokenizer or self._config.name
            raise ConfigError(
                f"the server {self._url} serves '{model}', whose tokenizer is not that of '{name}': name "
                f"the model that it serves with 'model.{'tokenizer' if self._config.tokenizer else 'name'}'."
            )

    async def _ask_routes(self, served: Served) -> Served:
        """Find out which routes a server has, for prompts that it renders itself."""
        settings = thought_settings(self._config, served.profile)
        messages = {"messages": [{"role": "user", "content": _TEXT}], **settings}
        chat, text = await asyncio.gather(
            self._first_reply(CHAT, served, None if self._config.chat == "no" else messages),
            self._first_reply(COMPLETIONS, served, None if served.completions else {"prompt": _TEXT}),
        )
        replies = [each for each in (chat, text) if isinstance(each, tuple)]
        if not replies and not served.completions:
            refusal = chat if isinstance(chat, RefusedError) else text
            raise BackendError(f"{refusal}. So '{served.model}' cannot be asked: see 'model.name'.")
        return replace(
            served,
            chat=isinstance(chat, tuple),
            completions=served.completions or isinstance(text, tuple),
            logprobs=all(logprobs for logprobs, _ in replies),
            thinks=any(thinks for _, thinks in replies),
        )

    async def _first_reply(
        self, route: str, served: Served, body: dict[str, Any] | None
    ) -> tuple[bool, bool] | RefusedError | None:
        """Return what a route's first reply shows, or why it refuses; None without a body.

        The request has log-probabilities unless it is refused, or failed at, with them.
        """
        if body is None:
            return None
        body = {"model": served.model, "max_tokens": _FIRST_TOKENS, "temperature": 0, **body}
        logprobs = {"logprobs": True, "top_logprobs": 1} if route == CHAT else {"logprobs": 1}
        url = self._url + route
        try:
            return await self._client.open(url, body | logprobs, read_first_reply)
        except RefusedError as refusal:
            if refusal.status in _NO_SUCH_ROUTE:
                return refusal
        except NoReplyError as error:
            if error.fault != "failed":
                raise
        try:
            return await self._client.open(url, body, read_first_reply)
        except RefusedError as refusal:
            return refusal


def _read_models(reply: Any) -> list[dict[str, Any]]:
    """Read the models that a server lists, each with its "id"."""
    models = list_at(reply, "data", kind=dict)
    for model in models:
        value_at(model, "id", kind=str)
    return list(models)
