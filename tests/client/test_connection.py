"""Requests that get lost, refusals, and streams that break: against a server that does these on purpose."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from proctor.client import connection, stream
from proctor.client.client import Client
from proctor.client.connection import checked_url
from proctor.errors import NotFoundError, RunHeldError, SpecError, StoreError, TaskError, UsageError


class Rough(BaseHTTPRequestHandler):
    """Answers from a list; what is None closes the line without a word."""

    answers: list[Any]
    asked: list[tuple[str, str, dict[str, str]]]

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append((self.command, self.path, dict(self.headers)))
        given = self.answers.pop(0) if self.answers else None
        if given is None:
            self.close_connection = True
            self.connection.close()
            return
        status, body, *more = given
        self.send_response(status)
        for name, value in (more[0] if more else {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    do_GET = do_POST = _answer  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def rough(monkeypatch) -> Iterator[Any]:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_S", 0.01)
    handler = type("Handler", (Rough,), {"answers": [], "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.url = f"http://127.0.0.1:{server.server_port}"
    yield handler
    server.shutdown()
    server.server_close()


def test_a_change_whose_answer_was_lost_is_sent_again_under_the_same_key(rough):
    rough.answers += [
        None,
        (503, {"code": "stopping"}),
        (429, {"code": "rate_limited"}, {"Retry-After": "0"}),
    ]
    rough.answers += [(201, {"id": "one"})]
    assert Client(rough.url, "pt_x").submit({"spec": {}}) == {"id": "one"}
    keys = {headers["Idempotency-Key"] for _, _, headers in rough.asked}
    assert (len(rough.asked), len(keys)) == (4, 1)
    assert rough.asked[0][2]["Authorization"] == "Bearer pt_x"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "not_found", NotFoundError),
        (400, "spec_invalid", SpecError),
        (400, "task_invalid", TaskError),
        (409, "run_held", RunHeldError),
        (429, "quota", UsageError),
        (401, "not_signed_in", UsageError),
        (302, "", UsageError),
        (500, "internal", StoreError),
    ],
)
def test_a_refusal_is_the_error_that_it_would_be_here(rough, status, code, kind):
    errors = [{"where": "a", "message": "x"}, {"where": "b", "message": "y"}]
    rough.answers += [(status, {"code": code, "detail": "A sentence", "errors": errors})]
    with pytest.raises(kind, match="A sentence") as raised:
        Client(rough.url).run("x")
    assert type(raised.value) is kind
    assert len(rough.asked) == 1


def test_a_server_that_never_answers_is_told_with_its_address(rough):
    client = Client(rough.url)
    client.connection.tries = 2
    with pytest.raises(StoreError, match="does not answer"):
        client.run("x")


def test_a_stream_that_breaks_goes_on_after_the_last_event(rough, monkeypatch):
    monkeypatch.setattr(stream.time, "sleep", lambda _: None)
    event = b'id: %d\nevent: trial.done\ndata: {"id": %d, "run": "r", "at": 1.0, "kind": "trial.done"}\n\n'
    rough.answers += [
        (200, b"retry: 1\n: hello\n\n" + event % (7, 7) + b"id: 8\ndata: {half"),
        None,
        (200, event % (8, 8)),
    ]
    events = Client(rough.url).events("r", after=6)
    found = []
    for each in events:
        found += [each.id] if each else []
        if len(found) == 2:
            break
    assert found == [7, 8]
    assert [headers.get("Last-Event-Id") for _, _, headers in rough.asked] == ["6", "7", "7"]


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://u:p@x", "http://x/?a=b"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(UsageError):
        checked_url(url)
