"""Jobs that chat pages ask for by themselves: titles, tags, follow-up questions, search queries.

Open WebUI, LibreChat, LobeChat, Continue, Zed, Dify and others send them to the model of the conversation, as
a conversation of its own. They want one call of a model, no search: a chain would take a minute for a title.
They are recognised by how they are worded, since the protocol has no field for it. The words are those that
their sources and documentation have; the patterns allow for what translators and versions change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_WINDOW = 700  # characters at each end of a message that are looked at: conversations stand between
_MOST_OPENING = 200  # an instruction begins within so many characters, so that no quotation is taken for one
_MOST_ENDING = 400  # and one behind a conversation is followed by no more than its own details
_NUMBER = r"(?:\d+|two|three|four|five|six|seven|eight|nine|ten|twelve)"
_VERB = (
    r"(?:generate|create|write|provide|give|suggest|summari[sz]e|come up with|reply with|respond with|"
    r"produce|make|return|propose)"
)
_SHORT = rf"(?:short|concise|brief|succinct|{_NUMBER}(?:\s*(?:-|–|to)\s*{_NUMBER})?[\s-]*(?:word|character))"
_FILLER = (
    rf"(?:[\s,()\-–]+(?:{_NUMBER}|words?|characters?|or|less|fewer|and|to|max\w*|descriptive|relevant|chat|"
    r"conversation|session|thread|informative|clear|simple|accurate|meaningful|phrase|as|a))*[\s,()\-–]+"
)
_PART = r"[^.?!。？！]"  # a character of the same sentence
_TALK = r"\b(?:chats?|conversations?|dialog(?:ue)?s?|discussions?|threads?|messages?|exchange|session|user)\b"
_LENGTH = rf"(?:{_NUMBER}(?:\s*(?:-|–|to)\s*{_NUMBER})?[\s-]*(?:words?|characters?))"
_TITLE = r"\btitles?\b(?! of\b)"

# What each job is worded like. In the comments: an instruction that has the pattern.
_INSTRUCTIONS: Sequence[tuple[str, str]] = (
    # "Generate a concise, 3-5 word title with an emoji summarizing the chat history."
    ("title", rf"\b{_VERB}\b{_PART}{{0,40}}?\b{_SHORT}{_FILLER}titles?\b(?={_PART}{{0,120}}{_TALK})"),
    # "generate a concise chat title by decomposing the input"
    ("title", rf"\b{_VERB}\b{_PART}{{0,40}}?\b{_SHORT}\s+(?:chat|conversation|thread)\s+titles?\b"),
    # "reply with a title for the chat that is 3-4 words in length"
    (
        "title",
        rf"\b{_VERB}\b{_PART}{{0,90}}?{_TITLE}(?={_PART}{{0,120}}{_LENGTH})(?={_PART}{{0,200}}{_TALK})",
    ),
    # "summarize the above conversation into a title within 10 characters"
    ("title", rf"\bsummari[sz]e\b{_PART}{{0,60}}?{_TALK}{_PART}{{0,40}}?{_TITLE}{_PART}{{0,40}}{_LENGTH}"),
    # "Analyze this conversation and provide: 1. The detected language 2. A concise title"
    ("title", rf"\banaly[sz]e this {_TALK} and provide\b.{{0,160}}{_TITLE}"),
    # "Summarise the conversation above as a title of at most ten characters", in Chinese
    (
        "title",
        r"(?=.*(?:对话|会话|聊天|對話|會話))(?=.*(?:总结|概括|生成|總結))(?=.*(?:字|简短|简洁|簡短|簡潔))"
        r".*?(?:标题|標題)",
    ),
    # "Generate 1-3 broad tags categorizing the main themes of the chat history"
    ("tags", rf"\b{_VERB}\b{_PART}{{0,60}}?\btags?\b(?={_PART}{{0,120}}{_TALK})"),
    # "Suggest 3-5 relevant follow-up questions that the user might naturally ask next"
    (
        "follow_ups",
        rf"\b(?:{_VERB}|predict)\b{_PART}{{0,60}}?\bfollow[\s-]?ups?\b{_PART}{{0,30}}"
        rf"\b(?:questions?|prompts?|queries|replies|suggestions)\b(?={_PART}{{0,200}}{_TALK})",
    ),
    # "predict the three most likely questions that human would ask"
    (
        "follow_ups",
        rf"\b(?:{_VERB}|predict)\b{_PART}{{0,60}}?\bquestions\b{_PART}{{0,40}}\b(?:user|human)\b"
        rf"{_PART}{{0,40}}\bask\b",
    ),
    ("search_queries", rf"\bchat history\b{_PART}{{0,60}}\bnecessity of generating search queries\b"),
    ("autocomplete", r"\byou are an autocompletion system\b"),
    ("emoji", r"\breflect the speaker's likely facial expression\b"),
    ("image_prompt", r"\bgenerate a detailed prompt for a[mn]? image generation task\b"),
    # "Summarize the discussion briefly in 200 words or less to use as a prompt for future context."
    ("summary", rf"\bsummari[sz]e\b{_PART}{{0,40}}{_TALK}{_PART}{{0,120}}\bprompt for future context\b"),
    # "Generate a detailed summary of this conversation."
    (
        "summary",
        rf"^(?:please )?(?:generate|write|provide|create)\b{_PART}{{0,30}}\bsummary of "
        rf"(?:this|our|the above) {_TALK}",
    ),
)
_PATTERNS = tuple((name, re.compile(pattern, re.DOTALL)) for name, pattern in _INSTRUCTIONS)
# How Open WebUI begins its own jobs, and its context of a question.
_TASK_BEGINNING = re.compile(r"^### task:", re.DOTALL)
_TASK_PATTERN = re.compile(r"<chat_history>|### chat history", re.DOTALL)


def recognise_job(turns: Sequence[tuple[str, str]], patterns: Iterable[str] = ()) -> str:
    r"""Return which job a conversation is: "title", "tags", "follow_ups", ...; "" for a question.

    Args:
        turns: roles ("system", "user", "assistant") and texts, oldest first.
        patterns: further regular expressions; a conversation whose last user message has one of them is a
            job "other".

    >>> recognise_job([("user", "### Task:\nGenerate a concise, 3-5 word title for the chat history.")])
    'title'
    >>> recognise_job([("user", "What is the title of the first book on the conversation of whales?")])
    ''
    """
    users = [text for role, text in turns if role == "user"]
    if not users:
        return ""
    if job := _job_of_message(users[-1]):
        return job
    if any(re.search(pattern, users[-1], re.IGNORECASE) for pattern in patterns):
        return "other"
    systems = [text for role, text in turns if role == "system"]
    # A system message may ask for titles within answers. So it must be short, and come with one message.
    if len(users) == 1 and len(turns) == len(systems) + 1 and systems and len(systems[0]) <= 2 * _WINDOW:
        opening = _flat(systems[0])[:_WINDOW]
        return next((name for name, pattern in _PATTERNS if name == "title" and pattern.search(opening)), "")
    return ""


def _job_of_message(text: str) -> str:
    flat = _flat(text)
    opening, ending = flat[:_WINDOW], flat[-_WINDOW:]
    for name, pattern in _PATTERNS:
        match = pattern.search(opening)
        if match and match.start() <= _MOST_OPENING:
            return name
        # Behind a conversation: the instruction is the last thing, as LobeChat's and Dify's are.
        if any(len(ending) - match.end() <= _MOST_ENDING for match in pattern.finditer(ending)):
            return name
    return "other" if _TASK_BEGINNING.search(flat) and _TASK_PATTERN.search(flat) else ""


def _flat(text: str) -> str:
    return " ".join(text.lower().split())
