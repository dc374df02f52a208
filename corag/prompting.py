"""What CoRAG asks the model: its four prompts, filled (paper, section 3.1 and appendix D).

Decoding and training data are made by the same functions, so a model is asked what it was trained on. When a
prompt is too long, passages are left out first, the worst before the others, then hops, the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from corag.chain import Chain
from corag.config import CoRAGConfig
from core.prompting.prompt import Prompt, Segment
from core.prompting.render import render_passages
from core.prompting.template import Template
from core.types import Passage


def sub_query_prompt(query: str, chain: Chain, config: CoRAGConfig) -> Prompt:
    """Ask for the next sub-query: P(Q_i | Q, Q_<i, A_<i).

    The chain stands late, so that a longer one shares its prefix.
    """
    template = config.prompt("sub_query")
    return template.render({"query": query, "task": config.task, "hops": hop_segments(chain, template)})


def sub_answer_prompt(sub_query: str, passages: Sequence[Passage], config: CoRAGConfig) -> Prompt:
    """Ask for the sub-answer: P(A_i | Q_i, D_i). ``passages`` are best first."""
    template = config.prompt("sub_answer")
    shown = passage_segments(passages, template, best_last=config.passage_order == "best_last")
    return template.render({"sub_query": sub_query, "passages": shown, "refusal": config.refusal})


def final_answer_prompt(query: str, chain: Chain, passages: Sequence[Passage], config: CoRAGConfig) -> Prompt:
    """Ask for the answer: P(A | Q, Q_1:L, A_1:L, D). ``passages`` are best first."""
    template = config.prompt("final_answer")
    shown = passage_segments(passages, template, best_last=config.context_order == "best_last")
    hops = hop_segments(chain, template)
    return template.render({"query": query, "task": config.task, "hops": hops, "passages": shown})


def stop_check_prompt(query: str, chain: Chain, config: CoRAGConfig) -> Prompt:
    """Ask whether the chain suffices (appendix D)."""
    template = config.prompt("stop_check")
    return template.render({"query": query, "task": config.task, "hops": hop_segments(chain, template)})


def refusal_prompt(query: str, chain: Chain, config: CoRAGConfig) -> Prompt:
    """Ask for the sub-answer to the main question, with the chain in the place of passages (section 3.3)."""
    template = config.prompt("sub_answer")
    hops = hop_segments(chain, template)
    return template.render({"sub_query": query, "passages": hops, "refusal": config.refusal})


def continuation(prompt: Prompt, text: str) -> str:
    """Return a text as the model would write it after the prompt.

    With a space first, unless it begins a turn or a line. (Plain prompts end without white space.)
    """
    goes_on = prompt.plain or (prompt.prefix and not prompt.prefix[-1].isspace())
    return f" {text}" if goes_on else text


def hop_segments(chain: Chain, template: Template) -> list[Segment]:
    """Write the chain as the prompt says."""
    items = [{"sub_query": hop.sub_query, "sub_answer": hop.sub_answer} for hop in chain.hops]
    return template.items("hop", items)


def passage_segments(passages: Sequence[Passage], template: Template, *, best_last: bool) -> list[Segment]:
    """Write passages, given best first, as the prompt says."""
    if best_last:
        return render_passages(reversed(passages), template, goes_first="first")
    return render_passages(passages, template, goes_first="last")


def clip(passages: Sequence[Passage], count: Callable[[str], int], config: CoRAGConfig) -> list[Passage]:
    """Cut each passage to ``max_passage_tokens``."""
    if not config.max_passage_tokens:
        return list(passages)
    return [
        replace(passage, text=clip_text(passage.text, config.max_passage_tokens, count))
        for passage in passages
    ]


def clip_text(text: str, limit: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning of whole words, or else characters, that has at most ``limit`` tokens."""
    ends = [place for place, character in enumerate(text) if character.isspace()] + [len(text)]
    return _longest(text, ends, limit, count) or _longest(text, range(len(text) + 1), limit, count)


# Bisection: a tokenizer takes milliseconds, and a longer beginning has hardly ever fewer tokens.
def _longest(text: str, ends: Sequence[int], limit: int, count: Callable[[str], int]) -> str:
    low, high = 0, len(ends)
    while low < high:  # the first ``low`` ends fit; those from ``high`` on do not
        middle = (low + high) // 2
        if count(text[: ends[middle]]) <= limit:
            low = middle + 1
        else:
            high = middle
    return text[: ends[low - 1]] if low else ""
