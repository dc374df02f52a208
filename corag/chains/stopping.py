"""Stop rules: whether a chain ends after its newest hop. One object each, and the table of them.

A new rule is one :class:`StopRule` here and its test; ``--corag.stop`` and its help know it by its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from corag.chains.asking import draft_answer
from corag.chains.chain import Chain
from corag.chains.prompting import (
    ChainOptions,
    PromptName,
    continuation,
    final_answer_prompt,
    stop_check_prompt,
)
from corag.core.language.text import ballot, normalize_answer
from corag.core.protocols import Ability
from corag.core.tools import Tools
from corag.core.types import Hit

# Of a stop check's reply: room for "Yes" in any tokenizer's spelling, after a quote or a line break.
STOP_CHECK_TOKENS = 4


async def _go_on(chain: Chain, tools: Tools, config: ChainOptions, path: str) -> Chain:
    return chain


def _free(hits: Sequence[Hit], tools: Tools, config: ChainOptions) -> int:
    return 0


@dataclass(frozen=True)
class StopRule:
    """When a chain ends before its last hop.

    Attributes:
        name: as the option spells it, and as it stands in ``Chain.stopped``.
        apply: returns the chain, with ``stopped`` set if it ends with its newest hop.
        cost: tokens that ``apply`` may cost after a hop, about. Searches find passages like the hits.
        prompts: the prompts that it needs beside those of every chain.
        needs: what the model must be able to do.
    """

    name: str
    apply: Callable[[Chain, Tools, ChainOptions, str], Awaitable[Chain]] = _go_on
    cost: Callable[[Sequence[Hit], Tools, ChainOptions], int] = _free
    prompts: tuple[PromptName, ...] = ()
    needs: frozenset[Ability] = frozenset()


async def _check(chain: Chain, tools: Tools, config: ChainOptions, path: str) -> Chain:
    """Ask the model whether the chain suffices; anything but a yes goes on (training-free)."""
    prompt = stop_check_prompt(tools.question.text, chain, config)
    reply = await tools.generate(prompt, role="stop_check", max_tokens=STOP_CHECK_TOKENS, path=path)
    return replace(chain, stopped="check" if normalize_answer(reply.text).split()[:1] == ["yes"] else "")


async def _settle(chain: Chain, tools: Tools, config: ChainOptions, path: str) -> Chain:
    """Draft an answer; the chain ends if it is the one that was drafted a hop before (training-free)."""
    draft = await draft_answer(chain, tools, config, path=path)
    same = bool(ballot(draft)) and ballot(draft) == ballot(chain.draft)
    return replace(chain, draft=draft, stopped="settled" if same else "")


async def _compare(chain: Chain, tools: Tools, config: ChainOptions, path: str) -> Chain:
    """Compare log P(Yes) and log P(No) by forced decoding, with the bias on Yes (paper, section 5.4)."""
    prompt = stop_check_prompt(tools.question.text, chain, config)
    # Not at the same time: which of the two a budget still allows would depend on which is answered first.
    # The second finds the first one's prompt in the prefix cache.
    yes = await tools.score(prompt, continuation(prompt, "Yes"), role="stop_check", path=path)
    no = await tools.score(prompt, continuation(prompt, "No"), role="stop_check", path=path)
    return replace(chain, stopped="learned" if yes.sum - no.sum + config.yes_bias > 0 else "")


def _check_cost(hits: Sequence[Hit], tools: Tools, config: ChainOptions) -> int:
    return tools.cost(stop_check_prompt(tools.question.text, Chain(), config), STOP_CHECK_TOKENS)


def _comparison_cost(hits: Sequence[Hit], tools: Tools, config: ChainOptions) -> int:
    return 2 * tools.cost(stop_check_prompt(tools.question.text, Chain(), config), 1)  # Yes, and No


def _draft_cost(hits: Sequence[Hit], tools: Tools, config: ChainOptions) -> int:
    prompt = final_answer_prompt(tools.question.text, Chain(), (), config)
    return tools.cost(prompt, config.max_answer_tokens)


_SCORES = frozenset({Ability.SCORES})

STOP_RULES: Mapping[str, StopRule] = {
    rule.name: rule
    for rule in (
        StopRule("length"),
        StopRule("check", _check, _check_cost, prompts=("stop_check",)),
        StopRule("settled", _settle, _draft_cost),
        StopRule("learned", _compare, _comparison_cost, prompts=("stop_check",), needs=_SCORES),
    )
}
