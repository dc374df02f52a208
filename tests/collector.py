"""A collector of OpenTelemetry spans: an HTTP server that reads OTLP's protobuf and keeps what came."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Received:
    """A span that came. ``parent``: the id of the one above it, "" of a root. Times in nanoseconds."""

    name: str
    id: str
    trace: str
    parent: str
    began: int
    ended: int
    attributes: dict[str, Any]
    failed: bool
    resource: dict[str, Any]


@dataclass
class Collector:
    """What a collector has received. ``status``: with which HTTP status it replies."""

    port: int = 0
    status: int = 200
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    spans: list[Received] = field(default_factory=list)

    def children(self, parent: Received) -> list[Received]:
        below = [span for span in self.spans if span.parent == parent.id]
        return sorted(below, key=lambda span: (span.began, span.ended))

    @property
    def roots(self) -> list[Received]:
        ids = {span.id for span in self.spans}
        return [span for span in self.spans if span.parent not in ids]

    def named(self, operation: str) -> list[Received]:
        return [span for span in self.spans if span.attributes.get("gen_ai.operation.name") == operation]


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """Run a collector on a port of its own until the block ends."""
    collector = Collector(status=status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.paths.append(self.path)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(collector.status)
            self.end_headers()
            if collector.status != 200:
                return
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = _attributes(of_resource.resource.attributes)
                for scope in of_resource.scope_spans:
                    collector.spans += [
                        Received(
                            span.name, span.span_id.hex(), span.trace_id.hex(), span.parent_span_id.hex(),
                            span.start_time_unix_nano, span.end_time_unix_nano, _attributes(span.attributes),
                            span.status.code == 2, resource,
                        )
                        for span in scope.spans
                    ]  # fmt: skip

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
