"""Send traces to a collector, where one is configured; otherwise nothing of OpenTelemetry is imported.

Spans are written when what they tell of is over, with the times that Proctor measured itself. They name
routes, runs, tasks, agents and outcomes, and never an address with its values, a header or a text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from time import time_ns
from typing import TYPE_CHECKING, Any

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease
from proctor.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""They may hold a key."""
_PATH = "/v1/traces"
_TIMEOUT_S = 2.0
"""For one batch: a collector that is away must not hold up a stop."""
_SERVER_ERROR = 500


class Tracing:
    """Writes spans. Every method is quick: a thread sends them in batches."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("proctor")
        self._from_headers = TraceContextTextMapPropagator()

    def request(
        self, method: str, route: str, status: int, took_s: float, headers: Mapping[str, str]
    ) -> None:
        """A request that was answered; part of the caller's trace where they sent a `traceparent`."""
        from opentelemetry.trace import SpanKind

        parent = self._from_headers.extract({"traceparent": headers.get("traceparent", "")})
        ended = time_ns()
        span = self._tracer.start_span(
            f"{method} {route}",
            parent,
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
            },
            start_time=ended - int(took_s * 1e9),
        )
        if status >= _SERVER_ERROR:
            _failed(span, str(status))
        span.end(ended)

    def run(self, run_id: str, **about: str) -> RunTrace:
        """A run that begins or goes on."""
        attributes = {"proctor.run": run_id, **{f"proctor.{name}": value for name, value in about.items()}}
        return RunTrace(self._tracer, self._tracer.start_span("run", attributes=attributes))

    def close(self) -> None:
        """Send what is left, and end."""
        self._provider.shutdown()


class RunTrace:
    """The span of a run. Listens to its worker: every attempt that ends is a span below it."""

    def __init__(self, tracer: Any, span: Span) -> None:
        self._tracer, self._span = tracer, span

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Nothing to do: a span is written at its end."""

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """An attempt is over: its span, and one for each of its phases, one after the other."""
        from opentelemetry.trace import set_span_in_context

        about: dict[str, Any] = {
            "proctor.trial": trial.index,
            "proctor.subject": trial.subject,
            "proctor.attempt": record.number,
            "proctor.outcome": record.outcome.value,
            "proctor.counts": counts,
        }
        optional = {"agent": trial.agent, "model": trial.model, "reward": record.reward}
        about |= {f"proctor.{name}": value for name, value in optional.items() if value is not None}
        began, ended = _ns(record.started_at), _ns(record.ended_at)
        span = self._tracer.start_span(
            "attempt", set_span_in_context(self._span), attributes=about, start_time=began
        )
        within, at = set_span_in_context(span), began
        for name, took_s in record.phases_s.items():
            phase = self._tracer.start_span(f"phase {name}", within, start_time=at)
            at += _ns(took_s)
            phase.end(at)
        if record.failure:
            _failed(span, f"{record.failure.phase}: {record.failure.type}")
        span.end(max(ended, began))

    def finish(self, status: str = "", problem: str = "") -> None:
        """The run has ended, or stopped for now."""
        self._span.set_attribute("proctor.status", status)
        if problem:
            _failed(self._span, problem)
        self._span.end()


def open_tracing(settings: Settings, part: str, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """What sends spans of a part of the service; None where no collector is configured."""
    if not settings.otel_endpoint and not any(environ.get(name) for name in VARIABLES):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise UsageError(
            "traces are configured, and OpenTelemetry is not installed: pip install 'proctor-bench[otel]', "
            f"or take back PROCTOR_OTEL_ENDPOINT and {VARIABLES[1]}"
        ) from error
    where = settings.otel_endpoint.rstrip("/") + _PATH if settings.otel_endpoint else None
    return traced_by(OTLPSpanExporter(endpoint=where, timeout=_TIMEOUT_S), part)


def traced_by(exporter: SpanExporter, part: str) -> Tracing:
    """What sends spans by an exporter."""
    from importlib.metadata import version

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = {"service.name": f"proctor-{part}", "service.version": version("proctor-bench")}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)


def _failed(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))


def _ns(seconds: float) -> int:
    with suppress(OverflowError, ValueError):
        return int(seconds * 1e9)
    return 0
