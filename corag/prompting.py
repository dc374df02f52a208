"""What CoRAG asks the model: its prompts, filled (paper, section 3.1 and appendix D).

Decoding and training data are made by the same functions, so a model is asked what it was trained on. When a
prompt is too long, passages are left out first, the worst before the others, then hops, the oldest first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from corag.chain import Chain
from corag.config import CoRAGConfig
from core.prompting.prompt import Message, Prompt, Segment
from core.prompting.render import render_passages
from core.prompting.shorten import shorten
from core.prompting.template import Template
from core.types import Passage

# Of a stop check's reply: room for "Yes" in any tokenizer's spelling, after a quote or a line break.
STOP_CHECK_TOKENS = 4


def sub_query_prompt(query: str, chain: Chain, config: CoRAGConfig) -> Prompt:
    """Ask for the next sub-query: P(Q_i | Q, Q_<i, A_<i).

    The chain stands late, so that a longer one shares its prefix.
    """
    template = config.prompt("sub_query")
    return template.render(
        {"query": query, "task": config.task, "hops": hop_segments(chain, template, config)}
    )


def sub_answer_prompt(sub_query: str, passages: Sequence[Passage], config: CoRAGConfig) -> Prompt:
    """Ask for the sub-answer: P(A_i | Q_i, D_i). ``passages`` are best first."""
    template = config.prompt("sub_answer")
    shown = passage_segments(passages, template, best_last=config.passage_order == "best_last")
    return template.render({"sub_query": sub_query, "passages": shown, "refusal": config.refusal})


def final_answer_prompt(query: str, chain: Chain, passages: Sequence[Passage], config: CoRAGConfig) -> Prompt:
    """Ask for the answer: P(A | Q, Q_1:L, A_1:L, D). ``passages`` are best first."""
    template = config.prompt("final_answer")
    shown = passage_segments(passages, template, best_last=config.context_order == "best_last")
    hops = hop_segments(chain, template, config)
    return template.render({"query": query, "task": config.task, "hops": hops, "passages": shown})


def stop_check_prompt(query: str, chain: Chain, config: CoRAGConfig) -> Prompt:
    """Ask whether the chain suffices (appendix D)."""
    template = config.prompt("stop_check")
    return template.render(
        {"query": query, "task": config.task, "hops": hop_segments(chain, template, config)}
    )


def verify_prompt(
    query: str, chain: Chain, passages: Sequence[Passage], answer: str, config: CoRAGConfig
) -> Prompt:
    """Ask whether an answer to the main question is right. ``passages`` are best first.

    The answer stands last, so that a chain's answers share the rest.
    """
    template = config.prompt("verify")
    shown = passage_segments(passages, template, best_last=config.context_order == "best_last")
    hops = hop_segments(chain, template, config)
    return template.render(
        {"query": query, "task": config.task, "hops": hops, "passages": shown, "answer": answer}
    )


def refusal_prompt(query: str, chain: Chain, config: CoRAGConfig) -> Prompt:
    """Ask for the sub-answer to the main question, with the chain in the place of passages (section 3.3)."""
    template = config.prompt("sub_answer")
    hops = hop_segments(chain, template, config)
    return template.render({"sub_query": query, "passages": hops, "refusal": config.refusal})


def continuation(prompt: Prompt, text: str) -> str:
    """Return a text as the model would write it after the prompt.

    With a space first, unless it begins a turn or a line. (Plain prompts end without white space.)
    """
    goes_on = prompt.plain or (prompt.prefix and not prompt.prefix[-1].isspace())
    return f" {text}" if goes_on else text


def hop_segments(chain: Chain, template: Template, config: CoRAGConfig) -> list[Segment]:
    """Write the chain as the prompt says."""
    items = [{"sub_query": hop.sub_query, "sub_answer": hop.sub_answer} for hop in chain.hops]
    segments = template.items("hop", items)
    if items and config.replies == "as_written":
        # Released code: white space at the end of all hops, as of an empty sub-answer, is stripped.
        piece = dict(template.pieces)["hop"]
        end = "\n" * (1 + len(piece) - len(piece.rstrip("\n")))
        segments[-1] = replace(segments[-1], text=segments[-1].text.rstrip() + end)
    return segments


def passage_segments(passages: Sequence[Passage], template: Template, *, best_last: bool) -> list[Segment]:
    """Write passages, given best first, as the prompt says."""
    if best_last:
        return render_passages(reversed(passages), template, goes_first="first")
    return render_passages(passages, template, goes_first="last")


def clip(passages: Sequence[Passage], count: Callable[[str], int], config: CoRAGConfig) -> list[Passage]:
    """Cut each passage to ``max_passage_tokens``, as ``cuts`` says."""
    limit = config.max_passage_tokens
    if not limit:
        return list(passages)
    if config.cuts == "tokens":
        return [_clip_with_title(passage, limit, count) for passage in passages]
    return [replace(passage, text=clip_text(passage.text, limit, count)) for passage in passages]


def clip_text(text: str, limit: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning of whole words, or else characters, that has at most ``limit`` tokens."""
    ends = [place for place, character in enumerate(text) if character.isspace()] + [len(text)]
    return _longest(text, ends, limit, count) or _longest(text, range(len(text) + 1), limit, count)


def _clip_with_title(passage: Passage, limit: int, count: Callable[[str], int]) -> Passage:
    """Cut a passage where title and text together have ``limit`` tokens, even within a word."""
    head = f"{passage.title}\n" if passage.title else ""
    whole = head + passage.text
    if count(whole) <= limit:
        return passage
    kept = _longest(whole, range(len(whole) + 1), limit, count)
    return replace(passage, title=kept[: len(passage.title)], text=kept[len(head) :])


def fit_hop_prompt(prompt: Prompt, count: Callable[[str], int], config: CoRAGConfig) -> Prompt:
    """Cut a prompt of a hop, or of a chain's score, to ``max_hop_prompt_tokens``, as ``cuts`` says."""
    limit = config.max_hop_prompt_tokens
    if config.cuts == "tokens":
        return cut_middle(prompt, limit, count)
    return shorten(prompt, lambda smaller: count(smaller.text) - limit, count)[0] if limit else prompt


def cut_middle(prompt: Prompt, limit: int, count: Callable[[str], int]) -> Prompt:
    """Cut each message of more than ``limit`` tokens to its first and its last half (released code).

    Only the messages' text is counted. 0 is no limit. A segment that is gone as a whole is no longer there.
    """
    return replace(prompt, messages=tuple(_without_middle(each, limit, count) for each in prompt.messages))


def _without_middle(message: Message, limit: int, count: Callable[[str], int]) -> Message:
    text = message.text
    # Their tokenizer puts a token of its own before the text, which counts. Texts of less than two characters
    # a token are not even looked at.
    if not limit or len(text) < 2 * limit or count(text) + 1 <= limit:
        return message
    head = len(_longest(text, range(len(text) + 1), limit // 2 - 1, count))
    tail = max(head, _longest_end(text, limit // 2, count))
    kept, place = [], 0
    for segment in message.segments:
        start, place = place, place + len(segment.text)
        left = text[start : max(start, min(place, head))] + text[max(start, tail) : place]
        if left:
            kept.append(replace(segment, text=left))
    return Message(message.role, tuple(kept))


# Bisection: a tokenizer takes milliseconds, and a longer beginning has hardly ever fewer tokens.
def _longest(text: str, ends: Sequence[int], limit: int, count: Callable[[str], int]) -> str:
    kept = bisect_right(ends, limit, key=lambda end: count(text[:end]))
    return text[: ends[kept - 1]] if kept else ""


def _longest_end(text: str, limit: int, count: Callable[[str], int]) -> int:
    """Return where the longest end of a text begins that has at most ``limit`` tokens."""
    return len(text) - bisect_right(range(1, len(text) + 1), limit, key=lambda size: count(text[-size:]))
