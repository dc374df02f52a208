"""Sending the spans of answered questions to a collector, over OTLP/HTTP: what ``--trace`` asks for."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from corag.core.errors import ConfigError, reason
from corag.core.installation import require
from corag.core.runs.environment import installed_version
from corag.core.runs.rows import Row
from corag.core.servers import contain_credentials
from corag.generation.config import ModelConfig
from eval.experiment.spans import RowSpans
from retrieval.config import RetrieverConfig

_PORT, _PATH = 4318, "/v1/traces"  # OTLP over HTTP
_GRPC_PORT = 4317
_MOST_WAITING = 2**15  # spans: of a tree's question some hundred come at once
_TIMEOUT_S = 5.0  # a run that has ended waits no longer for a collector
_PAUSE_S = 30.0  # after a failure spans are dropped for so long, so that none pile up

Send = Callable[..., None]
"""Sends the spans of a finished question: :meth:`eval.experiment.spans.RowSpans.send`."""


def check_trace(trace: str) -> None:
    """Raise :class:`ConfigError` for a collector's address that cannot be, or without the packages."""
    if trace:
        endpoint(trace)
        require("trace", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def endpoint(trace: str) -> str:
    """Return the address that spans are posted to. Raises :class:`ConfigError` if it cannot be one.

    >>> endpoint("otlp://localhost")
    'http://localhost:4318/v1/traces'
    >>> endpoint("https://cloud.langfuse.com/api/public/otel")
    'https://cloud.langfuse.com/api/public/otel/v1/traces'
    """
    if contain_credentials([trace]):
        raise ConfigError(
            "the address in 'trace' holds a user name, a password or a query: give the address alone, and "
            "the key in the environment variable OTEL_EXPORTER_OTLP_HEADERS."
        )
    parts = urlsplit(trace)
    try:
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("otlp", "http", "https") or not parts.hostname:
        raise ConfigError(
            f"'trace' is '{trace}', which is no address of a collector: write otlp://HOST:PORT (OTLP over "
            f"HTTP, usually port {_PORT}), or its whole address with http:// or https://."
        )
    if parts.scheme == "otlp":
        parts = parts._replace(scheme="http", netloc=parts.netloc if port else f"{parts.netloc}:{_PORT}")
    return f"{parts.geturl().rstrip('/').removesuffix(_PATH)}{_PATH}"


@contextmanager
def sending_spans(
    trace: str, model: ModelConfig, fingerprint: str, retriever: RetrieverConfig
) -> Iterator[Send]:
    """Yield what sends the spans of finished questions; send what is left at the end of the block.

    A collector that cannot be reached, or an exporter that fails, stops nothing: one line on standard error
    says so, and one at the end of the block how many spans were lost.

    Args:
        trace: the collector's address; "" for none, and then there is nothing to send with.
        model: the model that answers.
        fingerprint: its identity, which says whether it has a chat template.
        retriever: what is searched.

    Yields:
        What takes a workflow's name and a row (:meth:`RowSpans.send`); without a collector it does nothing.
    """
    if not trace:
        yield no_spans
        return
    check_trace(trace)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    address = endpoint(trace)
    user_timeouts = {"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"} & os.environ.keys()
    timeout = None if user_timeouts else _TIMEOUT_S
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    exporter = _Exporter(OTLPSpanExporter(endpoint=address, timeout=timeout), address)
    # Not the process's provider: that is another library's to set, and its spans are not ours to send.
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=_MOST_WAITING, schedule_delay_millis=1_000)
    )
    spans = RowSpans(provider.get_tracer("corag"), model, fingerprint, retriever)
    try:
        yield spans.send
    finally:
        provider.shutdown()
        exporter.report_lost(spans.span_count)


def no_spans(workflow: str, row: Row, parent: str = "") -> None:
    """Send nothing: there is no collector."""


def _resource() -> Any:
    """Return what the spans are of: "corag", unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES name it."""
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

    resource = Resource.create()
    if not str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return resource
    return resource.merge(Resource({SERVICE_NAME: "corag", SERVICE_VERSION: installed_version("corag")}))


class _LastMessage(logging.Handler):
    """Keeps what the library says first of a failure, which it would print at every batch."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.text = self.text or record.getMessage().rstrip(".")


@cache
def _library_log() -> _LastMessage:
    """Turn the log of the library's exporters to what is returned, for this process."""
    logger, message = logging.getLogger("opentelemetry.exporter"), _LastMessage(logging.WARNING)
    logger.addHandler(message)
    logger.propagate = False
    return message


class _Exporter:
    """OpenTelemetry's exporter, whose first failure is told in a line; it then gets nothing for a while."""

    def __init__(self, exporter: Any, address: str) -> None:
        self._exporter, self._address, self._log = exporter, address, _library_log()
        self._log.text = ""
        self._retry_time = 0.0
        self._has_warned = False
        self._sent_count = 0

    def export(self, spans: Sequence[Any]) -> Any:
        """Send some spans."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        if time.monotonic() < self._retry_time:
            return SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - the library would log it, and nobody sees its log
            self._log.text = f"{type(error).__name__}, {reason(error)}"
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._sent_count += len(spans)
        else:
            self._retry_time = time.monotonic() + _PAUSE_S
            self._warn_once()
        return result

    def report_lost(self, span_count: int) -> None:
        """Print how many of the spans that were made no collector has, if any."""
        if lost_count := span_count - self._sent_count:
            sys.stderr.write(
                f"corag: {lost_count:,} of {span_count:,} spans were lost: {self._address} did not take "
                "them.\n"
            )

    def _warn_once(self) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        grpc = f" ({_GRPC_PORT} is usually gRPC's port, and {_PORT} that of OTLP over HTTP)"
        sys.stderr.write(
            f"corag: the collector at {self._address} took no spans: {self._log.text}"
            f"{grpc if urlsplit(self._address).port == _GRPC_PORT else ''}. Answering goes on; spans that it "
            "does not take are lost.\n"
        )

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: nothing waits here."""
        return True
