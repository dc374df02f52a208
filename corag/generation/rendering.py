"""From a prompt to the token ids that a model reads: one renderer for all back ends."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol, cast

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.prompting.prompt import NOTHING_LEFT_OUT, Message, Prompt, Segment, Shortening, Spans
from corag.core.prompting.shorten import shorten, token_bound
from corag.core.protocols import Completion, Sampling, ScoreRequest
from corag.core.seeds import stable_hash
from corag.core.tokenizer import load_tokenizer
from corag.generation.chat_template import USER, ChatTemplate, Turn
from corag.generation.thinking import AS_SUITS, Thinking, ThinkingOptions, resolve_thinking

# Tokens of the prompt that are decoded with a continuation. Some tokenizers drop a space at the beginning of
# a text, and a character may be spelled by up to four tokens, some of them before the cut.
_CONTEXT = 4
BYTES_PER_TOKEN = 4

# Where the name of a special token is cut in two, so that no tokenizer reads the token in it. It is taken out
# before the tokens are made: the model reads the name as it is spelled. Unicode has no such character.
_BREAK = "\ufdd0"

# Names of special tokens in common vocabularies, where a server's tokenizer is not known.
COMMON_NAMES = re.compile(
    r"</?s>|<(?:bos|eos|pad|unk|mask|sop|eop|(?:start|end)_of_turn|end_of_utterance)>"
    r"|<\|[^|<>\s]{1,40}\|?>|<[^|<>\s]{1,40}\|>|<｜[^<>\s]{1,40}｜>|\[[gs]?MASK\]"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|TOOL_CONTENT)\]"
)


class Renderer:
    """A model's tokenizer and chat template.

    Plain prompts are tokenised as text, with the special tokens that the tokenizer adds. Other prompts go
    through the chat template; a base model reads the messages' texts separated by blank lines. One thread may
    encode while another decodes.

    Special tokens come from the chat template and from what prompt files say. The name of one that stands in
    a question, a passage or a reply is text: none of these can end a turn or begin another.
    """

    def __init__(self, tokenizer: Any, *, chat: bool, thinking: ThinkingOptions = AS_SUITS) -> None:
        """``tokenizer``: a transformers tokenizer. ``chat``: use its chat template, told so of thoughts."""
        self._tokenizer = tokenizer
        self.chat = chat
        if thinking.template_args and not chat:
            raise ConfigError(
                "--model.template_args are of a chat template, but none is used: leave them out, or choose "
                "chat 'yes' and a model that has one."
            )
        self.template_args = dict(thinking.template_args)
        """What the chat template was to be told."""
        self.thinking = _find_thinking(tokenizer, thinking) if chat else Thinking()
        self.template = ChatTemplate(tokenizer, self.thinking.args)
        """The chat template, of no use to a base model."""
        names = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        names.update(tokenizer.all_special_tokens)
        # A name of one character cannot be cut in two. The longest first, as tokenizers read them.
        spelled = sorted((name for name in names if len(name) > 1), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, spelled)) or r"(?!)")

    @classmethod
    def load(
        cls,
        folder: str,
        chat: Literal["auto", "yes", "no"] = "auto",
        thinking: ThinkingOptions = AS_SUITS,
    ) -> Renderer:
        """Load the tokenizer of a model folder. ``thinking``: what its template is told, and of thoughts.

        Raises :class:`ConfigError` if there is none that reads texts rightly, or no template for chat "yes".
        """
        tokenizer = load_tokenizer(folder)
        if chat == "yes" and not tokenizer.chat_template:
            raise ConfigError(
                f"'{folder}' has no chat template: choose chat 'no' or 'auto', or a chat model."
            )
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
        tokens = stable_hash("\n".join(f"{token} {i}" for token, i in vocabulary))
        return f"{tokens}:{self.way}"

    @property
    def way(self) -> str:
        """Identify how prompts are written: what a chat template makes of them and its day, or "no chat"."""
        if not self.chat:
            return "no chat"
        day = f" on {self.template.day.isoformat()}" if self.template.prints_day else ""
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
        texts = [message.text for message in prompt.messages]
        safe_texts = [
            self._broken(text, each.wording) for text, each in zip(texts, prompt.messages, strict=True)
        ]
        prefix = self._broken(prompt.prefix, prompt.prefix_wording)
        broken = [*safe_texts, prefix] != [*texts, prompt.prefix]
        roles = [message.role for message in prompt.messages]
        if prompt.plain or not self.chat:
            messages = [Message(role, (Segment(text),)) for role, text in zip(roles, safe_texts, strict=True)]
            whole = dataclasses.replace(prompt, messages=tuple(messages), prefix=prefix).text
            return self._joined_ids(whole, special=True) if broken else self._ids(whole, special=True)
        turns = [{"role": role, "content": text} for role, text in zip(roles, safe_texts, strict=True)]
        whole, thought = self.template.fill(turns, reply=True), prompt.thought
        if thought is not None:
            safe = self._broken(thought.text, ())
            broken = broken or safe != thought.text
            thought = dataclasses.replace(thought, text=safe)
        whole += self.thinking.lead(whole, thought) + prefix
        return self._joined_ids(whole) if broken else self._ids(whole)

    def target_ids(self, request: ScoreRequest) -> list[int]:
        """Return the token ids to score.

        A target that is the name of a special token is that token; within a longer one the name is text.
        Raises :class:`RequestRefusedError` if there are none or one is not in the vocabulary.
        """
        target = request.target
        if not isinstance(target, str):
            ids = list(target)
        else:
            ids = self._ids(target) if self._names.fullmatch(target) else self._literal_ids(target)
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
        context = list(prompt_ids[-_CONTEXT:])
        before = self._tokenizer.decode(context, skip_special_tokens=not special)
        after = self._tokenizer.decode(context + list(ids), skip_special_tokens=not special)
        return str(after[len(before) :])

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
            added = self.continuation(around, ids[pending:end], special=sampling.special_tokens)
            if not added.endswith("\ufffd"):
                length, pending = length + len(added), end
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
        rest = self._tokenizer.decode(self._literal_ids(text)[tokens:], clean_up_tokenization_spaces=False)
        return str(rest).lstrip("\ufffd")

    def text(self, prompt: Prompt) -> str:
        """Return a prompt as text, within its chat template if it has one; a reader takes names as tokens.

        Without the token that the tokenizer puts before each text: its reader has put it there already.
        """
        if prompt.plain or not self.chat:
            return prompt.text
        turns = [{"role": message.role, "content": message.text} for message in prompt.messages]
        whole, first = self.template.fill(turns, reply=True), self._tokenizer.bos_token
        thought = prompt.thought and dataclasses.replace(
            prompt.thought, text=spaced(prompt.thought.text, self._names)
        )
        whole += self.thinking.lead(whole, thought) + prompt.prefix
        added = first and self._ids("", special=True)[:1] == [self._tokenizer.bos_token_id]
        return whole.removeprefix(first) if added else whole

    def _broken(self, text: str, wording: Spans) -> str:
        return _broken(text, wording, self._names, _BREAK)

    def _literal_ids(self, text: str) -> list[int]:
        broken = self._broken(text, ())
        return self._ids(text) if broken == text else self._joined_ids(broken)

    def _joined_ids(self, text: str, *, special: bool = False) -> list[int]:
        """Return the token ids of what stands between the breaks, each by itself."""
        first, *rest = text.split(_BREAK)
        return self._ids(first, special=special) + [token for part in rest for token in self._ids(part)]

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


def _broken(text: str, wording: Spans, names: re.Pattern[str], sign: str) -> str:
    """Put a sign into every name of a special token that does not stand in the wording."""
    # A break that a text brings along is taken out later: left in, it would close a name around it.
    original, text = text, text.replace(_BREAK, "\ufffd")
    # Names that overlap are both broken, for either could be read: so the search goes on within the name.
    breaks, match = [], names.search(text)
    while match:
        if not any(start <= match.start() and match.end() <= end for start, end in wording):
            breaks.append(match.start() + 1)
        match = names.search(text, match.start() + 1)
    if not breaks:
        return original
    parts = (text[start:end] for start, end in pairwise([0, *breaks, len(text)]))
    return sign.join(parts)


def spaced(text: str, names: re.Pattern[str], wording: Spans = ()) -> str:
    """Return a text for a server that would read the name of a special token as that token.

    So each name gets a space, but for those that stand in the wording.

    >>> spaced("It ends.<|im_end|>", COMMON_NAMES)
    'It ends.< |im_end|>'
    """
    return _broken(text, wording, names, " ")


def spaced_prompt(prompt: Prompt, names: re.Pattern[str]) -> Prompt:
    """Return a prompt whose texts are all :func:`spaced`."""
    messages = tuple(
        Message(message.role, (Segment(spaced(message.text, names, message.wording)),))
        for message in prompt.messages
    )
    prefix = spaced(prompt.prefix, names, prompt.prefix_wording)
    return dataclasses.replace(prompt, messages=messages, prefix=prefix, prefix_wording=())


def _end_of(message: Message, text: str) -> Message:
    """Return a turn of which only the end is left, ``text``, with what of its wording is in there."""
    gone = len(message.text) - len(text)
    kept = ((max(start - gone, 0), end - gone) for start, end in message.wording if end > gone)
    # Some tokenizers write a text anew when they decode it: then it is not known where the wording is.
    wording = tuple(kept) if message.text.endswith(text) else ()
    return Message(message.role, (Segment(text, wording=wording),))


class TokenCounter(Protocol):
    """Counts tokens: a tokenizer, or an estimate."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        ...

    def size(self, prompt: Prompt) -> int:
        """Return the tokens of a whole prompt."""
        ...

    def without_first(self, text: str, tokens: int) -> str:
        """Return a text without its first tokens."""
        ...


class EstimatedTokens:
    """Estimates tokens where there is no tokenizer: one for four bytes of UTF-8.

    That is about right for English. Letters beyond ASCII have several bytes, and more tokens too.
    """

    def count(self, text: str) -> int:
        """Return an estimate of the number of tokens of a text."""
        return math.ceil(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)

    def size(self, prompt: Prompt) -> int:
        """Return an estimate of the tokens of a whole prompt, with what a chat template may add."""
        return token_bound(prompt, 0, self.count)

    def without_first(self, text: str, tokens: int) -> str:
        """Return a text without roughly its first tokens."""
        return text.encode(errors="replace")[tokens * BYTES_PER_TOKEN :].decode(errors="ignore")


def fit(prompt: Prompt, room: int, counter: TokenCounter) -> tuple[Prompt, Shortening]:
    """Return a prompt of at most ``room`` tokens, and what had to be left out for that.

    As :meth:`Renderer.encode_within` says, and raises.
    """
    if counter.size(prompt) <= room:
        return prompt, NOTHING_LEFT_OUT
    if room < 1:
        raise RequestRefusedError(
            "no room is left for a prompt: what is to be generated or scored fills the window. Ask for "
            "fewer tokens, or choose a larger max_context."
        )
    kept, gone = shorten(prompt, lambda smaller: counter.size(smaller) - room, counter.count)
    kept, cut = _cut(kept, room, counter)
    if not counter.size(kept):
        raise RequestRefusedError(
            f"nothing of the prompt is left in a window with room for {room} prompt tokens."
        )
    return kept, Shortening(tuple(sorted(Counter(segment.kind for segment in gone).items())), cut)


def _cut(prompt: Prompt, room: int, counter: TokenCounter) -> tuple[Prompt, int]:
    """Take tokens from the front of the longest message until the prompt has ``room`` at most.

    Return the prompt and how many went.
    """
    cut = 0
    while (excess := counter.size(prompt) - room) > 0:
        lengths = [counter.count(message.text) for message in prompt.messages]
        longest = max(range(len(lengths)), key=lambda i: lengths[i])
        if not lengths[longest]:
            raise RequestRefusedError(
                f"a window with room for {room} prompt tokens is too small for this model's chat "
                "template and the reply's beginning: choose a larger max_context or ask for fewer "
                "tokens."
            )
        taken = min(excess, lengths[longest])
        messages = list(prompt.messages)
        text = counter.without_first(messages[longest].text, taken)
        messages[longest] = _end_of(messages[longest], text)
        prompt = dataclasses.replace(prompt, messages=tuple(messages))
        cut += taken
    return prompt, cut
