"""Probing a server that speaks OpenAI's protocol: which of its features work, told in a line.

Servers differ in what they make of the protocol: whether they return log-probabilities, take token ids, obey
a seed, tell their context length. Versions differ too, so no table of products is trusted. Each server gets
some requests of a few tokens when it is opened; a feature that it refuses or ignores is not used.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, TypeVar

import httpx

from core.errors import BackendError, ConfigError
from core.protocols import Ability
from generation.config import ModelConfig
from generation.endpoints import (
    Endpoint,
    FaultyServerError,
    NonsenseError,
    StatusError,
    part,
    parts,
    send_opening,
)
from generation.openai_wire import (
    CHAT,
    COMPLETIONS,
    NATIVE,
    TEMPLATE,
    TOKENIZE,
    UNLIKELY,
    began_with_thought,
    chat_logprob,
    choice_text,
    echoed,
    extra_settings,
    filled_template,
    forced_logprob,
    forcing_body,
    number,
    text_logprob,
    tokenize_body,
)
from generation.rendering import Renderer

DEFAULT_WINDOW = 4096  # tokens, where a server does not tell and nobody says: what Ollama gives a model
_NOT_HERE = frozenset({404, 405, 501})
_NAMES_SHOWN = 10
_CERTAIN = -0.001  # log-probability
_OPTIONAL_RETRIES = 4  # of what a server may not support: some say so with a status like that of a fault
_MOST_SPECIAL = 3  # tokens that a tokenizer adds to a text: the shortest chat templates take seven
_PROMPT = "The river runs through the valley to the"
# Where tokenizers differ: letters beyond ASCII, digits, an apostrophe.
TOKENIZER_TEXT = "Ein Dutzend Äpfel, 1984 and the river's end."

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Features:
    """What one server, or each of several, supports.

    Attributes:
        chat: has /v1/chat/completions.
        completions: has /v1/completions that continue a text as it stands.
        templated: has completions, but puts its chat template around each text, as Ollama does.
        token_ids: completions take token ids in the place of text.
        logprobs: tells the log-probabilities of what it generates, from before any penalty or bias.
        scores: how log P of a given text can be had: out of an "echo" of the prompt, token by token in
            "steps", or not.
        template: fills in its chat template and returns the text (llama.cpp).
        tokenizer: splits a text into the ids that it reads.
        seeds: equal seeds give equal samples, others others.
        samples: gives several samples of one request.
        settings: takes top_k and repetition penalties, and does not refuse a request for them.
        sampling: obeys them too. Some take them and do as if they had not, as Ollama does.
        special_tokens: spells special tokens out on request.
        thinks: its model writes reasoning before each reply.
        window: context length in tokens; 0 if it does not tell.
    """

    chat: bool = False
    completions: bool = False
    templated: bool = False
    token_ids: bool = False
    logprobs: bool = False
    scores: Literal["", "echo", "steps"] = ""
    template: bool = False
    tokenizer: bool = False
    seeds: bool = False
    samples: bool = False
    settings: bool = False
    sampling: bool = False
    special_tokens: bool = False
    thinks: bool = False
    window: int = 0

    @property
    def lacks(self) -> frozenset[Ability]:
        """What methods may want and these servers do not support."""
        supported = {
            Ability.LOGPROBS: self.logprobs,
            Ability.SCORES: bool(self.scores),
            Ability.SPECIAL_TOKENS: self.special_tokens,
            Ability.SAMPLING: self.sampling,
        }
        return frozenset(ability for ability, works in supported.items() if not works)

    def shared_with(self, other: Features) -> Features:
        """Return what two servers both support: a request may go to either."""
        shared = {
            name: getattr(self, name) and getattr(other, name)
            for name in self.__slots__
            if name not in ("scores", "window")
        }
        scores = self.scores if self.scores == other.scores else ""
        windows = [window for window in (self.window, other.window) if window]
        return Features(**shared, scores=scores, window=min(windows, default=0))


@dataclass(slots=True)
class OpenAIEndpoint(Endpoint):
    """One server, which program it is, and what it supports. ``window_from``: who told its context length."""

    kind: str = ""
    features: Features = Features()
    window_from: str = ""
    adapters: bool = False

    @property
    def about(self) -> str:
        """One line about it."""
        features = self.features
        scores = {"": "no", "echo": "yes (echo)", "steps": "yes (a request per token)"}[features.scores]
        supported = {
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
        listed = ", ".join(
            f"{name} {value if isinstance(value, str) else 'yes' if value else 'no'}"
            for name, value in supported.items()
        )
        thinks = "; it thinks before it replies, out of each reply's tokens" if features.thinks else ""
        kind = f" ({self.kind})" if self.kind else ""
        return (
            f"{self.url}{kind} serves '{self.model}': {listed}; context {self.window} tokens "
            f"({self.window_from}){thinks}"
        )


class _Probe:
    """The requests to one server while it is opened."""

    def __init__(self, client: httpx.AsyncClient, url: str, config: ModelConfig) -> None:
        self.client, self.url, self.config = client, url, config
        self.refusal = ""  # what it said when it last refused

    async def require(self, route: str, body: dict[str, Any] | None, read: Callable[[Any], Result]) -> Result:
        """Ask for what must be there. Raises as :func:`send_opening`."""
        return await send_opening(self.client, self.url + route, body, read, self.config.retries)

    async def attempt(self, route: str, body: dict[str, Any], read: Callable[[Any], Result]) -> Result | None:
        """Ask for what may be refused, if only by failing whenever it is asked; None then."""
        retries = min(self.config.retries, _OPTIONAL_RETRIES)
        try:
            return await send_opening(self.client, self.url + route, body, read, retries)
        except (StatusError, FaultyServerError) as refusal:
            self.refusal = str(refusal)
            return None

    async def look_up(self, route: str, body: dict[str, Any] | None = None) -> Any:
        """Ask for what only servers of some kind know; None if this one does not, whatever it answers."""
        try:
            return await send_opening(self.client, self.url + route, body, lambda reply: reply, 1)
        except (StatusError, BackendError):
            return None


async def probe_servers(
    client: httpx.AsyncClient, urls: Sequence[str], config: ModelConfig, renderer: Renderer | None
) -> list[OpenAIEndpoint]:
    """Probe several servers at the same time."""
    return list(await asyncio.gather(*(probe_server(client, url, config, renderer) for url in urls)))


async def probe_server(
    client: httpx.AsyncClient, url: str, config: ModelConfig, renderer: Renderer | None
) -> OpenAIEndpoint:
    """Ask a server which model it serves, and find out what it supports with some fifteen short requests.

    Raises :class:`BackendError` if it cannot be reached or answers nothing useful, :class:`ConfigError` if it
    has no such model, or another tokenizer than was named.
    """
    probe = _Probe(client, url, config)
    models = await _list_models(probe)
    model, named = _choose_model(models, config, url)
    listed = next((each for each in models if each["id"] == model), {"id": model})
    # vLLM tells a window of the base model only, not of its adapters.
    base = next((each for each in models if each["id"] == listed.get("parent")), {})
    listed = {**base, **{name: value for name, value in listed.items() if value is not None}}
    kind, window, source = await _identify(probe, listed)
    if config.max_context:
        window = min(window or config.max_context, config.max_context)
        source = "by --model.max_context" if window == config.max_context else source
    if not window:
        window, source = DEFAULT_WINDOW, "a guess, it does not tell: set --model.max_context"
    features = replace(await _probe_features(probe, model, kind, renderer), window=window)
    return OpenAIEndpoint(
        url, model, window, named, kind=kind, features=features, window_from=source, adapters=len(models) > 1
    )


async def _list_models(probe: _Probe) -> Sequence[Mapping[str, Any]]:
    """Return the models that a server lists; none if it has no list."""
    try:
        return await probe.require("/v1/models", None, read_models)
    except StatusError as refusal:
        if refusal.status in _NOT_HERE:
            return ()
        raise BackendError(
            f"{probe.url} refuses to list its models ({refusal}): correct --model.urls, or put its API key "
            f"into the environment variable {probe.config.api_key_variable}."
        ) from None


def read_models(reply: Any) -> list[dict[str, Any]]:
    """Read the models that a server lists, each with its "id"."""
    models = parts(reply, "data", kind=dict)
    for model in models:
        part(model, "id", kind=str)
    return list(models)


def _choose_model(models: Sequence[Mapping[str, Any]], config: ModelConfig, url: str) -> tuple[str, bool]:
    """Return the name of the model to ask, and whether it is the one that was named."""
    wanted = config.adapter or config.name
    for model in models:
        names = {model["id"], model.get("root"), str(model["id"]).removesuffix(":latest")}
        if wanted in names or wanted == PurePath(str(model["id"])).stem:
            return str(model["id"]), True
    if not models and (config.adapter or config.name != "default"):
        return wanted, True  # it has no list, as some proxies
    # What makes vectors of texts is listed beside what writes them.
    writing = [str(model["id"]) for model in models if "embed" not in str(model["id"]).lower()]
    if len(writing) == 1 and wanted == "default":
        return writing[0], False  # the only one
    if not models:
        raise ConfigError(
            f"the server {url} does not list its models: correct --model.urls, or name the model with "
            "--model.name."
        )
    listed = ", ".join(writing[:_NAMES_SHOWN]) + (" and others" if len(writing) > _NAMES_SHOWN else "")
    raise ConfigError(
        f"the server {url} serves {listed or 'no model that writes'}, but not '{wanted}': name one of its "
        f"models with --model.{'adapter' if config.adapter else 'name'}."
    )


async def _identify(probe: _Probe, model: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return which program a server is, its context length, and who told that: "", 0 and "" if not known."""
    owner = {"vllm": "vLLM", "sglang": "SGLang"}.get(str(model.get("owned_by", "")), "")
    for name in ("max_model_len", "context_length", "max_context_length"):
        if isinstance(model.get(name), int) and model[name] > 0:
            return owner, model[name], "told by it"
    if owner:
        return owner, 0, ""
    # llama.cpp: what each of its slots has, which is less than what the model was made for.
    properties = await probe.look_up("/props")
    window = number(properties, "default_generation_settings", "n_ctx")
    if window:
        return "llama.cpp", window, "told by it"
    if found := await _lm_studio_window(probe, str(model["id"])):
        return "LM Studio", *found
    shown = await probe.look_up("/api/show", {"model": model["id"]})
    if isinstance(shown, dict) and "model_info" in shown:
        return "Ollama", *await _ollama_window(probe, str(model["id"]), shown)
    return "", 0, ""


async def _lm_studio_window(probe: _Probe, model: str) -> tuple[int, str] | None:
    """Return the length that LM Studio loaded a model with; None if it is another server."""
    for attempt in range(2):
        listed = _dicts(await probe.look_up("/api/v0/models"), "data")
        found = [each for each in listed if each.get("id") == model]
        if not found:
            return None
        if window := number(found[0], "loaded_context_length"):
            return window, "told by it"
        if (
            not attempt
        ):  # not loaded yet: the first request loads it, with a length that is LM Studio's choice
            turns = [{"role": "user", "content": _PROMPT}]
            asked = {"model": model, "messages": turns, "max_tokens": 1, "temperature": 0}
            await probe.attempt(CHAT, asked, lambda reply: reply)
    window = number(found[0], "max_context_length")
    return window, "what the model was made for: set --model.max_context if it was loaded with less"


async def _ollama_window(probe: _Probe, model: str, shown: Mapping[str, Any]) -> tuple[int, str]:
    """Return what Ollama reads at once. What is longer it cuts without a word, so it must be known."""
    # Not what the model was made for ("llama.context_length"), but what it was loaded with; it is loaded now.
    await probe.attempt("/api/generate", {"model": model, "prompt": "", "stream": False}, lambda reply: reply)
    for each in _dicts(await probe.look_up("/api/ps"), "models"):
        if each.get("model") == model and (window := number(each, "context_length")):
            return window, "told by it"
    if found := re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters", "")), re.MULTILINE):
        return int(found[1]), "told by it"
    return DEFAULT_WINDOW, "Ollama's default: set OLLAMA_CONTEXT_LENGTH there and --model.max_context here"


def _dicts(reply: Any, name: str) -> Sequence[dict[str, Any]]:
    """Return the objects that are listed in a reply, none if it is another reply."""
    try:
        return parts(reply, name, kind=dict)
    except NonsenseError:
        return ()


async def _probe_features(probe: _Probe, model: str, kind: str, renderer: Renderer | None) -> Features:
    """Find out what a server supports."""
    asked = {"model": model, "max_tokens": 1, "temperature": 0}
    # Each is left out if the server refuses it. The bias shows log-probabilities that were changed by it.
    settings = {"logit_bias": {str(UNLIKELY): 100}, **extra_settings(0, 1.0)}
    text = await _probe_route(
        probe, COMPLETIONS, asked | {"prompt": _PROMPT}, settings, {"logprobs": 1}, text_logprob
    )
    turns = [{"role": "user", "content": _PROMPT}]
    chat = await _probe_route(
        probe, CHAT, asked | {"messages": turns}, settings, {"logprobs": True, "top_logprobs": 1},
        chat_logprob,
    )  # fmt: skip
    templated = text is not None and await _applies_template(probe, asked)
    known = [found for found in (text, chat) if found is not None]
    if not known:
        raise BackendError(
            f"{probe.url} refuses to continue a text as '{model}' ({probe.refusal}): look at its log, or "
            "name another model with --model.name."
        )
    features = Features(
        completions=text is not None and not (templated and chat is not None),
        templated=templated,
        chat=chat is not None,
        logprobs=all(found.logprobs for found in known),
        settings=all(found.settings for found in known),
        special_tokens=kind in ("vLLM", "SGLang"),
        thinks=chat is not None and chat.thinks,
    )
    features = await _probe_sampling(probe, asked, turns, features)
    if kind == "llama.cpp":
        features = replace(
            features, template=await probe.attempt(TEMPLATE, {"messages": turns}, filled_template) is not None
        )
    ids = await _tokenize(probe, model)
    if renderer is not None:
        _require_same_tokenizer(ids, renderer, probe)
    features = replace(features, tokenizer=ids is not None)
    return replace(features, **await _probe_scoring(probe, asked, kind, renderer, features))


async def _applies_template(probe: _Probe, asked: dict[str, Any]) -> bool:
    """Whether a server puts its chat template around the texts that it completes."""

    async def tokens(text: str) -> int:
        body = asked | {"prompt": text}
        return (
            await probe.attempt(COMPLETIONS, body, lambda reply: number(reply, "usage", "prompt_tokens")) or 0
        )

    # Twice the text has twice the tokens, but only one template. (In this order: else a count that leaves out
    # cached tokens would look like a template.)
    twice, once = await tokens(f"{_PROMPT} {_PROMPT}"), await tokens(_PROMPT)
    return twice > 0 and 2 * once - twice > _MOST_SPECIAL


@dataclass(frozen=True, slots=True)
class _RouteFeatures:
    logprobs: bool
    settings: bool
    thinks: bool = False


async def _probe_route(
    probe: _Probe,
    route: str,
    body: dict[str, Any],
    settings: dict[str, Any],
    logprobs: dict[str, Any],
    read: Callable[[Any], float | None],
) -> _RouteFeatures | None:
    """Find out what a route takes, the most first; None if there is no such route."""
    try:
        thinks = await probe.require(route, body, lambda reply: (read(reply), began_with_thought(reply))[1])
    except StatusError as refusal:
        probe.refusal = str(refusal)
        return None
    for further in (settings | logprobs, logprobs, settings):
        told = await probe.attempt(route, body | further, lambda reply: (read(reply),))
        if told is not None:
            # One that is certain was computed after the bias, so is not the model's own.
            raw = told[0] is not None and told[0] < _CERTAIN
            return _RouteFeatures(raw, settings.items() <= further.items(), thinks)
    return _RouteFeatures(logprobs=False, settings=False, thinks=thinks)


async def _probe_sampling(
    probe: _Probe, asked: dict[str, Any], turns: list[dict[str, str]], features: Features
) -> Features:
    """Find out whether seeds are obeyed, top_k is, and several samples are given."""
    drawing = asked | {"temperature": 1.0, "max_tokens": 8}
    route = CHAT if features.chat else COMPLETIONS
    drawing |= {"messages": turns} if features.chat else {"prompt": _PROMPT}

    def texts(reply: Any) -> list[str]:
        choices = parts(reply, "choices", kind=dict)
        part(choices, 0, kind=dict)
        return [choice_text(choice, chat=features.chat) for choice in choices]

    # One after another: what is computed together may differ in a last digit.
    drawn = [await probe.attempt(route, drawing | {"seed": seed}, texts) for seed in (11, 11, 12, 13)]
    obeyed = None not in drawn and drawn[0] == drawn[1] and not drawn[0] == drawn[2] == drawn[3]
    several = await probe.attempt(route, drawing | {"n": 2, "max_tokens": 1}, texts)
    # Of the likeliest token alone every sample is the same, however hot.
    hot = drawing | {"temperature": 2.0, **extra_settings(1, 1.0)}
    alike = [
        await probe.attempt(route, hot | {"seed": seed}, texts) for seed in (11, 12, 13) if features.settings
    ]
    # Texts that are all empty, where a model only thought, show nothing.
    said = [text for text in alike if text is not None and any(text)]
    sampling = len(said) == 3 and said[0] == said[1] == said[2]
    samples = several is not None and len(several) == 2
    return replace(features, seeds=obeyed, samples=samples, sampling=sampling)


async def _tokenize(probe: _Probe, model: str) -> list[int] | None:
    """Return how a server splits a text into token ids; None if it does not say."""
    reply = await probe.look_up(TOKENIZE, tokenize_body(model, TOKENIZER_TEXT))
    try:
        return list(parts(reply, "tokens", kind=int))
    except NonsenseError:
        return None


def _require_same_tokenizer(ids: list[int] | None, renderer: Renderer, probe: _Probe) -> None:
    if ids is not None and ids != renderer.text_ids(TOKENIZER_TEXT):
        raise ConfigError(
            f"the server {probe.url} splits texts into other tokens than the tokenizer "
            f"'{probe.config.tokenizer}': name that of the model it serves with --model.tokenizer, or none."
        )


async def _probe_scoring(
    probe: _Probe, asked: dict[str, Any], kind: str, renderer: Renderer | None, features: Features
) -> dict[str, Any]:
    """Find out whether completions take token ids, and how a given text can be scored."""
    found: dict[str, Any] = {}
    if renderer is not None and features.completions:
        ids = renderer.text_ids(_PROMPT)
        echoing = asked | {"prompt": ids, "logprobs": 1, "echo": True}
        if await probe.attempt(COMPLETIONS, echoing, lambda reply: echoed(reply, len(ids))):
            return {"token_ids": True, "scores": "echo"}
        # As many tokens as were sent, perhaps one more at the beginning: ids, and not the text of a list.
        read = await probe.attempt(
            COMPLETIONS, asked | {"prompt": ids}, lambda reply: number(reply, "usage", "prompt_tokens")
        )
        found["token_ids"] = read in (len(ids), len(ids) + 1)
    if kind == "llama.cpp" and features.tokenizer and (features.template or renderer is not None):
        forced = await probe.attempt(NATIVE, forcing_body(_PROMPT, UNLIKELY), forced_logprob)
        if forced is not None and forced[0] == UNLIKELY and forced[1] < _CERTAIN:
            found["scores"] = "steps"
    return found
