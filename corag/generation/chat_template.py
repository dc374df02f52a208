"""A model's chat template: conversations as text, what ends a reply, and what a template does of its own.

Templates are programs, and differ in more than their words. Some refuse a system turn or leave it out, some
add a system prompt of several hundred tokens where there is none, some print the day. All of that is found
out by trying, since no configuration says it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.seeds import stable_hash

# The day that is printed where a template prints one. Not today's: prompts of one run, of the rows that a
# model learns and of tomorrow's resumed run would differ. It is the day of Llama 3.1's and 3.3's templates.
DAY = datetime.date(2024, 7, 26)
# More tokens than this of a template's own before a question cost something in each of a hundred calls. The
# system prompts that most templates add (a name and a maker) take up to 80.
LONG_ADDITION = 100
# Words that no template has of its own.
SYSTEM, QUESTION, REPLY, SECOND = "Quokkas", "Wombats", "Numbats", "Bandicoots"

Turn = Mapping[str, str]
USER: Turn = {"role": "user", "content": QUESTION}
WITH_SYSTEM: Sequence[Turn] = ({"role": "system", "content": SYSTEM}, USER)
DIALOGUE: Sequence[Turn] = (USER, {"role": "assistant", "content": REPLY})
ASKED_AGAIN: Sequence[Turn] = (*DIALOGUE, {"role": "user", "content": SECOND})


class ChatTemplate:
    """The chat template of a tokenizer."""

    def __init__(self, tokenizer: Any, arguments: Mapping[str, Any] | None = None) -> None:
        """``arguments``: further arguments of the template, such as ``enable_thinking``."""
        self.tokenizer = tokenizer
        self._arguments = dict(arguments or {})

    def check(self) -> None:
        """Raise :class:`ConfigError` if the template cannot even write a question down."""
        try:
            self._fill([USER], reply=True)
        except RequestRefusedError as error:
            raise ConfigError(str(error)) from None

    def fill(self, turns: Sequence[Turn], *, reply: bool) -> str:
        """Return a conversation as text. ``reply``: with what stands before the model's reply.

        Where the template has no place for a system turn, its text begins the first user turn. Where it
        would write a long system prompt of its own, it is given an empty one.

        Raises :class:`RequestRefusedError` if the template refuses the conversation, or fails.
        """
        return self._fill(self.turns(turns), reply=reply)

    def turns(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return a conversation as the template is given it, see :meth:`fill`."""
        if turns[0]["role"] == "system":
            return turns if self.takes_system else _merge_system_turn(turns)
        return [{"role": "system", "content": ""}, *turns] if self.replaced_tokens else turns

    @cached_property
    def takes_system(self) -> bool:
        """Whether a system turn reaches the model: some templates refuse one, others leave it out."""
        return SYSTEM in (self._try(WITH_SYSTEM) or "") or self._try([USER]) is None

    @cached_property
    def replaced_tokens(self) -> int:
        """The tokens of the template's own system prompt that an empty system turn spares; 0 if few."""
        with_own_system = self._try([USER])
        without = self._try([{"role": "system", "content": ""}, USER]) if self.takes_system else None
        if with_own_system is None or without is None:
            return 0
        excess = len(self._ids(with_own_system)) - len(self._ids(without))
        return excess if excess > LONG_ADDITION else 0

    @cached_property
    def end_token(self) -> int | None:
        """The special token that the template puts behind a reply, None if there is none.

        Behind the last reply of a conversation, or else between a reply and the next question: GLM's ends
        where the next turn begins, and gpt-oss ends its last reply by another token than earlier ones. Any
        special token counts, also one that the tokenizer has no name for ("eos_token" and the like).
        """
        special = {i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        special.update(self.tokenizer.all_special_ids)
        if (first := self.tokenizer.bos_token_id) != self.tokenizer.eos_token_id:
            special.discard(first)  # it begins the next turn, as in Llama 2
        for text in (self._behind_last, self._behind_earlier):
            for token in self._ids(text):
                if token in special:
                    return int(token)
        return None

    @cached_property
    def stop_text(self) -> str:
        """What begins the next turn, where no special token ends a reply; "" if one does, or nothing."""
        return "" if self.end_token is not None else self._behind_earlier.rstrip()

    @cached_property
    def blank_before_reply(self) -> str:
        """The white space that the template writes between what asks for a reply and the reply."""
        request, dialogue = self._try([USER]) or "", self._try(DIALOGUE, reply=False) or ""
        between = dialogue.removeprefix(request).partition(REPLY)[0]
        return between if dialogue.startswith(request) and between.isspace() else ""

    @cached_property
    def prints_day(self) -> bool:
        """Whether a prompt depends on the day."""
        days = (datetime.date(2001, 2, 3), datetime.date(2004, 5, 6))
        return len({self._try([USER], day=day) for day in days}) > 1

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the template besides the conversation."""
        prints = "strftime_now" in str(self.tokenizer.chat_template)
        return self._arguments | ({"strftime_now": DAY.strftime} if prints else {})

    @cached_property
    def identity(self) -> str:
        """16 hexadecimal digits that identify what the template makes of conversations, on this run's day."""
        texts = [self._try(turns) for turns in ([USER], WITH_SYSTEM, ASKED_AGAIN)]
        texts += [self._try(DIALOGUE, reply=False), str(self.replaced_tokens)]
        return stable_hash("\0".join(text or "refused" for text in texts))

    @property
    def about(self) -> tuple[str, ...]:
        """Sentences on what the template does of its own, printed when the model opens."""
        lines = []
        if not self.takes_system:
            lines.append("has no place for a system prompt: it goes before the first question")
        if self.replaced_tokens:
            lines.append(
                f"adds a system prompt of {self.replaced_tokens} tokens where there is none: an empty one "
                "takes its place"
            )
        if self.prints_day:
            lines.append(f"prints the date: {DAY.isoformat()} in every prompt, whatever the day")
        if self.stop_text:
            lines.append(
                f"ends a reply by no special token: replies end at {self.stop_text.strip()!r} as well as at "
                "the end of sequence"
            )
        elif self.end_token is None:
            lines.append("ends a reply by nothing: replies end at the end of sequence alone")
        return tuple(f"the model's chat template {line}." for line in lines)

    @property
    def _behind_last(self) -> str:
        return (self._try(DIALOGUE, reply=False) or "").rpartition(REPLY)[2]

    @property
    def _behind_earlier(self) -> str:
        return (self._try(ASKED_AGAIN) or "").rpartition(SECOND)[0].rpartition(REPLY)[2]

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def _try(
        self, turns: Sequence[Turn], *, reply: bool = True, day: datetime.date | None = None
    ) -> str | None:
        """Return a conversation as text, None if the template refuses it."""
        try:
            return self._fill(turns, reply=reply, day=day)
        except RequestRefusedError:
            return None

    def _fill(self, turns: Sequence[Turn], *, reply: bool, day: datetime.date | None = None) -> str:
        import jinja2

        arguments = self.arguments
        if day is not None and "strftime_now" in arguments:
            arguments["strftime_now"] = day.strftime
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [dict(turn) for turn in turns],
                    tokenize=False,
                    add_generation_prompt=reply,
                    **arguments,
                )
            )
        except Exception as error:  # noqa: BLE001 - a template is a program of somebody's, and may fail in any way
            model = self.tokenizer.name_or_path or "the model"
            roles, reason = ", ".join(turn["role"] for turn in turns), str(error).rstrip(".")
            if type(error) is jinja2.TemplateError:  # by raise_exception
                raise RequestRefusedError(
                    f"the chat template of '{model}' refuses a conversation of {roles}: {reason}. Choose "
                    "another prompt, or model.chat=no."
                ) from None
            raise RequestRefusedError(
                f"the chat template of '{model}' fails on a conversation of {roles} "
                f"({type(error).__name__}: {reason}): it may be meant for prompts with tools. Put the "
                "model's plain chat template into its folder as chat_template.jinja, or choose model.chat=no."
            ) from None


def _merge_system_turn(turns: Sequence[Turn]) -> list[Turn]:
    """Return a conversation with its system turn's text before that of the first user turn."""
    system, *rest = turns
    for position, turn in enumerate(rest):
        if turn["role"] == "user":
            rest[position] = {**turn, "content": f"{system['content']}\n\n{turn['content']}"}
            return rest
    return [{**system, "role": "user"}, *rest]
