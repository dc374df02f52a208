"""Opening servers: the model that each serves, which program it is, its context length.

:mod:`corag.generation.http.feature_probes` finds out what it supports.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import httpx

from corag.core.errors import BackendError, ConfigError
from corag.core.replies import MalformedReplyError, StatusError, list_at, value_at
from corag.generation.config import ModelConfig
from corag.generation.http.endpoints import address
from corag.generation.http.feature_probes import probe_features
from corag.generation.http.features import Features, Server
from corag.generation.http.probe import MESSAGES, Probe
from corag.generation.http.wire import CHAT, MODELS, number_at
from corag.generation.rendering import Renderer

DEFAULT_WINDOW = 4096  # tokens, where neither server nor user says: what Ollama gives a model
_NO_SUCH_ROUTE = frozenset({404, 405, 501})
_MAX_NAMES = 10  # models named in a message


async def open_servers(
    client: httpx.AsyncClient, config: ModelConfig, renderer: Renderer | None, preset: Features | None
) -> list[Server]:
    """Probe all servers of a configuration at the same time.

    ``preset``: what they are known to support, None to find it out. Raises :class:`BackendError` if one
    cannot be reached or answers nothing useful, :class:`ConfigError` if it has no such model, or another
    tokenizer than was configured.
    """
    probes = [Probe(client, address(url), config, preset) for url in config.urls]
    return list(await asyncio.gather(*(_probe_server(probe, renderer) for probe in probes)))


async def _probe_server(probe: Probe, renderer: Renderer | None) -> Server:
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
        kind=kind, features=await probe_features(probe, model, kind, renderer),
        window=window, window_source=source, adapters=len(models) > 1, wording=probe.wording.after_opening(),
    )  # fmt: skip


# The model


async def _list_models(probe: Probe) -> Sequence[Mapping[str, Any]]:
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


def _choose_model(models: Sequence[Mapping[str, Any]], probe: Probe) -> tuple[str, bool]:
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
    listing = ", ".join(writers[:_MAX_NAMES]) + (" and others" if len(writers) > _MAX_NAMES else "")
    raise ConfigError(
        f"the server {probe.url} serves {listing or 'no model that writes'}, but not '{name}': name one of "
        f"its models with --model.{'adapter' if config.adapter else 'name'}."
    )


# The program and its context length


async def _identify(probe: Probe, model: Mapping[str, Any]) -> tuple[str, int, str]:
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


async def _lm_studio_window(probe: Probe, model: str) -> tuple[int, str] | None:
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
            body = {"model": model, "messages": MESSAGES, "max_tokens": 1, "temperature": 0}
            await probe.attempt(CHAT, body, lambda reply: reply)
    window = number_at(cards[0], "max_context_length")
    return window, "what the model was made for: set --model.max_context if it was loaded with less"


async def _ollama_window(probe: Probe, model: str, properties: Mapping[str, Any]) -> tuple[int, str]:
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
