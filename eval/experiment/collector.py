"""Sending the spans of answered questions to a collector, over OTLP/HTTP: what ``--trace`` asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from corag.core.runs.environment import installed_version
from corag.core.runs.rows import Row
from corag.core.system.installation import require
from corag.core.web.servers import check_addresses
from corag.generation.config import ModelConfig
from eval.experiment.spans import RowSpans
from retrieval.config import RetrieverConfig

_PATH = "/v1/traces"  # OTLP over HTTP
_MOST_WAITING = 2**15  # spans: of a tree's question some hundred come at once

Send = Callable[..., None]
"""Sends the spans of a finished question: :meth:`eval.experiment.spans.RowSpans.send`."""


def check_trace(trace: str) -> None:
    """Raise :class:`ConfigError` for a collector's address that cannot be, or without the packages."""
    if not trace:
        return
    key = "the key in the environment variable OTEL_EXPORTER_OTLP_HEADERS"
    check_addresses([trace], "trace", key)
    require("trace", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def endpoint(trace: str) -> str:
    """Return the address that spans are posted to.

    >>> endpoint("http://localhost:4318"), endpoint("https://cloud.langfuse.com/api/public/otel")
    ('http://localhost:4318/v1/traces', 'https://cloud.langfuse.com/api/public/otel/v1/traces')
    """
    return f"{trace.rstrip('/').removesuffix(_PATH)}{_PATH}"


@contextmanager
def sending_spans(
    trace: str, model: ModelConfig, fingerprint: str, retriever: RetrieverConfig
) -> Iterator[Send]:
    """Yield what sends the spans of finished questions; send what is left at the end of the block.

    A collector that cannot be reached stops nothing: the library logs it, and drops the spans.

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
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    ours = Resource.create({SERVICE_NAME: "corag", SERVICE_VERSION: installed_version("corag")})
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word.
    resource = ours.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # Not the process's provider: that is another library's to set, and its spans are not ours to send.
    exporter = OTLPSpanExporter(endpoint=endpoint(trace))
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=_MOST_WAITING, schedule_delay_millis=1_000)
    )
    try:
        yield RowSpans(provider.get_tracer("corag"), model, fingerprint, retriever).send
    finally:
        provider.shutdown()


def no_spans(workflow: str, row: Row, parent: str = "") -> None:
    """Send nothing: there is no collector."""
