"""What the model is asked about a chain beside its hops: signals and stop rules are made of it."""

from __future__ import annotations

from corag.chains.chain import Chain
from corag.chains.comparison import compare
from corag.chains.prompting import ChainOptions, final_answer_prompt
from corag.core.language.text import extract_answer
from corag.core.tools import Tools


async def draft_answer(chain: Chain, tools: Tools, config: ChainOptions, *, path: str = "") -> str:
    """Answer the question from a chain alone, without passages: P(A | Q, Q_1:L, A_1:L), or by rule."""
    if config.compare == "rules" and (comparison := compare(tools.question.text, chain.hops)):
        return comparison.answer
    prompt = final_answer_prompt(tools.question.text, chain, (), config)
    reply = await tools.generate(prompt, role="draft", max_tokens=config.max_answer_tokens, path=path)
    return extract_answer(reply.text)
