"""The methods by name, with their options: the one list that commands, tables and documents go by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from baselines.closed_book import ClosedBookConfig, closed_book
from baselines.one_step import OneStepConfig, one_step
from corag.config import CoRAGConfig
from corag.method import corag
from core.errors import ConfigError, nearest
from core.method import MethodConfig
from core.runner import Method
from core.types import Answer
from ircot.config import IRCoTConfig
from ircot.method import ircot


@dataclass(frozen=True, slots=True)
class Entry:
    """A method: its algorithm, one line about it, and whether it searches."""

    function: Callable[..., Awaitable[Answer]]
    summary: str
    searches: bool = True


METHODS = {
    "closed_book": Entry(closed_book, "the model's own knowledge, no retrieval (NoR)", searches=False),
    "one_step": Entry(one_step, "retrieve once with the question, then read (OneR)"),
    "corag": Entry(
        corag, "chains of sub-queries and sub-answers: greedy, best of N, tree, adaptive (Wang et al. 2025)"
    ),
    "ircot": Entry(ircot, "interleave retrieval with a chain of thought, then read (Trivedi et al. 2023)"),
}


@dataclass(frozen=True)
class MethodOptions:
    """Options of every method, each in a section of its own.

    Attributes:
        closed_book: options of closed-book answering.
        one_step: options of one-step retrieval.
        ircot: options of IRCoT.
        corag: options of CoRAG.
    """

    closed_book: ClosedBookConfig = field(default_factory=ClosedBookConfig)
    one_step: OneStepConfig = field(default_factory=OneStepConfig)
    ircot: IRCoTConfig = field(default_factory=IRCoTConfig)
    corag: CoRAGConfig = field(default_factory=CoRAGConfig)

    def of(self, name: str) -> MethodConfig:
        """Return the options of one method."""
        config: Any = getattr(self, name)
        assert isinstance(config, MethodConfig)
        return config


def check_names(names: list[str]) -> None:
    """Raise :class:`ConfigError` for a name that is not a method's, or an empty list."""
    if not names:
        raise ConfigError(f"no method was named: give --method one or more of {', '.join(METHODS)}.")
    for name in names:
        if name not in METHODS:
            raise ConfigError(f"there is no method '{name}': {nearest(name, METHODS)}")


def bind(name: str, options: MethodOptions) -> Method:
    """Return the method as a function of question and tools."""
    return partial(METHODS[name].function, config=options.of(name))
