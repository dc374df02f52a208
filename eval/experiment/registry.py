"""The methods by name, with their options: the one list that commands, tables and documents go by."""

# ruff: noqa: RUF009 - _method returns a dataclass field, as dataclasses.field does

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

from baselines.auto_rag import AutoRAGConfig, auto_rag
from baselines.closed_book import ClosedBookConfig, closed_book
from baselines.drag import DRAGConfig, drag
from baselines.flare import FLAREConfig, flare
from baselines.iter_retgen import IterRetGenConfig, iter_retgen
from baselines.iterdrag import IterDRAGConfig, iterdrag
from baselines.longrag import LongRAGConfig, longrag
from baselines.one_step import OneStepConfig, one_step
from baselines.react import ReActConfig, react
from baselines.recursive.config import RecursiveConfig
from baselines.recursive.method import recursive
from baselines.search_o1 import SearchO1Config, search_o1
from baselines.self_ask import SelfAskConfig, self_ask
from baselines.self_rag.method import SelfRAGConfig, self_rag
from baselines.self_rag.prompted import SelfRAGPromptedConfig, self_rag_prompted
from corag.config import CoRAGConfig
from corag.method import corag
from core.errors import ConfigError, nearest
from core.method import MethodConfig
from core.option_names import choices_of, respelt
from core.runner import Method
from core.runs.manifest import CHAINS, VERDICTS
from core.tools import Tools
from core.types import Answer, Question
from eval.experiment import extensions  # noqa: F401 - a method's own ways to search are known where it is
from eval.experiment.own_methods import PAGE, Entry, is_own, load_entry, short_name
from ircot.method import IRCoTConfig, ircot

Options = TypeVar("Options", bound=MethodConfig)


def _method(
    function: Callable[[Question, Tools, Options], Awaitable[Answer]], config: type[Options], summary: str
) -> Options:
    """Declare a method: the field holds its options, and beside it stands what else there is to know."""
    return field(default_factory=config, metadata={"entry": Entry(function, config, summary)})


@dataclass(frozen=True)
class MethodOptions:
    """Options of every method, each in a section of its own.

    A new method needs a line here and nothing else.
    """

    closed_book: ClosedBookConfig = _method(
        closed_book, ClosedBookConfig, "the model's own knowledge, no retrieval (NoR)"
    )
    one_step: OneStepConfig = _method(
        one_step, OneStepConfig, "retrieve once with the question, then read (OneR)"
    )
    corag: CoRAGConfig = _method(
        corag,
        CoRAGConfig,
        "chains of sub-queries and sub-answers: greedy, best of N, tree, adaptive (Wang et al. 2025)",
    )
    ircot: IRCoTConfig = _method(
        ircot, IRCoTConfig, "interleave retrieval with a chain of thought, then read (Trivedi et al. 2023)"
    )
    self_ask: SelfAskConfig = _method(
        self_ask,
        SelfAskConfig,
        "ask follow-up questions and search for their answers (Self-Ask: Press et al. 2023)",
    )
    react: ReActConfig = _method(
        react, ReActConfig, "think, then search, look up or finish, step by step (ReAct: Yao et al. 2023)"
    )
    iter_retgen: IterRetGenConfig = _method(
        iter_retgen,
        IterRetGenConfig,
        "search again with the last chain of thought and the question (ITER-RETGEN: Shao et al. 2023)",
    )
    flare: FLAREConfig = _method(
        flare,
        FLAREConfig,
        "draft each sentence, search where it is unsure, write it again (FLARE: Jiang et al. 2023)",
    )
    self_rag: SelfRAGConfig = _method(
        self_rag,
        SelfRAGConfig,
        "a model with reflection tokens decides, judges and searches (Self-RAG: Asai et al. 2024)",
    )
    self_rag_prompted: SelfRAGPromptedConfig = _method(
        self_rag_prompted,
        SelfRAGPromptedConfig,
        "Self-RAG's decisions asked of any instruction model in prompts (after Asai et al. 2024)",
    )
    auto_rag: AutoRAGConfig = _method(
        auto_rag,
        AutoRAGConfig,
        "the model decides turn by turn what to search for (Auto-RAG: Yu et al. 2024)",
    )
    search_o1: SearchO1Config = _method(
        search_o1,
        SearchO1Config,
        "search in the middle of the reasoning, insert what documents tell (Search-o1: Li et al. 2025)",
    )
    drag: DRAGConfig = _method(
        drag,
        DRAGConfig,
        "many documents and demonstrations in one prompt, within a budget (DRAG: Yue et al. 2024)",
    )
    iterdrag: IterDRAGConfig = _method(
        iterdrag,
        IterDRAGConfig,
        "DRAG with sub-queries whose documents stay in the prompt (IterDRAG: Yue et al. 2024)",
    )
    longrag: LongRAGConfig = _method(
        longrag,
        LongRAGConfig,
        "few long units of related passages, read in two turns (LongRAG: Jiang et al. 2024)",
    )
    recursive: RecursiveConfig = _method(
        recursive,
        RecursiveConfig,
        "follow references, ask what is missing, or decompose; the model chooses (a tutorial, 2023)",
    )

    EXTENDED_BY: ClassVar[str] = "method"

    @classmethod
    def extended(cls, named: Sequence[str]) -> type[MethodOptions]:
        """Return this class with a section more for each method that was named and is the user's own.

        Raises :class:`ConfigError` if one cannot be loaded, or its name is taken.
        """
        options: type[MethodOptions] = cls
        for name in filter(is_own, named):
            options = with_method(options, short_name(name), load_entry(name))
        return options

    @classmethod
    def unchosen(cls, named: Sequence[str]) -> set[str]:
        """Return the methods that were not named: help and hints pass them over."""
        known = methods_of(cls)
        default = next((each.default_factory for each in fields(cls) if each.name == "method"), None)
        chosen = named or (default() if callable(default) else ())
        return set(known) - {called(short_name(name), known) for name in chosen}

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
    return {
        section.name: section.metadata["entry"] for section in fields(options) if "entry" in section.metadata
    }


METHODS = methods_of(MethodOptions)
"""The methods of the house by name, in the order in which lists and help show them."""


def with_method(options: type[MethodOptions], name: str, entry: Entry) -> type[MethodOptions]:
    """Return a class of options with a section for one more method, or as it is if it has it.

    Raises :class:`ConfigError` if the name is taken by something else.
    """
    known = methods_of(options)
    if known.get(name) == entry:
        return options
    if (
        name in known
        or name in (CHAINS, VERDICTS)
        or hasattr(options, name)
        or name in {section.name for section in fields(options)}
    ):
        raise ConfigError(
            f"your method '{name}' has the name of another "
            f"{'method' if name in known else 'option or kind of run'}: rename its function, for its options "
            "are called after it."
        )
    # Called as the class that it extends, which is what --help and messages show.
    section = (name, entry.config, field(default_factory=entry.config, metadata={"entry": entry}))
    named_alike = {"__doc__": options.__doc__, "__module__": options.__module__}
    extended = make_dataclass(
        options.__name__, [section], bases=(options,), frozen=True, namespace=named_alike
    )
    return cast("type[MethodOptions]", extended)


def called(name: str, known: Mapping[str, Entry] = METHODS) -> str:
    """Return what a method is called here; a name that is nobody's comes back as it is.

    >>> called("basic-rag"), called("self-ask"), called("irct")
    ('one_step', 'self_ask', 'irct')
    """
    plain = name.replace("-", "_")
    others = {other: here for here, entry in known.items() for other in entry.config.ALSO_CALLED}
    return next((here for here in (name, plain, others.get(plain, "")) if here in known), name)


def check_names(names: Sequence[str], known: Mapping[str, Entry] = METHODS) -> None:
    """Raise :class:`ConfigError` for a name that is not a method's, or an empty list."""
    if not names:
        raise ConfigError(f"no method was named: give --method one or more of {', '.join(known)}.")
    for name in names:
        if name not in known:
            raise ConfigError(
                f"there is no method '{name}': {_kind_of_method(name, known) or nearest(name, known)} "
                f"(A method of your own: FILE.py:FUNCTION, see {PAGE}.)"
            )


def _kind_of_method(name: str, known: Mapping[str, Entry]) -> str:
    """Say whose option has this name as a value, if it tells runs apart as if they were methods."""
    for method, entry in known.items():
        for option in entry.config.GROUPED_BY:
            if (value := respelt(option, name, entry.config)) in choices_of(option, entry.config):
                return f"write --method {method} --{method}.{option} {value}."
    return ""


def bind(name: str, options: MethodOptions) -> Method:
    """Return the method as a function of question and tools."""
    return partial(options.entry(name).function, config=options.of(name))
