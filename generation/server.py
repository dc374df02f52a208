r"""The back end for running vLLM servers: one or several OpenAI-compatible endpoints of the same model.

Start each with the scoring plug-in (this project must be importable where the server runs)::

    vllm serve MODEL --port 8000 --scheduling-policy priority --enable-prompt-tokens-details \
        --logits-processors generation.forced:ForcedDecoding

What a server lacks is found out once, when it is opened: without the plug-in it scores through
``prompt_logprobs`` (right, but slow), without priority scheduling it takes requests in order, without token
details its cache hits cannot be counted.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import httpx
import orjson

from core.errors import BackendError, ConfigError, RequestRefusedError
from core.protocols import Completion, GenerateRequest, Generation, Sampling, Score, ScoreRequest
from core.retry import TryAgainError, retrying
from core.seeds import stable_hash
from core.types import TokenUsage
from generation.config import ModelConfig
from generation.forced import FORCED_TOKENS
from generation.models import folder_digest, model_folder
from generation.rendering import Renderer

_RETRIED = frozenset({408, 429, 500, 502, 503, 504})  # overloaded, restarting, or behind a proxy that is
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # a server that comes back has a model to load
# Far more questions than are in flight: one that is forgotten loses a cached prefix.
_MAX_AFFINITIES = 100_000


@dataclass(slots=True)
class _Endpoint:
    """One server, what it can do, and how much it has to do.

    ``named``: its model has the name that was asked for.
    """

    url: str
    model: str
    window: int
    named: bool
    forces: bool = False
    priorities: bool = False
    load: int = 0


class ServerGenerator:
    """A :class:`core.protocols.Generator` spread over vLLM servers.

    Requests of one affinity stay on one server, for its prefix cache; a new affinity goes to the server with
    the least in flight. A request that a server fails to answer is sent again, to the server with the least
    in flight, after a pause.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        endpoints: Sequence[_Endpoint],
        renderer: Renderer,
        retries: int,
        fingerprint: str,
    ) -> None:
        """``endpoints``: at least one. ``retries``: how often a failed request is sent again."""
        self._client = client
        self._endpoints = list(endpoints)
        self._renderer = renderer
        self._retries = retries
        self.fingerprint = fingerprint
        self._window = min(endpoint.window for endpoint in endpoints)
        self._homes: OrderedDict[str, _Endpoint] = OrderedDict()

    @classmethod
    async def open(cls, config: ModelConfig) -> ServerGenerator:
        """Meet the servers.

        Raises :class:`BackendError` if one cannot be reached, :class:`ConfigError` if they do not fit.
        """
        folder = model_folder(config.name, weights=False)
        renderer = Renderer.load(folder, config.chat)
        key = os.environ.get(config.api_key_variable, "")
        client = httpx.AsyncClient(
            timeout=httpx.Timeout(config.timeout_s, connect=min(10.0, config.timeout_s)),
            # No limit: the run bounds what is in flight, and the server's queue knows priorities, ours does
            # not.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        try:
            endpoints = await asyncio.gather(
                *(_meet(client, url.rstrip("/"), folder, renderer, config) for url in config.urls)
            )
            _require_one_model(endpoints)
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
        return cls(client, endpoints, renderer, config.retries, identity)

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
            *(self._ask(ids, _body(sampling, i), request) for i in range(sampling.n))
        )
        samples = (_completion(reply["choices"][0], sampling.logprobs) for reply in replies)
        completions = tuple(self._renderer.with_token_texts(sample, ids, sampling) for sample in samples)
        generated = sum(len(completion.token_ids) for completion in completions)
        computed = len(ids) - min(map(_cached, replies))
        return Generation(completions, TokenUsage(1, len(ids), generated, computed, generated), shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated."""
        target = self._renderer.target_ids(request)
        if not all(endpoint.forces for endpoint in self._endpoints):
            return await self.score_by_prompt_logprobs(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target))
        body = {"max_tokens": len(target), "temperature": 0, "logprobs": 0, "ignore_eos": True}
        reply = await self._ask(ids, {**body, "vllm_xargs": {FORCED_TOKENS: target}}, request)
        completion = _completion(reply["choices"][0], logprobs=True)
        if list(completion.token_ids) != target or completion.logprobs is None:
            raise BackendError(
                "a server did not generate the tokens that it was forced to: restart it with the plug-in."
            )
        usage = TokenUsage(1, len(ids), len(target), len(ids) - _cached(reply), len(target))
        return Score(tuple(target), completion.logprobs, usage, shortening)

    async def score_by_prompt_logprobs(self, request: ScoreRequest) -> Score:
        """Return the same for servers without the plug-in: slow, as the prefix cache is not used for it."""
        target = self._renderer.target_ids(request)
        ids, shortening = self._renderer.encode_within(request.prompt, self._window - len(target) - 1)
        body = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        reply = await self._ask([*ids, *target], body, request)
        rows = reply["choices"][0]["prompt_logprobs"][-len(target) :]
        logprobs = tuple(float(row[str(token)]["logprob"]) for row, token in zip(rows, target, strict=True))
        usage = TokenUsage(1, len(ids), len(target), len(ids), len(target))
        return Score(tuple(target), logprobs, usage, shortening)

    async def close(self) -> None:
        """Close the connections. The servers go on."""
        await self._client.aclose()

    def _choose(self, affinity: str, avoid: _Endpoint | None) -> _Endpoint:
        # A question's requests extend one another's prompts, so its home has most of each in its prefix
        # cache. A home that failed is left for good: what it had cached is gone, or out of reach.
        home = self._homes.get(affinity)
        if home is None or home is avoid:
            free = [endpoint for endpoint in self._endpoints if endpoint is not avoid] or self._endpoints
            home = min(free, key=lambda endpoint: endpoint.load)
        if affinity:
            self._homes[affinity] = home
            self._homes.move_to_end(affinity)
            if len(self._homes) > _MAX_AFFINITIES:
                self._homes.popitem(last=False)
        return home

    async def _ask(
        self, ids: Sequence[int], body: dict[str, Any], request: GenerateRequest | ScoreRequest
    ) -> dict[str, Any]:
        """Send a completion request, again after a pause if it fails, to another server if there is one.

        Raises as :class:`core.protocols.Generator` says.
        """
        failed: _Endpoint | None = None

        async def attempt(_: int) -> dict[str, Any]:
            nonlocal failed
            endpoint = failed = self._choose(request.affinity, avoid=failed)
            full = {**body, "model": endpoint.model, "prompt": list(ids), "return_token_ids": True}
            if endpoint.priorities:
                full["priority"] = request.priority
            endpoint.load += 1
            try:
                response = await _post(self._client, f"{endpoint.url}/v1/completions", full)
            except httpx.TransportError as error:
                raise TryAgainError(self._no_reply(endpoint, _describe(error))) from None
            finally:
                endpoint.load -= 1
            if response.status_code == 200:
                return cast("dict[str, Any]", orjson.loads(response.content))
            problem = f"status {response.status_code}: {response.text[:300]}"
            if response.status_code in _RETRIED:
                raise TryAgainError(self._no_reply(endpoint, problem))
            raise RequestRefusedError(f"the server {endpoint.url} refused a request with {problem}")

        pauses = {"first_pause_s": _FIRST_PAUSE_S, "longest_pause_s": _LONGEST_PAUSE_S}
        return await retrying(attempt, self._retries + 1, **pauses)

    def _no_reply(self, endpoint: _Endpoint, problem: str) -> BackendError:
        return BackendError(
            f"no reply after {self._retries + 1} attempts, the last to {endpoint.url} ({problem}). Look at "
            "the server's log; raise timeout_s or retries if it is only slow."
        )


async def _meet(
    client: httpx.AsyncClient, url: str, folder: str, renderer: Renderer, config: ModelConfig
) -> _Endpoint:
    """Ask a server which model it serves and try out what it can do."""
    try:
        listed = await client.get(f"{url}/v1/models")
        listed.raise_for_status()
        models = listed.json()["data"]
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise BackendError(
            f"the server {url} cannot be reached ({_describe(error)}): start it, or correct --model.urls. "
            "The address has no /v1."
        ) from None
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError) as error:
        raise BackendError(
            f"{url} does not answer as a vLLM server does ({error}): correct --model.urls or the API key."
        ) from None
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
        raise BackendError(f"{url} does not tell its context length, as vLLM servers do: use a vLLM server.")
    endpoint = _Endpoint(url, str(fitting[0]["id"]), int(windows[0]), named)
    await _compare_tokenizers(client, endpoint, renderer, config.name)
    await _try_out(client, endpoint)
    return endpoint


def _require_one_model(endpoints: Sequence[_Endpoint]) -> None:
    """Refuse servers of models of different names, unless each is known by the name that was asked for."""
    first = endpoints[0]
    for other in endpoints[1:]:
        if other.model != first.model and not (first.named and other.named):
            raise ConfigError(
                f"the server {first.url} serves '{first.model}' and {other.url} serves '{other.model}', but "
                "a run asks one model: leave one of them out of --model.urls, or start both under one name "
                "with --served-model-name."
            )


async def _compare_tokenizers(
    client: httpx.AsyncClient, endpoint: _Endpoint, renderer: Renderer, name: str
) -> None:
    """Refuse a server whose tokenizer splits a text otherwise: it would read our token ids as other words."""
    # Where tokenizers differ: letters beyond ASCII, digits, an apostrophe.
    text = "Ein Dutzend Äpfel, 1984 and the river's end."
    asked = {"model": endpoint.model, "prompt": text, "add_special_tokens": False}
    response = await _post(client, f"{endpoint.url}/tokenize", asked)
    if response.status_code == 200 and orjson.loads(response.content)["tokens"] != renderer.text_ids(text):
        raise ConfigError(
            f"the server {endpoint.url} serves '{endpoint.model}', whose tokenizer is not that of '{name}': "
            "set --model.name to the model that it serves, so that prompts are tokenised as it expects."
        )


async def _try_out(client: httpx.AsyncClient, endpoint: _Endpoint) -> None:
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
        try:
            response = await _post(
                client, f"{endpoint.url}/v1/completions", {**body, "priority": int(priorities)}
            )
        except httpx.TransportError as error:
            raise BackendError(
                f"the server {endpoint.url} does not answer ({_describe(error)}): look at its log."
            ) from None
        if response.status_code == 200:
            break
    else:
        raise BackendError(f"the server {endpoint.url} refuses completions: {response.text[:300]}")
    choice = orjson.loads(response.content)["choices"][0]
    tokens = choice.get("token_ids")
    if tokens is None:
        raise BackendError(
            f"the server {endpoint.url} does not return token ids: use a vLLM server of version 0.10.2 or "
            "later."
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


async def _post(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> httpx.Response:
    return await client.post(url, content=orjson.dumps(body), headers={"Content-Type": "application/json"})


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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


def _completion(choice: dict[str, Any], logprobs: bool) -> Completion:
    return Completion(
        text=choice["text"],
        token_ids=tuple(choice["token_ids"]),
        finish_reason=choice["finish_reason"],
        logprobs=tuple(choice["logprobs"]["token_logprobs"]) if logprobs else None,
    )


def _cached(reply: dict[str, Any]) -> int:
    """Return how many prompt tokens the server found in its cache; 0 if it does not tell."""
    details = reply["usage"].get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)
