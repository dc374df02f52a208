"""The answer in the end, for methods whose own loop has stated none.

It is asked for with as much of the loop's text as budget and window allow.

Most papers leave such a question unanswered, which counts as wrong. A run under a token budget would then
measure how often a loop ends in time, not what it has found; so a spent budget is always answered here.
Auto-RAG, FLARE, IterDRAG, ReAct, Search-o1, Search-R1, Self-Ask and prompted Self-RAG end in these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from corag.core.errors import BudgetExhaustedError, RequestRefusedError
from corag.core.prompting.prompt import Prompt
from corag.core.reader import generate_answer
from corag.core.text import extract_answer
from corag.core.tools import Tools

ANSWER_CUE = "So the answer is:"  # IRCoT's words, which its pattern reads; a chain is made to go on with them


class WrittenSentence(Protocol):
    """A sentence of a chain of thought, with the white space before it."""

    @property
    def text(self) -> str:
        """Its text."""
        ...


class ForcingConfig(Protocol):
    """Options of a method that can be made to answer."""

    @property
    def force_answer(self) -> bool:
        """Whether an answer is asked for if none was stated; for a spent budget one always is."""
        ...

    @property
    def max_answer_tokens(self) -> int:
        """Most tokens of it."""
        ...


Item = TypeVar("Item")
Unit = TypeVar("Unit", bound=WrittenSentence)


async def force_answer(prompt: Prompt, max_tokens: int, tools: Tools) -> str:
    """Ask for the answer once, leaving out demonstrations and passages that the budget does not allow.

    Raises:
        BudgetExhaustedError: the budget does not allow the call even without them.
    """
    prompt = tools.afford(prompt, max_tokens)
    return extract_answer((await generate_answer(prompt, max_tokens, tools, role="final")).text)


async def answer_from_newest(
    prompt: Callable[[Sequence[Item]], Prompt],
    items: Sequence[Item],
    tools: Tools,
    *,
    max_tokens: int,
    stop: Sequence[str] = ("\n",),
    parse: Callable[[str], str] = extract_answer,
) -> str:
    """Ask for the answer with as many of the newest items of a transcript as budget and window allow.

    Args:
        prompt: writes the prompt that asks with these items.
        items: what was written so far, oldest first.
        tools: the question's.
        max_tokens: most tokens of the reply.
        stop: where the reply ends.
        parse: takes the answer out of the reply.

    Returns:
        The answer, "" if the budget does not even allow to ask without any item.

    Raises:
        RequestRefusedError: the window does not allow to ask without any item.
    """
    # Items are left out here and not by drop ranks: chat prompts have them in the beginning of the reply,
    # which is kept whole, so what a full window would cut is the question.
    answer = ""
    for first in range(len(items) + 1):
        try:
            reply = await tools.generate(
                prompt(items[first:]), role="forced_answer", max_tokens=max_tokens, stop=stop, path="end"
            )
        except BudgetExhaustedError:
            continue
        except RequestRefusedError:
            if first == len(items):
                raise
            continue
        answer = parse(reply.text)
        if not reply.shortening.cut_tokens:  # else the question lost words: try again with fewer items
            break
    return answer


async def answer_of_chain(
    prompt: Callable[[Sequence[Unit]], Prompt],
    chain: Sequence[Unit],
    stop_reason: str,
    tools: Tools,
    config: ForcingConfig,
) -> str:
    """Return what a chain of thought states as its answer, else what it states when made to go on with one.

    Under a budget, demonstrations and passages of the ``prompt`` go before sentences of the chain do. If
    nothing comes of it, or it is not asked for, what was written is the answer.
    """
    answer = extract_answer(chain_text(chain))
    if stop_reason == "answer" or not (config.force_answer or stop_reason == "budget"):
        return answer
    limit = config.max_answer_tokens
    forced_text = await answer_from_newest(
        lambda sentences: tools.afford(prompt(sentences), limit), chain, tools, max_tokens=limit
    )
    return forced_text or answer


def chain_text(chain: Iterable[WrittenSentence]) -> str:
    """Return a chain of thought so far."""
    return "".join(sentence.text for sentence in chain).lstrip()


def cued_text(chain: Iterable[WrittenSentence]) -> str:
    """Return a chain of thought so far, and the words that its answer follows."""
    return f"{chain_text(chain)} {ANSWER_CUE}".strip()
