"""Request bodies that clients send by themselves, written after their documentation and public sources.

Each client has at least two: a chat turn, and a turn in a stream, a job of its own or an agent's step.
Prompts of jobs are shortened to the words that tell what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHAT = "/v1/chat/completions"
QUESTION = "Who is the mayor of Karlen?"
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Today is Thursday."}
USER = {"role": "user", "content": QUESTION}
EARLIER = [{"role": "user", "content": "What is Karlen?"}, {"role": "assistant", "content": "A town."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
USAGE = {"include_usage": True}


@dataclass(frozen=True)
class Sent:
    """A body with what becomes of it.

    ``ignored``: names in the reply; ``job``: which job it is; ``refused``: the field that it is refused for.
    """

    client: str
    kind: str
    body: Mapping[str, Any]
    path: str = CHAT
    ignored: frozenset[str] = field(default_factory=frozenset)
    job: str = ""
    refused: str = ""


def sent(client, kind, ignored="", *, path=CHAT, job="", refused="", **body) -> Sent:
    if path == CHAT:
        body.setdefault("messages", [USER])
    return Sent(client, kind, body, path, frozenset(ignored.split()), job, refused)


def task(text: str) -> list[dict[str, str]]:
    """One of Open WebUI's tasks."""
    history = f"<chat_history>\nUSER: {QUESTION}\nASSISTANT: Ada Orm\n</chat_history>"
    return [
        {"role": "user", "content": f"### Task:\n{text}\n\n### Output:\nJSON\n\n### Chat History:\n{history}"}
    ]


TITLE = f"User: {QUESTION}\nAI: Ada Orm"
ZED_TITLE = (
    "Generate a concise 3-7 word title for this conversation, omitting punctuation. Go straight to the title."
)
DIFY_QUESTIONS = (
    f"Human: {QUESTION}\nAssistant: Ada Orm\nPlease help me predict the three most likely questions that "
    'human would ask, and keep each of them short. The output must be an array in JSON: ["question1"]'
)

BODIES = [
    # Open WebUI sends what its user has set; of a chat's settings the rest stays out.
    sent("Open WebUI", "chat", stream=False),
    sent(
        "Open WebUI", "stream", "messages.system temperature top_p messages[3].content[1].image_url",
        stream=True, stream_options=USAGE, temperature=0.8, top_p=0.9, max_tokens=512, seed=7,
        messages=[SYSTEM, *EARLIER, {"role": "user", "content": [{"type": "text", "text": QUESTION}, IMAGE]}],
    ),
    sent(
        "Open WebUI", "title", job="title", stream=False, max_completion_tokens=1000,
        messages=task("Generate a concise, 3-5 word title with an emoji summarizing the chat history."),
    ),
    sent(
        "Open WebUI", "tags", job="tags", stream=False,
        messages=task("Generate 1-3 broad tags categorizing the main themes of the chat history."),
    ),
    sent(
        "Open WebUI", "follow-ups", job="follow_ups", stream=False,
        messages=task(
            "Suggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next in "
            "this conversation."
        ),
    ),
    sent(
        "Open WebUI", "queries", job="search_queries", stream=False,
        messages=task(
            "Analyze the chat history to determine the necessity of generating search queries, in the given "
            "language."
        ),
    ),
    sent(
        "LibreChat", "chat", "temperature top_p presence_penalty frequency_penalty user messages.system",
        temperature=0.7, top_p=0.8, presence_penalty=0.2, frequency_penalty=0.1, user="65f0c1", stream=False,
        messages=[SYSTEM, USER],
    ),
    sent(
        "LibreChat", "stream", "user tools reasoning_effort", stream=True, stream_options=USAGE,
        user="65f0c1", n=1, tools=TOOLS, reasoning_effort="low", messages=[*EARLIER, USER],
    ),
    sent(
        "LibreChat", "title", "user", job="title", stream=False, user="65f0c1",
        messages=[
            {
                "role": "user",
                "content": "Provide a concise, 5-word-or-less title for the conversation, using title case "
                f"conventions. Only return the title itself.\n\nConversation:\n{TITLE}",
            }
        ],
    ),
    sent(
        "LibreChat", "title by a tool", refused="tool_choice", tools=TOOLS, temperature=0,
        tool_choice={"type": "function", "function": {"name": "read_file"}},
    ),
    sent(
        "LobeChat", "stream", "temperature messages.system", stream=True, stream_options=USAGE,
        temperature=1, top_p=1, presence_penalty=0, frequency_penalty=0, messages=[SYSTEM, USER],
    ),
    sent(
        "LobeChat", "chat", "temperature top_p frequency_penalty tools messages.system", stream=False,
        temperature=0.6, top_p=0.9, frequency_penalty=0.5, presence_penalty=0, tools=TOOLS, max_tokens=800,
        messages=[SYSTEM, *EARLIER, USER],
    ),
    sent(
        "LobeChat", "title", job="title", stream=True, temperature=1, top_p=1,
        messages=[
            {
                "role": "system",
                "content": "You are a professional conversation summarizer. Generate a concise title that "
                "captures the essence of the conversation.",
            },
            {"role": "user", "content": f"user: {QUESTION}\nassistant: Ada Orm"},
        ],
    ),
    sent(
        "AnythingLLM", "chat", "temperature messages.system", temperature=0.7, max_tokens=1024,
        messages=[SYSTEM, USER],
    ),
    sent(
        "AnythingLLM", "stream", "temperature messages.system", temperature=0.7, max_tokens=1024, stream=True,
        messages=[SYSTEM, *EARLIER, {"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
    ),
    sent(
        "Continue", "stream", "temperature tools parallel_tool_calls messages.system", stream=True,
        stream_options=USAGE, max_tokens=2048, temperature=0.5, tools=TOOLS, parallel_tool_calls=False,
        messages=[SYSTEM, USER],
    ),
    sent("Continue", "chat", stream=False, max_tokens=2048, stop=["<|im_end|>", "<|endoftext|>"]),
    sent(
        "Continue", "title", job="title", stream=False, max_tokens=16,
        messages=[
            {
                "role": "user",
                "content": "Given the following... please reply with a title for the chat that is 3-4 words "
                "in length, no additional text or explanation.\n\nAda Orm is the mayor.",
            }
        ],
    ),
    sent(
        "Cursor", "agent", "temperature tools user messages.system", temperature=0, user="u_1", tools=TOOLS,
        tool_choice="auto", stream=True, stream_options=USAGE, messages=[SYSTEM, USER],
    ),
    sent("Cursor", "chat", "temperature user", temperature=0, user="u_1", stream=False),
    sent(
        "Cline", "stream", "temperature messages.system", temperature=0, stream=True, stream_options=USAGE,
        messages=[
            SYSTEM,
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": f"<task>{QUESTION}</task>"},
                    {"type": "text", "text": "<environment_details>none</environment_details>"},
                ],
            },
        ],
    ),
    sent(
        "Cline", "agent",
        "temperature tools parallel_tool_calls reasoning_effort messages.system messages[2].tool_calls "
        "messages[3]",
        temperature=0, stream=True, stream_options=USAGE, tools=TOOLS, tool_choice="auto",
        parallel_tool_calls=False, reasoning_effort="medium",
        messages=[
            SYSTEM,
            USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "a file"},
        ],
    ),
    sent(
        "Zed", "stream", "temperature tools parallel_tool_calls prompt_cache_key messages.system",
        stream=True, stream_options=USAGE, max_completion_tokens=4096, temperature=1.0, tools=TOOLS,
        tool_choice="auto", parallel_tool_calls=False, prompt_cache_key="thread-1", messages=[SYSTEM, USER],
    ),
    sent("Zed", "chat", "temperature", stream=False, max_completion_tokens=4096, temperature=1.0, stop=[]),
    sent(
        "Zed", "title", job="title", stream=True, stream_options=USAGE, max_completion_tokens=4096,
        messages=[USER, {"role": "assistant", "content": "Ada Orm"}, {"role": "user", "content": ZED_TITLE}],
    ),
    sent(
        "Dify", "stream", "temperature top_p presence_penalty user messages.system", stream=True,
        temperature=0.7, top_p=0.95, presence_penalty=0.1, frequency_penalty=0, max_tokens=512,
        stop=["Human:", "User:", "\nObservation", "<|end|>", "<|user|>"], user="abc",
        response_format={"type": "text"}, messages=[SYSTEM, USER],
    ),
    sent(
        "Dify", "chat", "temperature user chat_template_kwargs", stream=False, temperature=0.2, top_p=1,
        max_tokens=512, user="abc", chat_template_kwargs={"enable_thinking": False},
    ),
    sent(
        "Dify", "title", job="title", stream=False, temperature=1, max_tokens=100,
        messages=[
            {
                "role": "user",
                "content": "You are asked to generate a concise chat title by decomposing the user's input "
                f"into two parts.\n{QUESTION}\n",
            }
        ],
    ),
    sent(
        "Dify", "follow-ups", job="follow_ups", stream=False, temperature=0, max_tokens=256,
        messages=[{"role": "user", "content": DIFY_QUESTIONS}],
    ),
    sent("AI SDK", "chat", "temperature", temperature=0, max_tokens=400),
    sent(
        "AI SDK", "title", job="title", stream=False,
        messages=[
            {
                "role": "system",
                "content": "\n- you will generate a short title based on the first message a user begins a "
                "conversation with\n- the title should be a summary of the user's message",
            },
            USER,
        ],
    ),
    sent("AI SDK", "object", refused="response_format", temperature=0, response_format=SCHEMA),
    sent("LangChain", "chat", "temperature", stream=False, temperature=0.7, n=1),
    sent(
        "LangChain", "stream", "temperature tools messages.system", stream=True, stream_options=USAGE,
        temperature=0, tools=TOOLS, max_completion_tokens=300, stop=["\nObservation"],
        messages=[SYSTEM, USER],
    ),
    sent("LangChain", "structured output", refused="response_format", response_format=SCHEMA),
    sent("LlamaIndex", "chat", "temperature messages.system", temperature=0.1, messages=[SYSTEM, USER]),
    sent("LlamaIndex", "stream", "temperature", temperature=0.1, stream=True, max_tokens=256),
    sent("LlamaIndex", "log-probabilities", refused="logprobs", logprobs=True, top_logprobs=5),
]  # fmt: skip
