"""What CoRAG asks the model: its prompts, filled (paper, section 3.1 and appendix D).

Decoding and training data are made by the same functions, so a model is asked what it was trained on. When a
prompt is too long, passages are left out first, the worst before the others, then hops, the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from corag.chains.chain import Chain
from corag.chains.conventions import Conventions
from corag.chains.excerpts import excerpts
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template
from corag.core.types import Passage

PromptName = Literal["sub_query", "sub_answer", "final_answer", "stop_check"]


class ChainOptions(Protocol):
    """The options that prompts, signals and stop rules read: ``CoRAGConfig`` has them.

    Declared here, below it, since it is built from the tables of signals and stop rules.
    """

    def prompt(self, name: PromptName) -> Template:
        """Load one of the prompts."""
        ...

    @property
    def conventions(self) -> Conventions:
        """How replies are read and text is cut."""
        ...

    @property
    def task(self) -> str:
        """What the questions are like."""
        ...

    @property
    def refusal(self) -> str:
        """The refusal sentence."""
        ...

    @property
    def passages_per_hop(self) -> int:
        """Passages that a sub-answer is read from."""
        ...

    @property
    def prune(self) -> int:
        """Sentences of all but the best passage that are shown."""
        ...

    @property
    def context_order(self) -> str:
        """Order of the final answer's passages."""
        ...

    @property
    def max_passage_tokens(self) -> int:
        """Tokens that final passages are cut to."""
        ...

    @property
    def max_answer_tokens(self) -> int:
        """Most tokens of an answer."""
        ...

    @property
    def compare(self) -> str:
        """Who answers comparisons: "model" or "rules"."""
        ...

    @property
    def yes_bias(self) -> float:
        """Added to the log-likelihood of Yes."""
        ...


def sub_query_prompt(query: str, chain: Chain, config: ChainOptions) -> Prompt:
    """Ask for the next sub-query: P(Q_i | Q, Q_<i, A_<i).

    The chain stands late, so that a longer one shares its prefix.
    """
    template = config.prompt("sub_query")
    return template.render(
        {"query": query, "task": config.task, "hops": hop_segments(chain, template, config)}
    )


def sub_answer_prompt(sub_query: str, passages: Sequence[Passage], config: ChainOptions) -> Prompt:
    """Ask for the sub-answer: P(A_i | Q_i, D_i). ``passages`` are best first."""
    template = config.prompt("sub_answer")
    passages = excerpts(passages, sub_query, config.prune)
    segments = passage_segments(passages, template, best_last=not config.conventions.hops_best_first)
    return template.render({"sub_query": sub_query, "passages": segments, "refusal": config.refusal})


def final_answer_prompt(
    query: str, chain: Chain, passages: Sequence[Passage], config: ChainOptions
) -> Prompt:
    """Ask for the answer: P(A | Q, Q_1:L, A_1:L, D). ``passages`` are best first."""
    template = config.prompt("final_answer")
    # Sentences are chosen by the question, its hops and their answers.
    hops_text = (f"{hop.sub_query} {hop.sub_answer}" for hop in chain.hops if not hop.refused)
    passages = excerpts(passages, " ".join([query, *hops_text]), config.prune)
    best_last = (
        config.context_order == "best_last" and not template.cites
    )  # whose numbers begin with the best
    segments = passage_segments(passages, template, best_last=best_last)
    hops = hop_segments(chain, template, config)
    return template.render({"query": query, "task": config.task, "hops": hops, "passages": segments})


def stop_check_prompt(query: str, chain: Chain, config: ChainOptions) -> Prompt:
    """Ask whether the chain suffices (appendix D)."""
    template = config.prompt("stop_check")
    return template.render(
        {"query": query, "task": config.task, "hops": hop_segments(chain, template, config)}
    )


def refusal_prompt(query: str, chain: Chain, config: ChainOptions) -> Prompt:
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


def hop_segments(chain: Chain, template: Template, config: ChainOptions) -> list[Segment]:
    """Write the chain as the prompt says."""
    items = [{"sub_query": hop.sub_query, "sub_answer": hop.sub_answer} for hop in chain.hops]
    segments = template.items("hop", items)
    return config.conventions.end_hops(segments, dict(template.pieces)["hop"]) if items else segments


def passage_segments(passages: Sequence[Passage], template: Template, *, best_last: bool) -> list[Segment]:
    """Write passages, given best first, as the prompt says."""
    if best_last:
        return render_passages(reversed(passages), template, goes_first="first")
    return render_passages(passages, template, goes_first="last")


def clip(passages: Sequence[Passage], count: Callable[[str], int], config: ChainOptions) -> list[Passage]:
    """Cut each passage to ``max_passage_tokens``."""
    limit = config.max_passage_tokens
    if not limit:
        return list(passages)
    return [config.conventions.clip_passage(passage, limit, count) for passage in passages]
