r"""The back end for running vLLM servers: one or several OpenAI-compatible endpoints of the same model.

Start each with the scoring plug-in (this project must be importable where the server runs)::

    python -m vllm.entrypoints.openai.api_server --model MODEL --port 8000 --scheduling-policy priority \
        --enable-prompt-tokens-details --logits-processors generation.forced:ForcedDecoding

On a CPU also ``--no-enable-chunked-prefill``: a seeded sample whose prompt is read in chunks ends it there.

What a server lacks is found out once, when it is opened: without the plug-in it scores through
``prompt_logprobs`` (right, but slow), without priority scheduling it takes requests in order, without token
details its cache hits cannot be counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from core.errors import BackendError, ConfigError
from core.protocols import Completion, GenerateRequest, Generation, Sampling, Score, ScoreRequest
from core.seeds import stable_hash
from core.types import TokenUsage
from generation.config import ModelConfig
from generation.endpoints import (
    Endpoint,
    Endpoints,
    NonsenseError,
    StatusError,
    address,
    connect,
    part,
    parts,
    require_one_model,
    send_opening,
)
from generation.forced import FORCED_TOKENS
from generation.models import folder_digest, model_folder
from generation.probing import TOKENIZER_TEXT, read_models
from generation.rendering import Renderer

Result = TypeVar("Result")


@dataclass(slots=True)
class _Endpoint(Endpoint):
    """One server, and what it can do."""

    forces: bool = False
    priorities: bool = False


class ServerGenerator:
    """A :class:`core.protocols.Generator` spread over vLLM servers, as :class:`Endpoints` does it."""

    def __init__(self, endpoints: Endpoints[_Endpoint], renderer: Renderer, fingerprint: str) -> None:
        self._endpoints = endpoints
        self._renderer = renderer
        self.fingerprint = fingerprint
        self._window = min(endpoint.window for endpoint in endpoints.servers)

    @classmethod
    async def open(cls, config: ModelConfig) -> ServerGenerator:
        """Probe the servers.

        Raises :class:`BackendError` if one cannot be reached, :class:`ConfigError` if they do not fit.
        """
        folder = model_folder(config.name, weights=False)
        renderer = Renderer.load(folder, config.chat)
        client = connect(config)
        try:
            endpoints = await asyncio.gather(
                *(_probe(client, address(url), folder, renderer, config) for url in config.urls)
            )
            require_one_model(endpoints)
        except BaseException:
            await client.aclose()
            raise
        if config.max_context:
            for endpoint in endpoints:
                endpoint.window = min(endpoint.window, config.max_context)
        window = min(endpoint.window for endpoint in endpoints)
        identity = (
            f"server:{stable_hash(endpoints[0].model)}:{folder_digest(folder)}:{window}:chat={renderer.chat}"
        )
        return cls(Endpoints(client, endpoints, config.retries), renderer, identity)

    @property
    def retried(self) -> int:
        """How often a request was sent again."""
        return self._endpoints.retried

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._renderer.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        sampling = request.sampling
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - sampling.max_tokens)
        # One request per sample, seeded as in the engine of this process: of n > 1, servers tell one sample's
        # cache hits only. The samples find one another's prompt in the cache.
        replies = await asyncio.gather(
            *(
                self._ask(ids, _body(sampling, i), request, lambda reply: _read(reply, sampling.logprobs))
                for i in range(sampling.n)
            )
        )
        completions = tuple(self._renderer.with_token_texts(sample, ids, sampling) for sample, _ in replies)
        generated = sum(len(completion.token_ids) for completion in completions)
        computed = len(ids) - min(cached for _, cached in replies)
        return Generation(completions, TokenUsage(1, len(ids), generated, computed, generated), shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated."""
        target = self._renderer.target_ids(request)
        if not all(endpoint.forces for endpoint in self._endpoints.servers):
            return await self.score_by_prompt_logprobs(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target))
        body = {"max_tokens": len(target), "temperature": 0, "logprobs": 0, "ignore_eos": True}
        forcing = {**body, "vllm_xargs": {FORCED_TOKENS: target}}
        completion, cached = await self._ask(ids, forcing, request, lambda reply: _read(reply, logprobs=True))
        if list(completion.token_ids) != target or completion.logprobs is None:
            raise BackendError(
                "a server did not generate the tokens that it was forced to: restart it with the plug-in."
            )
        usage = TokenUsage(1, len(ids), len(target), len(ids) - cached, len(target))
        return Score(tuple(target), completion.logprobs, usage, shortening)

    async def score_by_prompt_logprobs(self, request: ScoreRequest) -> Score:
        """Return the same for servers without the plug-in: slow, as the prefix cache is not used for it."""
        target = self._renderer.target_ids(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target) - 1)
        body = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        logprobs = await self._ask(
            [*ids, *target], body, request, lambda reply: _prompt_logprobs(reply, len(ids), target)
        )
        usage = TokenUsage(1, len(ids), len(target), len(ids), len(target))
        return Score(tuple(target), logprobs, usage, shortening)

    async def close(self) -> None:
        """Close the connections. The servers go on."""
        await self._endpoints.close()

    async def _ask(
        self,
        ids: Sequence[int],
        body: dict[str, Any],
        request: GenerateRequest | ScoreRequest,
        read: Callable[[Any], Result],
    ) -> Result:
        """Send a completion request, and again if it fails. Raises as :class:`core.protocols.Generator`."""

        def full(endpoint: _Endpoint) -> dict[str, Any]:
            asked = {**body, "model": endpoint.model, "prompt": list(ids), "return_token_ids": True}
            return asked | ({"priority": request.priority} if endpoint.priorities else {})

        return await self._endpoints.ask("/v1/completions", full, read, request.affinity)


async def _probe(
    client: httpx.AsyncClient, url: str, folder: str, renderer: Renderer, config: ModelConfig
) -> _Endpoint:
    """Ask a server which model it serves, and find out what it supports."""
    try:
        models = await send_opening(client, f"{url}/v1/models", None, read_models, config.retries)
    except StatusError as refusal:
        raise BackendError(
            f"{url} does not answer as a vLLM server does ({refusal}): correct --model.urls or the API key."
        ) from None
    if not models:
        raise BackendError(f"the server {url} serves no model: load one there.")
    wanted = {config.adapter} if config.adapter else {config.name, folder}
    fitting = [model for model in models if wanted & {model["id"], model.get("root")}]
    named = bool(fitting)
    if not fitting and not config.adapter and len(models) == 1:
        fitting = models  # served under a name of its own: take the only one
    if not fitting:
        names = ", ".join(str(model["id"]) for model in models)
        raise ConfigError(
            f"the server {url} serves {names}, but not {' or '.join(sorted(wanted))}: correct --model.name."
        )
    windows = [model["max_model_len"] for model in [fitting[0], *models] if model.get("max_model_len")]
    if not windows:
        raise BackendError(
            f"{url} does not tell its context length, as vLLM servers do: for servers of "
            "other kinds write --model.backend openai."
        )
    endpoint = _Endpoint(url, str(fitting[0]["id"]), int(windows[0]), named)
    await _compare_tokenizers(client, endpoint, renderer, config)
    await _probe_features(client, endpoint, config.retries)
    return endpoint


async def _compare_tokenizers(
    client: httpx.AsyncClient, endpoint: _Endpoint, renderer: Renderer, config: ModelConfig
) -> None:
    """Refuse a server whose tokenizer splits a text otherwise: it would read our token ids as other words."""
    asked = {"model": endpoint.model, "prompt": TOKENIZER_TEXT, "add_special_tokens": False}
    try:
        tokens = await send_opening(
            client, f"{endpoint.url}/tokenize", asked, lambda reply: parts(reply, "tokens", kind=int),
            config.retries,
        )  # fmt: skip
    except StatusError:  # it does not say
        return
    if list(tokens) != renderer.text_ids(TOKENIZER_TEXT):
        raise ConfigError(
            f"the server {endpoint.url} serves '{endpoint.model}', whose tokenizer is not that of "
            f"'{config.name}': set --model.name to the model that it serves, so that prompts are tokenised "
            "as it expects."
        )


async def _probe_features(client: httpx.AsyncClient, endpoint: _Endpoint, retries: int) -> None:
    """Find out whether a server takes priorities and forces tokens; refuse one with processed logprobs."""
    # One request tells all: it asks for a priority, forces two tokens, and pushes the first of them up by a
    # bias that raw log-probabilities do not show. What it refuses, or what comes back, says what the server
    # can do.
    probe = [7, 3]  # hardly what a model would say to token 5
    body = {
        "model": endpoint.model,
        "prompt": [5],
        "max_tokens": 2,
        "temperature": 0,
        "logprobs": 5,
        "logit_bias": {str(probe[0]): 100.0},
        "ignore_eos": True,
    }
    body |= {"return_token_ids": True, "vllm_xargs": {FORCED_TOKENS: probe}}
    for priorities in (True, False):
        full = {**body, "priority": int(priorities)}
        try:
            choice = await send_opening(client, f"{endpoint.url}/v1/completions", full, _tried, retries)
            break
        except StatusError as refusal:
            refused = refusal
    else:
        raise BackendError(f"the server {endpoint.url} refuses completions: {refused}")
    tokens = choice.get("token_ids")
    if tokens is None:
        raise BackendError(
            f"the server {endpoint.url} does not return token ids: use a vLLM server of version 0.10.2 or "
            "later, or --model.backend openai."
        )
    if not _are_raw(choice["logprobs"]):
        raise ConfigError(
            f"the server {endpoint.url} does not report the model's own log-probabilities, by which answers "
            "are scored and some methods decide: start it with --logprobs-mode raw_logprobs, vLLM's default."
        )
    endpoint.priorities, endpoint.forces = priorities, tokens == probe


def _are_raw(told: dict[str, Any]) -> bool:
    """Whether these are log-probabilities from before a token was pushed up by a bias."""
    # After the bias the token would be all but certain, and logits do not add up to one.
    unlikely, best = told["token_logprobs"][0], (told.get("top_logprobs") or [{}])[0]
    return bool(unlikely < -0.001 and sum(math.exp(min(value, 1.0)) for value in best.values()) < 1.01)


def _body(sampling: Sampling, sample: int) -> dict[str, Any]:
    """Spell out every setting: what is left out, a server fills in from the model's own generation_config."""
    greedy = sampling.temperature == 0
    body: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": 0 if greedy else sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": sampling.repetition_penalty,
        "stop": list(sampling.stop),
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias} or None,
        "logprobs": 0 if sampling.logprobs else None,
        "seed": None if greedy or sampling.seed is None else sampling.seed + sample,
        "skip_special_tokens": not sampling.special_tokens,
    }
    return {name: value for name, value in body.items() if value is not None}


def _tried(reply: Any) -> dict[str, Any]:
    """Read what came back when a server was tried out: one choice, with log-probabilities."""
    choice = part(reply, "choices", 0, kind=dict)
    length = None if choice.get("token_ids") is None else len(parts(choice, "token_ids", kind=int))
    parts(choice, "logprobs", "token_logprobs", kind=float, length=length)
    part(choice, "logprobs", "token_logprobs", 0, kind=float)
    for best in part(choice, "logprobs", kind=dict).get("top_logprobs") or []:
        parts(list(part(best, kind=dict).values()), kind=float)
    return choice


def _read(reply: Any, logprobs: bool) -> tuple[Completion, int]:
    """Read a sample, and how many tokens of its prompt the server found in its cache; 0 if it does not tell.

    Raises :class:`NonsenseError`.
    """
    choice = part(reply, "choices", 0, kind=dict)
    tokens = parts(choice, "token_ids", kind=int)
    completion = Completion(
        text=part(choice, "text", kind=str),
        token_ids=tokens,
        finish_reason=part(choice, "finish_reason", kind=str),
        logprobs=(
            parts(choice, "logprobs", "token_logprobs", kind=float, length=len(tokens)) if logprobs else None
        ),
    )
    details = part(reply, "usage", kind=dict).get("prompt_tokens_details") or {}
    cached = part(details, kind=dict).get("cached_tokens") or 0
    return completion, part(cached, kind=int)


def _prompt_logprobs(reply: Any, start: int, target: Sequence[int]) -> tuple[float, ...]:
    """Read the log-probabilities of a target that stood in the prompt from ``start`` on."""
    rows = part(reply, "choices", 0, "prompt_logprobs", kind=list)
    if len(rows) != start + len(target):
        raise NonsenseError(f"a reply with log-probabilities of {len(rows)} prompt tokens")
    places = enumerate(target, start)
    return tuple(part(rows, place, str(token), "logprob", kind=float) for place, token in places)
