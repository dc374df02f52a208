"""Probing a server when it is opened: the model that it serves, its context length, which features work.

Servers differ in what they make of the protocol: whether they return log-probabilities, take token ids, obey
a seed, report their context length. Versions differ too, so no table of products is trusted: each server gets
some requests of a few tokens, and a feature that it refuses or ignores is not used. Only where the user says
that the servers are vLLM's (``--model.backend server``) most features are taken for granted, and the rest is
found out with two requests.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

import httpx

from corag.core.errors import BackendError, ConfigError
from corag.core.replies import MalformedReplyError, StatusError, list_at, value_at
from corag.generation.config import ModelConfig
from corag.generation.forced import FORCED_TOKENS
from corag.generation.http import drafts
from corag.generation.http.endpoints import FaultyServerError, address, send_opening
from corag.generation.http.features import Features, Server
from corag.generation.http.wire import (
    CERTAIN,
    CHAT,
    COMPLETIONS,
    MODELS,
    NATIVE,
    TEMPLATE,
    TOKENIZE,
    UNLIKELY,
    begins_with_thought,
    choice_text,
    echo_body,
    extra_settings,
    first_logprob,
    forced_token_body,
    is_echoed,
    number_at,
    read_forced_token,
    read_probe,
    read_template,
    tokenize_body,
)
from corag.generation.http.wording import Wording
from corag.generation.rendering import Renderer
from corag.generation.thinking import BY_EFFORT, BY_TEMPLATE, SWITCHES

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

DEFAULT_WINDOW = 4096  # tokens, where neither server nor user says: what Ollama gives a model
_NO_SUCH_ROUTE = frozenset({404, 405, 501})
_MAX_NAMES = 10  # models named in a message
_OPTIONAL_RETRIES = 4  # of what a server may not support: some say so with a status like that of a fault
_MAX_SPECIAL = 3  # tokens that a tokenizer adds to a text: the shortest chat templates take seven
_PROMPT = "The river runs through the valley to the"
_MESSAGES = [{"role": "user", "content": _PROMPT}]
# Where tokenizers differ: letters beyond ASCII, digits, an apostrophe.
TOKENIZER_TEXT = "Ein Dutzend Äpfel, 1984 and the river's end."

Result = TypeVar("Result")


class _Probe:
    """The requests to one server while it is opened; ``preset`` says what it supports, as far as known."""

    def __init__(
        self, client: httpx.AsyncClient, url: str, config: ModelConfig, preset: Features | None
    ) -> None:
        self.client, self.url, self.config, self.preset = client, url, config, preset
        self.refusal = ""  # what the server answered when it last refused
        self.wording = Wording(opening=True)

    async def require(
        self, route: str, body: dict[str, Any] | None, parse: Callable[[Any], Result]
    ) -> Result:
        """Request what must be there. Raises as :func:`send_opening`."""
        return await self._send(route, body, parse, self.config.retries)

    async def attempt(
        self, route: str, body: dict[str, Any], parse: Callable[[Any], Result]
    ) -> Result | None:
        """Request what may be refused, if only by failing every time; None then."""
        retries = min(self.config.retries, _OPTIONAL_RETRIES)
        try:
            return await self._send(route, body, parse, retries)
        except (StatusError, FaultyServerError) as refusal:
            self.refusal = str(refusal)
            return None

    async def look_up(self, route: str, body: dict[str, Any] | None = None) -> Any:
        """Request what only some programs have; None if this one has not, whatever it answers."""
        try:
            return await self._send(route, body, lambda reply: reply, 1)
        except (StatusError, BackendError):
            return None

    async def _send(
        self, route: str, body: dict[str, Any] | None, parse: Callable[[Any], Result], retries: int
    ) -> Result:
        return await send_opening(self.client, self.url, route, body, parse, retries, self.wording)


async def open_servers(
    client: httpx.AsyncClient, config: ModelConfig, renderer: Renderer | None, preset: Features | None
) -> list[Server]:
    """Probe all servers of a configuration at the same time.

    ``preset``: what they are known to support, None to find it out. Raises :class:`BackendError` if one
    cannot be reached or answers nothing useful, :class:`ConfigError` if it has no such model, or another
    tokenizer than was configured.
    """
    probes = [_Probe(client, address(url), config, preset) for url in config.urls]
    return list(await asyncio.gather(*(_probe_server(probe, renderer) for probe in probes)))


async def _probe_server(probe: _Probe, renderer: Renderer | None) -> Server:
    models = await _list_models(probe)
    model, exact = _choose_model(models, probe)
    card = next((each for each in models if each["id"] == model), {"id": model})
    # vLLM reports a window of the base model only, not of its adapters.
    base = next((each for each in models if each["id"] == card.get("parent")), {})
    card = {**base, **{name: value for name, value in card.items() if value is not None}}
    kind, window, source = await _identify(probe, card)
    if probe.preset is not None and not window:
        raise BackendError(
            f"{probe.url} does not tell its context length, as vLLM servers do: for servers of other kinds "
            "write --model.backend openai."
        )
    if limit := probe.config.max_context:
        window = min(window or limit, limit)
        source = "by --model.max_context" if window == limit else source
    if not window:
        window, source = DEFAULT_WINDOW, "a guess, it does not tell: set --model.max_context"
    return Server(
        probe.url, model, exact,
        kind=kind, features=await _probe_features(probe, model, kind, renderer),
        window=window, window_source=source, adapters=len(models) > 1, wording=probe.wording.opened(),
    )  # fmt: skip


# The model


async def _list_models(probe: _Probe) -> Sequence[Mapping[str, Any]]:
    """Return the models that a server lists; none if it has no list."""
    try:
        return await probe.require(MODELS, None, read_models)
    except StatusError as refusal:
        if refusal.status in _NO_SUCH_ROUTE and probe.preset is None:
            return ()  # as some proxies
        raise BackendError(
            f"{probe.url} does not answer as a server of models does ({refusal}): correct --model.urls, or "
            f"put its API key into the environment variable {probe.config.api_key_variable}."
        ) from None


def read_models(reply: Any) -> list[dict[str, Any]]:
    """Read the models that a server lists, each with its "id"."""
    models = list_at(reply, "data", kind=dict)
    for model in models:
        value_at(model, "id", kind=str)
    return list(models)


def _choose_model(models: Sequence[Mapping[str, Any]], probe: _Probe) -> tuple[str, bool]:
    """Return the name of the model to use, and whether it is the one that is configured."""
    config = probe.config
    name = config.adapter or config.name
    for model in models:
        names = {model["id"], model.get("root"), str(model["id"]).removesuffix(":latest")}
        if name in names or name == PurePath(str(model["id"])).stem:
            return str(model["id"]), True
    if not models and (config.adapter or config.name != "default"):
        return name, True
    # Models that make vectors of texts are listed beside those that write.
    writers = [str(model["id"]) for model in models if "embed" not in str(model["id"]).lower()]
    # For the back end "server" the name is that of the tokenizer's folder, which need not be the server's.
    if len(writers) == 1 and (config.name == "default" or probe.preset is not None) and not config.adapter:
        return writers[0], False
    if not models:
        raise ConfigError(
            f"the server {probe.url} does not list its models: correct --model.urls, or name the model with "
            "--model.name."
        )
    listed = ", ".join(writers[:_MAX_NAMES]) + (" and others" if len(writers) > _MAX_NAMES else "")
    raise ConfigError(
        f"the server {probe.url} serves {listed or 'no model that writes'}, but not '{name}': name one of "
        f"its models with --model.{'adapter' if config.adapter else 'name'}."
    )


# The program and its context length


async def _identify(probe: _Probe, model: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return which program a server is, its context length, and the source of that; "", 0, "" if unknown."""
    owner = {"vllm": "vLLM", "sglang": "SGLang"}.get(str(model.get("owned_by", "")), "")
    for name in ("max_model_len", "context_length", "max_context_length"):
        if isinstance(model.get(name), int) and model[name] > 0:
            return owner, model[name], "told by it"
    if owner or probe.preset is not None:
        return owner, 0, ""
    # llama.cpp: what each of its slots has, which is less than what the model was made for.
    properties = await probe.look_up("/props")
    window = number_at(properties, "default_generation_settings", "n_ctx")
    if window:
        return "llama.cpp", window, "told by it"
    if lm_studio := await _lm_studio_window(probe, str(model["id"])):
        return "LM Studio", *lm_studio
    properties = await probe.look_up("/api/show", {"model": model["id"]})
    if isinstance(properties, dict) and "model_info" in properties:
        return "Ollama", *await _ollama_window(probe, str(model["id"]), properties)
    return "", 0, ""


async def _lm_studio_window(probe: _Probe, model: str) -> tuple[int, str] | None:
    """Return the length that LM Studio loaded a model with; None if it is another server."""
    for attempt in range(2):
        cards = _dicts(await probe.look_up("/api/v0/models"), "data")
        cards = [each for each in cards if each.get("id") == model]
        if not cards:
            return None
        if window := number_at(cards[0], "loaded_context_length"):
            return window, "told by it"
        if not attempt:
            # Not loaded yet: the first request loads it, with a length that is LM Studio's choice.
            body = {"model": model, "messages": _MESSAGES, "max_tokens": 1, "temperature": 0}
            await probe.attempt(CHAT, body, lambda reply: reply)
    window = number_at(cards[0], "max_context_length")
    return window, "what the model was made for: set --model.max_context if it was loaded with less"


async def _ollama_window(probe: _Probe, model: str, properties: Mapping[str, Any]) -> tuple[int, str]:
    """Return what Ollama reads at once. What is longer it cuts silently, so it must be known."""
    # Not what the model was made for ("llama.context_length"), but what it was loaded with; it is loaded now.
    await probe.attempt("/api/generate", {"model": model, "prompt": "", "stream": False}, lambda reply: reply)
    for each in _dicts(await probe.look_up("/api/ps"), "models"):
        if each.get("model") == model and (window := number_at(each, "context_length")):
            return window, "told by it"
    if match := re.search(r"^num_ctx\s+(\d+)", str(properties.get("parameters", "")), re.MULTILINE):
        return int(match[1]), "told by it"
    return DEFAULT_WINDOW, "Ollama's default: set OLLAMA_CONTEXT_LENGTH there and --model.max_context here"


def _dicts(reply: Any, name: str) -> Sequence[dict[str, Any]]:
    """Return the objects that are listed in a reply, none if it is another reply."""
    try:
        return list_at(reply, name, kind=dict)
    except MalformedReplyError:
        return ()


# The features


async def _probe_features(probe: _Probe, model: str, kind: str, renderer: Renderer | None) -> Features:
    """Find out what a server supports, as far as it is not preset."""
    ids = await _tokenize(probe, model)
    if ids is not None and renderer is not None:
        _require_same_tokenizer(ids, renderer, probe, model)
    if probe.preset is not None:
        vllm = await _probe_vllm(probe, model)
        _require_vllm(vllm, probe)
        return replace(probe.preset, **vllm)
    base = {"model": model, "max_tokens": 1, "temperature": 0}
    features = replace(await _probe_routes(probe, base), tokenizer=ids is not None)
    features = replace(
        features,
        special_tokens=kind in ("vLLM", "SGLang"),
        template=kind == "llama.cpp"
        and await probe.attempt(TEMPLATE, {"messages": _MESSAGES}, read_template) is not None,
    )
    features = replace(features, **await _probe_sampling(probe, base, features))
    features = replace(features, **await _probe_scoring(probe, base, kind, renderer, features))
    if kind == "vLLM" and features.token_ids:
        vllm = await _probe_vllm(probe, model)
        return replace(features, **{**vllm, "logprobs": features.logprobs and vllm.get("logprobs", True)})
    return features


async def _tokenize(probe: _Probe, model: str) -> list[int] | None:
    """Return how a server splits a text into token ids; None if it does not do that."""
    reply = await probe.look_up(TOKENIZE, tokenize_body(model, TOKENIZER_TEXT))
    try:
        return list(list_at(reply, "tokens", kind=int))
    except MalformedReplyError:
        return None


def _require_same_tokenizer(ids: list[int], renderer: Renderer, probe: _Probe, model: str) -> None:
    """Refuse a server whose tokenizer splits a text otherwise: it would read our token ids as other words."""
    if ids == renderer.text_ids(TOKENIZER_TEXT):
        return
    if probe.preset is not None:
        raise ConfigError(
            f"the server {probe.url} serves '{model}', whose tokenizer is not that of '{probe.config.name}': "
            "set --model.name to the model that it serves, so that prompts are tokenised as it expects."
        )
    raise ConfigError(
        f"the server {probe.url} splits texts into other tokens than the tokenizer "
        f"'{probe.config.tokenizer}': name that of the model it serves with --model.tokenizer, or none."
    )


async def _probe_vllm(probe: _Probe, model: str) -> dict[str, bool]:
    """Find out how a vLLM server was started: with priorities, with our plug-in, with raw log-probabilities.

    Return nothing for a server that refuses the request, with or without a priority.
    """
    # One request shows all: it has a priority, forces two tokens, and pushes the first of them up by a bias
    # that raw log-probabilities do not show.
    tokens = (UNLIKELY, 3)  # hardly what a model would write behind token 5
    body = {
        "model": model,
        "prompt": [5],
        "max_tokens": len(tokens),
        "temperature": 0,
        "logprobs": 5,
        "logit_bias": {str(tokens[0]): 100.0},
        "ignore_eos": True,
        "return_token_ids": True,
        "vllm_xargs": {FORCED_TOKENS: list(tokens)},
    }
    for priorities in (True, False):
        try:
            ids, raw = await probe.require(COMPLETIONS, {**body, "priority": int(priorities)}, read_probe)
        except StatusError as refusal:
            probe.refusal = str(refusal)
        else:
            forced = ids == tokens and await _forces_beside_drafts(probe, model)
            return {
                "returns_ids": ids is not None, "logprobs": raw, "priorities": priorities, "forced": forced
            }  # fmt: skip
    return {}


async def _forces_beside_drafts(probe: _Probe, model: str) -> bool:
    """Whether forced tokens reach the replies that they are for, if the server drafts and has several."""
    right = await asyncio.gather(
        *(
            probe.attempt(COMPLETIONS, body, partial(drafts.is_as_forced, body))
            for body in drafts.bodies(model)
        )
    )
    return all(right)


def _require_vllm(vllm: Mapping[str, bool], probe: _Probe) -> None:
    """Refuse a server that does not answer as the user says that it does: as one of vLLM's."""
    if not vllm:
        raise BackendError(f"the server {probe.url} refuses completions: {probe.refusal}")
    if not vllm["returns_ids"]:
        raise BackendError(
            f"the server {probe.url} does not return token ids: use a vLLM server of version 0.10.2 or "
            "later, or --model.backend openai."
        )
    if not vllm["logprobs"]:
        raise ConfigError(
            f"the server {probe.url} does not report the model's own log-probabilities, by which answers are "
            "scored and some methods decide: start it with --logprobs-mode raw_logprobs, vLLM's default."
        )


async def _probe_routes(probe: _Probe, base: dict[str, Any]) -> Features:
    """Find out which routes continue a text, and what both of them take."""
    text = await _probe_route(probe, COMPLETIONS, base | {"prompt": _PROMPT}, {"logprobs": 1})
    chat = await _probe_route(
        probe, CHAT, base | {"messages": _MESSAGES}, {"logprobs": True, "top_logprobs": 1}
    )
    routes = [route for route in (text, chat) if route is not None]
    if not routes:
        raise BackendError(
            f"{probe.url} refuses to continue a text as '{base['model']}' ({probe.refusal}): look at its "
            "log, or name another model with --model.name."
        )
    templated = text is not None and await _applies_template(probe, base)
    thinks = chat is not None and chat.thinks
    switch = await _probe_switches(probe, base) if thinks and probe.config.thinking in ("auto", "off") else {}
    return Features(
        completions=text is not None and not (templated and chat is not None),
        templated=templated,
        chat=chat is not None,
        logprobs=all(route.logprobs for route in routes),
        settings=all(route.settings for route in routes),
        **({"thinks": thinks} | switch),
    )


async def _probe_switches(probe: _Probe, base: dict[str, Any]) -> dict[str, bool]:
    """Find out what switches a server's thoughts off, if anything does."""
    if any(name in SWITCHES for name in probe.config.template_args):
        return {}  # the user has decided
    for name, setting in {"switched_by_template": BY_TEMPLATE, "switched_by_effort": BY_EFFORT}.items():
        body = {**base, "messages": _MESSAGES, **setting}
        if await probe.attempt(CHAT, body, begins_with_thought) is False:
            return {"thinks": False, name: True}
    return {}


@dataclass(frozen=True, slots=True)
class _Route:
    logprobs: bool
    settings: bool
    thinks: bool


async def _probe_route(
    probe: _Probe, route: str, body: dict[str, Any], logprobs: dict[str, Any]
) -> _Route | None:
    """Find out what a route takes, the most first; None if there is no such route."""
    parse = partial(first_logprob, chat=route == CHAT)
    # Each is left out if the server refuses it. The bias shows log-probabilities that were changed by it.
    settings = {"logit_bias": {str(UNLIKELY): 100}, **extra_settings(0, 1.0)}
    try:
        thinks = await probe.require(route, body, lambda reply: (parse(reply), begins_with_thought(reply))[1])
    except StatusError as refusal:
        probe.refusal = str(refusal)
        return None
    for more in (settings | logprobs, logprobs, settings):
        # In a tuple, since None is a reply without log-probabilities here, and no reply there.
        reply = await probe.attempt(route, body | more, lambda reply: (parse(reply),))
        if reply is not None:
            raw = reply[0] is not None and reply[0] < CERTAIN
            return _Route(raw, settings.items() <= more.items(), thinks)
    return _Route(logprobs=False, settings=False, thinks=thinks)


async def _applies_template(probe: _Probe, base: dict[str, Any]) -> bool:
    """Whether a server puts its chat template around the texts that it completes."""

    async def count_tokens(text: str) -> int:
        body = base | {"prompt": text}
        return await probe.attempt(COMPLETIONS, body, _prompt_tokens) or 0

    # Twice the text has twice the tokens, but only one template. (In this order: else a count that leaves out
    # cached tokens would look like a template.)
    twice, once = await count_tokens(f"{_PROMPT} {_PROMPT}"), await count_tokens(_PROMPT)
    return twice > 0 and 2 * once - twice > _MAX_SPECIAL


def _prompt_tokens(reply: Any) -> int:
    return number_at(reply, "usage", "prompt_tokens")


async def _probe_sampling(probe: _Probe, base: dict[str, Any], features: Features) -> dict[str, bool]:
    """Find out whether seeds are obeyed, top_k is, and several samples are given."""
    body = base | {"temperature": 1.0, "max_tokens": 8}
    route = CHAT if features.chat else COMPLETIONS
    body |= {"messages": _MESSAGES} if features.chat else {"prompt": _PROMPT}

    def texts(reply: Any) -> list[str]:
        choices = list_at(reply, "choices", kind=dict)
        value_at(choices, 0, kind=dict)
        return [choice_text(choice, chat=features.chat) for choice in choices]

    # One after another: what is computed together may differ in a last digit.
    draws = [await probe.attempt(route, body | {"seed": seed}, texts) for seed in (11, 11, 12, 13)]
    obeyed = None not in draws and draws[0] == draws[1] and not draws[0] == draws[2] == draws[3]
    several = await probe.attempt(route, body | {"n": 2, "max_tokens": 1}, texts)
    # Of the likeliest token alone every sample is the same, however hot.
    hot = body | {"temperature": 2.0, **extra_settings(1, 1.0)}
    attempts = [
        await probe.attempt(route, hot | {"seed": seed}, texts) for seed in (11, 12, 13) if features.settings
    ]
    # Texts that are all empty, where a model only thought, show nothing.
    alike = [text for text in attempts if text is not None and any(text)]
    return {
        "seeds": obeyed,
        "samples": several is not None and len(several) == 2,
        "sampling": len(alike) == 3 and alike[0] == alike[1] == alike[2],
    }


async def _probe_scoring(
    probe: _Probe, base: dict[str, Any], kind: str, renderer: Renderer | None, features: Features
) -> dict[str, bool]:
    """Find out whether completions take token ids, and how a given text can be scored."""
    results: dict[str, bool] = {}
    if renderer is not None and features.completions:
        ids = renderer.text_ids(_PROMPT)
        if await probe.attempt(COMPLETIONS, base | echo_body(ids), lambda reply: is_echoed(reply, len(ids))):
            return {"token_ids": True, "echo": True}
        # As many tokens as were sent, perhaps one more at the beginning: ids, and not the text of a list.
        count = await probe.attempt(COMPLETIONS, base | {"prompt": ids}, _prompt_tokens)
        results["token_ids"] = count in (len(ids), len(ids) + 1)
    if kind == "llama.cpp" and features.tokenizer and (features.template or renderer is not None):
        reply = await probe.attempt(NATIVE, forced_token_body(_PROMPT, UNLIKELY), read_forced_token)
        results["steps"] = reply is not None and reply[0] == UNLIKELY and reply[1] < CERTAIN
    return results
