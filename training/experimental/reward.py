"""What a sub-query is worth: how much likelier its search and sub-answer make the gold answer.

This is the information gain of a step (IGPO, ICLR 2026): the score that sampling takes after a hop, less the
one before it. It comes from frozen weights, so a policy cannot gain by changing how it scores itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corag.chains.chain import Chain, Hop
from corag.chains.config import CoRAGConfig
from corag.chains.decode import read_sub_queries, take_hop
from corag.chains.prompting import sub_query_prompt
from corag.chains.rank import answer_log_likelihood
from corag.core.gather import gather
from corag.core.protocols import Completion, Generator, Retriever
from corag.core.text import mentions
from corag.core.tools import Tools
from corag.core.types import Question
from corag.generation.rendering import Renderer
from corag.generation.thinking import thought_in
from eval.api.background import background
from training.chains import ChainRow
from training.experimental.config import RewardOptions
from training.experimental.pairs import list_siblings


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a chain, which asks for the next sub-query.

    ``prompt``, ``prompt_ids``: as decoding asks it.
    """

    question: Question
    before: tuple[Hop, ...]
    prompt: str
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reward:
    """A sub-query's reward.

    ``gain``: without bounds and penalties; 0 of one that repeats the chain or is blank. ``names_answer``: it
    names a gold answer that nothing before it does.
    """

    reward: float
    gain: float = 0.0
    repeats: bool = False
    blank: bool = False
    names_answer: bool = False


def list_prefixes(row: ChainRow, most: int, renderer: Renderer, corag: CoRAGConfig) -> list[Prefix]:
    """Return what a question's chains began with before they asked on, each once, the shortest first.

    ``most``: so many of them; 0 for all. They are taken in turn: of each length the one that most sub-queries
    were tried after, then the second of each. So later hops are learned as well.
    """
    siblings = list_siblings(row, "hop")
    beginnings = sorted(siblings, key=lambda before: (len(before), -len(siblings[before])))
    of_length = [list(group) for _, group in itertools.groupby(beginnings, key=len)]
    turns = [each for turn in itertools.zip_longest(*of_length) for each in turn if each is not None]
    prefixes = []
    for before in sorted(turns[: most or None], key=len):
        prompt = sub_query_prompt(row.question.text, Chain(before), corag)
        prompt = corag.conventions.fit_hop(prompt, renderer.count)
        prefixes.append(Prefix(row.question, before, prompt.text, tuple(renderer.encode(prompt))))
    return prefixes


async def score_reply(
    reply: Completion, prefix: Prefix, tools: Tools, corag: CoRAGConfig, options: RewardOptions
) -> Reward:
    """Return what a reply to a prefix's prompt is worth: search and answer for it, and score the gold answer.

    ``tools``: of the prefix's question, with the frozen model. A score that is no number makes the reward
    none either.
    """
    chain = Chain(prefix.before)
    new, _ = read_sub_queries([reply], chain, corag)
    if not new:
        blank = not read_sub_queries([reply], chain, corag, may_repeat=True)[0]
        penalty = options.blank_penalty if blank else options.repeat_penalty
        return Reward(-penalty, repeats=not blank, blank=blank)
    longer = await take_hop(chain, new[0], tools, corag, path="next")
    # The model remembers, so the score before the hop is computed once for all sub-queries after it.
    before = await answer_log_likelihood(chain, prefix.question.answers, tools, corag, path="before")
    after = await answer_log_likelihood(longer, prefix.question.answers, tools, corag, path="after")
    gain = after.mean - before.mean
    if options.of == "probability":
        gain = math.exp(after.mean) - math.exp(before.mean)
    guesses = names_answer(longer.sub_queries[-1], prefix)
    if not math.isfinite(gain):
        return Reward(math.nan, names_answer=guesses)
    worth = min(gain, 0.0) if guesses and not options.guesses else gain
    return Reward(max(worth, options.least_gain), gain, names_answer=guesses)


def names_answer(sub_query: str, prefix: Prefix) -> bool:
    """Whether a sub-query names a gold answer that neither the question nor the chain before it does."""
    texts = [text for hop in prefix.before for text in (hop.sub_query, hop.sub_answer)]
    answers = prefix.question.answers
    return mentions([sub_query], answers) and not mentions([prefix.question.text, *texts], answers)


class Rewarder:
    """The reward as TRL asks for it: for a batch of replies, from another thread than the engine's."""

    def __init__(
        self,
        prefixes: Sequence[Prefix],
        generator: Generator,
        retriever: Retriever,
        renderer: Renderer,
        corag: CoRAGConfig,
        options: RewardOptions,
    ) -> None:
        self._prefixes = prefixes
        self._generator, self._retriever, self._renderer = generator, retriever, renderer
        self._corag, self._options = corag, options

    def information_gain(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        number: Sequence[int],
        log_metric: Any,
        **_: Any,
    ) -> list[float]:
        """Return the reward of each reply, and log how many repeat, are blank or name the answer.

        ``number``: of the prefix that it replies to. TRL hands over more than is needed.
        """
        prefixes = [self._prefixes[each] for each in number]
        pairs = list(zip(prefixes, completion_ids, strict=True))
        rewards = background().run(gather(self._reward(prefix, ids) for prefix, ids in pairs))
        for name, value in self.shares(rewards).items():
            log_metric(name, value)
        return [each.reward for each in rewards]

    @staticmethod
    def shares(rewards: Sequence[Reward]) -> Mapping[str, float]:
        """Return what is logged of a batch: shares of repeats, blanks and guesses, and the mean gain."""
        return {
            "repeats": sum(each.repeats for each in rewards) / len(rewards),
            "blanks": sum(each.blank for each in rewards) / len(rewards),
            "names_answer": sum(each.names_answer for each in rewards) / len(rewards),
            "gain": sum(each.gain for each in rewards) / len(rewards),
        }

    async def _reward(self, prefix: Prefix, ids: Sequence[int]) -> Reward:
        has_end = bool(ids) and ids[-1] == self._renderer.end_of_turn()
        reply_ids = list(ids[:-1] if has_end else ids)
        text = self._renderer.continuation(prefix.prompt_ids, reply_ids)
        text = text[thought_in(text) :]  # no part of a sub-query
        reply = Completion(text, tuple(ids), "stop" if has_end else "length")
        tools = Tools(prefix.question, self._generator, self._retriever)
        return await score_reply(reply, prefix, tools, self._corag, self._options)
