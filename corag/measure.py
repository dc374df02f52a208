"""What a run's choice among candidates leaves lying: every candidate answered from, and scored in every way.

No part of the paper's method: nothing here changes an answer or is charged to a budget. Apart from ``rank``,
which decoding needs, since this needs the final answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from corag.config import CoRAGConfig
from corag.final_answer import Context, FinalAnswer, final_answer, final_prompt
from corag.prompting import continuation
from corag.rank import Candidate, Outcome, refusal_log_likelihood
from core.tools import Tools


@dataclass(frozen=True, slots=True)
class Measured:
    """What a candidate would have answered, and what rankers say of it, by name: higher is better.

    "refusal" is as ``rank_by`` has it, with its sign turned; "likelihood" is the mean log-likelihood per
    token of the answer and end of turn, given chain and passages. What is no finite number is left out.
    """

    answer: str
    scores: Mapping[str, float]


async def measure(
    outcome: Outcome, final: FinalAnswer, context: Context, tools: Tools, config: CoRAGConfig
) -> dict[str, Measured]:
    """Measure the candidates that have ended, by path. ``final``: what the chosen one answered.

    States within a tree are no candidates: the chains that go on from them are.
    """
    chosen = outcome.best
    ended = [each for each in outcome.candidates if each is chosen or each.chain.stopped]

    async def one(candidate: Candidate, branch: Tools) -> Measured:
        chain, path = candidate.chain, candidate.path
        said = final if candidate is chosen else candidate.answer
        if said is None:
            said = await final_answer(chain, context, branch, config, path=path)
        scores = {}
        known = config.rank_by == "refusal" and candidate.score is not None
        if len(chain) and not known:  # as in ranking, what has found nothing has no score
            scores["refusal"] = -await refusal_log_likelihood(chain, branch, config, path=path)
        if said.text.strip():
            prompt, _ = final_prompt(branch.question.text, chain, context, branch.count_tokens, config)
            target = continuation(prompt, said.text)
            found = await branch.score(prompt, target, role="likelihood", end_of_turn=True, path=path)
            scores["likelihood"] = found.mean
        return Measured(said.text, {name: value for name, value in scores.items() if math.isfinite(value)})

    found = await tools.measuring().fan_out(ended, one)
    return {each.path: measured for each, measured in zip(ended, found, strict=True)}
