"""The OpenTelemetry spans of an answered question.

Span and attribute names are those of OpenTelemetry's GenAI semantic conventions
(https://github.com/open-telemetry/semantic-conventions-genai: inference, retrieval and workflow spans); what
they have no name for begins with "corag.". One question is one trace: a span of the workflow, below it one
for each part of a step's path ("chain 2", "hop 1"), and below these one for each call of the model and each
search. ``openinference.span.kind`` tells Phoenix and Langfuse the kinds that the conventions have none for.

Spans are made of finished rows, which have the time of every step. So rows that workers on other machines
answered have them too, and answering waits for nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from corag.core.runs.rows import Row
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Step
from corag.core.types import NOTHING_SPENT, TokenUsage
from corag.generation.config import ModelConfig
from corag.generation.models import DEFAULT_MODEL
from retrieval.config import RetrieverConfig

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""By this variable instrumentations of models send texts too."""

_WITH_CONTENT = ("true", "span_only", "span_and_event")
_KINDS = {"generate": "LLM", "score": "LLM", "search": "RETRIEVER"}


class RowSpans:
    """Makes the spans of finished questions, with what all of them share."""

    def __init__(self, tracer: Any, model: ModelConfig, fingerprint: str, retriever: RetrieverConfig) -> None:
        name = DEFAULT_MODEL if model.name == "default" else model.name
        self._tracer = tracer
        self._model = f"{name}+{model.adapter}" if model.adapter else name
        self._provider = model.with_engine().backend
        self._operation = "text_completion" if "chat=no" in fingerprint else "chat"
        self._source = ",".join(retriever.index or retriever.url)
        self._texts = os.environ.get(CONTENT_VARIABLE, "").strip().lower() in _WITH_CONTENT

    def send(self, workflow: str, row: Row, parent: str = "") -> None:
        """Send a row's spans.

        Args:
            workflow: what answered: a method, a preset of a service.
            row: the finished question.
            parent: the ``traceparent`` header of the request (W3C Trace Context); "" for a trace of its
                own.
        """
        start_ns = round(row.begun * 1e9)

        def at(seconds: float) -> int:
            # Nanoseconds since 1970 as a float would be exact to some hundreds of them only.
            return start_ns + round(seconds * 1e9)

        root = self._start(
            f"invoke_workflow {workflow}", start_ns, self._of_question(workflow, row), _context_of(parent)
        )
        spans: dict[tuple[str, ...], Any] = {(): root}
        for path, (start, end) in _path_times(row.steps).items():
            attributes = {"openinference.span.kind": "CHAIN", "corag.path": "/".join(path)}
            spans[path] = self._start(path[-1], at(start), attributes, _child_context(spans[path[:-1]]))
            spans[path].end(at(end))
        for step in row.steps:
            name, attributes = self._of_step(step)
            span = self._start(
                name, at(step.started), attributes, _child_context(spans[_parts(step)]), client=True
            )
            span.end(at(step.started + step.seconds))
        if row.error:
            _mark_failed(root, row.error)
        root.end(at(max([row.seconds, *(step.started + step.seconds for step in row.steps)])))

    def _start(
        self, name: str, start_ns: int, attributes: Mapping[str, Any], context: Any, *, client: bool = False
    ) -> Any:
        from opentelemetry.trace import SpanKind

        return self._tracer.start_span(
            name,
            context=context,
            kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
            attributes=attributes,
            start_time=start_ns,
        )

    def _of_question(self, workflow: str, row: Row) -> dict[str, Any]:
        # The sums stand under names of ours: readers that add up gen_ai.usage over a trace would count twice.
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": workflow,
            "openinference.span.kind": "CHAIN",
            "corag.question.id": row.question.id,
            **{f"corag.usage.{name}": value for name, value in row.total_usage.to_json().items()},
        }
        if row.answer is not None:
            attributes |= {"corag.steps": row.answer.steps, "corag.stopped": row.answer.stopped}
        if self._texts:
            attributes["gen_ai.input.messages"] = _messages("user", [row.question.text])
            if row.answer is not None:
                attributes["gen_ai.output.messages"] = _messages("assistant", [row.answer.text], ["stop"])
        return attributes

    def _of_step(self, step: Step) -> tuple[str, dict[str, Any]]:
        """Return a step's span by name and attributes."""
        name, attributes = self._of_search(step) if isinstance(step, SearchStep) else self._of_call(step)
        return name, attributes | {"openinference.span.kind": _KINDS[step.kind], "corag.path": step.path}

    def _of_search(self, step: SearchStep) -> tuple[str, dict[str, Any]]:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": self._source,
            "gen_ai.request.top_k": float(step.k),
            "corag.hits": len(step.hits),
            "corag.remembered": step.remembered,
        }
        if self._texts:
            documents = [
                {"id": hit.id, "score": hit.score, "title": hit.title, "content": hit.text}
                for hit in step.hits
            ]
            attributes["gen_ai.retrieval.query.text"] = step.query
            attributes["gen_ai.retrieval.documents"] = json.dumps(documents, ensure_ascii=False)
        return f"retrieval {self._source}".strip(), attributes

    def _of_call(self, step: GenerateStep | ScoreStep) -> tuple[str, dict[str, Any]]:
        thinking = step.thinking if isinstance(step, GenerateStep) else NOTHING_SPENT
        usage: TokenUsage = step.usage + thinking
        # Scoring reads the tokens of a text that stands there already: a completion of no further tokens.
        operation = self._operation if isinstance(step, GenerateStep) else "text_completion"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": self._model,
            "gen_ai.usage.input_tokens": usage.prompt,
            "gen_ai.usage.output_tokens": usage.generated,
            "gen_ai.usage.cache_read.input_tokens": usage.cached,
            "corag.role": step.role,
            "corag.usage.calls": usage.calls,
            "corag.usage.computed_prompt": usage.computed_prompt,
            "corag.usage.computed_generated": usage.computed_generated,
        }
        if isinstance(step, ScoreStep):
            attributes["corag.log_likelihood"] = step.log_likelihood
            return f"{operation} {self._model}", attributes
        attributes["gen_ai.response.finish_reasons"] = step.finish_reasons
        if len(step.texts) != 1:
            attributes["gen_ai.request.choice.count"] = len(step.texts)
        if thinking != NOTHING_SPENT:
            attributes["gen_ai.usage.reasoning.output_tokens"] = thinking.generated
        if self._texts:
            attributes["gen_ai.output.messages"] = _messages("assistant", step.texts, step.finish_reasons)
            if step.prompt:  # stored with --keep_prompts
                attributes["gen_ai.input.messages"] = _messages("user", [step.prompt])
        return f"{operation} {self._model}", attributes


def _parts(step: Step) -> tuple[str, ...]:
    """Return the parts of a step's path."""
    return tuple(filter(None, step.path.split("/")))


def _path_times(steps: Sequence[Step]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return when each part of the steps' paths began and ended, shorter paths first."""
    times: dict[tuple[str, ...], tuple[float, float]] = {}
    for step in steps:
        parts = _parts(step)
        for length in range(1, len(parts) + 1):
            start, end = times.get(parts[:length], (step.started, 0.0))
            times[parts[:length]] = min(start, step.started), max(end, step.started + step.seconds)
    return dict(sorted(times.items(), key=lambda each: len(each[0])))


def _child_context(span: Any) -> Any:
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(span)


def _context_of(parent: str) -> Any:
    """Return the context that a ``traceparent`` header names; one of no parent without."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())


def _mark_failed(span: Any, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    first = error.splitlines()[0]
    span.set_attribute("error.type", first.partition(":")[0])
    span.set_status(Status(StatusCode.ERROR, first))


def _messages(role: str, texts: Sequence[str], reasons: Sequence[str] = ()) -> str:
    """Return messages as the conventions have them: JSON, a message for each text."""
    messages: list[dict[str, Any]] = [
        {"role": role, "parts": [{"type": "text", "content": text}]} for text in texts
    ]
    for message, reason in zip(messages, reasons, strict=False):
        message["finish_reason"] = reason
    return json.dumps(messages, ensure_ascii=False)
