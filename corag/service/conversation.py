"""What callers ask of the service: questions with earlier turns, and chat pages' own jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corag.core.errors import BudgetExhaustedError
from corag.core.prompting.prompt import Message, Prompt, Segment, as_prompt
from corag.core.prompting.template import load_prompt
from corag.core.protocols import Generation
from corag.core.tools import Tools
from corag.core.types import Answer, Question

_PROMPTS = Path(__file__).parent / "prompts"
_REWRITTEN_TOKENS = 64  # how much longer a standalone question may be than the user's
_FEWEST_WORDS = 3  # of a question, unless the user's own has fewer
_MOST_TURNS = 2  # of the user's before the last: "and since when?" may follow "and who leads it?"
_MOST_CHARACTERS = 500  # of each of them: a document may be pasted before a question
_MOST_CONVERSATION = 40_000  # characters of the turns before a question, the latest, and of a job
_JOB_TOKENS = 256  # of a title, or of five questions as JSON
_TASK_MARK = "### Task:"  # Open WebUI begins its own requests so, for a title or tags
_CONTEXT_MARK = "<context>"  # and a question with documents of its own
# Of the call that writes nothing but the answer, in the methods that have one.
FINAL_ROLES = ("final", "reader", "short_answer")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation. ``role``: "user" or "assistant"; "system" until it is read."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A caller's question with its settings.

    Attributes:
        text: the question.
        preset: the name of the preset to answer it by.
        earlier: the messages before it, oldest first.
        seed: of all randomness; None for the service's own.
        budget: upper limit of its tokens; 0 for the service's own limit.
        job: whether it is a chat page's own request, as for a title: ``text`` is then all that is asked.
        max_tokens: limit of the final call; None for the method's own.
        stop: texts that end the final call.
        system: what the caller wants of the answer, such as its language; of the final prompt alone.
        request_id: under which logs have the request.
        sources: most sources that end the visible answer.
        ignored: fields that were passed over, each with the reason.
        shortened: which of "question", "conversation" and "system" were too long.
    """

    text: str
    preset: str
    earlier: tuple[Turn, ...] = ()
    seed: int | None = None
    budget: int = 0
    job: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    system: str = ""
    request_id: str = ""
    sources: int = 0
    ignored: Mapping[str, str] = field(default_factory=dict)
    shortened: tuple[str, ...] = ()


def shorten_request(request: AnswerRequest, question_chars: int) -> AnswerRequest:
    """Return a request whose texts are not too long, with what was cut.

    A question loses its front, for it stands behind the document that was pasted with it. A job's instruction
    stands at its front.
    """
    if request.job:
        return replace(request, text=request.text[:_MOST_CONVERSATION])
    text, system = request.text[-question_chars:], request.system[:question_chars]
    is_cut = {
        "question": text != request.text,
        "system": system != request.system,
        "conversation": len(_transcript(request)) > _MOST_CONVERSATION,
    }
    return replace(request, text=text, system=system, shortened=tuple(filter(is_cut.get, is_cut)))


def _transcript(request: AnswerRequest) -> str:
    return "\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in request.earlier)


def is_job(text: str) -> bool:
    r"""Whether a message is a chat page's own request, as for a title: it wants one call and no search.

    >>> is_job("### Task:\nGenerate a concise title for the chat history."), is_job("Who wrote it?")
    (True, False)
    """
    return text.startswith(_TASK_MARK) and _CONTEXT_MARK not in text


@dataclass
class CallersTools(Tools):
    """Tools that heed a caller's wishes in the call that writes the final answer, and in no other.

    Before its prompt stands the system message, for whose tokens the budget has room all the time, and it has
    the caller's ``max_tokens`` and ``stop``.
    """

    wishes: AnswerRequest | None = None

    def __post_init__(self) -> None:
        system = self.wishes.system if self.wishes and not self.wishes.job else ""
        # Branches have shares of what is left, without it.
        is_reserved = system and self.budget and self._trunk is None
        self._system_tokens = self.count_tokens(f"{system}\n\n") if is_reserved else 0
        self._reserved_tokens += self._system_tokens

    async def generate(
        self,
        prompt: Prompt | str,
        *,
        role: str = "generate",
        max_tokens: int,
        stop: Sequence[str] = (),
        **more: Any,
    ) -> Generation:
        """Continue a prompt, see :meth:`Tools.generate`."""
        if role in FINAL_ROLES and self.wishes is not None:
            prompt = _instruct(as_prompt(prompt), self.wishes.system)
            max_tokens = min(max_tokens, self.wishes.max_tokens or max_tokens)
            stop = (*stop, *self.wishes.stop)
            with self.reserve_tokens(-self._system_tokens):
                return await super().generate(prompt, role=role, max_tokens=max_tokens, stop=stop, **more)
        return await super().generate(prompt, role=role, max_tokens=max_tokens, stop=stop, **more)


def _instruct(prompt: Prompt, system: str) -> Prompt:
    """Return a prompt with a system message before it, in a user's turn: some templates know no other."""
    if not system:
        return prompt
    first, *others = prompt.messages
    first = replace(first, segments=(Segment(f"{system}\n\n"), *first.segments))
    return replace(prompt, messages=(first, *others))


async def answer_job(question: Question, tools: Tools, request: AnswerRequest) -> Answer:
    """Answer a chat page's own request, such as for a title, by one call of the model without a search."""
    reply = await tools.generate(
        Prompt((Message("user", (Segment(request.text),)),)),
        role="job",
        max_tokens=request.max_tokens or _JOB_TOKENS,
        stop=request.stop,
        path="job",
        is_answer=True,
    )
    return Answer(reply.text.strip(), stopped="job")


async def standalone_question(request: AnswerRequest, tools: Tools) -> tuple[str, str]:
    """Rewrite the last question, by one call of the model, as one that can be understood by itself.

    Where there is no whole rewrite, it is the user's last turns together: what the field then searches with
    (Qu et al. 2020: open-retrieval conversational QA). Returns it, and what its searches say of it.
    """
    template = load_prompt("standalone_question", "standalone_question", _PROMPTS)
    transcript = _transcript(request)[-_MOST_CONVERSATION:]
    prompt = template.render({"conversation": transcript, "question": request.text})
    # A rewrite is as long as the question, plus what pronouns are replaced by.
    most = _REWRITTEN_TOKENS + tools.count_tokens(request.text)
    with suppress(BudgetExhaustedError):
        reply = await tools.generate(
            prompt, role="standalone_question", max_tokens=most, path="standalone question"
        )
        text, *more = reply.text.strip().splitlines() or [""]
        if text.count('"') == 2 and text.startswith('"') and text.endswith('"'):  # models like to quote it
            text = text[1:-1].strip()
        # Cut off, or "Here is the question:".
        is_none = text.endswith(":") or (not more and reply.completions[0].finish_reason == "length")
        if not is_none and len(text.split()) >= min(_FEWEST_WORDS, len(request.text.split())):
            return text, ""
    turns = [turn.text for turn in request.earlier if turn.role == "user"][-_MOST_TURNS:]
    joined = " ".join(" ".join(text[-_MOST_CHARACTERS:].split()) for text in turns)
    return f"{joined} {request.text}", "it was not rewritten, so this is the user's last questions together"
