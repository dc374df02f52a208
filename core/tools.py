"""What one question is handed: generate, score and search, with seeds, ledger, budget and trace taken care of."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.errors import BudgetExhaustedError, ConfigError
from core.prompt import Prompt, Shortening
from core.protocols import GenerateRequest, Generation, Generator, Retriever, Sampling, Score, ScoreRequest
from core.seeds import derive_seed
from core.types import Hit, Question, TokenUsage


@dataclass(frozen=True, slots=True)
class GenerateStep:
    """A finished generation. ``path`` is its place in the method, such as "chain 3/hop 2". Times are seconds of waiting."""

    role: str
    path: str
    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    usage: TokenUsage
    shortening: Shortening
    seconds: float
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class ScoreStep:
    """A finished scoring: natural log-likelihood, summed over ``tokens`` target tokens."""

    role: str
    path: str
    log_likelihood: float
    tokens: int
    usage: TokenUsage
    shortening: Shortening
    seconds: float


@dataclass(frozen=True, slots=True)
class SearchStep:
    """A finished search and what it found, best first."""

    query: str
    path: str
    k: int
    hits: tuple[Hit, ...]
    seconds: float


Step = GenerateStep | ScoreStep | SearchStep


@dataclass
class Tools:
    """The only way for a method to reach a model or an index. One instance serves one question.

    ``seed``: the run's. ``budget``: most tokens, prompt plus generated, that the question may spend (0: no limit); a call
    that begins after they are spent raises :class:`BudgetExhaustedError`. ``watch`` sees every step as it finishes.
    ``keep_prompts`` stores prompts in the trace.
    """

    question: Question
    generator: Generator
    retriever: Retriever | None = None
    seed: int = 0
    budget: int = 0
    watch: Callable[[Step], None] | None = None
    keep_prompts: bool = False
    steps: list[Step] = field(default_factory=list)
    ledger: dict[str, TokenUsage] = field(default_factory=dict)
    _sampled: set[tuple[str, str]] = field(default_factory=set)

    @property
    def spent(self) -> TokenUsage:
        """The sum of the ledger."""
        return sum(self.ledger.values(), TokenUsage())

    @property
    def left(self) -> int | None:
        """Tokens left in the budget, never below 0; None without a budget."""
        return max(0, self.budget - self.spent.total) if self.budget else None

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
        path: str = "",
    ) -> Generation:
        """Continue a prompt. ``role`` names the call's purpose in the ledger; sampled calls need a ``path`` of their own."""
        self._check_budget()
        seed = None
        if temperature > 0:
            if (role, path) in self._sampled:
                raise ValueError(
                    f"two sampled calls share role '{role}' and path '{path}': they would draw the same samples."
                )
            self._sampled.add((role, path))
            seed = derive_seed(self.seed, self.question.id, role, path)
        sampling = Sampling(max_tokens, temperature, n=n, stop=tuple(stop), logprobs=logprobs, seed=seed)
        started = time.perf_counter()
        reply = await self.generator.generate(GenerateRequest(prompt, sampling, self._priority(), self.question.id))
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
            ),
            reply.usage,
        )
        return reply

    async def score(
        self, prompt: Prompt, target: str | tuple[int, ...], *, role: str, end_of_turn: bool = False, path: str = ""
    ) -> Score:
        """Return log P(target | prompt)."""
        self._check_budget()
        started = time.perf_counter()
        request = ScoreRequest(prompt, target, end_of_turn, self._priority(), self.question.id)
        reply = await self.generator.score(request)
        seconds = time.perf_counter() - started
        step = ScoreStep(role, path, reply.sum, len(reply.token_ids), reply.usage, reply.shortening, seconds)
        self._note(step, reply.usage)
        return reply

    async def search(self, query: str, *, k: int, path: str = "") -> tuple[Hit, ...]:
        """Return up to k hits, best first. A blank query finds nothing and is not asked."""
        if self.retriever is None:
            raise ConfigError(
                "this method searches, but no retriever was given: name one with --retriever.index or --retriever.url."
            )
        started = time.perf_counter()
        hits = tuple(await self.retriever.search(query, k)) if query.strip() else ()
        self._note(SearchStep(query, path, k, hits, time.perf_counter() - started))
        return hits

    def _priority(self) -> int:
        """Deeper questions go first: they finish early, while their prefix is still in the cache."""
        return -len(self.steps)

    def _check_budget(self) -> None:
        if self.left == 0:
            raise BudgetExhaustedError(f"question '{self.question.id}' has spent its {self.budget} tokens.")

    def _note(self, step: Step, usage: TokenUsage | None = None) -> None:
        self.steps.append(step)
        if usage is not None and not isinstance(step, SearchStep):
            self.ledger[step.role] = self.ledger.get(step.role, TokenUsage()) + usage
        if self.watch is not None:
            self.watch(step)
