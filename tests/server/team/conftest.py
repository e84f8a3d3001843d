"""The state of a server without its HTTP, with a clock that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.server import tasks

from proctor.server.auth.caller import EVERYTHING, Caller
from proctor.server.state import Mode, State, open_state
from proctor.server.upload import Uploading, keep
from proctor.settings import Settings
from proctor.store.store import Store

ME = Caller("ada", EVERYTHING)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """A server's state at a fixed time."""
    settings = Settings(
        home=tmp_path / "home",
        rollouts_dir=tmp_path / "rollouts",
        baselines=tmp_path / "baselines.json",
        webhook_allow=("127.0.0.1",),
        serve_url="https://proctor.example",
    )
    found = open_state(settings, Mode.LOCAL)
    found.clock = lambda: 1_800_000_000.0
    yield found
    found.close()


@pytest.fixture
def store(state: State) -> Iterator[Store]:
    """A store of it."""
    with state.resources.stores.borrow() as found:
        yield found


@pytest.fixture
def hello(state: State, store: Store, tmp_path: Path) -> str:
    """An uploaded task."""
    archive = tmp_path / "hello.zip"
    archive.write_bytes(tasks.packed(tasks.files()))
    return keep(store, state, ME, archive, Uploading(filename="hello.zip"))[0].id


@dataclass
class Listener:
    """A little server that keeps what it is sent and answers as it is told."""

    url: str = ""
    got: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    holds: dict[str, threading.Event] = field(default_factory=dict)
    """Path → what an answer there waits for."""
    body: bytes = b""
    """What is answered in place of the comments."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()

    class Handler(BaseHTTPRequestHandler):
        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.got.append((self.command, self.path, dict(self.headers), body))
            if self.path in found.holds:
                found.holds[self.path].wait(30)
            status = found.statuses.pop(0) if found.statuses else 200
            self.send_response(status)
            self.end_headers()
            if self.command == "POST" and "comments" in self.path:
                found.comments.append({"id": len(found.comments) + 1, **json.loads(body)})
            with suppress(OSError):  # whoever asked may have enough
                self.wfile.write(found.body or json.dumps(found.comments).encode())

        do_GET = do_POST = do_PATCH = _take  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    server.server_close()


Submitted = Callable[..., str]


@pytest.fixture
def submitted(state: State, store: Store, hello: str) -> Submitted:
    """Submit a run that nothing executes; its id."""
    from proctor.server.submit.making import submit
    from proctor.server.submit.reading import Submission

    def make(**more: Any) -> str:
        return submit(store, state, ME, Submission(spec=tasks.spec(hello), **more)).info.id

    return make
