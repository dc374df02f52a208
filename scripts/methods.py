"""The methods by name, with their options: the one list that commands, tables and documents go by."""

# ruff: noqa: RUF009 - _method returns a dataclass field, as dataclasses.field does

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

from baselines.closed_book import ClosedBookConfig, closed_book
from baselines.one_step import OneStepConfig, one_step
from corag.config import CoRAGConfig
from corag.method import corag
from core.errors import ConfigError, nearest
from core.method import MethodConfig
from core.runner import Method
from core.tools import Tools
from core.types import Answer, Question
from ircot.config import IRCoTConfig
from ircot.method import ircot
from scripts.entries import PAGE, Entry, is_own, load_entry, short_name

Options = TypeVar("Options", bound=MethodConfig)


def _method(
    function: Callable[[Question, Tools, Options], Awaitable[Answer]], config: type[Options], summary: str
) -> Options:
    """Declare a method: the field holds its options, and what else there is to know of it stands beside the field."""
    return field(default_factory=config, metadata={"entry": Entry(function, config, summary)})


@dataclass(frozen=True)
class MethodOptions:
    """Options of every method, each in a section of its own. A new method needs a line here and nothing else."""

    closed_book: ClosedBookConfig = _method(
        closed_book, ClosedBookConfig, "the model's own knowledge, no retrieval (NoR)"
    )
    one_step: OneStepConfig = _method(one_step, OneStepConfig, "retrieve once with the question, then read (OneR)")
    corag: CoRAGConfig = _method(
        corag,
        CoRAGConfig,
        "chains of sub-queries and sub-answers: greedy, best of N, tree, adaptive (Wang et al. 2025)",
    )
    ircot: IRCoTConfig = _method(
        ircot, IRCoTConfig, "interleave retrieval with a chain of thought, then read (Trivedi et al. 2023)"
    )

    EXTENDED_BY: ClassVar[str] = "method"

    @classmethod
    def extended(cls, named: Sequence[str]) -> type[MethodOptions]:
        """Return this class with a section more for each method of the user's own among those that were named.

        Raises :class:`ConfigError` if one cannot be loaded, or its name is taken.
        """
        options: type[MethodOptions] = cls
        for name in filter(is_own, named):
            options = _with_method(options, short_name(name), load_entry(name))
        return options

    def entry(self, name: str) -> Entry:
        """Return what there is to know of a method."""
        return methods_of(type(self))[name]

    def of(self, name: str) -> MethodConfig:
        """Return the options of one method."""
        config: Any = getattr(self, name)
        assert isinstance(config, MethodConfig)
        return config


def methods_of(options: type[MethodOptions]) -> Mapping[str, Entry]:
    """Return the methods that a class of options has sections for, by name."""
    return {section.name: section.metadata["entry"] for section in fields(options) if "entry" in section.metadata}


METHODS = methods_of(MethodOptions)


def _with_method(options: type[MethodOptions], name: str, entry: Entry) -> type[MethodOptions]:
    known = methods_of(options)
    if known.get(name) == entry:
        return options
    if name in known or hasattr(options, name) or name in {section.name for section in fields(options)}:
        raise ConfigError(
            f"your method '{name}' has the name of another {'method' if name in known else 'option'}: rename its function, "
            "for its options are called after it."
        )
    section = (name, entry.config, field(default_factory=entry.config, metadata={"entry": entry}))
    named_alike = {"__doc__": options.__doc__, "__module__": options.__module__}
    extended = make_dataclass(options.__name__, [section], bases=(options,), frozen=True, namespace=named_alike)
    return cast("type[MethodOptions]", extended)


def check_names(names: Sequence[str], known: Mapping[str, Entry] = METHODS) -> None:
    """Raise :class:`ConfigError` for a name that is not a method's, or an empty list."""
    if not names:
        raise ConfigError(f"no method was named: give --method one or more of {', '.join(known)}.")
    for name in names:
        if name not in known:
            raise ConfigError(
                f"there is no method '{name}': {nearest(name, known)} (A method of your own: FILE.py:FUNCTION, see {PAGE}.)"
            )


def bind(name: str, options: MethodOptions) -> Method:
    """Return the method as a function of question and tools."""
    return partial(options.entry(name).function, config=options.of(name))
