"""A task for each question of a run, and the executor that runs it: the run itself only writes rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from corag.core.protocols import (
    Ability,
    CachedHits,
    GenerateRequest,
    Generation,
    Generator,
    GeneratorStage,
    NotedHits,
    Retriever,
    Score,
    ScoreRequest,
    search_note,
)
from corag.core.runner import BoundMethod, answer_question
from corag.core.runs.rows import Row
from corag.core.tools import Tools
from corag.core.types import Hit, Passage, Question
from eval.experiment.progress import Work

Reply = TypeVar("Reply", Generation, Score)


class HasFingerprint(Protocol):
    """A model or an index, open here or elsewhere, as far as a run's settings name it."""

    @property
    def fingerprint(self) -> str:
        """Identify it: see :class:`Generator` and :class:`Retriever`."""
        ...


@dataclass(frozen=True)
class RemoteHandle:
    """A model or an index that is open in other processes.

    ``lacks``: abilities that a model has not. ``has_parts``: as an index's
    :attr:`retrieval.search.stage.SearchStage.has_parts`.
    """

    fingerprint: str
    lacks: Collection[Ability] = ()
    name: str = ""
    has_parts: bool = False


class NoModel(Generator):
    """Stands in for a model where only the index is used."""

    def count_tokens(self, text: str) -> int:
        """Fail: there are no tokens without a model."""
        raise TypeError("a model was asked to count tokens, but none is open.")

    async def generate(self, request: GenerateRequest) -> Generation:
        """Fail."""
        raise TypeError("a model was asked to go on with a prompt, but none is open.")


class QuestionTask(Protocol):
    """What an executor does with each question of a run.

    It may run in another process. So it can be pickled, and its row depends on nothing but the question, the
    model and the index.
    """

    async def __call__(self, question: Question, generator: Generator, retriever: Retriever | None) -> Row:
        """Return the question's row, with the error if it failed.

        Raises :class:`corag.core.errors.BackendError` and :class:`corag.core.errors.ConfigError`, as
        :func:`corag.core.runner.answer_question` does.
        """
        ...


class WithoutPassage:
    """A retriever as if one passage were not in its index."""

    def __init__(self, retriever: Retriever, identity: str) -> None:
        """``identity``: the id of the passage that is not to be found."""
        self.fingerprint = f"{retriever.fingerprint} without {identity}"
        self._retriever, self._id = retriever, identity

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k other hits, best first."""
        hits = await self._retriever.search(query, k + 1, hop)
        others = [hit for hit in hits if hit.passage.id != self._id][:k]
        kind = CachedHits if isinstance(hits, CachedHits) else NotedHits
        return kind(others, search_note(hits))

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._retriever.passages([name for name in ids if name != self._id])

    async def close(self) -> None:
        """Do nothing: the retriever is others' too."""


@dataclass(frozen=True)
class AnswerTask:
    """Answers with a method. ``seed``, ``budget`` and ``keep_prompts``: see :class:`Tools`.

    ``leave_out_self``: a question does not find the passage that has its own id.
    """

    method: BoundMethod
    seed: int = 0
    budget: int = 0
    keep_prompts: bool = False
    leave_out_self: bool = False

    async def __call__(self, question: Question, generator: Generator, retriever: Retriever | None) -> Row:
        """Return the row of one question."""
        if retriever is not None and self.leave_out_self:
            retriever = WithoutPassage(retriever, question.id)
        tools = Tools(
            question,
            generator,
            retriever,
            seed=self.seed,
            budget=self.budget,
            keep_prompts=self.keep_prompts,
        )
        return await answer_question(question, self.method, tools)


class Executor(Protocol):
    """Runs a task for each question, with a model and an index that are open."""

    @property
    def model(self) -> Generator | RemoteHandle:
        """The model that tasks are given."""
        ...

    @property
    def index(self) -> HasFingerprint | None:
        """The index that tasks are given, None if nothing is searched."""
        ...

    def bind(self, task: QuestionTask, work: Work) -> Callable[[Question], Awaitable[Row]]:
        """Return the function that :func:`corag.core.runner.answer_all` calls with each question.

        ``work`` is kept up to date, if the calls can be seen from this process.
        """
        ...

    def in_flight(self, batch_size: int) -> int:
        """Return how many questions are in flight in total, with ``batch_size`` for each engine."""
        ...

    def manifest_entry(self) -> Mapping[str, Any]:
        """Return what a run's manifest records of the workers, nothing for this process."""
        ...

    def status(self) -> str:
        """Return how busy each worker is, for a line of progress; "" for nothing."""
        ...


class _CountedGenerator(GeneratorStage):
    """A model whose replies are counted as they come."""

    def __init__(self, inner: Generator, work: Work) -> None:
        super().__init__(inner)
        self._work = work

    async def generate(self, request: GenerateRequest) -> Generation:
        """Go on with a prompt."""
        reply = self._count(await self._inner.generate(request))
        self._work.tokens += reply.thinking.computed
        return reply

    async def score(self, request: ScoreRequest) -> Score:
        """Score a continuation."""
        return self._count(await self._inner.score(request))

    def _count(self, reply: Reply) -> Reply:
        self._work.calls += 1
        self._work.tokens += reply.usage.computed
        return reply


class LocalExecutor:
    """Runs tasks in this process, with a model and an index that are open in it."""

    def __init__(self, model: Generator, index: Retriever | None) -> None:
        self.model = model
        self.index = index

    def bind(self, task: QuestionTask, work: Work) -> Callable[[Question], Awaitable[Row]]:
        """Return the task with its model and index."""
        return partial(task, generator=_CountedGenerator(self.model, work), retriever=self.index)

    def in_flight(self, batch_size: int) -> int:
        """Return ``batch_size``: there is one engine."""
        return batch_size

    def manifest_entry(self) -> Mapping[str, Any]:
        """Return nothing: a manifest describes this machine anyway."""
        return {}

    def status(self) -> str:
        """Return nothing: the line of progress itself tells how busy this process is."""
        return ""
