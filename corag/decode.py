"""Decoding a chain: sub-query, retrieve, sub-answer, append (paper, section 3.1), until a rule says stop."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from corag.chain import (
    Chain,
    Hop,
    SubQuery,
    clean_sub_query,
    fresh,
    reaches_end,
    top_passages,
    written_sub_query,
)
from corag.config import CoRAGConfig
from corag.final_answer import draft_answer
from corag.prompting import (
    STOP_CHECK_TOKENS,
    fit_hop_prompt,
    stop_check_prompt,
    sub_answer_prompt,
    sub_query_prompt,
)
from corag.verifier import verifier_score, yes_over_no
from core.errors import BudgetExhaustedError
from core.protocols import Completion
from core.text import clean_sub_answer, exact_match, normalize_answer
from core.tools import Tools

# Released code: a greedy sub-query that repeats is asked for again at this temperature at least.
RETRY_TEMPERATURE = 0.7

AfterHop = Callable[[Chain, str], Awaitable[Chain]]
"""Looks at a chain and the place of its newest hop, and returns it; ``Chain.stopped`` set, it ends there."""


async def decode_chain(
    chain: Chain,
    hops: int,
    tools: Tools,
    config: CoRAGConfig,
    *,
    temperature: float,
    path: str,
    after_hop: AfterHop | None = None,
) -> Chain:
    """Go on with a chain until it has ``hops`` hops, or a stop rule, repeats or the budget end it before.

    ``temperature``: of its sub-queries. ``path``: its place in the search, from which seeds are derived.
    ``after_hop``: what is done with the chain after every hop instead of the stop rule of ``config``.
    """
    tries = config.tries * (hops - len(chain))
    try:
        while len(chain) < hops and not chain.stopped:
            here = f"{path}/hop {len(chain) + 1}"
            # Sub-query: P(Q_i | Q, Q_<i, A_<i).
            sub_query, tries_taken = await new_sub_query(
                chain, tries, tools, config, temperature=temperature, path=here
            )
            tries -= tries_taken
            chain = replace(chain, repeats=chain.repeats + tries_taken - bool(sub_query))
            if not sub_query:
                return replace(chain, stopped="repeats")
            # Retrieve D_i with it, then sub-answer: P(A_i | Q_i, D_i).
            chain = chain.then(await take_hop(sub_query, tools, config, path=here))
            if after_hop is None:
                chain = await apply_stop_rule(chain, tools, config, path=here)
            else:
                chain = await after_hop(chain, here)
    except BudgetExhaustedError:
        return replace(chain, stopped="budget")
    return chain


async def new_sub_query(
    chain: Chain, tries: int, tools: Tools, config: CoRAGConfig, *, temperature: float, path: str
) -> tuple[SubQuery | None, int]:
    """Return a sub-query that is new to the chain, None if ``tries`` were not enough, and the tries taken.

    As in the released code, a chain may ask for ``config.tries`` times as many as it has hops to go, and a
    repeat makes the next try more random.
    """
    for attempt in range(tries):
        retry_temperature = max(temperature, RETRY_TEMPERATURE) if attempt else temperature
        place = f"{path}/retry {attempt}" if attempt else path
        found, _ = await sample_sub_queries(
            chain, 1, tools, config, temperature=retry_temperature, path=place
        )
        if found:
            return found[0], attempt + 1
    return None, tries


async def sample_sub_queries(
    chain: Chain,
    count: int,
    tools: Tools,
    config: CoRAGConfig,
    *,
    temperature: float,
    path: str,
    may_repeat: bool = False,
) -> tuple[list[SubQuery], int]:
    """Sample ``count`` next sub-queries in one request.

    Return those new to the chain and to each other, and how many repeat the chain, blank ones among them.
    ``may_repeat``: they need not be new to the chain.
    """
    prompt = sub_query_prompt(tools.question.text, chain, config)
    reply = await tools.generate(
        fit_hop_prompt(prompt, tools.count_tokens, config),
        role="sub_query",
        max_tokens=config.max_sub_query_tokens,
        temperature=temperature,
        n=count,
        logprobs=config.wants_probabilities,
        path=path,
    )
    # One request for all samples: the prompt is computed and counted once.
    return read_sub_queries(reply.completions, chain, config, may_repeat=may_repeat)


def read_sub_queries(
    replies: Sequence[Completion], chain: Chain, config: CoRAGConfig, *, may_repeat: bool = False
) -> tuple[list[SubQuery], int]:
    """Take the next sub-queries out of replies.

    Return those new to the chain and to each other, and how many repeat the chain, blank ones among them.
    """
    number, exact, written = len(chain) + 1, config.repeats == "exact", config.replies == "as_written"
    asked = () if may_repeat else chain.sub_queries
    cleaned = [
        written_sub_query(each.text) if written else clean_sub_query(each.text, number) for each in replies
    ]
    cut = [each.finish_reason == "length" and (written or reaches_end(each.text, number)) for each in replies]
    repeats = sum(not fresh([text], asked, exact=exact, blank=written) for text in cleaned)
    new = [cleaned.index(text) for text in fresh(cleaned, asked, exact=exact, blank=written)]
    return [SubQuery(cleaned[at], cut[at], log_probability_of(replies[at])) for at in new], repeats


def log_probability_of(reply: Completion) -> float | None:
    """Return the log-probability of a whole reply; None if it was not asked for."""
    return None if reply.logprobs is None else sum(reply.logprobs)


async def take_hop(sub_query: SubQuery, tools: Tools, config: CoRAGConfig, *, path: str) -> Hop:
    """Search for a sub-query and answer it from what was found.

    Finding nothing is a refusal, and the model is not asked, unless ``ask_without_passages``.
    """
    hits = await tools.search(sub_query.text, k=max(config.search_depth, config.passages_per_hop), path=path)
    if not hits and not config.ask_without_passages:
        own = sub_query.log_probability
        return Hop(sub_query.text, config.refusal, refused=True, query_cut=sub_query.cut, log_probability=own)
    prompt = sub_answer_prompt(sub_query.text, top_passages(hits, config.passages_per_hop), config)
    prompt = fit_hop_prompt(prompt, tools.count_tokens, config)
    reply = await tools.generate(
        prompt,
        role="sub_answer",
        max_tokens=config.max_sub_answer_tokens,
        logprobs=config.wants_probabilities,
        path=path,
    )
    sub_answer, refused = clean_sub_answer(reply.text, config.refusal)
    if config.replies == "as_written":
        sub_answer = reply.text
    # A refusal is put down as its whole sentence, however much of it was written.
    cut = not refused and reply.completions[0].finish_reason == "length"
    asked, said = sub_query.log_probability, log_probability_of(reply.completions[0])
    both = None if asked is None or said is None else asked + said
    return Hop(sub_query.text, sub_answer, refused, hits, sub_query.cut, cut, both)


async def apply_stop_rule(chain: Chain, tools: Tools, config: CoRAGConfig, *, path: str) -> Chain:
    """Apply the stop rule to the newest hop."""
    if len(chain) >= config.max_hops:  # nothing to ask: it ends anyhow
        return replace(chain, stopped="length")
    if config.stop == "settled":
        # Training-free: what the chain by itself would answer has not changed over one more hop.
        draft = await draft_answer(chain, tools, config, path=path)
        same = bool(chain.draft) and bool(normalize_answer(draft)) and exact_match(draft, [chain.draft])
        return replace(chain, draft=draft, stopped="settled" if same else "")
    if config.stop == "check" and await says_enough(chain, tools, config, path=path):
        return replace(chain, stopped="check")
    if config.stop == "learned" and await prefers_yes(chain, tools, config, path=path):
        return replace(chain, stopped="learned")
    if config.stop == "verifier":
        draft = await draft_answer(chain, tools, config, path=path)
        score = await verifier_score(chain, draft, tools, config, path=path) if draft else -math.inf
        return replace(chain, draft=draft, stopped="verifier" if score + config.yes_bias > 0 else "")
    return chain


async def says_enough(chain: Chain, tools: Tools, config: CoRAGConfig, *, path: str) -> bool:
    """Ask the model whether the chain suffices; anything but a yes goes on (training-free)."""
    prompt = stop_check_prompt(tools.question.text, chain, config)
    reply = await tools.generate(prompt, role="stop_check", max_tokens=STOP_CHECK_TOKENS, path=path)
    return normalize_answer(reply.text).split()[:1] == ["yes"]


async def prefers_yes(chain: Chain, tools: Tools, config: CoRAGConfig, *, path: str) -> bool:
    """Compare the likelihoods of Yes and No, with the bias on Yes (section 5.4: nothing else may come)."""
    prompt = stop_check_prompt(tools.question.text, chain, config)
    return await yes_over_no(prompt, tools, role="stop_check", path=path) + config.yes_bias > 0
