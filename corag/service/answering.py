"""The answer service: it admits a question, answers it by a preset, counts it and records it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import orjson

from corag.core.errors import BackendError, ConfigError, CoragError
from corag.core.process import unix_time
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.protocols import GenerateRequest, Generator, Retriever, Sampling
from corag.core.runner import BoundMethod, answer_question
from corag.core.runs.rows import Row
from corag.core.seeds import stable_hash
from corag.core.tools import Step, Tools
from corag.core.types import Answer, Hit, Passage, Question
from corag.service.admission import Admission, Ticket
from corag.service.conversation import (
    AdaptedRequest,
    AnswerRequest,
    answer_job,
    cut_conversation,
    cut_front,
    cut_job,
    standalone_question,
)
from corag.service.errors import CallError, error_from_row, invalid, unavailable
from corag.service.log import Log, log_line, where
from corag.service.metrics import Metrics
from corag.service.options import Preset, ServiceOptions
from corag.service.records import Records, public_record
from corag.service.searched import IndexWatch, SearchedIndex
from eval.experiment.collector import Send, no_spans

_PROBE_EVERY_S = 5.0
_PROBE_MOST_S = 30.0  # per attempt: an engine that hangs is probed again
_SEARCH_MOST_S = 30.0
_SEARCHES_PER_PLACE = 4  # a search costs a small part of what a question does
MOST_HITS = 100  # of a search request
CALLER_GONE = "CallerLeft: the caller went away before the answer was there."
TIMED_OUT = "TimedOut: the answer took longer than the service allows."
BACKEND_GONE = "BackendGone: the model or the index failed meanwhile."

Watch = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """An answer with its row. ``record``: the same as callers see it, JSON values."""

    row: Row
    answer: Answer
    record: Mapping[str, Any]


class AnswerService:
    """Answers questions by presets over one model and one index, within one event loop."""

    def __init__(
        self,
        options: ServiceOptions,
        presets: Mapping[str, Preset],
        generator: Generator,
        retriever: Retriever | None,
        records: Records,
        log: Log = log_line,
        send: Send = no_spans,
    ) -> None:
        """Take what it needs. Whoever opened model, index, ``records`` and ``send`` closes them."""
        limits = options.limits
        self.options = options
        self.presets = presets
        self.records = records
        self.admission = Admission(limits.in_flight, limits.queue, limits.per_key)
        self.searches = Admission(
            _SEARCHES_PER_PLACE * limits.in_flight, limits.queue, limits.per_key, "searches"
        )
        self.metrics = Metrics(self.admission)
        self.log = log
        self.index = SearchedIndex(retriever, records.runs)
        self.index_watch: IndexWatch | None = None
        self._generator = generator
        self._send = send
        self._broken_since: float | None = None
        self._probe: asyncio.Task[None] | None = None

    # --- checking and admitting requests

    def preset(self, name: str) -> Preset:
        """Return a preset. Raises :class:`CallError` with status 404 if there is none of this name."""
        if name not in self.presets:
            names = ", ".join(self.presets)
            raise CallError(404, f"there is no such model here: choose one of {names}.", "model_not_found")
        return self.presets[name]

    def check(self, request: AnswerRequest) -> None:
        """Raise :class:`CallError` for an invalid request, before it is admitted."""
        self.preset(request.preset)
        limits = self.options.limits
        if not request.text.strip():
            raise invalid("the question is empty: the last message must say something.", "messages")
        if request.job:
            return
        if len(request.text) > limits.question_chars:
            raise invalid(
                f"the question has {len(request.text):,} characters; {limits.question_chars:,} are taken.",
                "messages",
                "string_above_max_length",
            )
        if sum(len(turn.text) for turn in request.earlier) > limits.conversation_chars:
            raise invalid(
                "the conversation before the question has more than "
                f"{limits.conversation_chars:,} characters.",
                "messages",
                "context_length_exceeded",
            )
        if request.temperature is not None:
            self._options(request)

    def adapt(self, request: AnswerRequest) -> AdaptedRequest:
        """Leave out of a request what this service cannot use, instead of refusing all of it.

        A temperature goes where nothing is sampled; a long conversation loses its oldest turns, and a long
        question its front, for a question stands behind the document that was pasted with it. Raises
        :class:`CallError` with status 404 for an unknown preset.
        """
        limits = self.options.limits
        self.preset(request.preset)
        ignored: dict[str, str] = {}
        shortened: dict[str, Any] = {}
        if request.job:
            messages, counts = cut_job(request.messages, limits.conversation_chars)
            shortened |= {"job": counts} if counts else {}
            return AdaptedRequest(replace(request, messages=messages), ignored, shortened)
        if request.temperature is not None and (reason := self._unusable_temperature(request)):
            ignored["temperature"] = reason
            request = replace(request, temperature=None)
        if len(request.text) > limits.question_chars:
            text = cut_front(request.text, limits.question_chars)
            shortened["question"] = {"characters": len(request.text), "kept_characters": len(text)}
            request = replace(request, text=text)
        earlier = cut_conversation(request.earlier, limits.conversation_chars)
        if earlier != request.earlier:
            shortened["conversation"] = {
                "turns": len(request.earlier),
                "kept_turns": len(earlier),
                "characters": sum(len(turn.text) for turn in request.earlier),
                "kept_characters": sum(len(turn.text) for turn in earlier),
            }
            request = replace(request, earlier=earlier)
        return AdaptedRequest(request, ignored, shortened)

    def _unusable_temperature(self, request: AnswerRequest) -> str:
        """Return why a preset has no use for a request's temperature; "" if it has."""
        options = self.presets[request.preset].config.of(self.presets[request.preset].method)
        names = {each.name for each in fields(options)}
        if "temperature" not in names or not options.samples:
            return f"'{request.preset}' samples nothing"
        try:
            self._options(request)
        except CallError:
            return f"'{request.preset}' cannot be used with this temperature, so its own is"
        return ""

    def enter(self, caller: str, preset: str) -> Ticket:
        """Admit a question. Raises :class:`CallError` if there is no room, or nothing to answer with."""
        try:
            if self._broken_since is not None or self.failed:
                raise unavailable()
            return self.admission.enter(caller)
        except CallError as error:
            self.metrics.count_outcome(preset, "refused")
            self.log("refused", key=caller or None, preset=preset, code=error.code)
            raise

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._generator.count_tokens(text)

    # --- answering

    async def answer(
        self, request: AnswerRequest, ticket: Ticket, watch: Watch | None = None
    ) -> AnswerResult:
        """Answer an admitted question. Its ticket is released in any case.

        ``watch`` is called with every finished step. Raises :class:`CallError` if there is no answer.
        """
        limit = self.options.limits.answer_s
        try:
            async with asyncio.timeout(limit), ticket:
                return await self._answer(request, ticket, watch)
        except TimeoutError:
            self._record_unanswered(request, ticket, "timed_out")
            raise CallError(
                504,
                f"no answer within {limit:g} s, which is all a question may take: ask a cheaper model.",
                "timeout",
            ) from None
        except asyncio.CancelledError:
            self._record_unanswered(request, ticket, "left")
            raise
        finally:
            ticket.leave()
            self._forget_replies()

    def _forget_replies(self) -> None:
        """Forget a server's replies once nobody waits: it may go on with another model, which none can see.

        Chains of one question, and questions at the same time, share them; that is where equal requests are.
        """
        if self.options.model.urls and not self.admission.claims:
            self._generator.forget()

    def _record_unanswered(self, request: AnswerRequest, ticket: Ticket, outcome: str) -> None:
        """Count a question that ended while it was queued: it has no row to be counted by."""
        if not ticket.had_place:
            self.metrics.count_outcome(request.preset, outcome)
            self.log(outcome, id=ticket.key, key=ticket.caller or None, preset=request.preset, calls=0)

    async def _answer(self, request: AnswerRequest, ticket: Ticket, watch: Watch | None) -> AnswerResult:
        # Another index may take its place meanwhile: this question is answered, and recorded, from one.
        with self.index.in_use() as index:
            return await self._answer_from(index, request, ticket, watch)

    async def _answer_from(
        self, index: SearchedIndex, request: AnswerRequest, ticket: Ticket, watch: Watch | None
    ) -> AnswerResult:
        preset = self.presets[request.preset]
        record = partial(self._record, preset, ticket=ticket, request=request, index=index)
        question = Question(ticket.key, request.text)
        tools = Tools(
            # Seeds derive from the text, not from the request's id: the same question with the same seed has
            # the same answer.
            Question(stable_hash(request.text), request.text),
            self._generator,
            index.retriever,
            self.options.seed if request.seed is None else request.seed,
            self._budget(request),
            watch,
        )
        if request.job:
            method: BoundMethod = partial(answer_job, request=request)
        else:
            function = preset.config.find_method(preset.method).function
            method = partial(function, config=self._options(request))

        async def rewrite_and_answer(question: Question, tools: Tools) -> Answer:
            if request.earlier and self.options.follow_ups and not request.job:
                standalone = await standalone_question(request, tools)
                text, tools.question_note = standalone.text, standalone.note
                question, tools.question = replace(question, text=text), replace(tools.question, text=text)
            return await method(question, tools)

        try:
            row = await answer_question(question, rewrite_and_answer, tools)
        except asyncio.CancelledError:
            # asyncio.timeout turns the cancellation into a TimeoutError only outside of its block, so whether
            # the time was up is measured here.
            over = time.perf_counter() - tools.begun + ticket.waited_s >= self.options.limits.answer_s
            record(_abandoned_row(question, tools, TIMED_OUT if over else CALLER_GONE))
            raise
        except BackendError as error:
            record(_abandoned_row(question, tools, BACKEND_GONE))
            self._suspend(error)
            raise unavailable() from None
        except ConfigError as error:  # such as a method that searches where there is no index
            record(_abandoned_row(question, tools, f"ConfigError: {error}"))
            raise error_from_row("") from None
        record(row)
        if row.answer is None:
            by_caller = bool(request.budget) and request.budget == self._budget(request)
            raise error_from_row(row.error, budget_by_caller=by_caller)
        return AnswerResult(row, row.answer, public_record(preset.name, orjson.loads(row.to_json())))

    def _budget(self, request: AnswerRequest) -> int:
        """Return the most tokens that a question may spend: the least of caller's, preset's and service's."""
        limits = (request.budget, self.presets[request.preset].config.budget, self.options.budget)
        return min(filter(None, limits), default=0)

    def _options(self, request: AnswerRequest) -> Any:
        """Return the method's options, with the caller's temperature. Raises :class:`CallError`."""
        preset = self.presets[request.preset]
        options = preset.config.of(preset.method)
        if request.temperature is None:
            return options
        if "temperature" in {each.name for each in fields(options)}:
            try:
                target: Any = options
                return replace(target, temperature=request.temperature)
            except CoragError:
                raise invalid("this temperature cannot be used here.", "temperature") from None
        if request.temperature == 0:
            return options
        raise invalid(
            f"'{preset.name}' samples nothing, so it has no temperature: leave it out.",
            "temperature",
            "unsupported_value",
        )

    def _record(
        self, preset: Preset, row: Row, *, ticket: Ticket, request: AnswerRequest, index: SearchedIndex
    ) -> None:
        """Count, log and save the result of a question. A job is none, so it is not saved."""
        outcomes = {"": "answered", CALLER_GONE: "left", TIMED_OUT: "timed_out"}
        outcome = outcomes.get(row.error, "failed")
        self.metrics.count_outcome(preset.name, outcome)
        self.metrics.count_answer(row, ticket.waited_s)
        self._send(request.job or preset.name, row, request.traceparent)
        usage = row.total_usage
        self.log(
            outcome,
            id=row.question.id,
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
            self.records.add(preset.name, row, index.runs)
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
        if not 1 <= k <= MOST_HITS:
            raise invalid(f"k is a whole number from 1 to {MOST_HITS}.", "k")
        outcome = "refused"
        try:
            ticket = self.searches.enter(caller)
            outcome = "failed"
            hits = await self._search(query, k, ticket)
            outcome = "answered"
            return hits
        except asyncio.CancelledError:
            outcome = "left"
            raise
        finally:
            self.metrics.count_search(outcome)

    async def _search(self, query: str, k: int, ticket: Ticket) -> Sequence[Hit]:
        try:
            async with asyncio.timeout(min(_SEARCH_MOST_S, self.options.limits.answer_s)), ticket:
                with self.index.in_use() as index:
                    return await index.retriever.search(query, k) if index.retriever else ()
        except TimeoutError:
            raise CallError(504, "the search took too long: try again.", "timeout", retry_after=1) from None
        except BackendError as error:
            self._suspend(error)
            raise unavailable() from None
        except CoragError:
            raise _search_error() from None
        finally:
            ticket.leave()

    async def passage(self, key: str) -> Passage:
        """Return a passage. Raises :class:`CallError` with status 404 if there is none with this id."""
        try:
            with self.index.in_use() as index:
                passages = await index.retriever.passages([key]) if index.retriever is not None else ()
        except BackendError as error:
            self._suspend(error)
            raise unavailable() from None
        except CoragError:
            raise _search_error() from None
        if not passages:
            raise CallError(404, "there is no passage with this id.", "passage_not_found")
        return passages[0]

    # --- the index

    async def replace_index(self, retriever: Retriever) -> SearchedIndex:
        """Answer from another index from now on; return the one before, which questions may still use.

        The caller closes that. Raises :class:`CoragError` if its answers cannot be recorded.
        """
        runs = await asyncio.to_thread(self.records.open_runs, retriever)
        before, self.index = self.index, SearchedIndex(retriever, runs)
        self.records.runs = runs
        return before

    # --- health

    @property
    def failed(self) -> bool:
        """Whether the engine has ended for good."""
        return self._generator.failed

    @property
    def ready(self) -> bool:
        """Whether questions are taken."""
        return self._broken_since is None and not self.failed and not self.admission.closed

    def _suspend(self, error: BaseException) -> None:
        """Refuse questions until model and index reply again."""
        if self._broken_since is None:
            self._broken_since = unix_time()
            self.log("unavailable", error=where(error))
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._probe_until_available())

    async def _probe_until_available(self) -> None:
        while self._broken_since is not None and not self.failed:
            await asyncio.sleep(_PROBE_EVERY_S)
            try:
                async with asyncio.timeout(_PROBE_MOST_S):
                    await self._send_probe()
            except CoragError:
                continue
            except Exception as error:  # noqa: BLE001 - a probe that ended would leave the service closed for ever
                self.log("probe_failed", error=where(error))
                continue
            self.log("available", seconds=round(unix_time() - self._broken_since, 1))
            self._broken_since = None

    async def _send_probe(self) -> None:
        """Send the smallest request to model and index."""
        prompt = Prompt((Message("user", (Segment("Hello"),)),))
        # A sampled request without a seed: a greedy one would be answered by the cache, not by the engine.
        await self._generator.generate(GenerateRequest(prompt, Sampling(1, temperature=1.0)))
        with self.index.in_use() as index:
            if index.retriever is not None:
                await index.retriever.search(f"hello {secrets.token_hex(4)}", 1)

    async def close(self) -> None:
        """Refuse further questions and stop probing."""
        self.admission.closed = self.searches.closed = True
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)


def _search_error() -> CallError:
    return CallError(503, "the search failed: try again.", "search_failed", retry_after=1)


def _abandoned_row(question: Question, tools: Tools, error: str) -> Row:
    """Return the row of an abandoned question: its steps and tokens until then."""
    seconds = time.perf_counter() - tools.begun
    return Row(question, None, tuple(tools.steps), dict(tools.ledger), seconds, error, unix_time(tools.begun))


def usage_record(row: Row, answer_tokens: int) -> dict[str, Any]:
    """Return a question's ledger in OpenAI's ``usage`` format, summed over all its calls."""
    total = row.total_usage
    return {
        "prompt_tokens": total.prompt,
        "completion_tokens": total.generated,
        "total_tokens": total.total,
        "prompt_tokens_details": {"cached_tokens": total.cached},
        "completion_tokens_details": {"reasoning_tokens": max(0, total.generated - answer_tokens)},
    }


def describe_preset(preset: Preset) -> dict[str, Any]:
    """Return the public description of a preset: method, summary, numeric options."""
    config = preset.config.of(preset.method)
    grouped_by = preset.config.find_method(preset.method).grouped_by
    public = {
        each.name: getattr(config, each.name)
        for each in fields(config)
        if isinstance(getattr(config, each.name), int | float) or each.name in grouped_by
    }
    return {"method": preset.method, "about": preset.about, "options": public}
