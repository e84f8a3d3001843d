"""A real server on a free port, in a process of its own, and a client for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from proctor.server.app import Options, create_app
from proctor.server.auth.tokens import first_admin
from proctor.server.serving import Address, http_server
from proctor.server.state import Mode
from proctor.settings import Settings
from proctor.store.open import open_store


@dataclass(slots=True)
class Serving:
    """A server that runs, and what talks to it."""

    process: subprocess.Popen[str] | None
    address: str
    client: httpx.Client
    home: Path
    said: list[str]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


Start = Callable[..., Serving]


def begin(home: Path, *args: str, env: dict[str, str] | None = None) -> Serving:
    """Start a server and wait until it answers."""
    with (home / "server.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "proctor.cli.main", "serve", "--port", "0", *args],
            cwd=home,
            env={**os.environ, "PROCTOR_HOME": str(home / ".proctor"), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip())
        if line.startswith("http"):
            break
    else:
        process.wait()
        process.stdout.close()
        pytest.fail(f"the server ended: {said} {(home / 'server.log').read_text()}")
    address = said[-1].split()[0]
    client = httpx.Client(base_url=address, timeout=30, verify=False, trust_env=False)
    return Serving(process, address, client, home, said)


def finish(serving: Serving) -> None:
    """End a server, if it is not over."""
    serving.client.close()
    if serving.process.poll() is None:
        serving.process.terminate()
        try:
            serving.process.wait(10)
        except subprocess.TimeoutExpired:
            serving.process.kill()
    serving.process.wait()
    if serving.process.stdout:
        serving.process.stdout.close()


@contextmanager
def running(home: Path, *args: str, env: dict[str, str] | None = None) -> Iterator[Serving]:
    """A server while the block lasts."""
    found = begin(home, *args, env=env)
    try:
        yield found
    finally:
        finish(found)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Start]:
    """Start servers: `serve("--port", "0", env={...})`. Each test has a home of its own."""
    started: list[Serving] = []

    def start(*args: str, env: dict[str, str] | None = None, home: Path = tmp_path) -> Serving:
        started.append(begin(home, *args, env=env))
        return started[-1]

    yield start
    for each in started:
        finish(each)


@pytest.fixture
def server(serve: Start) -> Serving:
    """One server of one person."""
    return serve()


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that the tests of a module share."""
    return tmp_path_factory.mktemp("home")


@contextmanager
def here(home: Path, mode: Mode = Mode.LOCAL) -> Iterator[Serving]:
    """A real server in a thread of the tests, with an engine in a process of its own."""
    settings = Settings(
        home=home / ".proctor", output_dir=home / "results", rollouts_dir=home / "rollouts", serve_parallel=2
    )
    bound, said, started = Address(port=0).listen(), [], threading.Event()

    def ready(address: str) -> None:
        said.append(address)
        started.set()

    app = create_app(settings, mode, Options(engine=True))
    server = http_server(app, bound, ready=ready)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])), daemon=True)
    thread.start()
    assert started.wait(30)
    client = httpx.Client(base_url=said[0], timeout=30, trust_env=False)
    try:
        yield Serving(None, said[0], client, home, said)
    finally:
        client.close()
        server.should_exit = True
        thread.join(20)
        bound.close()


@pytest.fixture(scope="module")
def one_server(shared_home: Path) -> Iterator[Serving]:
    """One server of one person for all tests of a module."""
    with here(shared_home) as found:
        yield found


@pytest.fixture(scope="module")
def team_server(shared_home: Path) -> Iterator[Serving]:
    """A server that needs tokens; its client is the administrator's."""
    with open_store(str(shared_home / ".proctor/proctor.db")) as store:
        token = first_admin(store)
    with here(shared_home, Mode.TOKENS) as found:
        found.client.headers["Authorization"] = f"Bearer {token}"
        yield found


def eventually(look: Callable[[], object], *, within_s: float = 30.0) -> object:
    """What a look finds at last; fails when it finds nothing in time."""
    deadline = time.monotonic() + within_s
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            pytest.fail("it did not happen in time")
        time.sleep(0.05)


def ended(client: httpx.Client, run: str, *, within_s: float = 30.0) -> dict[str, object]:
    """The run, when it is over."""

    def look() -> object:
        rows = client.get("/api/runs", params={"limit": 500}).json()["items"]
        row = next(row for row in rows if row["id"] == run)
        return row if row["status"] in {"done", "cancelled", "interrupted"} else None

    return eventually(look, within_s=within_s)  # type: ignore[return-value]
