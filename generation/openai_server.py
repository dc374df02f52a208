"""The back end for servers that speak OpenAI's protocol: Ollama, LM Studio, llama.cpp, SGLang, vLLM, others.

What a server supports is found out when it is opened (:mod:`generation.probing`); no more is asked of it. A
conversation is sent as messages, since the server knows its model's chat template, and a plain prompt as a
text. OpenAI's protocol cannot begin a reply for the model (``prefix``). So such a conversation is sent as a
text where the template is known: from --model.tokenizer, or from llama.cpp's server itself. Elsewhere the
last turn asks the model to begin its reply so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

from core.errors import BackendError, ConfigError, RequestRefusedError
from core.prompting.prompt import Prompt
from core.protocols import (
    Ability,
    GenerateRequest,
    Generation,
    Sampling,
    Score,
    ScoreRequest,
)
from core.seeds import stable_hash
from core.types import TokenUsage
from generation.config import ModelConfig
from generation.endpoints import Endpoints, address, connect, part, parts, require_one_model
from generation.models import folder_digest, model_folder
from generation.openai_wire import (
    CHAT,
    COMPLETIONS,
    NATIVE,
    TEMPLATE,
    TOKENIZE,
    Reply,
    distribution_body,
    extra_settings,
    filled_template,
    forced_logprob,
    forcing_body,
    listed_logprob,
    read_reply,
    tokenize_body,
)
from generation.probing import Features, OpenAIEndpoint, probe_servers
from generation.rendering import (
    COMMON_NAMES,
    EstimatedTokens,
    Renderer,
    TokenCounter,
    fit,
    spaced,
    spaced_prompt,
)

# The share of the window that is filled where tokens are estimated: the estimate may be too low.
_FILLED = 0.9
_REPLY = "Certainly"  # a word that no chat template has of its own
_BEGIN = "\n\nBegin your reply with: {prefix}"


class OpenAIGenerator:
    """A :class:`core.protocols.Generator` on servers that speak OpenAI's protocol.

    ``lacks``: what they do not support. ``about``: a line on each.
    """

    def __init__(
        self,
        endpoints: Endpoints[OpenAIEndpoint],
        renderer: Renderer | None,
        config: ModelConfig,
        tokenizer: str,
    ) -> None:
        """``tokenizer``: what identifies it, "" without one."""
        self._endpoints = endpoints
        self._renderer = renderer
        self._counter: TokenCounter = renderer or EstimatedTokens()
        self._names = renderer.names if renderer else COMMON_NAMES
        self._features = reduce(Features.shared_with, (server.features for server in endpoints.servers))
        window = min(server.window for server in endpoints.servers)
        self._room = window if renderer else int(window * _FILLED)
        templated = renderer is not None and renderer.chat
        self._chat = config.chat != "no" and (self._features.chat or templated)
        if not self._chat and not self._features.completions:
            raise ConfigError(
                f"{endpoints.servers[0].url} offers chat only: leave --model.chat at 'auto' or 'yes'."
            )
        self.lacks: frozenset[Ability] = self._features.lacks
        self.about = tuple(server.about for server in endpoints.servers)
        prefixed = "rendered" if templated or self._features.template else "asked"
        self.fingerprint = (
            f"openai:{stable_hash(endpoints.servers[0].model)}:{tokenizer or 'estimated'}:{window}"
            f":chat={self._chat}:prefix={prefixed}"
        )

    @classmethod
    async def open(cls, config: ModelConfig) -> OpenAIGenerator:
        """Probe the servers.

        Raises :class:`BackendError` if one cannot be reached, :class:`ConfigError` if they do not fit.
        """
        renderer, tokenizer = None, ""
        if config.tokenizer:
            folder = model_folder(config.tokenizer, weights=False)
            renderer = Renderer.load(folder, config.chat)
            tokenizer = folder_digest(folder)
        client = connect(config)
        try:
            servers = await probe_servers(client, [address(url) for url in config.urls], config, renderer)
            require_one_model(servers)
            return cls(Endpoints(client, servers, config.retries), renderer, config, tokenizer)
        except BaseException:
            await client.aclose()
            raise

    @property
    def retried(self) -> int:
        """How often a request was sent again."""
        return self._endpoints.retried

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, estimated if no tokenizer was named."""
        return self._counter.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        sampling = request.sampling
        self._require(sampling)
        prompt, shortening = fit(request.prompt, self._room - sampling.max_tokens, self._counter)
        route, asked, prefix = await self._wire(prompt, request.affinity)
        # A request per sample, each with its seed, as the other engines have it. Where no seed is obeyed one
        # request for all spares the server the prompt.
        sizes = [sampling.n] if self._features.samples and not self._features.seeds else [1] * sampling.n
        replies = await asyncio.gather(
            *(
                self._endpoints.ask(
                    route,
                    partial(_named, asked | self._settings(sampling, i, n, chat=route == CHAT)),
                    partial(read_reply, sampling=sampling, n=n, chat=route == CHAT, prefix=prefix),
                    request.affinity,
                )
                for i, n in enumerate(sizes)
            )
        )
        completions = tuple(completion for reply in replies for completion in reply.completions)
        return Generation(completions, self._usage(prompt, replies), shortening)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, whose tokens count as generated.

        Raises :class:`RequestRefusedError` if the servers offer no way to it.
        """
        if not self._features.scores:
            raise RequestRefusedError(
                f"{self._endpoints.servers[0].url} cannot score given texts: choose options that do without, "
                "a vLLM server, or llama.cpp's."
            )
        target = await self._target_ids(request)
        prompt, shortening = fit(request.prompt, self._room - len(target) - 1, self._counter)
        ids = await self._prompt_ids(prompt, request.affinity)
        if self._features.scores == "steps":
            logprobs, computed = await self._score_in_steps(ids, target, request.affinity)
        else:
            logprobs, computed = await self._score_by_echo(ids, target, request.affinity), len(ids)
        usage = TokenUsage(1, len(ids), len(target), computed, len(target))
        return Score(tuple(target), logprobs, usage, shortening)

    async def close(self) -> None:
        """Close the connections. The servers go on."""
        await self._endpoints.close()

    # Prompts

    async def _wire(self, prompt: Prompt, affinity: str) -> tuple[str, dict[str, Any], str]:
        """Return where a prompt is sent, as what, and how the model was asked to begin ("" if it was not)."""
        if prompt.plain or not self._chat:
            if self._features.completions:
                return COMPLETIONS, {"prompt": self._text(prompt)}, ""
            return CHAT, {"messages": [{"role": "user", "content": self._spaced(prompt).text}]}, ""
        if (prompt.prefix or not self._features.chat) and self._features.completions:
            if self._renderer is not None and self._renderer.chat:
                return COMPLETIONS, {"prompt": self._text(prompt)}, ""
            if self._features.template:
                return COMPLETIONS, {"prompt": await self._templated(prompt, affinity)}, ""
        prompt = self._spaced(prompt)
        turns = _turns(prompt)
        if prompt.prefix:
            turns[-1]["content"] += _BEGIN.format(prefix=prompt.prefix)
        return CHAT, {"messages": turns}, prompt.prefix

    def _text(self, prompt: Prompt) -> str | list[int]:
        """Return what completions continue: the tokens themselves, if they are known and taken."""
        if self._renderer is None:
            return self._spaced(prompt).text
        if self._features.token_ids:
            return self._renderer.encode(prompt)
        return self._renderer.text(self._spaced(prompt))

    def _spaced(self, prompt: Prompt) -> Prompt:
        """Return a prompt that goes as text: servers read the name of a special token as that token."""
        return spaced_prompt(prompt, self._names)

    async def _templated(self, prompt: Prompt, affinity: str) -> str:
        """Let llama.cpp's server fill in its chat template."""
        prompt = self._spaced(prompt)
        body = {"messages": _turns(prompt)}
        text = await self._endpoints.ask(TEMPLATE, lambda _: body, filled_template, affinity)
        return text + prompt.prefix

    async def _prompt_ids(self, prompt: Prompt, affinity: str) -> list[int]:
        if self._renderer is not None:
            return self._renderer.encode(prompt)
        chat = self._chat and not prompt.plain
        text = await self._templated(prompt, affinity) if chat else self._spaced(prompt).text
        # As the server does with every text: of a filled template it has taken away the first token's name.
        return await self._tokenized(text, affinity, special=True)

    async def _target_ids(self, request: ScoreRequest) -> list[int]:
        if self._renderer is not None:
            return self._renderer.target_ids(request)
        target = request.target
        if isinstance(target, str):
            text = target if self._names.fullmatch(target) else spaced(target, self._names)
            ids = await self._tokenized(text, request.affinity)
        else:
            ids = list(target)
        if request.end_of_turn:
            ids.append(await self._end_of_turn(request.affinity))
        if not ids:
            raise RequestRefusedError(
                "there is nothing to score: the target is empty. Give a non-empty text or token ids."
            )
        return ids

    async def _end_of_turn(self, affinity: str) -> int:
        """Return the token that llama.cpp's template puts behind a reply."""
        # A turn behind it, else the reply would be one to go on with, which nothing ends.
        turns = [
            {"role": "user", "content": "Is it so?"},
            {"role": "assistant", "content": _REPLY},
            {"role": "user", "content": "And this?"},
        ]
        text = await self._endpoints.ask(TEMPLATE, lambda _: {"messages": turns}, filled_template, affinity)
        ids = await self._tokenized(text.partition(_REPLY)[2].lstrip(), affinity)
        if not ids:
            raise RequestRefusedError(
                "the server's chat template ends no reply, so the end of a turn cannot be scored."
            )
        return ids[0]

    async def _tokenized(self, text: str, affinity: str, *, special: bool = False) -> list[int]:
        ids = await self._endpoints.ask(
            TOKENIZE,
            lambda server: tokenize_body(server.model, text, special=special),
            lambda reply: parts(reply, "tokens", kind=int),
            affinity,
        )
        return list(ids)

    # Samples

    def _require(self, sampling: Sampling) -> None:
        """Refuse what would come back without a part of what was asked for."""
        wanted = {
            Ability.LOGPROBS: sampling.logprobs,
            Ability.SPECIAL_TOKENS: sampling.special_tokens,
            Ability.SAMPLING: (sampling.temperature > 0 and sampling.top_k > 0)
            or sampling.repetition_penalty != 1,
        }
        for ability in (ability for ability, asked in wanted.items() if asked and ability in self.lacks):
            raise RequestRefusedError(
                f"{self._endpoints.servers[0].url} does not offer {ability}: choose options that do without."
            )

    def _settings(self, sampling: Sampling, sample: int, n: int, *, chat: bool) -> dict[str, Any]:
        """Return every setting that the servers take: one that is missing gets a default of theirs."""
        greedy = sampling.temperature == 0
        settings: dict[str, Any] = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": 1.0 if greedy else sampling.top_p,
            "stop": list(sampling.stop) or None,
            "seed": None if greedy or sampling.seed is None else sampling.seed + sample,
            "logit_bias": {str(token): bias for token, bias in sampling.logit_bias} or None,
            "n": n if n > 1 else None,
            "skip_special_tokens": False if sampling.special_tokens else None,
        }
        if sampling.logprobs:
            settings |= {"logprobs": True, "top_logprobs": 1} if chat else {"logprobs": 1}
        if self._features.settings:
            settings |= extra_settings(0 if greedy else sampling.top_k, sampling.repetition_penalty)
        return {name: value for name, value in settings.items() if value is not None}

    def _usage(self, prompt: Prompt, replies: Sequence[Reply]) -> TokenUsage:
        """Count a request's tokens by what the servers say, else by the tokenizer, else by an estimate."""
        estimated = 0
        read = replies[0].prompt_tokens
        if not read:
            read = self._counter.size(prompt)
            estimated += read
        written = 0
        for reply in replies:
            tokens = reply.generated_tokens
            if tokens is None:
                tokens = sum(self._counter.count(completion.text) for completion in reply.completions)
                estimated += tokens
            written += tokens
        cached = min(min(reply.cached for reply in replies), read)
        known = self._renderer is not None
        return TokenUsage(1, read, written, read - cached, written, 0 if known else estimated)

    # Scores

    async def _score_by_echo(
        self, ids: Sequence[int], target: Sequence[int], affinity: str
    ) -> tuple[float, ...]:
        """Let the server read prompt and target, and tell the log-probabilities of what it read."""
        body = {"prompt": [*ids, *target], "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}

        def read(reply: Any) -> tuple[float, ...]:
            told = part(reply, "choices", 0, "logprobs", "token_logprobs", kind=list)
            return parts(told[len(ids) : len(ids) + len(target)], kind=float, length=len(target))

        return await self._endpoints.ask(COMPLETIONS, partial(_named, body), read, affinity)

    async def _score_in_steps(
        self, ids: Sequence[int], target: Sequence[int], affinity: str
    ) -> tuple[tuple[float, ...], int]:
        """Force token after token, each in a request of its own, as llama.cpp's server cannot force several.

        Its cache has the prompt after the first; a log-probability is from before the token was forced.
        """
        logprobs, computed = [], 0
        for done, token in enumerate(target):
            before = [*ids, *target[:done]]
            body = forcing_body(before, token)
            forced = await self._endpoints.ask(NATIVE, partial(_named, body), forced_logprob, affinity)
            if forced is None:
                body = distribution_body(before)
                listed = partial(listed_logprob, token=token)
                logprob, read = await self._endpoints.ask(NATIVE, partial(_named, body), listed, affinity)
            else:
                found, logprob, read = forced
                if found != token:
                    raise BackendError(
                        "a server did not generate the token that it was forced to: is it llama.cpp's, and "
                        "of one version with the others?"
                    )
            logprobs.append(logprob)
            computed = computed or read
        return tuple(logprobs), min(computed, len(ids))


def _named(body: dict[str, Any], server: OpenAIEndpoint) -> dict[str, Any]:
    return {"model": server.model, **body}


def _turns(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in prompt.messages]
