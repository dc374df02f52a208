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

from corag.config import CoRAGConfig
from corag.decode import read_sub_queries, take_hop
from corag.method import HopRecord
from corag.prompting import fit_hop_prompt, sub_query_prompt
from corag.rank import answer_log_likelihood
from core.gather import gather
from core.protocols import Completion, Generator, Retriever
from core.text import mentions
from core.tools import Tools
from core.types import Question
from eval.experiment.background import background
from generation.rendering import Renderer
from training.chains import ChainRow
from training.config import RewardOptions
from training.pairs import chain_before, siblings_of


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a chain, which asks for the next sub-query.

    ``prompt``, ``prompt_ids``: as decoding asks it.
    """

    question: Question
    before: tuple[HopRecord, ...]
    prompt: str
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A sub-query's reward.

    ``gain``: without bounds and penalties; 0 of one that repeats the chain or is blank. ``names_answer``: it
    names a gold answer that nothing before it does.
    """

    reward: float
    gain: float = 0.0
    repeats: bool = False
    blank: bool = False
    names_answer: bool = False


def prefixes_of(row: ChainRow, most: int, renderer: Renderer, corag: CoRAGConfig) -> list[Prefix]:
    """Return what a question's chains began with before they asked on, each once, the shortest first.

    ``most``: so many of them; 0 for all. They are taken in turn: of each length the one that most sub-queries
    were tried after, then the second of each. So later hops are learned as well.
    """
    tried = siblings_of(row, "hop")
    ordered = sorted(tried, key=lambda before: (len(before), -len(tried[before])))
    of_length = [list(alike) for _, alike in itertools.groupby(ordered, key=len)]
    turns = [each for turn in itertools.zip_longest(*of_length) for each in turn if each is not None]
    made = []
    for before in sorted(turns[: most or None], key=len):
        prompt = sub_query_prompt(row.question.text, chain_before(before), corag)
        prompt = fit_hop_prompt(prompt, renderer.count, corag)
        made.append(Prefix(row.question, before, prompt.text, tuple(renderer.encode(prompt))))
    return made


async def reward_of(
    reply: Completion, prefix: Prefix, tools: Tools, corag: CoRAGConfig, options: RewardOptions
) -> Rewarded:
    """Return what a reply to a prefix's prompt is worth: search and answer for it, and score the gold answer.

    ``tools``: of the prefix's question, with the frozen model. A score that is no number makes the reward
    none either.
    """
    chain = chain_before(prefix.before)
    new, _ = read_sub_queries([reply], chain, corag)
    if not new:
        blank = not read_sub_queries([reply], chain, corag, may_repeat=True)[0]
        penalty = options.blank_penalty if blank else options.repeat_penalty
        return Rewarded(-penalty, repeats=not blank, blank=blank)
    hop = await take_hop(new[0], tools, corag, path="next")
    # The model remembers, so the score before the hop is computed once for all sub-queries after it.
    before = await answer_log_likelihood(chain, prefix.question.answers, tools, corag, path="before")
    after = await answer_log_likelihood(chain.then(hop), prefix.question.answers, tools, corag, path="after")
    gain = after.mean - before.mean
    if options.of == "probability":
        gain = math.exp(after.mean) - math.exp(before.mean)
    named = names_answer(hop.sub_query, prefix)
    if not math.isfinite(gain):
        return Rewarded(math.nan, names_answer=named)
    worth = min(gain, 0.0) if named and not options.guesses else gain
    return Rewarded(max(worth, options.least_gain), gain, names_answer=named)


def names_answer(sub_query: str, prefix: Prefix) -> bool:
    """Whether a sub-query names a gold answer that neither the question nor the chain before it does."""
    said = [text for hop in prefix.before for text in (hop.sub_query, hop.sub_answer)]
    answers = prefix.question.answers
    return mentions([sub_query], answers) and not mentions([prefix.question.text, *said], answers)


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
        found = background().run(gather(self._reward(prefix, ids) for prefix, ids in pairs))
        for name, value in self.shares(found).items():
            log_metric(name, value)
        return [each.reward for each in found]

    @staticmethod
    def shares(found: Sequence[Rewarded]) -> Mapping[str, float]:
        """Return what is logged of a batch: shares of repeats, blanks and guesses, and the mean gain."""
        return {
            "repeats": sum(each.repeats for each in found) / len(found),
            "blanks": sum(each.blank for each in found) / len(found),
            "names_answer": sum(each.names_answer for each in found) / len(found),
            "gain": sum(each.gain for each in found) / len(found),
        }

    async def _reward(self, prefix: Prefix, ids: Sequence[int]) -> Rewarded:
        ended = bool(ids) and ids[-1] == self._renderer.end_of_turn()
        said = list(ids[:-1] if ended else ids)
        text = self._renderer.continuation(prefix.prompt_ids, said)
        reply = Completion(text, tuple(ids), "stop" if ended else "length")
        tools = Tools(prefix.question, self._generator, self._retriever)
        return await reward_of(reply, prefix, tools, self._corag, self._options)
