"""The answer in the end, for methods whose own loop has stated none: asked for with as much of it as budget
and window allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from core.errors import BudgetExhaustedError, RequestRefusedError
from core.prompting.prompt import Prompt
from core.prompting.shorten import affordable
from core.reader import generate_answer
from core.text import extract_answer
from core.tools import Tools

ANSWER_CUE = "So the answer is:"  # what a chain of thought without an answer is made to go on with


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
Sentence = TypeVar("Sentence", bound=WrittenSentence)


async def force_answer(prompt: Prompt, max_tokens: int, tools: Tools) -> str:
    """Ask for the answer, without the demonstrations and passages that the budget does not allow, lowest drop
    rank first.
    """
    fitting = affordable(prompt, max_tokens, tools)
    return extract_answer((await generate_answer(fitting, max_tokens, tools, role="final")).text)


async def conclude(
    prompt: Callable[[Sequence[Item]], Prompt],
    items: Sequence[Item],
    tools: Tools,
    *,
    max_tokens: int,
    stop: Sequence[str] = ("\n",),
    read: Callable[[str], str] = extract_answer,
) -> str:
    """Ask for the answer with as many of the newest items of a transcript as budget and window allow, and
    ``read`` the reply.

    Items are left out here, not by a drop rank, because chat prompts have them in the reply's beginning,
    which is kept whole: what a full window cuts is the question. Returns "" if the budget does not allow to
    ask without any. Raises :class:`RequestRefusedError` if the window does not.
    """
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
        answer = read(reply.text)
        if not reply.shortening.cut_tokens:
            break
    return answer


async def conclude_chain(
    prompt: Callable[[Sequence[Sentence]], Prompt],
    chain: Sequence[Sentence],
    stopped: str,
    tools: Tools,
    config: ForcingConfig,
) -> str:
    """Return the answer of a chain of thought.

    If it did not stop with one, the answer that it is made to go on with.

    A budget also leaves out demonstrations and passages of the ``prompt``, before sentences. If nothing comes
    of it, or it is not asked for, what was written is the answer.
    """
    answer = extract_answer(written(chain))
    if stopped == "answer" or not (config.force_answer or stopped == "budget"):
        return answer
    limit = config.max_answer_tokens
    forced = await conclude(
        lambda kept: affordable(prompt(kept), limit, tools), chain, tools, max_tokens=limit
    )
    return forced or answer


def written(chain: Iterable[WrittenSentence]) -> str:
    """Return a chain of thought so far."""
    return "".join(sentence.text for sentence in chain).lstrip()


def cued(chain: Iterable[WrittenSentence]) -> str:
    """Return a chain of thought so far, and the words that its answer follows."""
    return f"{written(chain)} {ANSWER_CUE}".strip()
