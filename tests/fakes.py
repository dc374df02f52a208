"""Deterministic stand-ins for a model and an index. They live in tests only."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from corag.core.errors import RequestRefusedError, SearchFailedError
from corag.core.prompting.prompt import Message, Prompt, Segment, Shortening
from corag.core.prompting.shorten import shorten
from corag.core.protocols import (
    Completion,
    GenerateRequest,
    Generation,
    Generator,
    Sampling,
    Score,
    ScoreRequest,
)
from corag.core.types import Hit, Passage, TokenUsage
from retrieval.search.stage import SearchStage


def words(text: str) -> int:
    """Count tokens as a scripted model does: by white space."""
    return len(text.split())


def before_stop(text: str, stop: Sequence[str]) -> str:
    """Cut a reply where its first stop string begins, as engines do."""
    return text[: min((at for string in stop if (at := text.find(string)) >= 0), default=len(text))]


def chat_prompt(text: str | Sequence[Segment], *, system: str = "", prefix: str = "") -> Prompt:
    """Make a chat prompt of one user turn, after an optional system turn."""
    turns = [Message("user", (Segment(text),) if isinstance(text, str) else tuple(text))]
    if system:
        turns.insert(0, Message("system", (Segment(system),)))
    return Prompt(tuple(turns), prefix=prefix)


class ScriptedGenerator(Generator):
    """Replies from a list, one after the other, or from a function of the request.

    Keeps every request that it saw.
    """

    fingerprint = "scripted"
    failed = False

    def __init__(
        self,
        replies: Iterable[str] | Callable[[GenerateRequest], str | list[str]],
        pause: Callable[[GenerateRequest | ScoreRequest], Awaitable[None]] | None = None,
        log_likelihood: Callable[[ScoreRequest], float] = lambda request: -1.0,
        probability: Callable[[str], float] = lambda word: 1.0,
        special: Sequence[str] = (),
        cuts: bool = False,
    ) -> None:
        """``replies`` may give a list of n texts for n samples. ``log_likelihood``: of each target token.

        ``probability``: of each generated word, its white space stripped. ``special``: what is one token
        each, and left out of replies unless it is asked for. ``cuts``: replies end at ``max_tokens`` words,
        as engines end them.
        """
        queue = None if callable(replies) else iter(replies)
        self._reply = replies if callable(replies) else lambda request: next(queue)
        self._pause = pause
        self._log_likelihood = log_likelihood
        self._probability = probability
        self._special = list(special)
        self._cuts = cuts
        self.requests: list[GenerateRequest] = []
        self.scored: list[ScoreRequest] = []

    @property
    def prompts(self) -> list[str]:
        return [request.prompt.text for request in self.requests]

    def count_tokens(self, text: str) -> int:
        return words(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        if self._pause is not None:
            await self._pause(request)
        first = self._reply(request)
        rest = request.sampling.n - 1
        texts = (
            first if isinstance(first, list) else [first, *(str(self._reply(request)) for _ in range(rest))]
        )
        texts = [before_stop(text, request.sampling.stop) for text in texts]
        if self._cuts:
            texts = [
                re.findall(rf"^(?:\s*\S+){{0,{request.sampling.max_tokens}}}", text)[0] for text in texts
            ]
        if request.watch is not None:
            for piece in re.finditer(r"\s*\S+", texts[0]):  # token by token, as engines show a reply
                request.watch(texts[0][: piece.end()])
        completions = tuple(self._completion(text, request.sampling) for text in texts)
        prompt, generated = words(request.prompt.text), sum(map(words, texts))
        return Generation(completions, TokenUsage(1, prompt, generated, prompt, generated))

    def _completion(self, text: str, sampling: Sampling) -> Completion:
        finish = "length" if self._cuts and words(text) >= sampling.max_tokens else "stop"
        if not sampling.special_tokens:
            for name in self._special:
                text = text.replace(name, "")
        if not sampling.logprobs:
            return Completion(text, (), finish)
        pieces = tuple(re.findall(r"\s*\S+|\s+", text))  # joined they are the text
        logprobs = tuple(math.log(self._probability(piece.strip())) for piece in pieces)
        return Completion(text, tuple(range(len(pieces))), finish, logprobs, pieces)

    def _target(self, target: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(target, tuple):
            return target
        return (self._special.index(target),) if target in self._special else tuple(range(words(target)))

    async def score(self, request: ScoreRequest) -> Score:
        target = self._target(request.target)
        self.scored.append(request)
        if self._pause is not None:
            await self._pause(request)
        prompt = words(request.prompt.text)
        return Score(
            target,
            (self._log_likelihood(request),) * len(target),
            TokenUsage(1, prompt, len(target), prompt, len(target)),
        )

    async def close(self) -> None:
        return None


class WindowedGenerator(ScriptedGenerator):
    """A scripted model with a window of so many words.

    As the renderer does, it takes what is too long from the messages, the question among them, and refuses
    only what leaves nothing of these: the reply's beginning is never cut.
    """

    def __init__(
        self, replies: Iterable[str] | Callable[[GenerateRequest], str | list[str]], window: int
    ) -> None:
        super().__init__(replies)
        self.window = window
        self.seen: list[Prompt] = []
        """The prompts that were asked, as far as the window leaves them."""

    async def generate(self, request: GenerateRequest) -> Generation:
        room = self.window - request.sampling.max_tokens
        shorter, dropped = shorten(request.prompt, lambda prompt: words(prompt.text) - room, words)
        excess = words(shorter.text) - room
        if excess >= sum(words(message.text) for message in shorter.messages):
            raise RequestRefusedError("the window is too small.")
        self.seen.append(shorter)
        reply = await super().generate(request)
        kinds = Counter(segment.kind for segment in dropped)
        return replace(reply, shortening=Shortening(tuple(kinds.items()), max(0, excess)))


class WordRetriever(SearchStage):
    """Ranks passages by how many of the query's words they hold; ties go to the earlier passage."""

    fingerprint = "words"

    def __init__(self, passages: Sequence[Passage], failing: str = "") -> None:
        self._passages = list(passages)
        self._failing = failing
        self.queries: list[str] = []

    async def search(self, query: str, k: int, hop: bool = False) -> list[Hit]:
        self.queries.append(query)
        await asyncio.sleep(0)
        if self._failing and self._failing in query:
            raise SearchFailedError(f"the search for '{query}' failed.")
        wanted = set(re.findall(r"\w+", query.lower()))
        scored = [(len(wanted & set(re.findall(r"\w+", p.contents.lower()))), p) for p in self._passages]
        ranked = sorted((entry for entry in scored if entry[0]), key=lambda entry: -entry[0])
        return [Hit(passage, float(score)) for score, passage in ranked[:k]]

    async def passages(self, ids: Sequence[str]) -> list[Passage]:
        by_id = {passage.id: passage for passage in self._passages}
        return [by_id[name] for name in ids if name in by_id]

    async def close(self) -> None:
        return None


def passage(title: str, text: str) -> Passage:
    """Make a passage whose id is its title in lower case."""
    return Passage(title.lower(), title, text)


# CoRAG's prompts, saying in a word what is asked, so that scripts can tell requests apart.
PROMPTS = {
    "sub_query_prompt": "NEXT for {query}\n{hops}",
    "sub_answer_prompt": "ANSWER {sub_query}\n{passages}",
    "final_answer_prompt": "FINAL {query}\n{passages}{hops}",
    "stop_check_prompt": "ENOUGH {query}\n{hops}",
}


def kind(request: GenerateRequest | ScoreRequest) -> str:
    """Say what a request with one of these prompts asks."""
    return request.prompt.text.split()[0]
