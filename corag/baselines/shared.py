"""What baselines have in common: the folder of their prompts, the passages found, the answer in the end.

Most papers leave a question unanswered whose loop has stated no answer, which counts as wrong. A run under a
token budget would then measure how often a loop ends in time, not what it has found; so a spent budget is
always answered here, with as much of the loop's text as budget and window allow. Auto-RAG, FLARE, IterDRAG,
ReAct, Search-o1, Search-R1 and Self-Ask end in these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from corag.core.errors import BudgetExhaustedError, ConfigError, RequestRefusedError
from corag.core.language.text import extract_answer
from corag.core.prompting.prompt import Prompt
from corag.core.reader import generate_answer
from corag.core.tools import SearchStep, Tools

PROMPTS = Path(__file__).parent / "prompts"


def check_few_shot(method: str, preset: str, demonstrations: str, prompt: str) -> None:
    """Raise :class:`ConfigError` for a preset "paper" with neither worked examples nor the user's prompt."""
    if preset == "paper" and not demonstrations and prompt == "auto":
        raise ConfigError(
            f"{method}'s preset 'paper' is few-shot: name a file of worked examples with "
            f"'{method}.demonstrations', or 'default' for the shipped ones, or use the preset 'zero_shot'."
        )


def list_found_ids(tools: Tools) -> tuple[str, ...]:
    """Return the ids of all passages that the question's searches found, in order.

    What the budget no longer let the model read counts too: recall is about the searches.
    """
    hits = (hit for step in tools.steps if isinstance(step, SearchStep) for hit in step.hits)
    return tuple(dict.fromkeys(hit.passage.id for hit in hits))


# The answer in the end, for methods whose own loop has stated none

Item = TypeVar("Item")


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
