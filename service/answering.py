"""One question that was asked of the service: admitted, answered by a preset, counted, recorded."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from core.clock import unix_time
from core.errors import BackendError, BudgetExhaustedError, ConfigError, CoragError
from core.prompting.prompt import Message, Prompt, Segment
from core.prompting.template import load_prompt
from core.protocols import GenerateRequest, Generator, Retriever, Sampling
from core.runner import answer_question
from core.runs.rows import Row
from core.seeds import stable_hash
from core.tools import Step, Tools
from core.types import Answer, Hit, Passage, Question
from service.admission import Admission, Ticket
from service.errors import CallError, invalid, of_failed_row, unavailable
from service.log import Log, log_line, where
from service.metrics import Metrics
from service.options import Preset, Served
from service.records import Records, public_record

_PROMPTS = Path(__file__).parent / "prompts"
_REWRITTEN_TOKENS = 64  # that a self-contained question may have more than the one that was asked
_PROBE_EVERY_S = 5.0
_PROBE_MOST_S = 30.0  # of one try: what hangs is asked again
_SEARCH_MOST_S = 30.0
_SEARCHES_PER_PLACE = 4  # a search costs a small part of what a question does
MOST_HITS = 100  # of a search that a caller asks for
LEFT = "CallerLeft: the caller went away before the answer was there."
TIMED_OUT = "TimedOut: the answer took longer than the service allows."
GONE = "BackendGone: the model or the index failed meanwhile."

Watch = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """What was said before a question. ``role``: "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as a caller put it.

    Attributes:
        text: the question.
        preset: the name of the preset to answer it by.
        earlier: what was said before it.
        seed: of all randomness; None for the service's own.
        budget: most tokens that it may spend, 0 for as many as the service allows.
        temperature: of what the method samples; None for the preset's own.
    """

    text: str
    preset: str
    earlier: tuple[Turn, ...] = ()
    seed: int | None = None
    budget: int = 0
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that was given. ``record``: all of it as callers see it, JSON values."""

    row: Row
    answer: Answer
    record: Mapping[str, Any]


class AnswerService:
    """Answers questions by presets over one model and one index. It lives in one event loop."""

    def __init__(
        self,
        options: Served,
        presets: Mapping[str, Preset],
        generator: Generator,
        retriever: Retriever | None,
        records: Records,
        log: Log = log_line,
    ) -> None:
        """``records``: is closed by who opened it, as model and index are."""
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
        self._generator = generator
        self._retriever = retriever
        self._broken_since: float | None = None
        self._probe: asyncio.Task[None] | None = None

    # --- what may be asked

    def preset(self, name: str) -> Preset:
        """Return a preset. Raises :class:`CallError` with status 404 if there is none of this name."""
        if name not in self.presets:
            known = ", ".join(self.presets)
            raise CallError(404, f"there is no such model here: choose one of {known}.", "model_not_found")
        return self.presets[name]

    def check(self, asked: Asked) -> None:
        """Raise :class:`CallError` for a question that cannot be taken, before it is admitted."""
        self.preset(asked.preset)
        limits = self.options.limits
        if not asked.text.strip():
            raise invalid("the question is empty: the last message must say something.", "messages")
        if len(asked.text) > limits.question_chars:
            raise invalid(
                f"the question has {len(asked.text):,} characters; {limits.question_chars:,} are taken.",
                "messages",
                "string_above_max_length",
            )
        if sum(len(turn.text) for turn in asked.earlier) > limits.conversation_chars:
            raise invalid(
                f"what was said before the question has more than {limits.conversation_chars:,} characters.",
                "messages",
                "context_length_exceeded",
            )
        if asked.temperature is not None:
            self._options(asked)

    def enter(self, caller: str, preset: str) -> Ticket:
        """Admit a question. Raises :class:`CallError` if there is no room, or nothing to answer with."""
        try:
            if self._broken_since is not None or self.failed:
                raise unavailable()
            return self.admission.enter(caller)
        except CallError as error:
            self.metrics.outcome(preset, "refused")
            self.log("refused", key=caller or None, preset=preset, code=error.code)
            raise

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._generator.count_tokens(text)

    # --- answering

    async def answer(self, asked: Asked, ticket: Ticket, watch: Watch | None = None) -> Given:
        """Answer a question that was admitted; its ticket is used up, whatever comes of it.

        ``watch``: sees every step as it ends. Raises :class:`CallError` if there is no answer.
        """
        limit = self.options.limits.answer_s
        try:
            async with asyncio.timeout(limit), ticket:
                return await self._answer(asked, ticket, watch)
        except TimeoutError:
            self._gave_up_waiting(asked, ticket, "timed_out")
            raise CallError(
                504,
                f"no answer within {limit:g} s, which is all a question may take: ask a cheaper model.",
                "timeout",
            ) from None
        except asyncio.CancelledError:
            self._gave_up_waiting(asked, ticket, "left")
            raise
        finally:
            ticket.leave()

    def _gave_up_waiting(self, asked: Asked, ticket: Ticket, outcome: str) -> None:
        """Count a question that ended before it had its turn; of the others a row tells."""
        if not ticket.had_place:
            self.metrics.outcome(asked.preset, outcome)
            self.log(outcome, id=ticket.key, key=ticket.caller or None, preset=asked.preset, calls=0)

    async def _answer(self, asked: Asked, ticket: Ticket, watch: Watch | None) -> Given:
        preset = self.presets[asked.preset]
        question = Question(ticket.key, asked.text)
        tools = Tools(
            # Seeds derive from what is asked: the same question with the same seed has the same answer.
            Question(stable_hash(asked.text), asked.text),
            self._generator,
            self._retriever,
            self.options.seed if asked.seed is None else asked.seed,
            self._budget(asked),
            watch,
            shared=self.records.shared[preset.name],
        )
        function = preset.config.entry(preset.method).function
        method = partial(function, config=self._options(asked))

        async def understood(question: Question, tools: Tools) -> Answer:
            if asked.earlier and self.options.follow_ups:
                try:
                    text = await standalone_question(asked, tools)
                except BudgetExhaustedError:  # the method answers with what there is, as to a first question
                    text = asked.text
                question, tools.question = replace(question, text=text), replace(tools.question, text=text)
            return await method(question, tools)

        try:
            row = await answer_question(question, understood, tools)
        except asyncio.CancelledError:
            # Of a time that is up asyncio makes a TimeoutError only outside, so the task itself is asked.
            over = time.perf_counter() - tools.begun + ticket.waited_s >= self.options.limits.answer_s
            self._record(preset, _given_up(question, tools, TIMED_OUT if over else LEFT), ticket)
            raise
        except BackendError as error:
            self._record(preset, _given_up(question, tools, GONE), ticket)
            self._failed(error)
            raise unavailable() from None
        except ConfigError as error:  # as of a method that searches where there is no index
            self._record(preset, _given_up(question, tools, f"ConfigError: {error}"), ticket)
            raise of_failed_row("") from None
        self._record(preset, row, ticket)
        if row.answer is None:
            raise of_failed_row(row.error)
        return Given(row, row.answer, public_record(preset.name, orjson.loads(row.to_json())))

    def _budget(self, asked: Asked) -> int:
        """Return the most tokens that a question may spend: the least of caller's, preset's and service's."""
        limits = (asked.budget, self.presets[asked.preset].config.budget, self.options.budget)
        return min(filter(None, limits), default=0)

    def _options(self, asked: Asked) -> Any:
        """Return the method's options, with the caller's temperature. Raises :class:`CallError`."""
        preset = self.presets[asked.preset]
        options = preset.config.of(preset.method)
        if asked.temperature is None:
            return options
        if "temperature" in {each.name for each in fields(options)}:
            try:
                changed: Any = options
                return replace(changed, temperature=asked.temperature)
            except CoragError:
                raise invalid("this temperature cannot be used here.", "temperature") from None
        if asked.temperature == 0:
            return options
        raise invalid(
            f"'{preset.name}' samples nothing, so it has no temperature: leave it out.",
            "temperature",
            "unsupported_value",
        )

    def _record(self, preset: Preset, row: Row, ticket: Ticket) -> None:
        """Count, keep and log what came of a question."""
        outcomes = {"": "answered", LEFT: "left", TIMED_OUT: "timed_out"}
        outcome = outcomes.get(row.error, "failed")
        self.metrics.outcome(preset.name, outcome)
        self.metrics.answered(row, ticket.waited_s)
        usage = row.total_usage
        self.log(
            outcome,
            id=row.question.id,
            key=ticket.caller or None,
            preset=preset.name,
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
        try:
            self.records.add(preset.name, row)
        except CoragError as error:  # a full disk costs the record, not the answer
            self.log("not_recorded", id=row.question.id, error=where(error))

    # --- searching

    async def search(self, query: str, k: int, caller: str = "") -> Sequence[Hit]:
        """Search the index for a caller, "" for one whose share is not limited.

        Raises :class:`CallError` if there is no index, or no room, or it fails or takes too long.
        """
        if self._retriever is None:
            raise CallError(404, "this service searches no index.", "no_index")
        if not query.strip() or len(query) > self.options.limits.question_chars:
            raise invalid(f"a query has 1 to {self.options.limits.question_chars:,} characters.", "query")
        if not 1 <= k <= MOST_HITS:
            raise invalid(f"k is a whole number from 1 to {MOST_HITS}.", "k")
        outcome = "refused"
        try:
            ticket = self.searches.enter(caller)
            outcome = "failed"
            found = await self._search(self._retriever, query, k, ticket)
            outcome = "answered"
            return found
        except asyncio.CancelledError:
            outcome = "left"
            raise
        finally:
            self.metrics.searched(outcome)

    async def _search(self, retriever: Retriever, query: str, k: int, ticket: Ticket) -> Sequence[Hit]:
        try:
            async with asyncio.timeout(min(_SEARCH_MOST_S, self.options.limits.answer_s)), ticket:
                return await retriever.search(query, k)
        except TimeoutError:
            raise CallError(504, "the search took too long: try again.", "timeout", retry_after=1) from None
        except BackendError as error:
            self._failed(error)
            raise unavailable() from None
        except CoragError:
            raise _search_failed() from None
        finally:
            ticket.leave()

    async def passage(self, key: str) -> Passage:
        """Return a passage. Raises :class:`CallError` with status 404 if there is none with this id."""
        try:
            found = await self._retriever.passages([key]) if self._retriever is not None else ()
        except BackendError as error:
            self._failed(error)
            raise unavailable() from None
        except CoragError:
            raise _search_failed() from None
        if not found:
            raise CallError(404, "there is no passage with this id.", "passage_not_found")
        return found[0]

    # --- whether it works

    @property
    def failed(self) -> bool:
        """Whether the engine has ended for good."""
        return bool(getattr(self._generator, "failed", False))

    @property
    def ready(self) -> bool:
        """Whether questions are taken."""
        return self._broken_since is None and not self.failed and not self.admission.closed

    def _failed(self, error: BaseException) -> None:
        """Take no more questions until model and index reply again."""
        if self._broken_since is None:
            self._broken_since = unix_time()
            self.log("unavailable", error=where(error))
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._until_it_replies())

    async def _until_it_replies(self) -> None:
        while self._broken_since is not None and not self.failed:
            await asyncio.sleep(_PROBE_EVERY_S)
            try:
                async with asyncio.timeout(_PROBE_MOST_S):
                    await self._ask_for_a_sign()
            except CoragError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, to stop trying would be for ever
                self.log("probe_failed", error=where(error))
                continue
            self.log("available", seconds=round(unix_time() - self._broken_since, 1))
            self._broken_since = None

    async def _ask_for_a_sign(self) -> None:
        """Ask model and index for next to nothing."""
        prompt = Prompt((Message("user", (Segment("Hello"),)),))
        # Drawn afresh, so that no cache replies in the engine's place.
        await self._generator.generate(GenerateRequest(prompt, Sampling(1, temperature=1.0)))
        if self._retriever is not None:
            await self._retriever.search(f"hello {secrets.token_hex(4)}", 1)

    async def close(self) -> None:
        """Take no more questions, and stop looking whether the engine replies."""
        self.admission.closed = self.searches.closed = True
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)


async def standalone_question(asked: Asked, tools: Tools) -> str:
    """Ask the model to say the last question so that it needs nothing of what was said before."""
    template = load_prompt("standalone_question", "standalone_question", _PROMPTS)
    said = "\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in asked.earlier)
    prompt = template.render({"conversation": said, "question": asked.text})
    # It may be as long as the question was, and what stood for other words is longer.
    most = _REWRITTEN_TOKENS + tools.count_tokens(asked.text)
    reply = await tools.generate(
        prompt, role="standalone_question", max_tokens=most, path="standalone question"
    )
    first, *more = reply.text.strip().splitlines() or [""]
    text = first.strip()
    if text.count('"') == 2 and text.startswith('"') and text.endswith('"'):  # the quotes are no part of it
        text = text[1:-1].strip()
    cut = not more and reply.completions[0].finish_reason == "length"
    return asked.text if cut or not text.strip('"') else text


def _search_failed() -> CallError:
    return CallError(503, "the search failed: try again.", "search_failed", retry_after=1)


def _given_up(question: Question, tools: Tools, error: str) -> Row:
    """Return the row of a question that was given up: what was done and spent until then."""
    seconds = time.perf_counter() - tools.begun
    return Row(question, None, tuple(tools.steps), dict(tools.ledger), seconds, error, unix_time(tools.begun))


def usage_record(row: Row, answer_tokens: int) -> dict[str, Any]:
    """Return a question's ledger as OpenAI's usage: the tokens of every call that it took."""
    total = row.total_usage
    return {
        "prompt_tokens": total.prompt,
        "completion_tokens": total.generated,
        "total_tokens": total.total,
        "prompt_tokens_details": {"cached_tokens": total.cached},
        "completion_tokens_details": {"reasoning_tokens": max(0, total.generated - answer_tokens)},
    }


def described(preset: Preset) -> dict[str, Any]:
    """Return what callers may know of a preset."""
    config = preset.config.of(preset.method)
    public = {
        each.name: getattr(config, each.name)
        for each in fields(config)
        if isinstance(getattr(config, each.name), int | float) or each.name in config.GROUPED_BY
    }
    return {"method": preset.method, "about": preset.about, "options": public}
