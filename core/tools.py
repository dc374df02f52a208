"""What one question is handed: generate, score and search, with seeds, ledger, budget and trace taken care
of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

from core.errors import BudgetExhaustedError, ConfigError
from core.prompting.prompt import Prompt, Shortening
from core.protocols import (
    CachedHits,
    GenerateRequest,
    Generation,
    Generator,
    Retriever,
    Sampling,
    Score,
    ScoreRequest,
)
from core.seeds import derive_seed
from core.types import Hit, Passage, Question, TokenUsage

# Allowed for a chat template's own words when a call is weighed against the budget: at first, and for each
# further message; and for what a tokenizer puts around a plain text.
_TEMPLATE_TOKENS, _TEMPLATE_TOKENS_A_MESSAGE, _PLAIN_TOKENS = 48, 6, 2


@dataclass(frozen=True, slots=True)
class GenerateStep:
    """A finished generation. ``path`` is its place in the method, such as "chain 3/hop 2".

    Of every step: ``kind``, its name in the trace; ``started``, seconds since the question was begun;
    ``seconds`` of waiting from then on.
    """

    kind: ClassVar[str] = "generate"
    role: str
    path: str
    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    usage: TokenUsage
    shortening: Shortening
    seconds: float
    prompt: str = ""
    started: float = 0.0


@dataclass(frozen=True, slots=True)
class ScoreStep:
    """A finished scoring: natural log-likelihood, summed over ``tokens`` target tokens."""

    kind: ClassVar[str] = "score"
    role: str
    path: str
    log_likelihood: float
    tokens: int
    usage: TokenUsage
    shortening: Shortening
    seconds: float
    started: float = 0.0


@dataclass(frozen=True, slots=True)
class SearchStep:
    """A finished search and what it found, best first.

    ``remembered``: an equal one had found it already, or was about to.
    """

    kind: ClassVar[str] = "search"
    query: str
    path: str
    k: int
    hits: tuple[Hit, ...]
    seconds: float
    started: float = 0.0
    remembered: bool = False


Step = GenerateStep | ScoreStep | SearchStep


@dataclass
class Purse:
    """What the questions of one run share: the tokens that they saved for those that need more, and the
    scores seen so far.

    ``balance`` is negative when they overspent.
    """

    balance: int = 0
    scores: list[float] = field(default_factory=list)


@dataclass
class Tools:
    """The only way for a method to reach a model or an index. One instance serves one question.

    ``seed``: the run's. ``budget``: most tokens, prompt plus generated, that the question may spend (0: no
    limit); a call that could exceed it is not made and raises :class:`BudgetExhaustedError`. ``watch`` sees
    every step as it finishes. ``keep_prompts`` stores prompts in the trace. ``purse`` is shared by the
    questions of a run. ``begun``: when the question was, by ``time.perf_counter``.
    """

    question: Question
    generator: Generator
    retriever: Retriever | None = None
    seed: int = 0
    budget: int = 0
    watch: Callable[[Step], None] | None = None
    keep_prompts: bool = False
    purse: Purse = field(default_factory=Purse)
    steps: list[Step] = field(default_factory=list)
    ledger: dict[str, TokenUsage] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)
    _sampled: set[tuple[str, str]] = field(default_factory=set)
    _held: int = 0
    _trunk: Tools | None = None

    @property
    def spent(self) -> TokenUsage:
        """The sum of the ledger."""
        return sum(self.ledger.values(), TokenUsage())

    @property
    def left(self) -> int | None:
        """Tokens left in the budget, without those held back, never below 0; None without a budget."""
        return max(0, self.budget - self.spent.total - self._held) if self.budget else None

    @contextmanager
    def holding(self, tokens: int) -> Iterator[None]:
        """Keep tokens of the budget back for what comes after the block."""
        self._held += tokens
        try:
            yield
        finally:
            self._held -= tokens

    def branch(self, parts: int, budget: int | None = None) -> list[Tools]:
        """Return the tools of ``parts`` branches that go on at the same time, each with an equal share of
        ``budget`` tokens.

        Without ``budget``, what is left is shared. What a branch can still afford then does not depend on how
        fast the others are, so results do not either. Steps and spending are noted here too; what a branch
        leaves over is back once it has ended. Until then nobody may ask through these tools, for the branches
        have it all.
        """
        left = self.left
        total = left if budget is None else budget if left is None else min(budget, left)
        share = 0 if total is None else max(1, total // max(1, parts))  # 0 would be no limit; no call costs 1
        return [replace(self, budget=share, ledger={}, _held=0, _trunk=self) for _ in range(parts)]

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self.generator.count_tokens(text)

    def cost(self, prompt: Prompt, max_tokens: int) -> int:
        """Return the tokens that a call may cost at most, prompt and completion."""
        return most_tokens(prompt, max_tokens, self.count_tokens)

    async def generate(
        self,
        prompt: Prompt,
        *,
        role: str,
        max_tokens: int,
        temperature: float = 0.0,
        n: int = 1,
        stop: Sequence[str] = (),
        logprobs: bool = False,
        special_tokens: bool = False,
        top_p: float = 1.0,
        top_k: int = 0,
        repetition_penalty: float = 1.0,
        path: str = "",
    ) -> Generation:
        """Continue a prompt.

        ``role`` names the call's purpose in the ledger; sampled calls need a ``path`` of their own.
        """
        seed = None
        if temperature > 0:
            if (role, path) in self._sampled:
                raise ValueError(
                    f"two sampled calls share role '{role}' and path '{path}': they would draw the same "
                    "samples."
                )
            self._sampled.add((role, path))
            seed = derive_seed(self.seed, self.question.id, role, path)
        sampling = Sampling(
            max_tokens,
            temperature,
            top_p,
            top_k,
            repetition_penalty,
            n,
            tuple(stop),
            logprobs=logprobs,
            seed=seed,
            special_tokens=special_tokens,
        )
        started = time.perf_counter()
        with self._allow(prompt, n * max_tokens):
            reply = await self.generator.generate(
                GenerateRequest(prompt, sampling, self._priority(), self.question.id)
            )
        self._note(
            GenerateStep(
                role,
                path,
                tuple(completion.text for completion in reply.completions),
                tuple(completion.finish_reason for completion in reply.completions),
                reply.usage,
                reply.shortening,
                time.perf_counter() - started,
                prompt.text if self.keep_prompts else "",
                started - self.begun,
            ),
            reply.usage,
        )
        return reply

    async def score(
        self,
        prompt: Prompt,
        target: str | tuple[int, ...],
        *,
        role: str,
        end_of_turn: bool = False,
        path: str = "",
    ) -> Score:
        """Return log P(target | prompt)."""
        started = time.perf_counter()
        request = ScoreRequest(prompt, target, end_of_turn, self._priority(), self.question.id)
        with self._allow(prompt, len(target) if isinstance(target, tuple) else self.count_tokens(target) + 1):
            reply = await self.generator.score(request)
        step = ScoreStep(
            role,
            path,
            reply.sum,
            len(reply.token_ids),
            reply.usage,
            reply.shortening,
            time.perf_counter() - started,
            started - self.begun,
        )
        self._note(step, reply.usage)
        return reply

    async def search(self, query: str, *, k: int, path: str = "") -> tuple[Hit, ...]:
        """Return up to k hits, best first. A blank query finds nothing and is not asked."""
        if self.retriever is None:
            raise ConfigError(
                "this method searches, but no retriever was given: name one with --retriever.index or "
                "--retriever.url."
            )
        started = time.perf_counter()
        found = await self.retriever.search(query, k) if query.strip() else ()
        hits, remembered = tuple(found), isinstance(found, CachedHits)
        self._note(
            SearchStep(query, path, k, hits, time.perf_counter() - started, started - self.begun, remembered)
        )
        return hits

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return () if self.retriever is None else await self.retriever.passages(ids)

    def _priority(self) -> int:
        """Deeper questions go first: they finish early, while their prefix is still in the cache."""
        return -len(self.steps)

    @contextmanager
    def _allow(self, prompt: Prompt, max_tokens: int) -> Iterator[None]:
        """Hold back what a call may cost until it is noted.

        Raises :class:`BudgetExhaustedError` if that is not left.
        """
        if not self.budget:
            yield
            return
        cost = self.cost(prompt, max_tokens)
        if cost > (self.left or 0):
            raise BudgetExhaustedError(
                f"question '{self.question.id}' has {self.left} of its {self.budget} tokens left; a call may "
                f"cost {cost}."
            )
        with self.holding(cost):
            yield

    def _note(self, step: Step, usage: TokenUsage | None = None) -> None:
        self.steps.append(step)
        if usage is not None and not isinstance(step, SearchStep):
            payer: Tools | None = self
            while payer is not None:
                payer.ledger[step.role] = payer.ledger.get(step.role, TokenUsage()) + usage
                payer = payer._trunk
        if self.watch is not None:
            self.watch(step)


def most_tokens(prompt: Prompt, max_tokens: int, count: Callable[[str], int]) -> int:
    """Return the tokens that prompt and completion may come to, the chat template's own among them, about."""
    template = _TEMPLATE_TOKENS + _TEMPLATE_TOKENS_A_MESSAGE * (len(prompt.messages) - 1)
    return count(prompt.text) + (_PLAIN_TOKENS if prompt.plain else template) + max_tokens
