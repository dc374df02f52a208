"""The answer service: it admits a question, answers it by a preset, counts it and records it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from corag.core.errors import BackendError, ConfigError, CoragError
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.protocols import GenerateRequest, Generator, Retriever, Sampling
from corag.core.runner import BoundMethod, answer_question
from corag.core.runs.rows import Row
from corag.core.seeds import stable_hash
from corag.core.system.process import unix_time
from corag.core.tools import Step, Tools
from corag.core.types import Answer, Hit, Passage, Question
from corag.service.admission import Admission, Ticket
from corag.service.conversation import (
    AnswerRequest,
    CallersTools,
    answer_job,
    shorten_request,
    standalone_question,
)
from corag.service.errors import CallError, failure, invalid
from corag.service.index import SearchedIndex
from corag.service.log import Log, log_line, where
from corag.service.metrics import Metrics
from corag.service.options import AnswersOptions
from corag.service.records import Records
from eval.experiment.registry import bind
from eval.sweeps.cells import Cell

_PROBE_EVERY_S = 5.0
_PROBE_MOST_S = 30.0  # per attempt: an engine that hangs is probed again
MOST_HITS = 100  # of a search request
CALLER_GONE = "CallerLeft: the caller went away before the answer was there."
TIMED_OUT = "TimedOut: the answer took longer than the service allows."

Watch = Callable[[Step | str], None]


class AnswerService:
    """Answers questions by presets over one model and one index, within one event loop.

    Attributes:
        index: what questions are answered from; another may take its place.
    """

    def __init__(
        self,
        options: AnswersOptions,
        presets: Mapping[str, Cell],
        generator: Generator,
        retriever: Retriever | None,
        log: Log = log_line,
    ) -> None:
        """Take what it needs, and open the run folders. Whoever opened model and index closes them.

        Raises :class:`ConfigError` if another process writes one of the folders.
        """
        limits = options.limits
        self.options = options
        self.presets = presets
        self.admission = Admission(limits.in_flight, limits.queue, limits.per_key)
        self.metrics = Metrics(self.admission)
        self.log = log
        self._generator = generator
        self._is_broken = False
        self._probe: asyncio.Task[None] | None = None
        self.index = SearchedIndex(retriever, self.open_records(retriever))

    def open_records(self, retriever: Retriever | None) -> Records:
        """Open the run folders of answers from an index. Raises :class:`ConfigError` if they are in use."""
        return Records(self.options, self.presets, self._generator, retriever)

    # --- checking and admitting requests

    def fit(self, request: AnswerRequest) -> AnswerRequest:
        """Return a request that can be answered, what is too long in it shortened.

        Raises :class:`CallError` for an unknown preset and an empty question.
        """
        if request.preset not in self.presets:
            names = ", ".join(self.presets)
            raise CallError(404, f"there is no such model here: choose one of {names}.", "model_not_found")
        if not request.text.strip():
            raise invalid("the question is empty: the last message must say something.", "messages")
        return shorten_request(request, self.options.limits.question_chars)

    def enter(self, caller: str, preset: str) -> Ticket:
        """Admit a question. Raises :class:`CallError` if there is no room, or nothing to answer with."""
        try:
            if self._is_broken or self.failed:
                raise failure(BackendError.__name__)
            return self.admission.enter(caller)
        except CallError as error:
            self.metrics.count_outcome(preset, "refused")
            self.log("refused", key=caller or None, preset=preset, code=error.code)
            raise

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._generator.count_tokens(text)

    # --- answering

    async def answer(self, request: AnswerRequest, ticket: Ticket, watch: Watch | None = None) -> Row:
        """Answer an admitted question, and return its row. Its ticket is released in any case.

        ``watch`` is called with every finished step, and with the answer so far where its text is known
        before its end. Raises :class:`CallError` if there is no answer.
        """
        limit = self.options.limits.answer_s
        try:
            # Another index may take its place meanwhile: this question is answered from one.
            async with asyncio.timeout(limit) as clock:
                with self.index.in_use() as index:
                    return await self._answer(index, request, ticket, watch, clock)
        except TimeoutError:
            raise CallError(
                504,
                f"no answer within {limit:g} s, which is all a question may take: ask a cheaper model.",
                "timeout",
            ) from None
        finally:
            ticket.leave()
            # A server may go on with another model, which none can see: only questions at the same time share
            # its replies.
            if self.options.model.urls and not self.admission.claims:
                self._generator.forget()

    async def progress(
        self, request: AnswerRequest, ticket: Ticket, beat_s: float | None = None
    ) -> AsyncGenerator[Step | str | Row | None, None]:
        """Answer an admitted question, see :meth:`answer`: yield what a watcher is given, at last the row.

        None comes after every ``beat_s`` seconds without news. Closing the generator ends the question.
        """
        news: asyncio.Queue[Step | str | asyncio.Task[Row]] = asyncio.Queue()
        answering = asyncio.create_task(self.answer(request, ticket, news.put_nowait))
        answering.add_done_callback(news.put_nowait)
        try:
            while True:
                each = None
                with suppress(TimeoutError):
                    async with asyncio.timeout(beat_s):
                        each = await news.get()
                if isinstance(each, asyncio.Task):
                    yield each.result()
                    return
                yield each
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            ticket.leave()  # a task that is cancelled before it begins does nothing

    async def _answer(
        self,
        index: SearchedIndex,
        request: AnswerRequest,
        ticket: Ticket,
        watch: Watch | None,
        clock: asyncio.Timeout,
    ) -> Row:
        preset = self.presets[request.preset]
        record = partial(self._record, preset, ticket=ticket, request=request, index=index)
        question = Question(ticket.key, request.text)
        tools = CallersTools(
            # Seeds derive from the text, not from the request's id: the same question with the same seed has
            # the same answer.
            Question(stable_hash(request.text), request.text),
            self._generator,
            index.retriever,
            self.options.seed if request.seed is None else request.seed,
            self._budget(request),
            watch,
            watch,
            wishes=request,
        )
        try:
            try:
                await ticket.wait()
            finally:
                tools.begun = time.perf_counter()  # what it waited for its place is no part of its seconds
            cites = preset.options.cites and not request.job
            row = await answer_question(question, self._method(preset, request), tools, cites=cites)
        except (asyncio.CancelledError, BackendError, ConfigError) as error:
            is_over = isinstance(error, asyncio.CancelledError)
            over = TIMED_OUT if clock.expired() else CALLER_GONE
            record(_abandoned_row(question, tools, over if is_over else f"{type(error).__name__}: {error}"))
            if isinstance(error, BackendError):
                self._suspend(error)
            raise
        record(row)
        if row.answer is None:
            raise failure(row.error.partition(":")[0])
        return row

    def _method(self, preset: Cell, request: AnswerRequest) -> BoundMethod:
        """Return what answers a request: one call for a job, else the preset's method."""
        if request.job:
            return partial(answer_job, request=request)
        method = bind(preset.method, preset.config)

        async def rewrite_and_answer(question: Question, tools: Tools) -> Answer:
            if request.earlier and self.options.follow_ups:
                text, tools.question_note = await standalone_question(request, tools)
                question, tools.question = replace(question, text=text), replace(tools.question, text=text)
            return await method(question, tools)

        return rewrite_and_answer

    def _budget(self, request: AnswerRequest) -> int:
        """Return the most tokens that a question may spend: the least of caller's, preset's and service's."""
        limits = (request.budget, self.presets[request.preset].config.budget, self.options.budget)
        return min(filter(None, limits), default=0)

    def _record(
        self, preset: Cell, row: Row, *, ticket: Ticket, request: AnswerRequest, index: SearchedIndex
    ) -> None:
        """Count, log and save the result of a question. A job is none, so it is not saved."""
        outcomes = {"": "answered", CALLER_GONE: "left", TIMED_OUT: "timed_out"}
        outcome = outcomes.get(row.error, "failed")
        self.metrics.count_outcome(preset.name, outcome)
        self.metrics.count_answer(row, ticket.waited_s)
        usage = row.total_usage
        self.log(
            outcome,
            id=row.question.id,
            request=request.request_id or None,
            key=ticket.caller or None,
            preset=preset.name,
            job=request.job or None,
            seconds=round(row.seconds, 3),
            waited_s=round(ticket.waited_s, 3),
            calls=usage.calls,
            prompt_tokens=usage.prompt,
            generated_tokens=usage.generated,
            computed_tokens=usage.computed,
            steps=len(row.steps),
            error=row.error.partition(":")[0] or None,
            question=row.question.text if self.options.log_questions else None,
        )
        if request.job:
            return
        try:
            index.records.add(preset.name, row)
        except CoragError as error:  # a full disk loses the record, not the answer
            self.log("not_recorded", id=row.question.id, error=where(error))

    # --- searching

    async def search(self, query: str, k: int, caller: str = "") -> Sequence[Hit]:
        """Search the index for a caller; "" for one whose share is unlimited.

        Raises :class:`CallError` if there is no index, or no room, or it fails or takes too long.
        """
        if self.index.retriever is None:
            raise CallError(404, "this service searches no index.", "no_index")
        if not query.strip() or len(query) > self.options.limits.question_chars:
            raise invalid(f"a query has 1 to {self.options.limits.question_chars:,} characters.", "query")
        ticket = self.enter(caller, "search")
        try:
            async with asyncio.timeout(self.options.limits.answer_s):
                await ticket.wait()
                with self.index.in_use() as index:
                    return await index.retriever.search(query, k) if index.retriever else ()
        except TimeoutError:
            raise CallError(504, "the search took too long: try again.", "timeout", retry_after=1) from None
        except BackendError as error:
            self._suspend(error)
            raise
        finally:
            ticket.leave()

    async def passage(self, key: str) -> Passage:
        """Return a passage. Raises :class:`CallError` with status 404 if there is none with this id."""
        with self.index.in_use() as index:
            passages = await index.retriever.passages([key]) if index.retriever is not None else ()
        if not passages:
            raise CallError(404, "there is no passage with this id.", "passage_not_found")
        return passages[0]

    # --- health

    @property
    def failed(self) -> bool:
        """Whether the engine has ended for good."""
        return self._generator.failed

    @property
    def ready(self) -> bool:
        """Whether questions are taken."""
        return not self._is_broken and not self.failed and not self.admission.closed

    def _suspend(self, error: BaseException) -> None:
        """Refuse questions until model and index reply again."""
        if not self._is_broken:
            self._is_broken = True
            self.log("unavailable", error=where(error))
            self._probe = asyncio.create_task(self._probe_until_available())

    async def _probe_until_available(self) -> None:
        """Send the smallest request to model and index until there is a reply."""
        prompt = Prompt((Message("user", (Segment("Hello"),)),))
        # A sampled request without a seed: a greedy one would be answered by the cache, not by the engine.
        request = GenerateRequest(prompt, Sampling(1, temperature=1.0))
        while self._is_broken:
            await asyncio.sleep(_PROBE_EVERY_S)
            # Whatever it is, a probe that ended would leave the service closed for ever.
            with suppress(Exception):
                async with asyncio.timeout(_PROBE_MOST_S):
                    await self._generator.generate(request)
                    with self.index.in_use() as index:
                        if index.retriever is not None:
                            await index.retriever.search(f"hello {secrets.token_hex(4)}", 1)
                self._is_broken = False
                self.log("available")

    async def close(self) -> None:
        """Refuse further questions, stop probing, and close run folders and index."""
        self.admission.closed = True
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        await self.index.close()  # the first one is closed a second time by its opener


def _abandoned_row(question: Question, tools: Tools, error: str) -> Row:
    """Return the row of an abandoned question: its steps and tokens until then."""
    seconds = time.perf_counter() - tools.begun
    return Row(question, None, tuple(tools.steps), dict(tools.ledger), seconds, error, unix_time(tools.begun))
