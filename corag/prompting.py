"""What CoRAG asks the model: its four prompts, filled.

Decoding and training data are made by the same functions.

Paper, section 3.1 and appendix D. When a prompt is too long, passages are left out first, the worst before
the others, then hops, the oldest before the others.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Return the sub-answer's prompt with the main question, and the chain where the passages stand (section
    3.3).
    """
    template = config.prompt("sub_answer")
    hops = hop_segments(chain, template)
    return template.render({"sub_query": query, "passages": hops, "refusal": config.refusal})


def continuation(prompt: Prompt, text: str) -> str:
    """Return a text as the model would write it after the prompt: with a space first, unless it begins a turn
    or a line.
    """
    goes_on = prompt.plain or (
        prompt.prefix and not prompt.prefix[-1].isspace()
    )  # plain prompts end without white space
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
