"""Decoding a chain: sub-query, retrieve, sub-answer, append (paper, section 3.1), until a rule says stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from corag.chains.chain import (
    Chain,
    Hop,
    SubQuery,
    top_passages,
)
from corag.chains.comparison import compare, next_sub_query
from corag.chains.config import CoRAGConfig
from corag.chains.prompting import sub_answer_prompt, sub_query_prompt
from corag.chains.search_text import search_text
from corag.chains.stopping import STOP_RULES
from corag.core.errors import BudgetExhaustedError
from corag.core.protocols import Completion
from corag.core.tools import Tools
from corag.core.types import Hit

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
            # Sub-query: P(Q_i | Q, Q_<i, A_<i); of a comparison, perhaps what one was asked of the other.
            sub_query, tries_taken = of_the_other(chain, tools, config), 1
            if sub_query is None:
                sub_query, tries_taken = await new_sub_query(
                    chain, tries, tools, config, temperature=temperature, path=here
                )
            tries -= tries_taken
            chain = replace(chain, repeats=chain.repeats + tries_taken - bool(sub_query))
            if not sub_query:
                return replace(chain, stopped="repeats")
            # Retrieve D_i with it, then sub-answer: P(A_i | Q_i, D_i).
            chain = await take_hop(chain, sub_query, tools, config, path=here)
            if after_hop is None:
                chain = await apply_stop_rule(chain, tools, config, path=here)
            else:
                chain = await after_hop(chain, here)
    except BudgetExhaustedError:
        return replace(chain, stopped="budget")
    return chain


def of_the_other(chain: Chain, tools: Tools, config: CoRAGConfig) -> SubQuery | None:
    """Return the next sub-query of a comparison by rule, None where the model is to ask one.

    The rule has no choice: its log-probability is 0.
    """
    if config.compare != "rules":
        return None
    text = next_sub_query(tools.question.text, chain.hops)
    return None if text is None else SubQuery(text, log_probability=0.0)


async def new_sub_query(
    chain: Chain, tries: int, tools: Tools, config: CoRAGConfig, *, temperature: float, path: str
) -> tuple[SubQuery | None, int]:
    """Return a sub-query that is new to the chain, None if ``tries`` were not enough, and the tries taken.

    As in the released code, a chain may ask for ``config.tries`` times as many as it has hops to go, and a
    repeat makes the next try more random.
    """
    for attempt in range(tries):
        retry_temperature = max(temperature, RETRY_TEMPERATURE) if attempt else temperature
        attempt_path = f"{path}/retry {attempt}" if attempt else path
        proposals, _ = await sample_sub_queries(
            chain, 1, tools, config, temperature=retry_temperature, path=attempt_path
        )
        if proposals:
            return proposals[0], attempt + 1
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
        config.conventions.fit_hop(prompt, tools.count_tokens),
        role="sub_query",
        max_tokens=config.max_sub_query_tokens,
        temperature=temperature,
        n=count,
        logprobs=config.needs_probabilities,
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
    number, conventions = len(chain) + 1, config.conventions
    earlier = () if may_repeat else chain.sub_queries
    texts = [conventions.read_sub_query(each.text, number) for each in replies]
    repeats = sum(not conventions.fresh([text], earlier) for text in texts)
    sub_queries = []
    for position in map(texts.index, conventions.fresh(texts, earlier)):
        reply = replies[position]
        is_cut = reply.finish_reason == "length" and conventions.reaches_end(reply.text, number)
        sub_queries.append(SubQuery(texts[position], is_cut, sum_log_probabilities(reply)))
    return sub_queries, repeats


def sum_log_probabilities(reply: Completion) -> float | None:
    """Return the log-probability of a whole reply; None if it was not asked for."""
    return None if reply.logprobs is None else sum(reply.logprobs)


async def take_hop(
    chain: Chain, sub_query: SubQuery, tools: Tools, config: CoRAGConfig, *, path: str
) -> Chain:
    """Search for a sub-query, answer it from what the search returned, and return the chain with this hop.

    Finding nothing is a refusal, and the model is not asked (the released code asks it).
    """
    hits = await search_hop(chain, sub_query.text, tools, config, path=path)
    if not hits and not config.conventions.asks_without_passages:
        refusal = Hop(sub_query.text, config.refusal, refused=True, query_cut=sub_query.cut)
        return chain.then(refusal, (), sub_query.log_probability)
    prompt = sub_answer_prompt(sub_query.text, top_passages(hits, config.passages_per_hop), config)
    prompt = config.conventions.fit_hop(prompt, tools.count_tokens)
    reply = await tools.generate(
        prompt,
        role="sub_answer",
        max_tokens=config.max_sub_answer_tokens,
        logprobs=config.needs_probabilities,
        path=path,
    )
    sub_answer, is_refusal = config.conventions.read_sub_answer(reply.text, config.refusal)
    # A refusal is put down as its whole sentence, however much of it was written.
    is_cut = not is_refusal and reply.completions[0].finish_reason == "length"
    ids = tuple(hit.passage.id for hit in hits)
    query_part, answer_part = sub_query.log_probability, sum_log_probabilities(reply.completions[0])
    both = None if query_part is None or answer_part is None else query_part + answer_part
    return chain.then(Hop(sub_query.text, sub_answer, is_refusal, ids, sub_query.cut, is_cut), hits, both)


async def search_hop(
    chain: Chain, sub_query: str, tools: Tools, config: CoRAGConfig, *, path: str
) -> tuple[Hit, ...]:
    """Return what is found for the next sub-query of a chain, searched as ``search_text`` says."""
    last = chain.hops[-1] if chain.hops else None
    last_answer = last.sub_answer if last and not last.refused else ""
    text = search_text(config.search_text, sub_query, tools.question.text, last_answer)
    return await tools.search(text, k=max(config.search_depth, config.passages_per_hop), path=path)


async def apply_stop_rule(chain: Chain, tools: Tools, config: CoRAGConfig, *, path: str) -> Chain:
    """Apply the stop rule to the newest hop; a comparison that is decided by rule ends as "compared"."""
    if len(chain) >= config.max_hops:  # nothing to ask: it ends anyhow
        return replace(chain, stopped="length")
    if config.compare == "rules":
        if compare(tools.question.text, chain.hops):
            return replace(chain, stopped="compared")
        if next_sub_query(tools.question.text, chain.hops):  # there is no need to ask whether to go on
            return chain
    return await STOP_RULES[config.stop].apply(chain, tools, config, path)
