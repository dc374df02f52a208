"""From a prompt to the token ids that a model reads: one renderer for all back ends."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, cast

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.prompting.prompt import (
    NOTHING_LEFT_OUT,
    Message,
    Prompt,
    Segment,
    Shortening,
    Spans,
    Thought,
)
from corag.core.protocols import Completion, Sampling, ScoreRequest
from corag.core.seeds import stable_hash
from corag.core.tokenizer import shared_tokenizer
from corag.generation.chat_template import DAY, USER, ChatTemplate, Turn
from corag.generation.continuation import continuation_ids, last_words
from corag.generation.fitting import fit
from corag.generation.special_names import BREAK, break_at_names
from corag.generation.thinking import AS_SUITS, Thinking, ThinkingEngine, ThinkingOptions, resolve_thinking

# Tokens of the prompt that are decoded with a continuation. Some tokenizers drop a space at the beginning of
# a text, and a character may be spelled by up to four tokens, some of them before the cut.
_CONTEXT = 4
_PROBE = "In 12345 the river's end:  \n\nZürich"


class Renderer:
    """A model's tokenizer and chat template.

    Plain prompts are tokenised as text, with the special tokens that the tokenizer adds. Other prompts go
    through the chat template; a base model reads the messages' texts separated by blank lines. One thread may
    encode while another decodes.

    Special tokens come from the chat template and from what prompt files say. The name of one that stands in
    a question, a passage or a reply is text: none of these can end a turn or begin another.
    """

    def __init__(self, tokenizer: Any, *, chat: bool, thinking: ThinkingOptions = AS_SUITS) -> None:
        """``tokenizer``: a transformers tokenizer. ``chat``: use its chat template, arguments included."""
        self._tokenizer = tokenizer
        self.chat = chat
        if thinking.template_args and not chat:
            raise ConfigError(
                "'model.template_args' are of a chat template, but none is used: leave them out, or choose "
                "a model that has one."
            )
        self.template_args = dict(thinking.template_args)
        """Arguments of the chat template."""
        self.thinking = _find_thinking(tokenizer, thinking) if chat else Thinking()
        self.template = ChatTemplate(tokenizer, self.thinking.args)
        """The chat template, of no use to a base model."""
        special = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special_ids = frozenset([*special, *tokenizer.all_special_ids])
        names = set(special.values())
        names.update(tokenizer.all_special_tokens)
        # A name of one character cannot be cut in two. The longest first, as tokenizers read them.
        longest_first = sorted((name for name in names if len(name) > 1), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    @classmethod
    def load(
        cls,
        folder: str,
        chat: Literal["auto", "no"] = "auto",
        thinking: ThinkingOptions = AS_SUITS,
    ) -> Renderer:
        """Load the tokenizer of a model folder. ``thinking``: arguments of its template, also for thoughts.

        Raises :class:`ConfigError` if there is none that reads texts rightly.
        """
        tokenizer = shared_tokenizer(folder)
        renderer = cls(tokenizer, chat=chat != "no" and bool(tokenizer.chat_template), thinking=thinking)
        if renderer.chat:
            renderer.template.check()
        return renderer

    @property
    def names(self) -> re.Pattern[str]:
        """Find the names of special tokens in a text."""
        return self._names

    @property
    def eos(self) -> int | None:
        """The end-of-sequence token, if the tokenizer has one."""
        return cast("int | None", self._tokenizer.eos_token_id)

    @property
    def fingerprint(self) -> str:
        """Identify tokens and template: equal fingerprints turn a prompt into the same token ids."""
        vocabulary = sorted(self._tokenizer.get_vocab().items())
        # One vocabulary can be read in several ways: digits one by one or not, a blank first, always, never.
        probe = self._ids(f"{_PROBE}{self._tokenizer.eos_token or ''}{_PROBE}")
        tokens = stable_hash("\n".join([*(f"{token} {i}" for token, i in vocabulary), str(probe)]))
        return f"{tokens}:{self.way}"

    @property
    def way(self) -> str:
        """Identify how prompts are written: what a chat template makes of them and its day, or "no chat"."""
        if not self.chat:
            return "no chat"
        day = f" on {DAY.isoformat()}" if self.template.prints_day else ""
        return f"{self.template.identity}{day}{self.thinking.identity}"

    @property
    def about(self) -> tuple[str, ...]:
        """Sentences on what the model's chat template does of its own."""
        return self.template.about if self.chat else ()

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, in which names of special tokens are text."""
        return len(self._literal_ids(text))

    def text_ids(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        return self._ids(text)

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a whole prompt, however long."""
        text, has_breaks = self._safe_text(prompt)
        special = prompt.plain or not self.chat
        return (
            self._ids_between_breaks(text, special=special)
            if has_breaks
            else self._ids(text, special=special)
        )

    def target_ids(self, request: ScoreRequest) -> list[int]:
        """Return the token ids to score: those of a text are as they follow the prompt's.

        A target that is the name of a special token is that token; within a longer one the name is text.
        Raises :class:`RequestRefusedError` if there are none or one is not in the vocabulary.
        """
        target = request.target
        if not target:
            ids = []
        elif isinstance(target, str):
            ids = self._text_ids_after(request.prompt, target)
        else:
            ids = list(target)
        if request.end_of_turn:
            ids.append(self.end_of_turn(plain=request.prompt.plain))
        if not ids:
            raise RequestRefusedError(
                "there is nothing to score: the target is empty. Give a non-empty text or token ids."
            )
        if min(ids) < 0 or max(ids) >= len(self._tokenizer):
            raise RequestRefusedError(
                "the target has token ids that the model does not know: they must be in "
                f"0..{len(self._tokenizer) - 1}."
            )
        return ids

    def end_of_turn(self, *, plain: bool = False) -> int:
        """Return the token that ends a reply: what the chat template puts behind it, else end of sequence."""
        if self.chat and not plain and (token := self.template.end_token) is not None:
            return token
        if self.eos is None:
            raise ConfigError(
                "the model's tokenizer has no end-of-sequence token, so the end of a turn cannot be scored."
            )
        return self.eos

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end a reply: the end of sequence, and what the chat template puts behind a reply.

        A base model that was taught with a template ends its turn by a token that its own configuration does
        not name.
        """
        ends = [self.eos, self.template.end_token if self.chat else None]
        return frozenset(token for token in ends if token is not None)

    def ending(self, prompt: Prompt, sampling: Sampling) -> Sampling:
        """Return how to sample a reply, which also ends where the template begins the next turn as text."""
        if prompt.plain or not self.chat or not self.template.stop_text:
            return sampling
        return dataclasses.replace(sampling, stop=(*sampling.stop, self.template.stop_text))

    def continuation(self, prompt_ids: Sequence[int], ids: Sequence[int], *, special: bool = False) -> str:
        """Return the text that generated tokens add to a prompt, with its leading space if it has one.

        ``special``: with special tokens spelled out; else without them.
        """
        # Special tokens stay in the context: were it empty, a leading space would be lost.
        context = list(prompt_ids[-_CONTEXT:])
        new_ids = [token for token in ids if special or token not in self._special_ids]
        return self.decode(context + new_ids)[len(self.decode(context)) :]

    def with_token_texts(
        self, completion: Completion, prompt_ids: Sequence[int], sampling: Sampling
    ) -> Completion:
        """Return the completion with what each token adds to its text, if log-probabilities were requested.

        One rule for all engines: the text is cut where decoding one token more, behind a few others, makes it
        longer. Bytes that are no whole character yet decode to the replacement character; they wait for the
        token that completes them.
        """
        if not sampling.logprobs:
            return completion
        ids = [*prompt_ids[-_CONTEXT:], *completion.token_ids]
        pending = len(ids) - len(completion.token_ids)  # the first token without a text
        length, ends = 0, []
        for end in range(pending + 1, len(ids) + 1):
            around = ids[max(0, pending - _CONTEXT) : pending]
            text = self.continuation(around, ids[pending:end], special=sampling.special_tokens)
            if not text.endswith("\ufffd"):
                length, pending = length + len(text), end
            ends.append(min(length, len(completion.text)))
        if ends:
            ends[-1] = len(completion.text)
        texts = tuple(completion.text[start:end] for start, end in pairwise([0, *ends]))
        return dataclasses.replace(completion, token_texts=texts)

    def encode_within(self, prompt: Prompt, room: int) -> tuple[list[int], Shortening]:
        """Return at most ``room`` token ids of a prompt, and what had to be left out for that.

        Whole segments go by rising ``drop``, no more than needed; if those that must stay are too long by
        themselves, the longest message loses tokens from its front. Raises :class:`RequestRefusedError` if
        nothing would be left.
        """
        ids = self.encode(prompt)
        if not ids:
            raise RequestRefusedError("the prompt is empty: give it some text.")
        if len(ids) <= room:
            return ids, NOTHING_LEFT_OUT
        shorter, shortening = fit(prompt, room, self)
        return self.encode(shorter), shortening

    def size(self, prompt: Prompt) -> int:
        """Return the tokens of a whole prompt."""
        return len(self.encode(prompt))

    def without_first(self, text: str, tokens: int) -> str:
        """Return a text without its first tokens."""
        # A cut may fall inside a character of several tokens: its remains are dropped too.
        return self.decode(self._literal_ids(text)[tokens:]).lstrip("\ufffd")

    def _safe_text(self, prompt: Prompt) -> tuple[str, bool]:
        """Return all that a model reads of a prompt, and whether names of special tokens are broken in it."""
        texts = [self._break_names(message.text, message.wording) for message in prompt.messages]
        prefix = self._break_names(prompt.prefix, prompt.prefix_wording)
        has_breaks = [*texts, prefix] != [*(message.text for message in prompt.messages), prompt.prefix]
        roles = [message.role for message in prompt.messages]
        if prompt.plain or not self.chat:
            messages = [Message(role, (Segment(text),)) for role, text in zip(roles, texts, strict=True)]
            return dataclasses.replace(prompt, messages=tuple(messages), prefix=prefix).text, has_breaks
        turns = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        thought = prompt.thought
        if thought is not None:
            thought = dataclasses.replace(thought, text=self._break_names(thought.text, ()))
        return self._asking(turns, thought, prefix), has_breaks or thought != prompt.thought

    def _asking(self, turns: Sequence[Turn], thought: Thought | None, prefix: str) -> str:
        """Return a conversation as text, with the beginning of the reply that it asks for.

        Raises :class:`ConfigError` if the template refuses its turns: a method's are the same each time.
        """
        try:
            text = self.template.fill(turns, reply=True)
        except RequestRefusedError as error:
            raise ConfigError(str(error)) from None
        return self._append_reply(text + self.thinking.lead(text, thought), prefix)

    def _text_ids_after(self, prompt: Prompt, text: str) -> list[int]:
        """Return the token ids of a text as a model would write it after a prompt."""
        if self._names.fullmatch(text):
            return self._ids(text)
        before, has_breaks = self._safe_text(prompt)
        before = last_words(before, self._names)
        safe_text = self._break_names(text, ())
        if not (prompt.plain or prompt.prefix):
            safe_text = self._append_reply(before, safe_text)[len(before) :]
        encode = self._ids_between_breaks if has_breaks or BREAK in safe_text else self._ids
        return continuation_ids(encode, before, safe_text)

    def _append_reply(self, before: str, reply: str) -> str:
        """Return a text with a reply behind it, and between them the blank with which a model begins one."""
        if not reply or reply[0].isspace():
            return before + reply
        if self.chat and (blank := self.template.blank_before_reply):
            return before.removesuffix(blank) + blank + reply
        # Behind "[/INST]", which is text to Mistral's first models, their vocabulary makes a blank.
        is_text = before[-1:].strip() and not re.search(f"(?:{self._names.pattern})$", before)
        return before + (" " if is_text and self._makes_blank else "") + reply

    @cached_property
    def _makes_blank(self) -> bool:
        """Whether a text by itself is read with a blank before it."""
        return self._ids("a") != continuation_ids(self._ids, "\n", "a")

    def _break_names(self, text: str, wording: Spans) -> str:
        return break_at_names(text, wording, self._names, BREAK)

    def _literal_ids(self, text: str) -> list[int]:
        safe_text = self._break_names(text, ())
        return self._ids(text) if safe_text == text else self._ids_between_breaks(safe_text)

    def _ids_between_breaks(self, text: str, *, special: bool = False) -> list[int]:
        """Return the token ids of what stands between the breaks: no token reaches over one."""
        first, *rest = text.split(BREAK)
        ids = self._ids(first, special=special)
        # T5 puts a token behind each text, too.
        end = ids[-1:] if special and ids[-1:] == self._ids("", special=True)[-1:] == [self.eos] else []
        ids = ids[: len(ids) - len(end)]
        for part in rest:
            ids += continuation_ids(self._ids, "\n", part)
        return ids + end

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        # What "cleans up" takes away blanks that the tokens have.
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def _ids(self, text: str, *, special: bool = False) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=special, verbose=False))


def _find_thinking(tokenizer: Any, options: ThinkingOptions) -> Thinking:
    def render(arguments: Mapping[str, Any], reply: str | None) -> str:
        turns: list[Turn] = [USER] if reply is None else [USER, {"role": "assistant", "content": reply}]
        try:
            return ChatTemplate(tokenizer, arguments).fill(turns, reply=reply is None)
        except RequestRefusedError:
            return ""

    return resolve_thinking(options, _source(tokenizer), render, tokenizer.get_added_vocab())


def _source(tokenizer: Any) -> str:
    """Return a tokenizer's chat template, of several the one for plain conversations."""
    template = tokenizer.chat_template
    return str(template.get("default", "") if isinstance(template, dict) else template or "")


class RenderingEngine(ThinkingEngine):
    """What engines that render prompts themselves know by their renderer and window alone."""

    def __init__(self, renderer: Renderer, window: int) -> None:
        self._renderer = renderer
        self.thinking, self.window = renderer.thinking, window

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._renderer.count(text)
