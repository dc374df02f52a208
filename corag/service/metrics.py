"""What happens here, in numbers that Prometheus reads. No text of a question is ever among them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from corag.core.runs.rows import Row
from corag.service.admission import Admission

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The figures of one service."""

    def __init__(self, admission: Admission) -> None:
        """``admission``: how many wait and are answered is read from it."""
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "corag_requests", "HTTP requests by route and status.", ("route", "status"), registry=registry
        )
        self._questions = Counter(
            "corag_questions",
            "Questions by preset and outcome: answered, failed, refused, timed_out, left.",
            ("preset", "outcome"),
            registry=registry,
        )
        self._tokens = Counter(
            "corag_tokens",
            "Tokens by the role of the call, as papers count them (prompt, generated) and as computed.",
            ("role", "kind"),
            registry=registry,
        )
        self._seconds = Histogram(
            "corag_seconds",
            "Seconds by stage: queue, search, generate, score, and answer, the whole of it.",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._ready = Gauge("corag_ready", "1 if questions are taken, else 0.", registry=registry)
        waiting = Gauge("corag_queue", "Questions that wait for their turn.", registry=registry)
        waiting.set_function(lambda: admission.waiting)
        answering = Gauge("corag_in_flight", "Questions that are being answered.", registry=registry)
        answering.set_function(lambda: admission.answering)

    def request(self, route: str, status: int) -> None:
        """Count an HTTP request. ``route``: one of a fixed few, never what a caller wrote."""
        self._requests.labels(route, str(status)).inc()

    def count_outcome(self, preset: str, outcome: str) -> None:
        """Count a question by its outcome."""
        self._questions.labels(preset, outcome).inc()

    def count_answer(self, row: Row, waited_s: float) -> None:
        """Add a question's tokens and seconds, whatever its outcome."""
        for role, usage in row.usage.items():
            self._tokens.labels(role, "prompt").inc(usage.prompt)
            self._tokens.labels(role, "generated").inc(usage.generated)
            self._tokens.labels(role, "computed").inc(usage.computed)
        for step in row.steps:
            self._seconds.labels(step.kind).observe(step.seconds)
        self._seconds.labels("queue").observe(waited_s)
        self._seconds.labels("answer").observe(row.seconds)

    def render(self, ready: bool) -> bytes:
        """Return all figures as Prometheus reads them."""
        self._ready.set(int(ready))
        return generate_latest(self.registry)
