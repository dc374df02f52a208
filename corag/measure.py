"""What a choice among candidates leaves lying: each of them answered from, and measured by every signal.

No part of the paper's method: nothing here changes an answer or is charged to a budget. Apart from ``rank``,
which decoding needs, since this needs the final answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from corag.config import CoRAGConfig
from corag.final_answer import Context, FinalAnswer, final_answer
from corag.rank import Candidate, Outcome, signal_of
from corag.signals import SIGNALS, Signal
from core.tools import Tools

# What any model can tell; a verifier has to be taught, so it is measured where it ranks or is asked for.
_ALWAYS: tuple[Signal, ...] = ("refusal", "likelihood")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a candidate would have answered, and its signals: those that ranking had measured and the others.

    Each is in its own unit, and of the final answer. What is no finite number is left out.
    """

    answer: str
    signals: Mapping[Signal, float]


async def measure_all(
    outcome: Outcome, final: FinalAnswer, context: Context, tools: Tools, config: CoRAGConfig
) -> dict[str, Measured]:
    """Measure the candidates that have ended, by path. ``final``: what the chosen one answered.

    States within a tree are no candidates: the chains that go on from them are.
    """
    chosen = outcome.best
    ended = [each for each in outcome.candidates if each is chosen or each.chain.stopped]
    names = dict.fromkeys((*_ALWAYS, *config.chain_signals))

    async def one(candidate: Candidate, branch: Tools) -> Measured:
        chain, path = candidate.chain, candidate.path
        said = final if candidate is chosen else candidate.final
        if said is None:
            said = await final_answer(chain, context, branch, config, path=path)
        # What ranking measured of a draft is not of this answer.
        stale = {name for name in names if SIGNALS[name].of_answer and config.judged == "draft"}
        signals = {name: value for name, value in candidate.signals.items() if name not in stale}
        # As in ranking, what has found nothing has no score.
        for name in names if len(chain) else ():
            if name not in candidate.signals or name in stale:
                value = await signal_of(name, chain, said.text, branch, config, path)
                if value is not None and math.isfinite(value):
                    signals[name] = value
        return Measured(said.text, signals)

    found = await tools.measuring().fan_out(ended, one)
    return {each.path: measured for each, measured in zip(ended, found, strict=True)}
