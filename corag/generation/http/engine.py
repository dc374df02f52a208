r"""The engine for running servers: vLLM's, and others that speak OpenAI's protocol.

vLLM's server is one of them with more features (token ids, forced replies, priorities). What a server
supports is found out when it is opened (:mod:`feature_probes`); no more is requested from it. Where the
servers' tokenizer is known and they take token ids, prompts go as ids, as with the engine in process.
Elsewhere a conversation is sent as messages, since the server knows its model's chat template, and a plain
prompt as a text.

OpenAI's protocol cannot begin a reply for the model (``prefix``). So such a conversation is sent as a text
where the template is known: from --model.tokenizer, or from llama.cpp's server itself. Elsewhere the last
message tells the model to begin its reply so.

Start a vLLM server that scores fast and keeps priorities with (this project must be importable there)::

    python -m vllm.entrypoints.openai.api_server --model MODEL --port 8000 --scheduling-policy priority \
        --enable-prompt-tokens-details --logits-processors corag.generation.forced:ForcedDecoding

On a CPU also ``--no-enable-chunked-prefill``: a seeded sample whose prompt is read in chunks ends it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from corag.core.errors import BackendError, ConfigError, RequestRefusedError
from corag.core.installation import require
from corag.core.prompting.prompt import Prompt, Shortening
from corag.core.protocols import (
    Ability,
    Completion,
    GenerateRequest,
    Generation,
    Sampling,
    Score,
    ScoreRequest,
)
from corag.core.seeds import stable_hash
from corag.core.types import TokenUsage
from corag.generation.config import ModelConfig
from corag.generation.fitting import EstimatedTokens, TokenCounter, fit
from corag.generation.http.endpoints import Endpoints, connect, count_connections, require_one_model
from corag.generation.http.features import Features, Server, shared_features
from corag.generation.http.opening import open_servers
from corag.generation.http.thoughts import ServerThoughts
from corag.generation.http.tokens import ServerTokens
from corag.generation.http.wire import (
    CHAT,
    COMPLETIONS,
    NATIVE,
    TEMPLATE,
    Reply,
    distribution_body,
    echo_body,
    forced_reply_body,
    forced_token_body,
    messages_body,
    read_echo,
    read_forced_token,
    read_from_distribution,
    read_reply,
    read_template,
    sampling_body,
)
from corag.generation.models import folder_digest, model_folder
from corag.generation.prefixes import request_prefix
from corag.generation.rendering import Renderer
from corag.generation.special_names import COMMON_NAMES, spaced_prompt
from corag.generation.thinking import ThinkingEngine, closing_of
from corag.generation.tokenizing import encode_beside

# The share of the window that is filled where tokens are estimated: the estimate may be too low.
_WINDOW_SHARE = 0.9

Result = TypeVar("Result")
# log P of each target token, and how many prompt tokens were computed for it.
_Scores: TypeAlias = tuple[tuple[float, ...], int]


@dataclass(frozen=True, slots=True)
class _Call:
    """How a prompt is sent: the route, what stands in the body, and what was left out of the prompt for that.

    ``prefix``: what the model is told to begin with, "" if nothing; ``ids``: the prompt's tokens, if they
    are what is sent.
    """

    route: str
    body: dict[str, Any]
    prompt: Prompt
    shortening: Shortening
    prefix: str = ""
    ids: Sequence[int] | None = None


class HttpGenerator(ThinkingEngine):
    """A :class:`corag.core.protocols.Generator` spread over servers, as :class:`Endpoints` does it.

    ``lacks``: what they do not support. ``about``: a line on each server that was probed.
    """

    def __init__(
        self,
        endpoints: Endpoints[Server],
        config: ModelConfig,
        renderer: Renderer | None,
        tokenizer: str,
        *,
        describe: bool,
    ) -> None:
        """``tokenizer``: what identifies it, "" without one."""
        servers = endpoints.servers
        self._endpoints = endpoints
        self._renderer = renderer
        self._counter: TokenCounter = renderer or EstimatedTokens()
        self._names = renderer.names if renderer else COMMON_NAMES
        self._tokens = ServerTokens(endpoints, self._names)
        self._features = shared_features(server.features for server in servers)
        window = min(server.window for server in servers)
        self._room = window if renderer else int(window * _WINDOW_SHARE)
        renders_chat = renderer is not None and renderer.chat
        self._chat = config.chat != "no" and (self._features.chat or renders_chat)
        if not self._chat and not self._features.completions:
            raise ConfigError(f"{servers[0].url} offers chat only: leave --model.chat at 'auto' or 'yes'.")
        self.lacks: frozenset[Ability] = self._features.lacks
        self.about = tuple(server.describe() for server in servers) if describe else ()
        self.about += renderer.about if renderer else ()
        # Where prompts are rendered here, thoughts are generated apart (corag.generation.thinking_generator).
        renders = renders_chat and self._features.completions
        self.thinking = renderer.thinking if renderer is not None and renders else None
        self.window = window
        self._thoughts = ServerThoughts.of(config, self._features, window)
        if self.thinking is not None and self.thinking.closes:
            self._thoughts = replace(self._thoughts, budget=0)
        self.thinking_tokens = self._thoughts.budget
        way = "rendered" if renders_chat or self._features.template else "asked"
        self.fingerprint = (
            f"{config.backend}:{stable_hash(servers[0].model)}:{tokenizer or 'estimated'}:{window}"
            f":chat={renderer.way if renderer and renders_chat else self._chat}:prefix={way}"
        )
        self.fingerprint += "" if renders else self._thoughts.identity
        # What is not sent does not shape the replies, so it is another generator.
        if omitted_fields := sorted(set().union(*(server.wording.omitted_fields for server in servers))):
            self.fingerprint += f":without={'+'.join(omitted_fields)}"

    @classmethod
    async def open(
        cls, config: ModelConfig, *, tokenizer: str, preset: Features | None = None
    ) -> HttpGenerator:
        """Probe the servers.

        Args:
            config: where they are, and which of their models.
            tokenizer: a name for :func:`model_folder`, "" if it is not known.
            preset: what the servers are known to support, None to find out all of it.

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
        most_connections = count_connections()
        client = connect(config, most_connections)
        try:
            servers = await open_servers(client, config, renderer, preset)
            require_one_model(servers)
            endpoints = Endpoints(client, servers, config.retries, most_connections)
            return cls(endpoints, config, renderer, digest, describe=preset is None)
        except BaseException:
            await client.aclose()
            raise

    @property
    def retried(self) -> int:
        """How often a request was sent again."""
        return self._endpoints.retried

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, estimated if the tokenizer is not known."""
        return self._counter.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        sampling = request.sampling
        self._require(sampling)
        if self._renderer is not None:
            sampling = self._renderer.ending(request.prompt, sampling)
        room = self._room - self._thoughts.widen(sampling).max_tokens
        call = await self._prepare(request.prompt, room, request.affinity)
        chat = call.route == CHAT
        sampling = self._thoughts.widen(sampling) if chat else sampling
        returns_ids = self._features.returns_ids and call.ids is not None
        # A request per sample, each with its seed, as the other engines have it: of n > 1, servers count the
        # cache hits of one sample only. Where no seed is obeyed one request for all spares the server the
        # prompt.
        sizes = [sampling.n] if self._features.samples and not self._features.seeds else [1] * sampling.n
        settings = [
            sampling_body(
                sampling, i, n, chat=chat, extras=self._features.settings, token_ids=returns_ids
            )
            for i, n in enumerate(sizes)
        ]  # fmt: skip
        parse = partial(
            read_reply, sampling=sampling, chat=chat, prefix=call.prefix, token_ids=returns_ids,
            keeps_thoughts=self._thoughts.keeps_thoughts,
        )  # fmt: skip
        if returns_ids:
            call.body["return_token_ids"] = True
        # vLLM and SGLang end a reply by what the model's configuration names; others know its template.
        if self._renderer is not None and self._features.settings:
            call.body["stop_token_ids"] = sorted(self._renderer.stop_ids)
        replies = await asyncio.gather(
            *(
                self._request(call.route, call.body | each, partial(parse, n=n), request)
                for each, n in zip(settings, sizes, strict=True)
            )
        )
        completions = tuple(
            self._with_token_texts(completion, call, sampling)
            for reply in replies
            for completion in reply.completions
        )
        generation = Generation(completions, self._usage(call, replies), call.shortening)
        return self._thoughts.split(generation, replies, request.sampling, self._counter.count)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated.

        Raises :class:`RequestRefusedError` if the servers offer no way to it.
        """
        way = self._features.scores
        if not way:
            raise RequestRefusedError(
                f"{self._endpoints.servers[0].url} cannot score given texts: choose options that do without, "
                "a vLLM server, or llama.cpp's."
            )
        target = await self._target_ids(request)
        # Where the target is sent as prompt, one token more is generated.
        room = self._room - len(target) - (0 if way == "forced" else 1)
        ids, shortening = await self._prompt_ids(request.prompt, room, request.affinity)
        ways = {"forced": self._score_forced, "echo": self._score_by_echo, "steps": self._score_in_steps}
        logprobs, computed_tokens = await ways[way](ids, target, request)
        usage = TokenUsage(1, len(ids), len(target), computed_tokens, len(target))
        return Score(tuple(target), logprobs, usage, shortening)

    async def close(self) -> None:
        """Close the connections. The servers go on."""
        await self._endpoints.close()

    # Prompts

    async def _prepare(self, prompt: Prompt, room: int, affinity: str) -> _Call:
        """Fit a prompt into ``room`` tokens, and return how it is sent."""
        renders_chat = self._renderer is not None and self._renderer.chat
        plain = prompt.plain or not self._chat
        thinks = self.thinking is not None and (self.thinking.closes or prompt.thought is not None)
        # A server that fills in its own template prints its own date, another one tomorrow.
        prints_day = self._renderer is not None and renders_chat and self._renderer.template.prints_day
        begin_here = plain or prompt.prefix or thinks or prints_day or not self._features.chat
        as_text = self._features.completions and begin_here and (plain or renders_chat)
        if as_text and self._renderer is not None and self._features.token_ids:
            ids, shortening = await encode_beside(self._renderer, prompt, room)
            return _Call(COMPLETIONS, {"prompt": ids}, prompt, shortening, ids=ids)
        prompt, shortening = fit(prompt, room, self._counter)
        # As text: servers read the name of a special token as that token.
        spaced_out = spaced_prompt(prompt, self._names)
        if as_text:
            text = self._renderer.text(spaced_out) if self._renderer is not None else spaced_out.text
            return _Call(COMPLETIONS, {"prompt": text}, prompt, shortening)
        if plain:  # and the server offers chat alone
            messages = [{"role": "user", "content": spaced_out.text}]
            return _Call(CHAT, {"messages": messages} | dict(self._thoughts.settings), prompt, shortening)
        if self._features.completions and begin_here and self._features.template:
            text = await self._fill_template(spaced_out, affinity)
            return _Call(COMPLETIONS, {"prompt": text}, prompt, shortening)
        messages = messages_body(spaced_out)
        if self._renderer is not None and renders_chat:
            messages = [dict(turn) for turn in self._renderer.template.turns(messages)]
        messages = request_prefix(messages, spaced_out.prefix)
        body: dict[str, Any] = {"messages": messages, **self._thoughts.settings}
        return _Call(CHAT, body, prompt, shortening, prefix=spaced_out.prefix)

    async def _fill_template(self, prompt: Prompt, affinity: str) -> str:
        """Let llama.cpp's server fill in its chat template. ``prompt``: spaced out."""
        body: dict[str, Any] = {"messages": messages_body(prompt), **self._thoughts.settings}
        text = await self._endpoints.request(TEMPLATE, lambda _: body, read_template, affinity)
        return text + ("" if self._thoughts.keeps_thoughts else closing_of(text)) + prompt.prefix

    async def _whole_text(self, prompt: Prompt, affinity: str) -> str:
        """Return all that a model reads of a prompt. ``prompt``: spaced out."""
        chat = self._chat and not prompt.plain
        return await self._fill_template(prompt, affinity) if chat else prompt.text

    async def _prompt_ids(self, prompt: Prompt, room: int, affinity: str) -> tuple[list[int], Shortening]:
        """Return at most ``room`` token ids of a prompt, and what was left out for that."""
        if self._renderer is not None:
            return await encode_beside(self._renderer, prompt, room)
        prompt, shortening = fit(prompt, room, self._counter)
        text = await self._whole_text(spaced_prompt(prompt, self._names), affinity)
        # As the server does with every text: of a filled template it has taken away the first token's name.
        return await self._tokens.tokenize(text, affinity, special=True), shortening

    async def _target_ids(self, request: ScoreRequest) -> list[int]:
        if self._renderer is not None:
            return self._renderer.target_ids(request)
        target, prompt = request.target, request.prompt
        if isinstance(target, str):
            before = await self._whole_text(spaced_prompt(prompt, self._names), request.affinity)
            begins = self._chat and not (prompt.plain or prompt.prefix)
            ids = await self._tokens.target_ids(before, target, request.affinity, begins=begins)
        else:
            ids = list(target)
        if request.end_of_turn:
            ids.append(await self._tokens.end_of_turn(request.affinity))
        if not ids:
            raise RequestRefusedError(
                "there is nothing to score: the target is empty. Give a non-empty text or token ids."
            )
        return ids

    # Samples

    async def _request(
        self,
        route: str,
        body: dict[str, Any],
        parse: Callable[[Any], Result],
        request: GenerateRequest | ScoreRequest,
    ) -> Result:
        """Send a body, with the server's name of the model and the request's priority where it takes one."""

        def complete(server: Server) -> dict[str, Any]:
            # llama.cpp's own route is no completion of OpenAI's; no server with priorities has it.
            priority = {"priority": request.priority} if server.features.priorities else {}
            return {"model": server.model, **body, **priority}

        return await self._endpoints.request(route, complete, parse, request.affinity)

    def _require(self, sampling: Sampling) -> None:
        """Refuse what would come back without a part of what was requested."""
        needs = {
            Ability.LOGPROBS: sampling.logprobs,
            Ability.SPECIAL_TOKENS: sampling.special_tokens,
            Ability.SAMPLING: (sampling.temperature > 0 and sampling.top_k > 0)
            or sampling.repetition_penalty != 1,
        }
        for ability in (
            ability for ability, is_needed in needs.items() if is_needed and ability in self.lacks
        ):
            raise RequestRefusedError(
                f"{self._endpoints.servers[0].url} does not offer {ability}: choose options that do without."
            )

    def _with_token_texts(self, completion: Completion, call: _Call, sampling: Sampling) -> Completion:
        """Return a completion with what each token adds to its text, if only the tokens' ids are known."""
        if self._renderer is None or call.ids is None or not completion.token_ids:
            return completion
        return self._renderer.with_token_texts(completion, call.ids, sampling)

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
                tokens = sum(
                    len(each.token_ids) or self._counter.count(each.text) for each in reply.completions
                )
                estimated_tokens += tokens
            generated_tokens += tokens
        cached_tokens = min(min(reply.cached_tokens for reply in replies), prompt)
        if self._renderer is not None:
            estimated_tokens = 0
        return TokenUsage(
            1, prompt, generated_tokens, prompt - cached_tokens, generated_tokens, estimated_tokens
        )

    # Scores

    async def _score_forced(
        self, ids: Sequence[int], target: Sequence[int], request: ScoreRequest
    ) -> _Scores:
        """Let vLLM's server generate the target: the prompt comes out of its cache."""
        sampling = Sampling(len(target), logprobs=True)
        body = forced_reply_body(ids, target) | {"return_token_ids": True}
        parse = partial(read_reply, sampling=sampling, n=1, chat=False, token_ids=True)
        reply = await self._request(COMPLETIONS, body, parse, request)
        (completion,) = reply.completions
        if list(completion.token_ids) != list(target) or completion.logprobs is None:
            raise BackendError(
                "a server did not generate the tokens that it was forced to: restart it with the plug-in."
            )
        return completion.logprobs, len(ids) - min(reply.cached_tokens, len(ids))

    async def _score_by_echo(
        self, ids: Sequence[int], target: Sequence[int], request: ScoreRequest
    ) -> _Scores:
        """Let the server read prompt and target, and return the log-probabilities of what it read.

        It computes the whole prompt for that, past its prefix cache.
        """
        parse = partial(read_echo, start=len(ids), length=len(target))
        return await self._request(COMPLETIONS, echo_body([*ids, *target]), parse, request), len(ids)

    async def _score_in_steps(
        self, ids: Sequence[int], target: Sequence[int], request: ScoreRequest
    ) -> _Scores:
        """Force token after token, each in a request of its own, as llama.cpp's server cannot force several.

        Its cache has the prompt after the first; a log-probability is from before the token was forced.
        """
        logprobs, computed_tokens = [], 0
        for position, token in enumerate(target):
            before = [*ids, *target[:position]]
            reply = await self._request(NATIVE, forced_token_body(before, token), read_forced_token, request)
            if reply is None:
                parse = partial(read_from_distribution, token=token)
                logprob, count = await self._request(NATIVE, distribution_body(before), parse, request)
            else:
                generated_token, logprob, count = reply
                if generated_token != token:
                    raise BackendError(
                        "a server did not generate the token that it was forced to: is it llama.cpp's, and "
                        "of one version with the others?"
                    )
            logprobs.append(logprob)
            # Of the first request: the others find the prompt in the cache.
            computed_tokens = computed_tokens or count
        return tuple(logprobs), min(computed_tokens, len(ids))
