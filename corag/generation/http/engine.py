r"""The engine for running servers: vLLM's, and others that speak OpenAI's protocol.

Where vLLM's tokenizer is known, prompts are rendered here and go as token ids, as those of the engine in
process do. Elsewhere a conversation is sent as messages, since the server knows its model's chat template,
and a plain prompt as a text.

OpenAI's chats cannot begin a reply for the model (``prefix``): the last message tells it to begin its reply
so.

Start a vLLM server that scores fast and keeps priorities with (this project must be importable there)::

    python -m vllm.entrypoints.openai.api_server --model MODEL --port 8000 --scheduling-policy priority \
        --enable-prompt-tokens-details --logits-processors corag.generation.forced:ForcedDecoding

On a CPU also ``--no-enable-chunked-prefill``: a seeded sample whose prompt is read in chunks ends it there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

from corag.core.errors import BackendError, ConfigError, RequestRefusedError
from corag.core.prompting.prompt import Prompt, Shortening
from corag.core.protocols import (
    Ability,
    GenerateRequest,
    Generation,
    Sampling,
    Score,
    ScoreRequest,
)
from corag.core.seeds import stable_hash
from corag.core.system.installation import require
from corag.core.system.machine import count_cores, raise_file_limit
from corag.core.types import TokenUsage
from corag.core.web.json_client import JsonClient
from corag.core.web.servers import base_address
from corag.generation.config import ModelConfig
from corag.generation.fitting import EstimatedTokens, TokenCounter, fit
from corag.generation.http.opening import open_servers
from corag.generation.http.profiles import Served, ServerProfile, share
from corag.generation.http.thoughts import limit_tokens, thought_settings
from corag.generation.http.wire import (
    CHAT,
    COMPLETIONS,
    Reply,
    echo_body,
    forced_reply_body,
    join_events,
    messages_body,
    read_echo,
    read_reply,
    sampling_body,
    streamed,
)
from corag.generation.models import folder_digest, model_folder
from corag.generation.prefixes import request_prefix
from corag.generation.rendering import Renderer
from corag.generation.special_names import COMMON_NAMES, spaced_prompt
from corag.generation.thinking import ThinkingEngine
from corag.generation.thinking_generator import thinking_budget

# The share of the window that is filled where tokens are estimated: the estimate may be too low.
_WINDOW_SHARE = 0.9
_PAUSE_S = 1.0  # a server that comes back has a model to load
_MOST_TOKENIZERS = 4  # threads: rendering itself holds the lock

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Call:
    """How a prompt is sent: the route, what stands in the body, and what was left out of the prompt for that.

    ``prefix``: what the model is asked to begin with, "" if nothing; ``ids``: the prompt's tokens, if they
    are what is sent.
    """

    route: str
    body: dict[str, Any]
    prompt: Prompt
    shortening: Shortening
    prefix: str = ""
    ids: Sequence[int] | None = None


class HttpGenerator(ThinkingEngine):
    """A :class:`corag.core.protocols.Generator` spread over servers, as :class:`JsonClient` does it.

    ``lacks``: what they cannot do. ``about``: a sentence on each server that lacks something, or
    whose model has another name than the one that was given.
    """

    def __init__(
        self,
        client: JsonClient,
        servers: Sequence[Served],
        config: ModelConfig,
        renderer: Renderer | None,
        tokenizer: str,
    ) -> None:
        """``servers``: one for each of the client's. ``tokenizer``: what identifies it, "" without one."""
        self._client, self._config = client, config
        self._served = served = share(servers, client.urls)
        self._renderer = renderer if served.profile.token_ids else None
        self._counter: TokenCounter = renderer or EstimatedTokens()
        self._names = renderer.names if renderer else COMMON_NAMES
        self.window, self.lacks = served.window, served.lacks
        self._is_estimated = renderer is None
        self._room = int(served.window * _WINDOW_SHARE) if self._is_estimated else served.window
        self.about = tuple(
            each.describe(url)
            for url, each in zip(client.urls, servers, strict=True)
            # All sizes of a family have one tokenizer, by which alone a server of vLLM's is checked.
            if each.lacks
            or not each.forced
            or (config.name != ModelConfig.name and each.model not in (config.name, config.adapter))
        )
        self.fingerprint = (
            f"{config.backend}:{stable_hash(served.model)}:{tokenizer or 'estimated'}:{self.window}"
        )
        self._thought_settings: dict[str, Any] = {}
        if self._renderer:
            self.about += self._renderer.about
            # Thoughts are generated apart (corag.generation.thinking_generator).
            self.thinking = self._renderer.thinking if self._renderer.chat else None
            self.fingerprint += f":chat={self._renderer.way}"
            return
        self._thought_settings = thought_settings(config, served.profile)
        if served.thinks:
            self.thinking_tokens = thinking_budget(config.max_thinking_tokens, self.window)
        parts = [f"{name}={value}" for name, value in sorted(self._thought_settings.items())]
        parts += [f"budget={self.thinking_tokens}"] * (self.thinking_tokens > 0)
        self.fingerprint += f":chat={served.chat}" + (f":thinking={','.join(parts)}" if parts else "")

    @classmethod
    async def open(
        cls, config: ModelConfig, *, tokenizer: str, profile: ServerProfile | None = None
    ) -> HttpGenerator:
        """Ask the servers what they are.

        Args:
            config: where they are, and which of their models.
            tokenizer: a name for :func:`model_folder`, "" if it is not known.
            profile: what the servers are known to understand, None to go by what they say.

        Raises:
            BackendError: if one cannot be reached.
            ConfigError: if they do not fit one another, or the options.
        """
        renderer, digest = None, ""
        if tokenizer:
            require(f"the tokenizer '{tokenizer}'", "transformers")
            folder = model_folder(tokenizer, weights=False)
            renderer = Renderer.load(folder, config.chat, config.thoughts)
            digest = folder_digest(folder)
        client = connect(config)
        try:
            servers = await open_servers(client, config, renderer, profile)
            return cls(client, servers, config, renderer, digest)
        except BaseException:
            await client.close()
            raise

    @property
    def retried(self) -> int:
        """How often a request was sent again."""
        return self._client.retried

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, estimated if the tokenizer is not known."""
        return self._counter.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        sampling, profile = request.sampling, self._served.profile
        self._require(sampling)
        if self._renderer is not None:
            sampling = self._renderer.ending(request.prompt, sampling)
        call = await self._prepare(request.prompt, self._room - sampling.max_tokens - self.thinking_tokens)
        chat, has_ids = call.route == CHAT, call.ids is not None
        if chat:  # with room for thoughts
            sampling = replace(sampling, max_tokens=sampling.max_tokens + self.thinking_tokens)
        # What stands in the words that a reply is to begin with would end it there; it is cut behind them.
        sent = replace(sampling, stop=tuple(each for each in sampling.stop if each not in call.prefix))
        if chat and self.thinking_tokens:  # there a server would end the thought; the reply is cut here, too
            sent = replace(sent, stop=())
        body = call.body | ({"return_token_ids": True} if has_ids else {})
        # vLLM ends a reply by what the model's configuration names; its template may name another token.
        if self._renderer is not None:
            body["stop_token_ids"] = sorted(self._renderer.stop_ids)
        parse = partial(read_reply, sampling=sampling, chat=chat, prefix=call.prefix, token_ids=has_ids)
        # A request per sample, each with its seed, as the other engines have it: of n > 1, servers count the
        # cache hits of one sample only.
        settings = [
            sampling_body(sent, number, chat=chat, extras=profile.settings, token_ids=has_ids)
            for number in range(sampling.n)
        ]
        grows = request.watch is not None and sampling.n == 1 and not sampling.logprobs
        send = self._request_watched if grows else self._request
        replies = await asyncio.gather(*(send(call.route, body | each, parse, request) for each in settings))
        return self._generation(call, replies, request.sampling)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated.

        Raises :class:`RequestRefusedError` if the servers offer no way to it.
        """
        if self._renderer is None or not self._served.scores:
            raise RequestRefusedError(
                f"{self._client.urls[0]} cannot score given texts: choose options that do without, or a vLLM "
                "server with model.backend=server."
            )
        target = self._renderer.target_ids(request)
        # Where the target is sent as prompt, one token more is generated.
        room = self._room - len(target) - (0 if self._served.forced else 1)
        ids, shortening = await encode_beside(self._renderer, request.prompt, room)
        score = self._score_forced if self._served.forced else self._score_by_echo
        logprobs, computed_tokens = await score(ids, target, request)
        usage = TokenUsage(1, len(ids), len(target), computed_tokens, len(target))
        return Score(tuple(target), logprobs, usage, shortening)

    async def close(self) -> None:
        """Close the connections. The servers go on."""
        await self._client.close()

    # Prompts

    async def _prepare(self, prompt: Prompt, room: int) -> _Call:
        """Fit a prompt into ``room`` tokens, and return how it is sent."""
        renderer = self._renderer
        if renderer is not None:
            ids, shortening = await encode_beside(renderer, prompt, room)
            return _Call(COMPLETIONS, {"prompt": ids}, prompt, shortening, ids=ids)
        prompt, shortening = fit(prompt, room, self._counter)
        # As text: servers read the name of a special token as that token.
        spaced_out = spaced_prompt(prompt, self._names)
        plain = prompt.plain or not self._served.chat
        if plain and self._served.completions:
            return _Call(COMPLETIONS, {"prompt": spaced_out.text}, prompt, shortening)
        if plain:  # and the server offers chat alone
            messages, prefix = [{"role": "user", "content": spaced_out.text}], ""
        else:
            prefix = spaced_out.prefix
            messages = request_prefix(messages_body(spaced_out), prefix)
        return _Call(CHAT, {"messages": messages, **self._thought_settings}, prompt, shortening, prefix)

    # Samples

    async def _request(
        self,
        route: str,
        body: dict[str, Any],
        parse: Callable[[Any], Result],
        request: GenerateRequest | ScoreRequest,
        on_events: Callable[[Sequence[Any]], None] | None = None,
    ) -> Result:
        """Send a body, with the model's name, and the request's priority where servers take one."""
        body = {"model": self._served.model, **body}
        if self._served.priorities:
            body["priority"] = request.priority
        return await self._client.request(route, body, parse, request.affinity, on_events)

    async def _request_watched(
        self, route: str, body: dict[str, Any], parse: Callable[[Any], Reply], request: GenerateRequest
    ) -> Reply:
        """Have a reply streamed, and show its text as it grows."""

        def read(events: Sequence[Any], *, whole: bool = True) -> Reply:
            return parse(join_events(events, chat=route == CHAT, whole=whole))

        def show(events: Sequence[Any]) -> None:
            if request.watch is not None:
                request.watch(read(events, whole=False).completion.text)

        return await self._request(route, streamed(body), read, request, show)

    def _require(self, sampling: Sampling) -> None:
        """Refuse what would come back without a part of what was requested."""
        needs = {
            Ability.LOGPROBS: sampling.logprobs,
            Ability.SPECIAL_TOKENS: sampling.special_tokens,
            Ability.SAMPLING: (sampling.temperature > 0 and sampling.top_k > 0)
            or sampling.repetition_penalty != 1,
        }
        for ability, is_needed in needs.items():
            if is_needed and ability in self.lacks:
                raise RequestRefusedError(
                    f"{self._client.urls[0]} does not offer {ability}: choose options that do without."
                )

    def _generation(self, call: _Call, replies: Sequence[Reply], sampling: Sampling) -> Generation:
        """Return the samples of one request; what their thoughts cost stands apart from what they did.

        ``sampling``: as it was requested, without room for thoughts.
        """
        completions, usage = [reply.completion for reply in replies], self._usage(call, replies)
        if self._renderer is not None and call.ids is not None:
            texts = self._renderer.with_token_texts
            completions = [texts(each, call.ids, sampling) for each in completions]
        thoughts = tuple(reply.thought for reply in replies)
        if call.route == CHAT and (self.thinking_tokens or any(thoughts)):
            # What a thought left over of its room is not for the reply.
            count, most = self._counter.count, sampling.max_tokens
            completions = [
                limit_tokens(each, most, count)
                if reply.thought or (reply.generated_tokens or 0) > most
                else each
                for each, reply in zip(completions, replies, strict=True)
            ]
        if not any(thoughts):
            return Generation(tuple(completions), usage, call.shortening)
        counts = (reply.thought_tokens or self._counter.count(reply.thought) for reply in replies)
        tokens = min(sum(counts), usage.generated)
        rest = usage.generated - tokens
        return Generation(
            tuple(completions),
            replace(usage, generated=rest, computed_generated=rest),
            call.shortening,
            TokenUsage(generated=tokens, computed_generated=tokens),
            thoughts,
            sum(reply.thought_cut for reply in replies),
        )

    def _usage(self, call: _Call, replies: Sequence[Reply]) -> TokenUsage:
        """Count a request's tokens by what the servers report, else by the tokenizer, else by an estimate."""
        estimated_tokens = 0
        prompt = replies[0].prompt_tokens
        if not prompt:
            prompt = self._counter.size(call.prompt) if call.ids is None else len(call.ids)
            estimated_tokens += prompt
        generated_tokens = 0
        for reply in replies:
            tokens = reply.generated_tokens
            if tokens is None:
                completion = reply.completion
                tokens = len(completion.token_ids) or self._counter.count(completion.text)
                estimated_tokens += tokens
            generated_tokens += tokens
        cached_tokens = min(min(reply.cached_tokens for reply in replies), prompt)
        estimated_tokens *= self._is_estimated
        return TokenUsage(
            1, prompt, generated_tokens, prompt - cached_tokens, generated_tokens, estimated_tokens
        )

    # Scores: log P of each target token, and how many prompt tokens were computed for it

    async def _score_forced(
        self, ids: Sequence[int], target: Sequence[int], request: ScoreRequest
    ) -> tuple[tuple[float, ...], int]:
        """Let vLLM's server generate the target: the prompt comes out of its cache."""
        sampling = Sampling(len(target), logprobs=True)
        body = forced_reply_body(ids, target) | {"return_token_ids": True}
        parse = partial(read_reply, sampling=sampling, chat=False, token_ids=True)
        reply = await self._request(COMPLETIONS, body, parse, request)
        completion = reply.completion
        if list(completion.token_ids) != list(target) or completion.logprobs is None:
            raise BackendError(
                "a server did not generate the tokens that it was forced to: restart it with the plug-in."
            )
        return completion.logprobs, len(ids) - min(reply.cached_tokens, len(ids))

    async def _score_by_echo(
        self, ids: Sequence[int], target: Sequence[int], request: ScoreRequest
    ) -> tuple[tuple[float, ...], int]:
        """Let the server read prompt and target, and return the log-probabilities of what it read.

        It computes the whole prompt for that, past its prefix cache.
        """
        parse = partial(read_echo, start=len(ids), length=len(target))
        return await self._request(COMPLETIONS, echo_body([*ids, *target]), parse, request), len(ids)


@cache
def _tokenizers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_MOST_TOKENIZERS, count_cores()), thread_name_prefix="tokens")


async def encode_beside(renderer: Renderer, prompt: Prompt, room: int) -> tuple[list[int], Shortening]:
    """Do what :meth:`Renderer.encode_within` does in a thread, and raise what it raises.

    One process may feed several servers: a prompt of 4,000 tokens takes 12 ms, in which none of them would be
    heard. Fast tokenizers let go of Python's lock while they work.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_tokenizers(), renderer.encode_within, prompt, room)


def connect(config: ModelConfig) -> JsonClient:
    """Return a client of a configuration's servers, which sends the key in the environment, if there is one.

    Raises :class:`ConfigError` if the options name a variable that is not set.
    """
    variable = config.api_key_variable
    if variable != ModelConfig.api_key_variable and variable not in os.environ:
        raise ConfigError(
            f"the environment variable {variable} is not set: put the server's API key there, or correct "
            "'model.api_key_variable', which is its name."
        )
    return JsonClient(
        [base_address(url) for url in config.urls],
        what="the server",
        option="model.urls",
        timeout_s=config.timeout_s,
        retries=config.retries,
        # As many as there can be: the run bounds what is in flight, and the server's queue knows priorities,
        # ours does not. A quarter of the files is left to indexes, logs and other servers.
        connections=max(1, raise_file_limit() * 3 // 4),
        pause_s=_PAUSE_S,
        key_variable=variable,
    )
