"""The protocols: what a method may request, and what every back end must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Protocol, Self

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.prompting.prompt import NOTHING_LEFT_OUT, Prompt, Shortening
from corag.core.types import NOTHING_SPENT, Hit, Passage, TokenUsage


class Ability(StrEnum):
    """What not every model can do that answers prompts, by the words that messages use."""

    LOGPROBS = "log-probabilities of the tokens that it generates"
    SCORES = "log-probabilities of given texts"
    SPECIAL_TOKENS = "special tokens spelled out in its replies"
    SAMPLING = "top_k and repetition_penalty"
    TEMPERATURE = "samples at a temperature above 0"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to continue a prompt.

    ``temperature`` 0 is greedy: such requests are pure and may be joined and cached. ``stop``: strings that
    end the completion and are not part of it. ``logprobs``: return each generated token's raw log-probability
    (before temperature and penalties). ``seed``: ignored when greedy. ``logit_bias``: (token id, added to its
    logit) pairs. ``special_tokens``: spell special tokens out in the text, but for the one that ends the
    turn.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    n: int = 1
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    special_tokens: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.n < 1 or self.temperature < 0:
            raise ConfigError(
                "sampling needs max_tokens >= 1, n >= 1 and temperature >= 0, but got "
                f"max_tokens={self.max_tokens}, n={self.n}, temperature={self.temperature}."
            )


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One request.

    Lower ``priority`` goes first. Requests of equal ``affinity`` share prefixes: keep them on one engine.
    Those of another ``draw``, which is the run's seed, are asked anew even if greedy: what differs between
    equal runs would else not be seen in runs that share an engine. ``watch`` is called with the text so far,
    as it grows, where one sample is requested and the engine can show it; the reply is the same without.
    """

    prompt: Prompt
    sampling: Sampling
    priority: int = 0
    affinity: str = ""
    draw: int = 0
    watch: Callable[[str], None] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sample.

    ``logprobs`` is None unless asked for; else it has one entry per token id, natural logarithm.
    ``token_ids`` and ``logprobs`` cover what was generated, so may include tokens of the stop string that
    ``text`` leaves out; a server that does not tell ids has no ``token_ids``. ``finish_reason``: "stop" (end
    of turn or stop string) or "length" (max_tokens reached). ``token_texts`` comes with ``logprobs``: what
    each token adds to ``text``, so that joined they are the text. A character spelled by several tokens
    belongs to the last of them; what the text leaves out adds "".
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[float, ...] | None = None
    token_texts: tuple[str, ...] | None = None

    def tokens(self, characters: int | None = None) -> list[tuple[str, float]]:
        """Return (text, log-probability) of the tokens that begin within the text's first ``characters``.

        By default of all. Raises ValueError if log-probabilities were not asked for.
        """
        if self.logprobs is None or self.token_texts is None:
            raise ValueError("this completion has no log-probabilities: ask for them with logprobs=True.")
        within = len(self.text) if characters is None else characters
        starts = accumulate(map(len, self.token_texts), initial=0)
        every = zip(starts, self.token_texts, self.logprobs, strict=False)  # there is one more start, the end
        return [(text, logprob) for start, text, logprob in every if start < within]


@dataclass(frozen=True, slots=True)
class Generation:
    """The reply to a :class:`GenerateRequest`: ``sampling.n`` completions, in a fixed order.

    ``thinking``: what the thoughts before the completions cost, beyond ``usage``; ``thoughts``: them, none or
    one for each completion; ``thoughts_cut``: how many of them reached the end of their budget, or of the
    whole reply's tokens.
    """

    completions: tuple[Completion, ...]
    usage: TokenUsage
    shortening: Shortening = NOTHING_LEFT_OUT
    thinking: TokenUsage = NOTHING_SPENT
    thoughts: tuple[str, ...] = ()
    thoughts_cut: int = 0

    @property
    def text(self) -> str:
        """The first completion's text."""
        return self.completions[0].text


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Ask for log P(target | prompt).

    The target is text, read as it stands right behind the prompt (" Paris" behind "Answer:"), or token ids. A
    text that begins a turn gets the blank with which the model's chat template begins one. ``end_of_turn``
    appends the model's end-of-turn token to the target. Raises :class:`RequestRefusedError` if the target
    alone does not fit the window: a target is never cut.
    """

    prompt: Prompt
    target: str | tuple[int, ...]
    end_of_turn: bool = False
    priority: int = 0
    affinity: str = ""
    draw: int = 0


@dataclass(frozen=True, slots=True)
class Score:
    """log P of each target token given the prompt and the target tokens before it (natural logarithm)."""

    token_ids: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    usage: TokenUsage
    shortening: Shortening = NOTHING_LEFT_OUT

    @property
    def sum(self) -> float:
        """Log-likelihood of the whole target."""
        return float(sum(self.token_logprobs))

    @property
    def mean(self) -> float:
        """Average log-likelihood per target token."""
        return self.sum / len(self.token_logprobs)


class Generator(ABC):
    """A language model behind some engine. Every method may be awaited by thousands of callers at once.

    Raises :class:`BackendError` when the engine is gone, :class:`RequestRefusedError`
    when one request can never be served.

    Attributes:
        fingerprint: identifies model, adapter, precision and engine: equal ones reply alike to greedy
            requests, up to the engine's own noise (a reply may differ with the batch that it is computed in).
        lacks: the abilities that it does not have.
        name: what messages about that call it; "" for "this server".
        about: lines to be printed when it is open.
        thinking_tokens: how many tokens of thoughts a sample may cost besides its own.
    """

    fingerprint: str = ""
    lacks: Collection[Ability] = ()
    name: str = ""
    about: Sequence[str] = ()
    thinking_tokens: int = 0

    @property
    def retried(self) -> int:
        """How many requests were sent again."""
        return 0

    @property
    def failed(self) -> bool:
        """Whether it has ended for good."""
        return False

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""

    @abstractmethod
    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation; a model that cannot lacks ``Ability.SCORES``."""
        raise RequestRefusedError(f"{self.name or 'this model'} cannot score given texts.")

    def forget(self) -> None:  # noqa: B027 - not every model remembers replies
        """Forget the replies that are remembered: another model may have taken the place of this one."""

    async def close(self) -> None:  # noqa: B027 - not every model holds something
        """Free the engine. Safe to call twice."""


class GeneratorStage(Generator):
    """A generator around another: what it does not do itself, that one does."""

    def __init__(self, inner: Generator) -> None:
        self._inner = inner
        self.fingerprint, self.lacks, self.name = inner.fingerprint, inner.lacks, inner.name
        self.about, self.thinking_tokens = inner.about, inner.thinking_tokens

    @property
    def retried(self) -> int:
        """How many requests the inner generator sent again."""
        return self._inner.retried

    @property
    def failed(self) -> bool:
        """Whether the inner generator has ended for good."""
        return self._inner.failed

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._inner.count_tokens(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt."""
        return await self._inner.generate(request)

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation."""
        return await self._inner.score(request)

    def forget(self) -> None:
        """Forget the replies that the inner generator remembers."""
        self._inner.forget()

    async def close(self) -> None:
        """Close the inner generator."""
        await self._inner.close()


class NotedHits(tuple[Hit, ...]):
    """Hits with what a reader of the trace should know of the search: ``note``, such as a shortened query."""

    note: str

    def __new__(cls, hits: Iterable[Hit] = (), note: str = "") -> Self:
        """``note``: a sentence without its full stop, "" for nothing."""
        result = super().__new__(cls, hits)
        result.note = note
        return result


class CachedHits(NotedHits):
    """Hits that another search had found before, or was finding: nothing was searched for them."""


def search_note(*results: Sequence[Hit]) -> str:
    """Return what the retriever says of these results, each thing once; "" for nothing."""
    notes = (result.note for result in results if isinstance(result, NotedHits) and result.note)
    return "; ".join(dict.fromkeys(notes))


class Retriever(Protocol):
    """A search over one corpus. May be awaited by thousands of callers at once; batches form inside.

    Raises :class:`SearchFailedError` for one failed search, :class:`BackendError`
    when the index is gone. An empty list means that nothing matched.
    """

    @property
    def fingerprint(self) -> str:
        """Identify corpus, index settings and encoder: equal fingerprints give the same hits."""
        ...

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first, without repeats, as :class:`CachedHits` if they cost no search.

        ``hop``: the query was asked on the way to an answer, so it is not the question itself.
        A blank query returns no hits; one that is too long is shortened, and :class:`NotedHits` say so.
        """
        ...

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        ...

    async def close(self) -> None:
        """Free the index. Safe to call twice."""
        ...
