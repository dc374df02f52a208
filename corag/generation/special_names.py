"""Names of special tokens in texts: they are text there, and end no turn."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise

from corag.core.prompting.prompt import Message, Prompt, Segment, Spans

# Where the name of a special token is cut in two, so that no tokenizer reads the token in it. It is taken out
# before the tokens are made: the model reads the name as it is spelled. Unicode has no such character.
BREAK = "\ufdd0"

# Names of special tokens in common vocabularies, where a server's tokenizer is not known.
COMMON_NAMES = re.compile(
    r"</?s>|<(?:bos|eos|pad|unk|mask|sop|eop|(?:start|end)_of_turn|end_of_utterance)>"
    r"|<\|[^|<>\s]{1,40}\|?>|<[^|<>\s]{1,40}\|>|<｜[^<>\s]{1,40}｜>|\[[gs]?MASK\]"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|TOOL_CONTENT)\]"
)


def break_at_names(text: str, wording: Spans, names: re.Pattern[str], mark: str) -> str:
    """Put a mark into every name of a special token that does not stand in the wording."""
    # A break that a text brings along is taken out later: left in, it would close a name around it.
    original, text = text, text.replace(BREAK, "\ufffd")
    # Names that overlap are both broken, for either could be read: so the search goes on within the name.
    breaks, match = [], names.search(text)
    while match:
        if not any(start <= match.start() and match.end() <= end for start, end in wording):
            breaks.append(match.start() + 1)
        match = names.search(text, match.start() + 1)
    if not breaks:
        return original
    parts = (text[start:end] for start, end in pairwise([0, *breaks, len(text)]))
    return mark.join(parts)


def space_out_names(text: str, names: re.Pattern[str], wording: Spans = ()) -> str:
    """Return a text for a server that would read the name of a special token as that token.

    So each name gets a space, but for those that stand in the wording.

    >>> space_out_names("It ends.<|im_end|>", COMMON_NAMES)
    'It ends.< |im_end|>'
    """
    return break_at_names(text, wording, names, " ")


def spaced_prompt(prompt: Prompt, names: re.Pattern[str]) -> Prompt:
    """Return a prompt with :func:`space_out_names` of all its texts."""
    messages = tuple(
        Message(message.role, (Segment(space_out_names(message.text, names, message.wording)),))
        for message in prompt.messages
    )
    prefix = space_out_names(prompt.prefix, names, prompt.prefix_wording)
    return dataclasses.replace(prompt, messages=messages, prefix=prefix, prefix_wording=())
