"""Which features of a server work: routes, log-probabilities, token ids, seeds, scoring of a given text.

Servers differ in what they make of the protocol: whether they return log-probabilities, take token ids, obey
a seed. Versions differ too, so no table of products is trusted: each server gets some requests of a few
tokens, and a feature that it refuses or ignores is not used. Only where the user says that the servers are
vLLM's (``--model.backend server``) most features are taken for granted, and the rest is found out with two
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from corag.core.errors import BackendError, ConfigError
from corag.core.replies import MalformedReplyError, StatusError, list_at, value_at
from corag.generation.forced import FORCED_TOKENS
from corag.generation.http import drafts
from corag.generation.http.features import Features
from corag.generation.http.probe import MESSAGES, PROMPT, Probe
from corag.generation.http.wire import (
    CERTAIN,
    CHAT,
    COMPLETIONS,
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
from corag.generation.rendering import Renderer
from corag.generation.thinking import BY_EFFORT, BY_TEMPLATE, SWITCHES

_MAX_SPECIAL = 3  # tokens that a tokenizer adds to a text: the shortest chat templates take seven
# Where tokenizers differ: letters beyond ASCII, digits, an apostrophe.
_TOKENIZER_TEXT = "Ein Dutzend Äpfel, 1984 and the river's end."


async def probe_features(probe: Probe, model: str, kind: str, renderer: Renderer | None) -> Features:
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
        and await probe.attempt(TEMPLATE, {"messages": MESSAGES}, read_template) is not None,
    )
    features = replace(features, **await _probe_sampling(probe, base, features))
    features = replace(features, **await _probe_scoring(probe, base, kind, renderer, features))
    if kind == "vLLM" and features.token_ids:
        vllm = await _probe_vllm(probe, model)
        return replace(features, **{**vllm, "logprobs": features.logprobs and vllm.get("logprobs", True)})
    return features


async def _tokenize(probe: Probe, model: str) -> list[int] | None:
    """Return how a server splits a text into token ids; None if it does not do that."""
    reply = await probe.look_up(TOKENIZE, tokenize_body(model, _TOKENIZER_TEXT))
    try:
        return list(list_at(reply, "tokens", kind=int))
    except MalformedReplyError:
        return None


def _require_same_tokenizer(ids: list[int], renderer: Renderer, probe: Probe, model: str) -> None:
    """Refuse a server whose tokenizer splits a text otherwise: it would read our token ids as other words."""
    if ids == renderer.text_ids(_TOKENIZER_TEXT):
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


async def _probe_vllm(probe: Probe, model: str) -> dict[str, bool]:
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
            forces_tokens = ids == tokens and await _forces_beside_drafts(probe, model)
            return {
                "returns_ids": ids is not None, "logprobs": raw, "priorities": priorities,
                "forced": forces_tokens,
            }  # fmt: skip
    return {}


async def _forces_beside_drafts(probe: Probe, model: str) -> bool:
    """Whether forced tokens reach the replies that they are for, if the server drafts and has several."""
    right = await asyncio.gather(
        *(
            probe.attempt(COMPLETIONS, body, partial(drafts.is_as_forced, body))
            for body in drafts.bodies(model)
        )
    )
    return all(right)


def _require_vllm(vllm: Mapping[str, bool], probe: Probe) -> None:
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


async def _probe_routes(probe: Probe, base: dict[str, Any]) -> Features:
    """Find out which routes continue a text, and what both of them take."""
    text = await _probe_route(probe, COMPLETIONS, base | {"prompt": PROMPT}, {"logprobs": 1})
    chat = await _probe_route(
        probe, CHAT, base | {"messages": MESSAGES}, {"logprobs": True, "top_logprobs": 1}
    )
    routes = [route for route in (text, chat) if route is not None]
    if not routes:
        raise BackendError(
            f"{probe.url} refuses to continue a text as '{base['model']}' ({probe.refusal}): look at its "
            "log, or name another model with --model.name."
        )
    applies_template = text is not None and await _applies_template(probe, base)
    thinks = chat is not None and chat.thinks
    switch = await _probe_switches(probe, base) if thinks and probe.config.thinking in ("auto", "off") else {}
    return Features(
        completions=text is not None and not (applies_template and chat is not None),
        templated=applies_template,
        chat=chat is not None,
        logprobs=all(route.logprobs for route in routes),
        settings=all(route.settings for route in routes),
        **({"thinks": thinks} | switch),
    )


async def _probe_switches(probe: Probe, base: dict[str, Any]) -> dict[str, bool]:
    """Find out what switches a server's thoughts off, if anything does."""
    if any(name in SWITCHES for name in probe.config.template_args):
        return {}  # the user has decided
    for name, setting in {"switched_by_template": BY_TEMPLATE, "switched_by_effort": BY_EFFORT}.items():
        body = {**base, "messages": MESSAGES, **setting}
        if await probe.attempt(CHAT, body, begins_with_thought) is False:
            return {"thinks": False, name: True}
    return {}


@dataclass(frozen=True, slots=True)
class _Route:
    logprobs: bool
    settings: bool
    thinks: bool


async def _probe_route(
    probe: Probe, route: str, body: dict[str, Any], logprobs: dict[str, Any]
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


async def _applies_template(probe: Probe, base: dict[str, Any]) -> bool:
    """Whether a server puts its chat template around the texts that it completes."""

    async def count_tokens(text: str) -> int:
        body = base | {"prompt": text}
        return await probe.attempt(COMPLETIONS, body, _prompt_tokens) or 0

    # Twice the text has twice the tokens, but only one template. (In this order: else a count that leaves out
    # cached tokens would look like a template.)
    twice, once = await count_tokens(f"{PROMPT} {PROMPT}"), await count_tokens(PROMPT)
    return twice > 0 and 2 * once - twice > _MAX_SPECIAL


def _prompt_tokens(reply: Any) -> int:
    return number_at(reply, "usage", "prompt_tokens")


async def _probe_sampling(probe: Probe, base: dict[str, Any], features: Features) -> dict[str, bool]:
    """Find out whether seeds are obeyed, top_k is, and several samples are given."""
    body = base | {"temperature": 1.0, "max_tokens": 8}
    route = CHAT if features.chat else COMPLETIONS
    body |= {"messages": MESSAGES} if features.chat else {"prompt": PROMPT}

    def texts(reply: Any) -> list[str]:
        choices = list_at(reply, "choices", kind=dict)
        value_at(choices, 0, kind=dict)
        return [choice_text(choice, chat=features.chat) for choice in choices]

    # One after another: what is computed together may differ in a last digit.
    draws = [await probe.attempt(route, body | {"seed": seed}, texts) for seed in (11, 11, 12, 13)]
    obeys_seeds = None not in draws and draws[0] == draws[1] and not draws[0] == draws[2] == draws[3]
    several = await probe.attempt(route, body | {"n": 2, "max_tokens": 1}, texts)
    # Of the likeliest token alone every sample is the same, however hot.
    hot = body | {"temperature": 2.0, **extra_settings(1, 1.0)}
    attempts = [
        await probe.attempt(route, hot | {"seed": seed}, texts) for seed in (11, 12, 13) if features.settings
    ]
    # Texts that are all empty, where a model only thought, show nothing.
    texts_of_attempts = [text for text in attempts if text is not None and any(text)]
    return {
        "seeds": obeys_seeds,
        "samples": several is not None and len(several) == 2,
        "sampling": len(texts_of_attempts) == 3
        and texts_of_attempts[0] == texts_of_attempts[1] == texts_of_attempts[2],
    }


async def _probe_scoring(
    probe: Probe, base: dict[str, Any], kind: str, renderer: Renderer | None, features: Features
) -> dict[str, bool]:
    """Find out whether completions take token ids, and how a given text can be scored."""
    results: dict[str, bool] = {}
    if renderer is not None and features.completions:
        ids = renderer.text_ids(PROMPT)
        if await probe.attempt(COMPLETIONS, base | echo_body(ids), lambda reply: is_echoed(reply, len(ids))):
            return {"token_ids": True, "echo": True}
        # As many tokens as were sent, perhaps one more at the beginning: ids, and not the text of a list.
        count = await probe.attempt(COMPLETIONS, base | {"prompt": ids}, _prompt_tokens)
        results["token_ids"] = count in (len(ids), len(ids) + 1)
    if kind == "llama.cpp" and features.tokenizer and (features.template or renderer is not None):
        reply = await probe.attempt(NATIVE, forced_token_body(PROMPT, UNLIKELY), read_forced_token)
        results["steps"] = reply is not None and reply[0] == UNLIKELY and reply[1] < CERTAIN
    return results
