"""What a model's tokenizer and chat template do with prompts: the facts in which model families differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from corag.core.errors import ConfigError
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.generation.chat_template import QUESTION, USER, WITH_SYSTEM, Turn
from corag.generation.rendering import Renderer

_PREFIX = "Answer:"


@dataclass(frozen=True, slots=True)
class Traits:
    """How a model reads prompts and ends its replies.

    Attributes:
        with_system: whether a prompt with a system turn is what the tokenizer itself makes of it: "=", or
            "merged" where the template has no place for one, so that it goes before the first question.
        without_system: the same without one: "=", or "emptied" where an empty system turn takes the place of
            a long system prompt of the template's.
        bos: how many tokens that begin a text stand at the beginning of a prompt, None if there is no such
            token.
        added: tokens that the template adds to a question without a system turn.
        end: the name of the token that ends a reply; of a text that does, in quotes.
        before: what stands between a question and the reply, the form of no thought included.
        thoughts: what becomes of the model's thoughts ("off", "strip"), "" if its template knows of none.
        day: the day that the template prints, "" if it prints none.
    """

    with_system: str
    without_system: str
    bos: int | None
    added: int
    end: str
    before: str
    thoughts: str
    day: str

    def sentences(self) -> Iterator[str]:
        """Say it in words."""
        system = {"=": "where the template has it", "merged": "before the first question"}
        yield f"A system prompt goes {system.get(self.with_system, self.with_system)}."
        note = " after an empty one took the place of its own" if self.without_system == "emptied" else ""
        yield f"The template adds {self.added} tokens to a question without a system prompt{note}."
        if self.bos is not None:
            yield f"A prompt begins with {self.bos} of the token that begins texts."
        yield f"A reply begins behind {self.before!r} and ends with {self.end}."
        if self.thoughts:
            yield {"off": "It replies without thoughts.", "strip": "It thinks before it replies."}[
                self.thoughts
            ]
        yield f"The date in a prompt is always {self.day}." if self.day else "No date stands in a prompt."


def find_traits(renderer: Renderer) -> Traits:
    """Return the traits of a model with a chat template.

    Raises :class:`ConfigError` if the template fails on a question.
    """
    template, tokenizer = renderer.template, renderer.template.tokenizer
    ids, bos = renderer.encode(_prompt([USER])), tokenizer.bos_token_id
    text, thinking = template.fill([USER], reply=True), renderer.thinking
    end = template.end_token
    return Traits(
        with_system="merged" if not template.takes_system else _compare(renderer, WITH_SYSTEM),
        without_system="emptied" if template.replaced_tokens else _compare(renderer, [USER]),
        bos=None if bos is None else next((i for i, token in enumerate(ids) if token != bos), len(ids)),
        added=template.own_tokens,
        end=repr(template.stop_text)
        if template.stop_text
        else str(tokenizer.convert_ids_to_tokens(renderer.end_of_turn() if end is None else end)),
        before=(text + thinking.lead(text, None)).rpartition(QUESTION)[2],
        thoughts=thinking.mode if thinking.closes else "",
        day=template.day.isoformat() if template.prints_day else "",
    )


def _prompt(turns: Any) -> Prompt:
    return Prompt(tuple(Message(turn["role"], (Segment(turn["content"]),)) for turn in turns), _PREFIX)


def _compare(renderer: Renderer, turns: Any) -> str:
    """Return "=" if a prompt's tokens are those of the tokenizer's own method, else what differs."""
    conversation: list[Turn] = [dict(turn) for turn in turns]
    text = renderer.template.tokenizer.apply_chat_template(
        conversation, tokenize=False, add_generation_prompt=True, **renderer.template.arguments
    )
    text += renderer.thinking.lead(text, None) or renderer.template.blank_before_reply
    target = renderer.template.tokenizer.encode(text + _PREFIX, add_special_tokens=False)
    try:
        ids = renderer.encode(_prompt(turns))
    except ConfigError as error:
        return str(error)
    return "=" if ids == list(target) else f"{len(ids)} tokens, where the tokenizer makes {len(target)}"
