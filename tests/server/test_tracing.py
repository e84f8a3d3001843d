"""Traces: what is sent to a collector, and that nothing of it is imported without one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from tests.made_rollouts import planned, record
from tests.server import tasks
from tests.server.conftest import ended, eventually

from proctor.errors import UsageError
from proctor.model.record import Failure
from proctor.server.tracing.tracing import open_tracing, traced_by
from proctor.settings import Settings

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """A collector on loopback: its address, and the spans that it was sent."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans: list[Any] = []

    class Collect(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            sent = ExportTraceServiceRequest.FromString(body)
            spans.extend(
                span for part in sent.resource_spans for scope in part.scope_spans for span in scope.spans
            )
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing to do."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collect)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    server.server_close()
    thread.join()


def values(span: Any) -> dict[str, Any]:
    found = {each.key: each.value for each in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in found.items()}


def test_nothing_is_imported_without_a_collector():
    code = (
        "import sys; from proctor.server.app import create_app; from proctor.settings import Settings; "
        "create_app(Settings()); "
        "sys.exit(any(each.startswith('opentelemetry.sdk') for each in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_collector_without_the_package_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UsageError, match=r"proctor-bench\[otel\]"):
        open_tracing(Settings(otel_endpoint="http://127.0.0.1:1"), "server")


def test_an_attempt_is_a_span_with_its_phases_below_its_run():
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    tracing = traced_by(kept, "engine")
    run = tracing.run("20260101T000000-aaaaaa", project="red")
    trial = planned(3, "org/a", "terminal", model="some/model")
    lost = Failure(phase="start", type="SandboxError", message="no room for the secret word")
    done = record(trial, "passed", phases_s={"start": 1.0, "agent": 2.0})
    run.ended(trial, done, counts=True)
    run.ended(trial, record(trial, "sandbox_error", failure=lost), counts=False)
    run.finish("done")
    tracing.close()
    spans = kept.get_finished_spans()
    whole = next(each for each in spans if each.name == "run")
    first, second = (each for each in spans if each.name == "attempt")
    phases = [each for each in spans if each.parent and each.parent.span_id == first.context.span_id]
    assert [each.name for each in phases] == ["phase start", "phase agent"]
    assert phases[1].start_time - phases[0].start_time == 1_000_000_000
    assert first.parent.span_id == second.parent.span_id == whole.context.span_id
    assert first.attributes["proctor.outcome"] == "passed"
    assert first.attributes["proctor.model"] == "some/model"
    assert second.status.description == "start: SandboxError"
    assert whole.attributes["proctor.status"] == "done"
    assert "secret word" not in str([each.to_json() for each in spans])


@pytest.mark.needs("bubblewrap")
def test_a_server_sends_its_requests_and_the_engine_its_runs(serve, collector):
    address, spans = collector
    server = serve(env={"PROCTOR_OTEL_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "200"})
    client: httpx.Client = server.client
    upload = tasks.upload(client)["id"]
    body = {"spec": tasks.spec(upload)}
    run = client.post("/api/runs", json=body, headers={"traceparent": PARENT}).json()["id"]
    ended(client, run)
    assert client.get("/api/runs/none-such").status_code == 404

    def named(name: str) -> list[Any]:
        return [each for each in spans if each.name == name]

    eventually(lambda: named("run") and named("GET /api/runs/{run}"))
    submitted = named("POST /api/runs")[0]
    assert submitted.trace_id.hex() == PARENT.split("-")[1]
    assert values(submitted)["http.response.status_code"] == 201
    assert values(named("GET /api/runs/{run}")[0])["http.response.status_code"] == 404
    assert values(named("run")[0]) == {
        "proctor.run": run,
        "proctor.project": "default",
        "proctor.status": "done",
    }
    assert values(named("attempt")[0])["proctor.outcome"] == "passed"
    assert named("phase agent")
    assert "none-such" not in str(spans)
    assert server.stop() == 0
