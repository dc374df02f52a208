"""The work on a question, and who does it: a seam between a run, which writes, and those who answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from core.protocols import (
    Ability,
    GenerateRequest,
    Generation,
    Generator,
    Retriever,
    Score,
    ScoreRequest,
)
from core.runner import Method, answer_question
from core.runs.rows import Row
from core.tools import Tools
from core.types import Question


class Described(Protocol):
    """A model or an index, wherever it is open, as far as a run's settings name it."""

    @property
    def fingerprint(self) -> str:
        """Identify it: see :class:`core.protocols.Generator` and :class:`core.protocols.Retriever`."""
        ...


@dataclass(frozen=True)
class Elsewhere:
    """A model or an index that is open in other processes. ``lacks``: abilities that the model has not."""

    fingerprint: str
    lacks: Collection[Ability] = ()


class NoModel:
    """In the place of a model, where none is asked: searching needs none."""

    fingerprint = ""

    def count_tokens(self, text: str) -> int:
        """Fail: there are no tokens without a model."""
        raise TypeError("a model was asked to count tokens, but none is open.")

    async def generate(self, request: GenerateRequest) -> Generation:
        """Fail."""
        raise TypeError("a model was asked to go on with a prompt, but none is open.")

    async def score(self, request: ScoreRequest) -> Score:
        """Fail."""
        raise TypeError("a model was asked for a score, but none is open.")

    async def close(self) -> None:
        """Do nothing."""


class Work(Protocol):
    """What is to be done with each question of a run.

    Whoever does it may be another process, so it can be pickled, and what comes of it depends on nothing but
    the question, the model and the index.
    """

    async def __call__(self, question: Question, generator: Generator, retriever: Retriever | None) -> Row:
        """Return the question's row, with its error if it failed.

        Raises :class:`core.errors.BackendError` and :class:`core.errors.ConfigError`, as
        :func:`core.runner.answer_question` does.
        """
        ...


@dataclass(frozen=True)
class Answering:
    """Answer with a method. ``shared``: what the questions of a run share; only within one process."""

    method: Method
    seed: int = 0
    budget: int = 0
    keep_prompts: bool = False
    shared: object | None = None

    async def __call__(self, question: Question, generator: Generator, retriever: Retriever | None) -> Row:
        """Answer one question."""
        tools = Tools(
            question,
            generator,
            retriever,
            seed=self.seed,
            budget=self.budget,
            keep_prompts=self.keep_prompts,
            shared=self.shared,
        )
        return await answer_question(question, self.method, tools)


class Workforce(Protocol):
    """Those who work on the questions of a run, with a model and an index that are open."""

    @property
    def model(self) -> Described:
        """The model that they ask."""
        ...

    @property
    def index(self) -> Described | None:
        """What they search, if anything."""
        ...

    @property
    def shares_nothing(self) -> bool:
        """Whether they are several, so that questions cannot share anything."""
        ...

    def doing(self, work: Work) -> Callable[[Question], Any]:
        """Return the coroutine function that has the work done on a question, for ``answer_all``."""
        ...

    def in_flight(self, batch_size: int) -> int:
        """Return how many questions all of them work on at once, with ``batch_size`` for each engine."""
        ...

    def noted(self) -> Mapping[str, Any]:
        """Return what a run's manifest tells of them, nothing if it is this process."""
        ...

    def said(self) -> str:
        """Say how busy each is, for a line of progress; "" if there is nothing to say."""
        ...


class ThisProcess:
    """A model and an index that are open here."""

    shares_nothing = False

    def __init__(self, model: Generator, index: Retriever | None) -> None:
        self.model = model
        self.index = index

    def doing(self, work: Work) -> Callable[[Question], Any]:
        """Return the work, bound to model and index."""

        async def one(question: Question) -> Row:
            return await work(question, self.model, self.index)

        return one

    def in_flight(self, batch_size: int) -> int:
        """Return the same: there is one engine."""
        return batch_size

    def noted(self) -> Mapping[str, Any]:
        """Return nothing: the manifest tells of this machine anyway."""
        return {}

    def said(self) -> str:
        """Say nothing."""
        return ""
