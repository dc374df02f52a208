"""What a choice among candidates leaves lying: each of them answered from, and measured by every signal.

No part of the paper's method: nothing here changes an answer or is charged to a budget. Apart from ``rank``,
which decoding needs, since this needs the final answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from corag.chains.config import CoRAGConfig
from corag.chains.final_answer import Context, FinalAnswer, final_answer
from corag.chains.rank import Candidate, Outcome, measure_signal
from corag.core.tools import Tools


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a candidate would have answered, and its signals: those that ranking had measured and the others.

    Each is in its own unit. What is no finite number is left out.
    """

    answer: str
    signals: Mapping[str, float]


async def measure_all(
    outcome: Outcome, final: FinalAnswer, context: Context, tools: Tools, config: CoRAGConfig
) -> dict[str, Measurement]:
    """Measure the candidates that have ended, by path. ``final``: what the chosen one answered.

    States within a tree are no candidates: the chains that go on from them are.
    """
    winner = outcome.best
    candidates = [each for each in outcome.candidates if each is winner or each.chain.stopped]
    names = dict.fromkeys((*config.measure, *config.chain_signals))

    async def one(candidate: Candidate, branch: Tools) -> Measurement:
        chain, path = candidate.chain, candidate.path
        answer = final if candidate is winner else candidate.final
        if answer is None:
            answer = await final_answer(chain, context, branch, config, path=path)
        signals = dict(candidate.signals)
        # As in ranking, what has found nothing has no score.
        for name in names if len(chain) else ():
            if name not in signals:
                value = await measure_signal(name, chain, branch, config, path)
                if value is not None and math.isfinite(value):
                    signals[name] = value
        return Measurement(answer.text, signals)

    results = await tools.measuring().fan_out(candidates, one)
    return {each.path: measurement for each, measurement in zip(candidates, results, strict=True)}
