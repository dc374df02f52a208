"""What a server offers that speaks OpenAI's protocol: found out once, when it is opened, and said in a line.

The protocol is one, what servers make of it differs: whether they tell log-probabilities, take token ids,
obey a seed, know their context length. Nothing is taken from a table of products. Each is asked, with
requests of a few tokens, and what it refuses or leaves out is what it lacks.
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
from generation.endpoints import Endpoint, NonsenseError, StatusError, part, parts, send_opening
from generation.rendering import Renderer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# llama.cpp's own routes, beside OpenAI's.
NATIVE, TEMPLATE, TOKENIZE = "/completion", "/apply-template", "/tokenize"
DEFAULT_WINDOW = 4096  # tokens, where a server does not tell and nobody says: what Ollama gives a model
_NOT_HERE = frozenset({404, 405, 501})
_NAMES_SHOWN = 10
# Hardly what a model would say to the probe: pushed up by a bias, it must not look certain.
_UNLIKELY = 7
_CERTAIN = -0.001  # log-probability
_PROBE = "The river runs through the valley to the"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Offers:
    """What one server, or each of several, can do.

    Attributes:
        chat: has /v1/chat/completions.
        completions: has /v1/completions that continue a text as it stands.
        token_ids: completions take token ids in the place of text.
        logprobs: tells the log-probabilities of what it generates, from before any penalty or bias.
        scores: how log P of a given text can be had: out of an "echo" of the prompt, token by token in
            "steps", or not.
        template: fills in its chat template and returns the text (llama.cpp).
        tokenizer: splits a text into the ids that it reads.
        seeds: equal seeds give equal samples, others others.
        samples: gives several samples of one request.
        settings: takes top_k and repetition penalties.
        special_tokens: spells special tokens out on request.
        window: context length in tokens; 0 if it does not tell.
    """

    chat: bool = False
    completions: bool = False
    token_ids: bool = False
    logprobs: bool = False
    scores: Literal["", "echo", "steps"] = ""
    template: bool = False
    tokenizer: bool = False
    seeds: bool = False
    samples: bool = False
    settings: bool = False
    special_tokens: bool = False
    window: int = 0

    @property
    def lacks(self) -> frozenset[Ability]:
        """What methods may want and these servers do not offer."""
        offered = {
            Ability.LOGPROBS: self.logprobs,
            Ability.SCORES: bool(self.scores),
            Ability.SPECIAL_TOKENS: self.special_tokens,
            Ability.SAMPLING: self.settings,
        }
        return frozenset(ability for ability, there in offered.items() if not there)

    def both(self, other: Offers) -> Offers:
        """Return what two servers both offer: a request may go to either."""
        shared = {
            name: getattr(self, name) and getattr(other, name)
            for name in self.__slots__
            if name not in ("scores", "window")
        }
        scores = self.scores if self.scores == other.scores else ""
        windows = [window for window in (self.window, other.window) if window]
        return Offers(**shared, scores=scores, window=min(windows, default=0))


@dataclass(slots=True)
class OpenAIEndpoint(Endpoint):
    """One server, what it is, and what it offers. ``windows_from``: who told its context length."""

    kind: str = ""
    offers: Offers = Offers()
    window_from: str = ""
    adapters: bool = False

    @property
    def about(self) -> str:
        """One line about it."""
        offers = self.offers
        scores = {"": "no", "echo": "yes (echo)", "steps": "yes (a request per token)"}[offers.scores]
        told = {
            "chat": offers.chat,
            "completions": offers.completions,
            "log-probabilities": offers.logprobs,
            "scores of given texts": scores,
            "tokenizer": offers.tokenizer,
            "seeds": offers.seeds,
            "n": offers.samples,
            "top_k and penalties": offers.settings,
            "adapters by model name": self.adapters,
        }
        listed = ", ".join(
            f"{name} {value if isinstance(value, str) else 'yes' if value else 'no'}"
            for name, value in told.items()
        )
        kind = f" ({self.kind})" if self.kind else ""
        return (
            f"{self.url}{kind} serves '{self.model}': {listed}; context {self.window} tokens "
            f"({self.window_from})"
        )


class _Asker:
    """Asks one server while it is opened."""

    def __init__(self, client: httpx.AsyncClient, url: str, config: ModelConfig) -> None:
        self.client, self.url, self.config = client, url, config
        self.refusal = ""  # what it said when it last refused

    async def ask(self, route: str, body: dict[str, Any] | None, read: Callable[[Any], Result]) -> Result:
        """Ask for what must be there. Raises as :func:`send_opening`."""
        return await send_opening(self.client, self.url + route, body, read, self.config.retries)

    async def try_(self, route: str, body: dict[str, Any], read: Callable[[Any], Result]) -> Result | None:
        """Ask for what may be refused; None then."""
        try:
            return await self.ask(route, body, read)
        except StatusError as refusal:
            self.refusal = str(refusal)
            return None

    async def look_up(self, route: str, body: dict[str, Any] | None = None) -> Any:
        """Ask for what only servers of some kind know; None if this one does not, whatever it answers."""
        try:
            return await send_opening(self.client, self.url + route, body, lambda reply: reply, 1)
        except (StatusError, BackendError):
            return None


async def meet(
    client: httpx.AsyncClient, url: str, config: ModelConfig, renderer: Renderer | None
) -> OpenAIEndpoint:
    """Ask a server which model it serves and try out what it can do, with about ten short requests.

    Raises :class:`BackendError` if it cannot be reached or answers nothing useful, :class:`ConfigError` if it
    has no such model, or another tokenizer than was named.
    """
    asker = _Asker(client, url, config)
    models = await _list(asker)
    model, named = _choose(models, config, url)
    told = next((each for each in models if each["id"] == model), {"id": model})
    kind, window, source = await _describe(asker, told)
    if config.max_context:
        window = min(window or config.max_context, config.max_context)
        source = "by --model.max_context" if window == config.max_context else source
    if not window:
        window, source = DEFAULT_WINDOW, "a guess, it does not tell: set --model.max_context"
    offers = replace(await _try_out(asker, model, kind, renderer), window=window)
    return OpenAIEndpoint(
        url, model, window, named, kind=kind, offers=offers, window_from=source, adapters=len(models) > 1
    )


async def _list(asker: _Asker) -> Sequence[Mapping[str, Any]]:
    """Return the models that a server lists; none if it has no list."""

    def read(reply: Any) -> Sequence[Mapping[str, Any]]:
        models = parts(reply, "data", kind=dict)
        for model in models:
            part(model, "id", kind=str)
        return models

    try:
        return await asker.ask("/v1/models", None, read)
    except StatusError as refusal:
        if refusal.status in _NOT_HERE:
            return ()
        raise BackendError(
            f"{asker.url} refuses to list its models ({refusal}): correct --model.urls, or put its API key "
            f"into the environment variable {asker.config.api_key_variable}."
        ) from None


def _choose(models: Sequence[Mapping[str, Any]], config: ModelConfig, url: str) -> tuple[str, bool]:
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
    if len(writing) == 1 and not config.adapter:
        return writing[0], False  # served under a name of its own
    listed = ", ".join(writing[:_NAMES_SHOWN]) + (" and others" if len(writing) > _NAMES_SHOWN else "")
    raise ConfigError(
        f"the server {url} serves {listed or 'nothing that it lists'}, but not '{wanted}': name one of its "
        f"models with --model.{'adapter' if config.adapter else 'name'}."
    )


async def _describe(asker: _Asker, model: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return which program a server is ("" if not known), its context length (0), and where that stands."""
    owner = {"vllm": "vLLM", "sglang": "SGLang"}.get(str(model.get("owned_by", "")), "")
    for name in ("max_model_len", "context_length", "max_context_length"):
        if isinstance(model.get(name), int) and model[name] > 0:
            return owner, model[name], "told by it"
    if owner:
        return owner, 0, ""
    # llama.cpp: what each of its slots has, which is less than what the model was made for.
    properties = await asker.look_up("/props")
    window = _number(properties, "default_generation_settings", "n_ctx")
    if window:
        return "llama.cpp", window, "told by it"
    # LM Studio: the length that the model was loaded with.
    listed = await asker.look_up("/api/v0/models")
    for each in _dicts(listed, "data"):
        if each.get("id") == model["id"]:
            window = _number(each, "loaded_context_length") or _number(each, "max_context_length")
            return "LM Studio", window, "told by it"
    shown = await asker.look_up("/api/show", {"model": model["id"]})
    if isinstance(shown, dict) and "model_info" in shown:
        return "Ollama", *await _ollama_window(asker, str(model["id"]), shown)
    return "", 0, ""


async def _ollama_window(asker: _Asker, model: str, shown: Mapping[str, Any]) -> tuple[int, str]:
    """Return what Ollama reads at once. What is longer it cuts without a word, so it must be known."""
    # Not what the model was made for ("llama.context_length"), but what it was loaded with; it is loaded now.
    await asker.try_("/api/generate", {"model": model, "prompt": "", "stream": False}, lambda reply: reply)
    for each in _dicts(await asker.look_up("/api/ps"), "models"):
        if each.get("model") == model and (window := _number(each, "context_length")):
            return window, "told by it"
    if found := re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters", "")), re.MULTILINE):
        return int(found[1]), "told by it"
    return DEFAULT_WINDOW, "Ollama's default: set OLLAMA_CONTEXT_LENGTH there and --model.max_context here"


def _number(reply: Any, *path: str) -> int:
    """Return a number at a place in a reply, 0 if there is none."""
    try:
        return part(reply, *path, kind=int)
    except NonsenseError:
        return 0


def _dicts(reply: Any, name: str) -> Sequence[dict[str, Any]]:
    """Return the objects that are listed in a reply, none if it is another reply."""
    try:
        return parts(reply, name, kind=dict)
    except NonsenseError:
        return ()


async def _try_out(asker: _Asker, model: str, kind: str, renderer: Renderer | None) -> Offers:
    """Find out what a server can do."""
    asked = {"model": model, "max_tokens": 1, "temperature": 0}
    # Each is left out if the server refuses it. The bias shows log-probabilities that were changed by it.
    settings = {"logit_bias": {str(_UNLIKELY): 100}, **extra_settings(0, 1.0)}
    text = await _richest(
        asker, COMPLETIONS, asked | {"prompt": _PROBE}, settings, {"logprobs": 1}, _text_logprob
    )
    turns = [{"role": "user", "content": _PROBE}]
    chat = await _richest(
        asker, CHAT, asked | {"messages": turns}, settings, {"logprobs": True, "top_logprobs": 1},
        _chat_logprob,
    )  # fmt: skip
    known = [found for found in (text, chat) if found is not None]
    if not known:
        raise BackendError(
            f"{asker.url} refuses to continue a text as '{model}' ({asker.refusal}): look at its log, or "
            "name another model with --model.name."
        )
    offers = Offers(
        completions=text is not None,
        chat=chat is not None,
        logprobs=all(found.logprobs for found in known),
        settings=all(found.settings for found in known),
        special_tokens=kind in ("vLLM", "SGLang"),
    )
    offers = await _try_samples(asker, asked, turns, offers)
    if kind == "llama.cpp":
        offers = replace(
            offers, template=await asker.try_(TEMPLATE, {"messages": turns}, _prompt) is not None
        )
    ids = await _tokenize(asker, model)
    if renderer is not None:
        _compare(ids, renderer, asker)
    offers = replace(offers, tokenizer=ids is not None)
    return replace(offers, **await _try_scores(asker, asked, kind, renderer, offers))


@dataclass(frozen=True, slots=True)
class _Found:
    logprobs: bool
    settings: bool


async def _richest(
    asker: _Asker,
    route: str,
    body: dict[str, Any],
    settings: dict[str, Any],
    logprobs: dict[str, Any],
    read: Callable[[Any], float | None],
) -> _Found | None:
    """Ask for as much as a route takes, and return what of it came; None if there is no such route."""
    for further in (settings | logprobs, logprobs, settings, {}):
        try:
            found = await asker.ask(route, body | further, lambda reply: (read(reply),))
        except StatusError as refusal:
            asker.refusal = str(refusal)
            if refusal.status in _NOT_HERE:
                return None
            continue
        told = found[0]
        # One that is certain was computed after the bias, so is not the model's own.
        return _Found(told is not None and told < _CERTAIN, settings.items() <= further.items())
    return None


async def _try_samples(
    asker: _Asker, asked: dict[str, Any], turns: list[dict[str, str]], offers: Offers
) -> Offers:
    """Find out whether seeds are obeyed, and several samples given."""
    drawing = asked | {"temperature": 1.0, "max_tokens": 8}
    route = CHAT if offers.chat else COMPLETIONS
    drawing |= {"messages": turns} if offers.chat else {"prompt": _PROBE}

    def texts(reply: Any) -> list[str]:
        choices = parts(reply, "choices", kind=dict)
        part(choices, 0, kind=dict)
        return [choice_text(choice, chat=offers.chat) for choice in choices]

    # One after another: what is computed together may differ in a last digit.
    drawn = [await asker.try_(route, drawing | {"seed": seed}, texts) for seed in (11, 11, 12, 13)]
    obeyed = None not in drawn and drawn[0] == drawn[1] and not drawn[0] == drawn[2] == drawn[3]
    several = await asker.try_(route, drawing | {"n": 2, "max_tokens": 1}, texts)
    return replace(offers, seeds=obeyed, samples=several is not None and len(several) == 2)


async def _tokenize(asker: _Asker, model: str) -> list[int] | None:
    """Return how a server splits a text into token ids; None if it does not say."""
    reply = await asker.look_up(TOKENIZE, tokenize_body(model, _SPLIT))
    try:
        return list(parts(reply, "tokens", kind=int))
    except NonsenseError:
        return None


# Where tokenizers differ: letters beyond ASCII, digits, an apostrophe.
_SPLIT = "Ein Dutzend Äpfel, 1984 and the river's end."


def _compare(ids: list[int] | None, renderer: Renderer, asker: _Asker) -> None:
    if ids is not None and ids != renderer.text_ids(_SPLIT):
        raise ConfigError(
            f"the server {asker.url} splits texts into other tokens than the tokenizer "
            f"'{asker.config.tokenizer}': name that of the model it serves with --model.tokenizer, or none."
        )


async def _try_scores(
    asker: _Asker, asked: dict[str, Any], kind: str, renderer: Renderer | None, offers: Offers
) -> dict[str, Any]:
    """Find out whether completions take token ids, and how a given text can be scored."""
    found: dict[str, Any] = {}
    if renderer is not None and offers.completions:
        ids = renderer.text_ids(_PROBE)
        echoing = asked | {"prompt": ids, "logprobs": 1, "echo": True}
        if await asker.try_(COMPLETIONS, echoing, lambda reply: _echoed(reply, len(ids))):
            return {"token_ids": True, "scores": "echo"}
        # As many tokens as were sent, perhaps one more at the beginning: ids, and not the text of a list.
        read = await asker.try_(
            COMPLETIONS, asked | {"prompt": ids}, lambda reply: _number(reply, "usage", "prompt_tokens")
        )
        found["token_ids"] = read in (len(ids), len(ids) + 1)
    if kind == "llama.cpp" and offers.tokenizer and (offers.template or renderer is not None):
        forced = await asker.try_(NATIVE, forcing_body(_PROBE, _UNLIKELY), forced_logprob)
        if forced is not None and forced[0] == _UNLIKELY and forced[1] < _CERTAIN:
            found["scores"] = "steps"
    return found


def extra_settings(top_k: int, repetition_penalty: float) -> dict[str, Any]:
    """Spell out what OpenAI's protocol has no word for: else a server fills in defaults of its own."""
    # The penalty has two names: vLLM's and SGLang's, and llama.cpp's and LM Studio's.
    penalty = {"repetition_penalty": repetition_penalty, "repeat_penalty": repetition_penalty}
    return {"top_k": top_k or -1, "min_p": 0.0, **penalty}


def tokenize_body(model: str, text: str, *, special: bool = False) -> dict[str, Any]:
    """Ask for the token ids of a text, in the words of llama.cpp's server and in those of vLLM's.

    ``special``: with what the tokenizer puts before a text.
    """
    return {
        "model": model, "prompt": text, "add_special_tokens": special,
        "content": text, "add_special": special, "parse_special": True,
    }  # fmt: skip


def forcing_body(prompt: str | Sequence[int], token: int) -> dict[str, Any]:
    """Ask llama.cpp's server to generate this one token, and for its log-probability before it was forced."""
    return {
        "prompt": prompt,
        "n_predict": 1,
        "temperature": 0,
        "logit_bias": [[token, 1e6]],
        "n_probs": 1,
        "post_sampling_probs": False,
        "cache_prompt": True,
    }


def forced_logprob(reply: Any) -> tuple[int, float, int]:
    """Read which token was generated, its log-probability, and how many prompt tokens were computed."""
    token = part(reply, "completion_probabilities", 0, kind=dict)
    computed = _number(reply, "timings", "prompt_n") or _number(reply, "tokens_evaluated")
    return part(token, "id", kind=int), part(token, "logprob", kind=float), computed


def choice_text(choice: Mapping[str, Any], *, chat: bool) -> str:
    """Read a sample's text. One that spent all its tokens on hidden reasoning has none."""
    if not chat:
        return part(choice, "text", kind=str)
    message = part(choice, "message", kind=dict)
    thought = message.get("reasoning_content") or message.get("reasoning")
    if message.get("content") is None and isinstance(thought, str):
        return ""
    return part(message, "content", kind=str)


def _text_logprob(reply: Any) -> float | None:
    choice = part(reply, "choices", 0, kind=dict)
    choice_text(choice, chat=False)
    told = choice.get("logprobs")
    if isinstance(told, dict) and "content" in told:  # llama.cpp's completions tell them as its chat does
        return _first_of_content(told)
    if not isinstance(told, dict) or not told.get("token_logprobs"):
        return None
    return part(told, "token_logprobs", 0, kind=float)


def _chat_logprob(reply: Any) -> float | None:
    choice = part(reply, "choices", 0, kind=dict)
    choice_text(choice, chat=True)
    told = choice.get("logprobs")
    return _first_of_content(told) if isinstance(told, dict) else None


def _first_of_content(told: Mapping[str, Any]) -> float | None:
    return part(told, "content", 0, "logprob", kind=float) if told.get("content") else None


def _echoed(reply: Any, length: int) -> bool:
    told = part(reply, "choices", 0, kind=dict).get("logprobs")
    values = told.get("token_logprobs") if isinstance(told, dict) else None
    # Of the first token there is none: nothing stands before it.
    return (
        isinstance(values, list)
        and len(values) > length
        and all(isinstance(value, float | int) for value in values[1:])
    )


def _prompt(reply: Any) -> str:
    return part(reply, "prompt", kind=str)


async def gathered(
    client: httpx.AsyncClient, urls: Sequence[str], config: ModelConfig, renderer: Renderer | None
) -> list[OpenAIEndpoint]:
    """Meet several servers at the same time."""
    return list(await asyncio.gather(*(meet(client, url, config, renderer) for url in urls)))
