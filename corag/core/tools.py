"""What a method has for a question: generate, score, search. It sees to seeds, ledger, budget and trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import index
from typing import Any, ClassVar, TypeVar, cast

from corag.core.errors import BudgetExhaustedError, ConfigError, DataError
from corag.core.gather import gather
from corag.core.language.text import strip_question_words
from corag.core.passages_read import PassagesRead
from corag.core.prompting.prompt import Prompt, Shortening, as_prompt
from corag.core.prompting.shorten import shorten, token_bound
from corag.core.protocols import (
    CachedHits,
    GenerateRequest,
    Generation,
    Generator,
    Retriever,
    Sampling,
    Score,
    ScoreRequest,
    search_note,
)
from corag.core.seeds import derive_seed
from corag.core.types import MEASURING, NOTHING_SPENT, THINKING, Hit, Passage, Question, TokenUsage, sum_usage

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class GenerateStep:
    """A finished generation. ``path`` is its place in the method, such as "chain 3/hop 2".

    Of every step: ``kind``, its name in the trace; ``started``, seconds since the question was begun;
    ``seconds`` of waiting from then on. ``thinking``: what thoughts before the texts cost, which stand in the
    ledger under :data:`THINKING`; ``thoughts_cut``: how many reached the end of their budget; ``thoughts``:
    them, where prompts are stored too.
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
    thinking: TokenUsage = NOTHING_SPENT
    thoughts_cut: int = 0
    thoughts: tuple[str, ...] = ()


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

    ``remembered``: an equal one had found it already, or was about to. ``note``: what the method says of
    the query and the retriever of the search, such as that it was shortened; "" for nothing.
    """

    kind: ClassVar[str] = "search"
    query: str
    path: str
    k: int
    hits: tuple[Hit, ...]
    seconds: float
    started: float = 0.0
    remembered: bool = False
    note: str = ""


Step = GenerateStep | ScoreStep | SearchStep


@dataclass
class Tools:
    """The only way for a method to reach a model or an index. One instance serves one question.

    A method that may be given a budget says in a line what it wants of it: :meth:`fan_out` for what goes on
    at the same time, :meth:`reserve` around what must leave enough for a later call, :meth:`afford` for a
    prompt that may lose demonstrations or passages. Without a budget none of them even counts a token.

    Args:
        question: the one that is answered.
        generator: the model.
        retriever: the index; None for methods that do not search.
        seed: the run's; those of sampled calls are derived from it.
        budget: most tokens, prompt plus generated, that the question may spend; 0 for no limit. A call that
            could exceed it is not made and raises :class:`BudgetExhaustedError`.
        watch: sees every step as it finishes.
        watch_answer: sees the final answer so far, as it is written, where a reply is all of it.
        keep_prompts: store prompts in the trace.
        begun: when the question was, by ``time.perf_counter``.
        passages_read: which passages stood in which prompts.
        question_note: what the trace says of every search for the question itself; "" for nothing.
    """

    question: Question
    generator: Generator
    retriever: Retriever | None = None
    seed: int = 0
    budget: int = 0
    watch: Callable[[Step], None] | None = None
    watch_answer: Callable[[str], None] | None = None
    keep_prompts: bool = False
    steps: list[Step] = field(default_factory=list)
    ledger: dict[str, TokenUsage] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)
    passages_read: PassagesRead = field(default_factory=PassagesRead)
    question_note: str = ""
    _sampled_calls: set[tuple[str, str]] = field(default_factory=set)
    _reserved_tokens: int = 0  # tokens held back
    _trunk: Tools | None = None
    _measures: bool = False

    @property
    def spent(self) -> TokenUsage:
        """The sum of the ledger, without what was only measured."""
        return sum_usage(self.ledger)

    @property
    def left(self) -> int | None:
        """Tokens left in the budget, without those held back, never below 0; None without a budget."""
        return max(0, self.budget - self.spent.total - self._reserved_tokens) if self.budget else None

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self.generator.count_tokens(text)

    def cost(self, prompt: Prompt | str, max_tokens: int) -> int:
        """Return the tokens that a call may cost at most: prompt, thoughts and completion."""
        return token_bound(as_prompt(prompt), max_tokens + self.thinking_tokens, self.count_tokens)

    @property
    def thinking_tokens(self) -> int:
        """How many tokens of thoughts a sample may cost before its own."""
        return self.generator.thinking_tokens

    @contextmanager
    def reserve_tokens(self, tokens: int) -> Iterator[None]:
        """Keep tokens of the budget back for what comes after the block."""
        self._reserved_tokens += tokens
        try:
            yield
        finally:
            self._reserved_tokens -= tokens

    @contextmanager
    def reserve(self, prompt: Prompt | str, max_tokens: int) -> Iterator[None]:
        """Keep back what a call after the block may cost, so that it stays affordable.

        ``max_tokens``: of its completion, and of what the block may add to its prompt.
        """
        # Counting costs time, so it waits for a limit.
        with self.reserve_tokens(self.cost(prompt, max_tokens) if self.budget else 0):
            yield

    def afford(self, prompt: Prompt | str, max_tokens: int) -> Prompt:
        """Leave out whole segments by rising ``drop`` until the budget allows the call, or no more may go.

        A prompt that is still too dear is refused when it is asked, as any other.
        """
        prompt, limit = as_prompt(prompt), self.left
        if limit is None:
            return prompt
        smaller_prompt, _ = shorten(
            prompt, lambda smaller: self.cost(smaller, max_tokens) - limit, self.count_tokens
        )
        return smaller_prompt

    def measuring(self) -> Tools:
        """Return tools for what is asked only to be measured, and no answer depends on.

        All of it stands in the ledger under :data:`MEASURING`, and no budget is charged for it.
        """
        apart = replace(self, budget=0, ledger={}, watch_answer=None, _reserved_tokens=0, _trunk=self)
        return replace(apart, _measures=True)

    def branch(self, parts: int, budget: int | None = None) -> list[Tools]:
        """Return tools for ``parts`` branches that go on at the same time, with equal shares of ``budget``.

        Without ``budget`` (in tokens), what is left is shared. What a branch can still afford then does not
        depend on how fast the others are, so results do not either. Steps and spending are noted here too;
        what a branch leaves over is back once it has ended. Until then no call may go through these tools,
        for the branches have it all.
        """
        available = self.left
        total = available if budget is None else budget if available is None else min(budget, available)
        share = 0 if total is None else max(1, total // max(1, parts))  # 0 would be no limit; no call costs 1
        # Of a branch it is not known whether its answer becomes the method's.
        return [
            replace(self, budget=share, ledger={}, watch_answer=None, _reserved_tokens=0, _trunk=self)
            for _ in range(parts)
        ]

    async def fan_out(
        self,
        items: Sequence[Item],
        work: Callable[[Item, Tools], Coroutine[Any, Any, Result]],
        *,
        budget: int | None = None,
    ) -> list[Result]:
        """Do ``work`` on all items at the same time, each with an equal share of what is left; in order.

        ``budget``: share so many tokens instead, as :meth:`branch` does. The first error cancels the others
        and is raised.
        """
        branches = self.branch(len(items), budget)
        return await gather(work(item, branch) for item, branch in zip(items, branches, strict=True))

    async def fan_out_certain(
        self,
        items: Sequence[Item],
        work: Callable[[Item, Tools], Coroutine[Any, Any, Result]],
        cost: Callable[[Item], int],
        *,
        at_least_one: bool = False,
    ) -> list[Result]:
        """Do ``work`` on as many items at a time as the budget is certain to pay for, then on the next.

        For work that is worth nothing when it is cut short: all at once would share a small budget until it
        suffices for none. So it does not matter either which item is done first.

        Args:
            items: what to work on, the most wanted first.
            work: is given an item and its share of the budget. An item that cannot be paid for after all
                (:class:`BudgetExhaustedError`) is left out.
            cost: tokens that the work on an item may cost at most; not asked without a budget.
            at_least_one: until something has come of an item, try the next with all that is left, certain or
                not, and raise :class:`BudgetExhaustedError` if nothing comes of any.

        Returns:
            The results in the items' order, without those left out: from the first that is not certain to be
            affordable on, and those that failed.
        """

        async def attempt(item: Item, branch: Tools) -> tuple[Result, ...]:
            try:
                return (await work(item, branch),)
            except BudgetExhaustedError:
                return ()

        results: list[Result] = []
        rest = items
        while rest and ((count := self._certain(rest, cost)) or (at_least_one and not results)):
            batch, rest = rest[: max(1, count)], rest[max(1, count) :]
            results += [result for attempts in await self.fan_out(batch, attempt) for result in attempts]
        if at_least_one and not results:
            raise BudgetExhaustedError(f"question '{self.question.id}' has too few tokens left to go on.")
        return results

    def _certain(self, items: Sequence[Item], cost: Callable[[Item], int]) -> int:
        """Return how many items, from the first on, equal shares of the budget are certain to pay for."""
        available = self.left
        if available is None:
            return len(items)
        dearest = accumulate(map(cost, items), max)  # shares are equal, so the dearest of them decides
        return sum(number * most <= available for number, most in enumerate(dearest, 1))

    async def generate(
        self,
        prompt: Prompt | str,
        *,
        role: str = "generate",
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
        is_answer: bool = False,
    ) -> Generation:
        """Continue a prompt. A text is a user's turn; a list of messages will do, too.

        ``role``: the call's purpose, under which it stands in the ledger. ``path``: its place in the method,
        such as "chain 3/hop 2"; sampled calls need one of their own, for the seed is derived from question,
        role and path. ``is_answer``: the reply, without white space around it, is the method's answer. The
        rest as in :class:`Sampling`. Segments of the prompt that may go are left out if the window is too
        small.

        Raises:
            BudgetExhaustedError: if it could cost more than is left; it is not made then.
            ValueError: if an earlier sampled call had this role and path.
        """
        prompt = as_prompt(prompt)
        # numpy's numbers will do, a text alone is one stop string
        max_tokens, n, top_k = index(max_tokens), index(n), index(top_k)
        ends = (stop,) if isinstance(stop, str) else tuple(stop)
        seed = self._seed(role, path) if temperature > 0 else None
        sampling = Sampling(
            max_tokens, temperature, top_p, top_k, repetition_penalty, n, ends, logprobs=logprobs, seed=seed,
            special_tokens=special_tokens,
        )  # fmt: skip
        watch = self._watch_of(ends) if is_answer else None
        request = GenerateRequest(prompt, sampling, self._priority(), self.question.id, self.seed, watch)
        start = time.perf_counter()
        with self._allow(prompt, n * (max_tokens + self.thinking_tokens)):
            reply = await self.generator.generate(request)
        step = GenerateStep(
            MEASURING if self._measures else role,
            path,
            tuple(completion.text for completion in reply.completions),
            tuple(completion.finish_reason for completion in reply.completions),
            reply.usage,
            reply.shortening,
            time.perf_counter() - start,
            prompt.text if self.keep_prompts else "",
            start - self.begun,
            reply.thinking,
            reply.thoughts_cut,
            reply.thoughts if self.keep_prompts else (),
        )
        self._note(step, reply.usage, reply.thinking)
        if not self._measures:  # no answer depends on it
            self.passages_read.add_prompt(path, prompt, reply.shortening, self.count_tokens)
        return reply

    def _watch_of(self, stop: Sequence[str]) -> Callable[[str], None] | None:
        """Return what sees a reply grow that is the answer, None if nothing does."""
        show = self.watch_answer
        if show is None:
            return None
        beginnings = [text[:length] for text in stop for length in range(len(text), 0, -1)]

        def show_certain(text: str) -> None:
            # What may become a stop string is held back, for that is no part of the reply.
            lengths = (len(beginning) for beginning in beginnings if text.endswith(beginning))
            show(text[: len(text) - max(lengths, default=0)].strip())

        return show_certain

    async def score(
        self,
        prompt: Prompt | str,
        target: str | tuple[int, ...],
        *,
        role: str = "score",
        end_of_turn: bool = False,
        path: str = "",
    ) -> Score:
        """Return log P(target | prompt), natural logarithm, token by token.

        ``end_of_turn``: the model's end of turn belongs to the target. Raises :class:`BudgetExhaustedError`
        if it could cost more than is left.
        """
        prompt = as_prompt(prompt)
        if not isinstance(cast("object", target), str | tuple):
            raise DataError(f"tools.score takes a text as its target, but was given {target!r:.80}.")
        start = time.perf_counter()
        request = ScoreRequest(prompt, target, end_of_turn, self._priority(), self.question.id, self.seed)
        with self._allow(prompt, len(target) if isinstance(target, tuple) else self.count_tokens(target) + 1):
            reply = await self.generator.score(request)
        step = ScoreStep(
            MEASURING if self._measures else role,
            path,
            reply.sum,
            len(reply.token_ids),
            reply.usage,
            reply.shortening,
            time.perf_counter() - start,
            start - self.begun,
        )
        self._note(step, reply.usage)
        return reply

    async def search(
        self, query: str | Question, *, k: int, path: str = "", note: str = ""
    ) -> tuple[Hit, ...]:
        """Return up to k hits, best first. A blank query finds nothing and is not asked.

        Of a question its text is searched for. ``note``: what a reader of the trace should know of the query,
        such as what the method left out of it. What is not the question itself, with or without its question
        words, is asked on the way: a retriever may have an encoder of its own for it.

        Raises :class:`ConfigError` without a retriever, :class:`SearchFailedError` if it fails.
        """
        if self.retriever is None:
            raise ConfigError(
                "this method searches, but no retriever was given: name one with 'retriever.index' or "
                "'retriever.url'."
            )
        query = query.text if isinstance(query, Question) else query
        if not isinstance(cast("object", query), str):
            raise DataError(f"tools.search takes a text or a question, but was given {query!r:.80}.")
        if (k := index(k)) < 1:
            raise DataError(f"k of tools.search must be 1 or more, but it is {k}.")
        start = time.perf_counter()
        # Not by counting searches: branches search at the same time, so their order is no two runs' same.
        hop = not self._is_question(query)
        result = await self.retriever.search(query, k, hop) if query.strip() else ()
        hits, is_remembered = tuple(result), isinstance(result, CachedHits)
        self.passages_read.add_passages(hit.passage for hit in hits)
        self.passages_read.add_query(path, query)
        seconds = time.perf_counter() - start
        question_note = "" if hop else self.question_note
        notes = "; ".join(filter(None, (question_note, note, search_note(result))))
        self._note(SearchStep(query, path, k, hits, seconds, start - self.begun, is_remembered, notes))
        return hits

    def _is_question(self, query: str) -> bool:
        """Whether a query is the question itself, with or without its question words."""
        return query in (self.question.text, strip_question_words(self.question.text))

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        names = tuple(ids)
        passages = () if self.retriever is None else await self.retriever.passages(names)
        self.passages_read.add_passages(passages)
        return passages

    def _seed(self, role: str, path: str) -> int:
        """Derive the seed of a sampled call from its place."""
        # Equal paths would mean equal seeds: "two samples" that are one and the same.
        if (role, path) in self._sampled_calls:
            raise ValueError(
                f"two sampled calls share role '{role}' and path '{path}': they would draw the same samples."
            )
        self._sampled_calls.add((role, path))
        return derive_seed(self.seed, self.question.id, role, path)

    def _priority(self) -> int:
        """Deeper questions go first: they finish early, while their prefix is still in the cache."""
        # Branches share the list of steps, so a question's chains count together.
        return -len(self.steps)

    @contextmanager
    def _allow(self, prompt: Prompt, max_tokens: int) -> Iterator[None]:
        """Hold back what a call may cost until it is noted.

        Raises :class:`BudgetExhaustedError` if that is not left.
        """
        if not self.budget:  # counting tokens takes time, so only a budget is counted for
            yield
            return
        cost = token_bound(prompt, max_tokens, self.count_tokens)
        if cost > (self.left or 0):
            raise BudgetExhaustedError(
                f"question '{self.question.id}' has {self.left} of its {self.budget} tokens left; a call may "
                f"cost {cost}."
            )
        with self.reserve_tokens(cost):
            yield

    def _note(
        self, step: Step, usage: TokenUsage | None = None, thinking: TokenUsage = NOTHING_SPENT
    ) -> None:
        self.steps.append(step)
        if usage is not None and not isinstance(step, SearchStep):
            self._pay(step.role, usage)
            if thinking != NOTHING_SPENT:
                self._pay(MEASURING if self._measures else THINKING, thinking)
        if self.watch is not None:
            self.watch(step)

    def _pay(self, role: str, usage: TokenUsage) -> None:
        payer: Tools | None = self  # a branch, its trunk, and so on down
        while payer is not None:
            payer.ledger[role] = payer.ledger.get(role, TokenUsage()) + usage
            payer = payer._trunk
