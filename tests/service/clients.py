"""Request bodies that clients send by themselves, written after their documentation and public sources.

Of each client the one with the most fields, a job of its own, and what is refused. Prompts of jobs are
shortened to the words that tell what they are.
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

    ``ignored``: names in the reply; ``job``: whether one plain call answers it; ``refused``: the field that
    it is refused for.
    """

    client: str
    kind: str
    body: Mapping[str, Any]
    ignored: frozenset[str] = field(default_factory=frozenset)
    job: bool = False
    refused: str = ""


def sent(client, kind, ignored="", *, job=False, refused="", **body) -> Sent:
    body.setdefault("messages", [USER])
    return Sent(client, kind, body, frozenset(ignored.split()), job, refused)


def task(text: str) -> list[dict[str, str]]:
    """One of Open WebUI's tasks."""
    history = f"<chat_history>\nUSER: {QUESTION}\nASSISTANT: Ada Orm\n</chat_history>"
    return [
        {"role": "user", "content": f"### Task:\n{text}\n\n### Output:\nJSON\n\n### Chat History:\n{history}"}
    ]


BODIES = [
    # Open WebUI sends what its user has set; of a chat's settings the rest stays out.
    sent(
        "Open WebUI", "stream", "temperature top_p messages[3].content",
        stream=True, stream_options=USAGE, temperature=0.8, top_p=0.9, max_tokens=512, seed=7,
        messages=[SYSTEM, *EARLIER, {"role": "user", "content": [{"type": "text", "text": QUESTION}, IMAGE]}],
    ),
    sent(
        "Open WebUI", "title", job=True, stream=False, max_completion_tokens=1000,
        messages=task("Generate a concise, 3-5 word title with an emoji summarizing the chat history."),
    ),
    sent(
        "LibreChat", "stream", "user tools reasoning_effort", stream=True, stream_options=USAGE,
        user="65f0c1", n=1, tools=TOOLS, reasoning_effort="low", messages=[*EARLIER, USER],
    ),
    sent(
        "LibreChat", "title by a tool", refused="tool_choice", tools=TOOLS, temperature=0,
        tool_choice={"type": "function", "function": {"name": "read_file"}},
    ),
    sent(
        "LobeChat", "chat", "temperature top_p frequency_penalty tools", stream=False,
        temperature=0.6, top_p=0.9, frequency_penalty=0.5, presence_penalty=0, tools=TOOLS, max_tokens=800,
        messages=[SYSTEM, *EARLIER, USER],
    ),
    sent(
        "AnythingLLM", "stream", "temperature", temperature=0.7, max_tokens=1024, stream=True,
        messages=[SYSTEM, *EARLIER, {"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
    ),
    sent("Continue", "chat", stream=False, max_tokens=2048, stop=["<|im_end|>", "<|endoftext|>"]),
    sent(
        "Cursor", "agent", "tools user", temperature=0, user="u_1", tools=TOOLS,
        tool_choice="auto", stream=True, stream_options=USAGE, messages=[SYSTEM, USER],
    ),
    sent(
        "Cline", "agent",
        "tools reasoning_effort messages[2] messages[3]",
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
        "Zed", "stream", "temperature tools prompt_cache_key",
        stream=True, stream_options=USAGE, max_completion_tokens=4096, temperature=1.0, tools=TOOLS,
        tool_choice="auto", parallel_tool_calls=False, prompt_cache_key="thread-1", messages=[SYSTEM, USER],
    ),
    sent(
        "Dify", "stream", "temperature top_p presence_penalty user", stream=True,
        temperature=0.7, top_p=0.95, presence_penalty=0.1, frequency_penalty=0, max_tokens=512,
        stop=["Human:", "User:", "\nObservation", "<|end|>", "<|user|>"], user="abc",
        response_format={"type": "text"}, messages=[SYSTEM, USER],
    ),
    sent("AI SDK", "object", refused="response_format", temperature=0, response_format=SCHEMA),
    sent(
        "LangChain", "stream", "tools", stream=True, stream_options=USAGE,
        temperature=0, tools=TOOLS, max_completion_tokens=300, stop=["\nObservation"],
        messages=[SYSTEM, USER],
    ),
    sent("LangChain", "structured output", refused="response_format", response_format=SCHEMA),
    sent("LlamaIndex", "stream", "temperature", temperature=0.1, stream=True, max_tokens=256),
    sent("LlamaIndex", "log-probabilities", refused="logprobs", logprobs=True, top_logprobs=5),
]  # fmt: skip
