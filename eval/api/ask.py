"""One question, from Python: ``ask`` answers it and returns an object that shows how."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from textwrap import shorten
from typing import Any

from rich.console import Console, Group
from rich.text import Text
from rich.tree import Tree

from corag.core.errors import ConfigError, nearest
from corag.core.language.text import printable
from corag.core.method import Method, MethodConfig
from corag.core.protocols import Retriever
from corag.core.runner import BoundMethod, answer_question
from corag.core.runs.rows import Row, SavedAnswer, SavedRow
from corag.core.support import drop_same_location
from corag.core.system.files import read_anew
from corag.core.tools import SearchStep, Step, Tools
from corag.core.types import Answer, Passage, Question
from corag.generation.config import ModelConfig
from eval.api.arguments import one_question, with_keywords
from eval.api.background import waits
from eval.api.drawing import draw_steps
from eval.api.opened import Index, Model
from eval.api.own_objects import takes_own_objects
from eval.experiment.backends import check_model
from eval.experiment.own_methods import is_method, is_own, load_method, make_method, short_name
from eval.experiment.prompts import AskSetup, Prompts
from eval.experiment.registry import METHODS, canonical_name, check_names
from eval.report.traces import describe_computation
from eval.tables.runs import Run
from retrieval.config import RetrieverConfig

Function = Callable[..., Awaitable[Answer]]
"""A method: ``async def method(question, tools, config) -> Answer``, or without ``config``."""
AnyMethod = Function | Method | str
"""A method's function, all that there is to know of one, or the name of a shipped one."""

COLUMNS = 110  # where there is no terminal
SOURCES_SHOWN = 5
NO_INDEX = (
    "{} searches, but there is no index: open one with open_index (build_index makes one), and give it after "
    "the model."
)


class Answered:
    """What a method made of one question.

    ``print`` shows its steps as a tree; a notebook shows the same in colour.

    Attributes:
        question: the question.
        method: the method's name.
        text: the answer, "" if the method failed.
        answer: the method's own result, with the fields that its class documents; None if it failed.
        error: why it failed, "" if it did not.
        passages: every passage that the method collected, in the order of collection.
        read: the passages whose text stood in a prompt that led to the answer, those first that
            carry it.
        citations: the sentences of an answer that cites passages, each with what is wrong with it.
        steps: every generation, scoring and search, in the order in which they ended.
        calls: of the model.
        tokens: prompt plus generated, as papers count them; printed with ~ where some are estimated.
        computed_tokens: what the engine really worked through.
        seconds: from the first call to the answer.
    """

    def __init__(
        self,
        method: str,
        row: Row | SavedRow,
        passages: Sequence[Passage],
        read_passages: Sequence[Passage] = (),
        refusal: str = "",
    ) -> None:
        """``refusal``: the method's option of that name, "" if it has none."""
        self.method = method
        self.question = row.question.text
        self.answer: Answer | SavedAnswer | None = row.answer
        self.text = row.answer.text if row.answer else ""
        self.error = row.error
        self.passages = tuple(passages)
        self.read = tuple(read_passages)
        self.citations = row.citations
        self._cited = _cited_passages(row, {each.id: each for each in (*read_passages, *passages)})
        self.steps: tuple[Step, ...] = row.steps
        self.calls = row.total_usage.calls
        self.tokens = row.total_usage.total
        self.computed_tokens = row.total_usage.computed
        self.seconds = row.seconds
        self._has_estimates = bool(row.total_usage.estimated)
        self._refusal = refusal

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The fields of the method's result, by the names that papers and their code have for them.

        Of every method ``steps`` and ``chunk_ids`` (all that was retrieved), of IRCoT ``cot_sentences``, of
        CoRAG ``chains``, of recursive RAG ``retrieval_path``, ``references_found``, ``depth`` and
        ``context_length``.
        """
        if self.answer is None:
            return {"error": self.error}
        fields = fields_of(self.answer)
        return fields | {"chunk_ids": fields.get("retrieved_ids", self.answer.passage_ids)}

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the answer may be looked up: passages by title, file and page, each once.

        Those that were read for it come first, those that carry it before the others; then what else was
        collected. Of a file and page the first passage alone is named.
        """
        return _citations((*self.read, *self.passages))

    def ending(self) -> list[Text]:
        """Say the answer, its sources, and what it cost: a line each; or why it failed."""
        if self.answer is None:
            first, *traceback = map(printable, self.error.strip().splitlines())
            return [Text(f"failed: {first}", style="red"), *(Text(line, style="dim") for line in traceback)]
        rule, tilde = (
            describe_computation(self.metadata),
            "~" if self._has_estimates else "",
        )  # as tables have it
        return [
            Text.assemble(("answer   ", "bold green"), printable(self.text) or "(an empty answer)"),
            *[Text(f"computed {printable(rule)}", style="dim")] * bool(rule),
            *[
                Text.assemble(("doubt    ", "yellow"), printable(f"{claim.text} ({claim.fault})"))
                for claim in self.citations
                if claim.fault
            ],
            *[Text(f"sources  {printable(self._name_sources())}", style="dim")] * bool(self.sources),
            Text(
                f"cost     {self.calls} call{'s'[: self.calls != 1]}, {tilde}{self.tokens:,} tokens "
                f"({tilde}{self.computed_tokens:,} computed), {self.seconds:.1f} s; "
                f"stopped: {self.answer.stopped}",
                style="dim",
            ),
        ]

    def _name_sources(self) -> str:
        """Name the cited sources, else the first; those that the model read are marked, if any are known."""
        if self._cited:
            named = [f"[{number}] {_cite(passage)}" for number, passage in self._cited.items()]
            uncited = len(self.passages) - len(named)
            return "; ".join(named) + f"; not cited: {uncited} more" * (uncited > 0)
        citations = _citations(self.read)
        if not citations:
            return _first(self.sources, SOURCES_SHOWN)
        others = self.sources[len(citations) :]
        # Not one by one what the answer does not come from, while there is more of what it does come from.
        room = SOURCES_SHOWN - len(citations)
        rest = _first(others, room) if room > 0 else f"{len(others)} more"
        return f"read: {_first(citations, SOURCES_SHOWN)}" + f"; found, not read: {rest}" * bool(others)

    def tree(self) -> Tree:
        """Draw the steps: chains, hops, rollouts, thoughts."""
        return draw_steps(self.question, self.steps, fields_of(self.answer), self._refusal)

    def __rich__(self) -> Group:
        """Draw the steps, then say the answer."""
        return Group(self.tree(), *self.ending())

    def __str__(self) -> str:
        return self._record_console().export_text().rstrip("\n")

    def __repr__(self) -> str:
        return f"<Answered by {self.method}: {self.text!r}, {self.tokens:,} tokens, {self.seconds:.1f} s>"

    def _repr_html_(self) -> str:
        page = "<pre style='white-space:pre-wrap'>{code}</pre>"
        body: str = self._record_console().export_html(inline_styles=True, code_format=page)
        return body

    def _record_console(self) -> Console:
        """Print it into memory; in a notebook a console would show it."""
        hidden = io.StringIO()
        console = Console(
            file=hidden, record=True, width=COLUMNS, highlight=False, emoji=False, force_jupyter=False
        )
        console.print(self)
        return console


def fields_of(answer: Answer | None) -> dict[str, Any]:
    """Return the fields of a method's result, made just now or read back; none of a failure."""
    fields: dict[str, Any] = {} if answer is None else asdict(answer)
    fields |= fields.pop("further", {})
    return fields


def entry_of(method: AnyMethod) -> tuple[str, Method]:
    """Return a method's name and what there is to know of it; one of the caller's own needs no registration.

    Raises:
        ConfigError: for something that is no method.
    """
    if isinstance(method, str):
        if is_own(method):
            return short_name(method), load_method(method)
        name = canonical_name(method)
        check_names([name])
        return name, METHODS[name]
    for name, entry in METHODS.items():
        if method in (entry, entry.function):
            return name, entry
    function = method.function if isinstance(method, Method) else method
    if not is_method(method) or not hasattr(function, "__name__"):
        raise ConfigError(
            f"{method!r} is no method: give one of corag's, or an async function of your own with the "
            "parameters (question, tools) or (question, tools, config)."
        )
    return function.__name__, make_method(method, function.__name__)


def options_of(
    name: str,
    entry: Method,
    config: MethodConfig | Mapping[str, Any] | None,
    index: Index | RetrieverConfig | None,
) -> MethodConfig:
    """Return the options of a method, its defaults if none are given, once they can be worked with.

    Raises:
        ConfigError: for options of another method, a missing prompt, or no index for a method that searches.
    """
    if isinstance(config, Mapping):
        config = with_keywords(entry.config(), config)
    options = entry.config() if config is None else config
    if not isinstance(options, entry.config):
        kind = options.__name__ if isinstance(options, type) else type(options).__name__
        raise ConfigError(
            f"'{name}' takes its options as an object of {entry.config.__name__}, but was given {kind}: "
            f"write {entry.config.__name__}(...)."
        )
    if index is None and entry.needs_index:
        raise ConfigError(NO_INDEX.format(f"'{name}'"))
    read_anew()
    options.check_files()
    return options


@waits
@takes_own_objects
async def ask(
    question: str | Question,
    method: AnyMethod,
    model: Model | Any,
    index: Index | Any | None = None,
    config: MethodConfig | Mapping[str, Any] | None = None,
    *,
    prompts: Prompts = "auto",
    seed: int = 0,
    budget: int = 0,
    watch: Callable[[Step], None] | None = None,
    **method_options: Any,
) -> Answered:
    """Answer one question, as ``corag ask`` does.

    Args:
        question: the question: a text, or a :class:`Question`.
        method: one of corag's methods, by function or name; an async function of your own, or where it lies
            (FILE.py:FUNCTION).
        model: what :func:`open_model` returned, or an object or function that it takes.
        index: what :func:`open_index` returned, or an object, a function or a list of texts that it takes;
            None for a method that does not search.
        config: the method's options, as an object or by name; its defaults without.
        method_options: options of the method by name, such as ``k=3``: they replace those of ``config``.
        prompts: how to answer: in sentences that cite "documents", or "short"; "auto" as ``corag ask``.
        seed: all randomness derives from it.
        budget: most tokens, prompt plus generated, that the question may spend; 0 for no limit.
        watch: called with every step as it ends, from another thread.

    Raises:
        ConfigError: for a method that searches without an index, or options of another method.
        BackendError: if the engine or the index is gone. A method that fails otherwise returns its error.
    """
    for argument, opener in ((model, "open_model"), (index, "open_index")):
        if isinstance(argument, ModelConfig | RetrieverConfig):
            raise ConfigError(
                f"ask was given a {type(argument).__name__}, which run takes: give what {opener} returns for "
                "the same options."
            )
    name, entry = entry_of(method)
    options = with_keywords(options_of(name, entry, config, index), method_options)
    searched = RetrieverConfig() if index is None else index.options
    options = AskSetup(model=model.options, retriever=searched, prompts=prompts).with_prompts(options)
    question_object = one_question(question)

    async def answer(question: Question, tools: Tools) -> Answer:
        return await entry.function(question, tools, options)

    check_model(name, options, model.options, model.engine)
    refusal = asdict(options).get("refusal", "")
    async with nullcontext() if index is None else index.lend() as retriever:
        tools = Tools(question_object, model.engine, retriever, seed, budget, watch=watch)
        return await answer_one(name, question_object, answer, tools, retriever, refusal, cites=options.cites)


aask = ask.twin


async def answer_one(
    name: str,
    question: Question,
    method: BoundMethod,
    tools: Tools,
    retriever: Retriever | None,
    refusal: str = "",
    *,
    cites: bool = False,
) -> Answered:
    """Answer a question, and look up the passages that it was answered from.

    ``cites``: the answer cites passages, which is checked.
    """
    row = await answer_question(question, method, tools, cites=cites)
    passages = await _look_up(row, retriever)
    all_passages, read_passages = (
        [passages[key] for key in ids if key in passages]
        for ids in (row.answer.passage_ids if row.answer else (), row.read_ids)
    )
    return Answered(name, row, all_passages, read_passages, refusal)


def stored_answer(run: Run, question: str) -> Answered:
    """Return what a run holds of a question, by its id, as :func:`ask` returns an answer.

    Its passages have titles but no texts. Raises :class:`ConfigError` if the run has no such question.
    """
    if question not in run.rows:
        raise ConfigError(f"'{run.folder}' has no question '{question}': {nearest(question, run.rows)}")
    row = run.rows[question]
    hits = {
        hit.passage.id: hit.passage for step in row.steps if isinstance(step, SearchStep) for hit in step.hits
    }
    collected, read = (
        [hits[name] for name in ids if name in hits] for ids in (row.passage_ids, row.read_ids)
    )
    return Answered(run.manifest.method, row, collected, read, run.manifest.options.get("refusal", ""))


async def _look_up(row: Row, retriever: Retriever | None) -> dict[str, Passage]:
    """Return what was found, collected and read: searches have the texts, but for what was fetched by id."""
    searches = [step for step in row.steps if isinstance(step, SearchStep)]
    passages = {hit.passage.id: hit.passage for step in searches for hit in step.hits}
    ids = dict.fromkeys((*row.read_ids, *(row.answer.passage_ids if row.answer else ())))
    if retriever is not None and (missing := [name for name in ids if name not in passages]):
        passages |= {passage.id: passage for passage in await retriever.passages(missing)}
    return passages


def _citations(passages: Sequence[Passage]) -> tuple[str, ...]:
    """Cite passages, each once: one without title and file by the beginning of its text."""
    return tuple(dict.fromkeys(map(_cite, drop_same_location(passages))))


def _cite(passage: Passage) -> str:
    return passage.citation or shorten(passage.text, 60, placeholder=" ...") or passage.id


def _cited_passages(row: Row | SavedRow, passages: Mapping[str, Passage]) -> dict[int, Passage]:
    """Return the passages that an answer cites, as far as they are known, by their numbers."""
    shown = dict(enumerate(row.answer.shown_ids if row.answer else (), 1))
    numbers = sorted({number for claim in row.citations for number in claim.numbers})
    return {number: passages[shown[number]] for number in numbers if shown.get(number) in passages}


def _first(sources: Sequence[str], most: int) -> str:
    """Join the first sources, and count the rest."""
    more = [f"and {len(sources) - most} more"] if len(sources) > most else []
    return "; ".join([*sources[:most], *more])
