"""What a choice among candidates leaves lying: each of them answered from, and measured by every signal.

No part of the paper's method: nothing here changes an answer or is charged to a budget. Apart from ``rank``,
which decoding needs, since this needs the final answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from corag.config import OF_ANSWERS, CoRAGConfig, Signal
from corag.final_answer import Context, FinalAnswer, final_answer
from corag.rank import Candidate, Outcome, signal_of, with_consensus
from core.tools import Tools

# What any model can tell; a verifier has to be taught, so it is measured where it ranks or is asked for.
_ALWAYS: tuple[Signal, ...] = ("refusal", "likelihood")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a candidate would have answered, and the signals that ranking had not measured.

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
        signals: dict[Signal, float] = {}
        # As in ranking, what has found nothing has no score.
        for name in names if len(chain) else ():
            # What ranking measured of a draft is not of this answer.
            if name not in candidate.signals or (config.judged == "draft" and name in OF_ANSWERS):
                value = await signal_of(name, chain, said.text, branch, config, path)
                if value is not None and math.isfinite(value):
                    signals[name] = value
        return Measured(said.text, signals)

    measuring = tools.measuring()
    found = await measuring.fan_out(ended, one)
    # Ranking has measured it of all final answers or of none: of drafts only, or without tokens left for it.
    told = config.judged == "final" and any("consensus" in each.signals for each in ended)
    if config.wants_consensus and not told:
        said = [replace(each, answer=one.answer) for each, one in zip(ended, found, strict=True)]
        agreed = await with_consensus(said, measuring, config)
        found = [
            replace(one, signals={**one.signals, "consensus": each.signals["consensus"]})
            if "consensus" in each.signals
            else one
            for each, one in zip(agreed, found, strict=True)
        ]
    return {each.path: measured for each, measured in zip(ended, found, strict=True)}
