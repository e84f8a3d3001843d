"""The API under requests that nobody would write: generated from its description, and archives gone wrong.

A short form runs with every test run; `make soak` has 20,000 requests and 1,000 archives.
"""

from __future__ import annotations

import math
import os
import random
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server import tasks
from tests.server.conftest import Serving, begin, finish

pytestmark = pytest.mark.fault

SOAK = bool(os.environ.get("PROCTOR_SOAK"))
REQUESTS = 20_000 if SOAK else 300
ARCHIVES = 1_000 if SOAK else 100
STREAMS = ("/api/events", "/follow")
"""They end when the server does."""
LEAKS = ("Traceback", "sqlite3", "psycopg", "site-packages")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Serving:
    """A server that needs tokens, asked by its administrator: everything is reached."""
    found = begin(tmp_path_factory.mktemp("home"), "--tokens")
    token = next(line for line in found.said if "pt_" in line).rpartition(" ")[2]
    found.client.headers["Authorization"] = f"Bearer {token}"
    yield found
    finish(found)


def failures(server: Serving) -> list[str]:
    """What the server wrote about mistakes of its own."""
    log = (server.home / "server.log").read_text()
    return [line for line in log.splitlines() if "Traceback" in line or "Error:" in line]


@pytest.mark.filterwarnings("ignore:.*gc_callback:pytest.PytestUnraisableExceptionWarning")
def test_no_request_that_the_description_allows_makes_the_server_fail(server):
    """Generated requests, good and bad: no answer is a failure of the server or shows its inside."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    made = tasks.upload(server.client)
    run = server.client.post("/api/runs", json={"spec": tasks.spec(made["id"]), "start": False}).json()["id"]
    schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
    operations = [found.ok() for found in schema.get_all_operations()]
    asked = [each for each in operations if not any(part in each.path for part in STREAMS)]
    asked = [each for each in asked if (each.method.upper(), each.path) != ("DELETE", "/api/session")]
    each = math.ceil(REQUESTS * 1.1 / len(asked))  # some have fewer ways to be asked
    known = {"run": run, "index": 0, "task": made["id"], "upload": made["id"], "attempt": 1}
    count = 0

    def ask(operation, case) -> None:
        nonlocal count
        count += 1
        if operation.method.upper() == "GET":  # so that more than 404 is reached
            case.path_parameters = {**case.path_parameters, **_some(known, case.path_parameters)}
        answer = _sent(server, case)
        if answer is None:
            return
        where = (operation.method, operation.path, answer.status_code)
        assert answer.status_code < 500 or answer.json()["code"] == "stopping", (where, answer.text[:500])
        if answer.status_code >= 400:
            assert not any(leak in answer.text for leak in LEAKS), (where, answer.text[:500])
            assert answer.headers["content-type"].startswith("application/problem+json"), where
            assert {"type", "title", "status", "code", "detail"} <= answer.json().keys(), where

    for operation in asked:
        rules = settings(
            max_examples=each,
            deadline=None,
            database=None,
            derandomize=not SOAK,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )

        @rules
        @given(case=operation.as_strategy())
        def one(case) -> None:
            ask(case.operation, case)

        one()
        print(f"{count} requests: {operation.method.upper()} {operation.path}")  # noqa: T201 - a soak is long
    assert count >= REQUESTS
    assert failures(server) == []
    assert server.client.get("/livez").status_code == 200


def _some(known: dict[str, object], given: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in known.items() if name in given}


def _sent(server: Serving, case) -> httpx.Response | None:
    """The answer to a case; None where no client could send it."""
    given = case.as_transport_kwargs(base_url=server.address)
    files = _parts(given.pop("files", None))
    given.pop("cookies", None)
    headers = {name: str(value) for name, value in (given.pop("headers", None) or {}).items()}
    headers.pop("Authorization", None)
    try:
        return server.client.request(
            given["method"],
            given["url"],
            params=given.get("params"),
            json=given.get("json"),
            content=given.get("data") if isinstance(given.get("data"), bytes | str) else None,
            files=files,
            headers={**headers, "X-Proctor-Request": "1"},
            timeout=30,
        )
    except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError, TypeError, ValueError):
        return None


def _parts(files: Any) -> list[tuple[str, tuple[str | None, bytes]]] | None:
    """The parts of a form as a client can send them: what was made up may be of any type."""
    if not files:
        return None
    found = []
    for name, value in files.items() if isinstance(files, dict) else files:
        label, content = value[:2] if isinstance(value, tuple) else (None, value)
        sent = content if isinstance(content, bytes) else str(content).encode(errors="replace")
        found.append((str(name), (label, sent)))
    return found


def test_no_archive_makes_the_server_fail_or_writes_outside_its_folder(server):
    """Archives that were cut, mixed up, nested, linked and renamed: each is refused or is a task."""
    chance = random.Random(7)
    before = _outside(server.home)
    known = {"taken": 0, "refused": 0}
    for _ in range(ARCHIVES):
        answer = server.client.post(
            "/api/tasks", files={"file": ("task.zip", _wrong(chance), "application/zip")}
        )
        assert answer.status_code in {201, 400, 413, 422}, answer.text[:500]
        assert str(server.home) not in answer.text
        known["taken" if answer.status_code == 201 else "refused"] += 1
    assert known["refused"] > ARCHIVES / 2
    assert _outside(server.home) == before
    assert list((server.home / ".proctor" / "uploads").glob(".check-*")) == []
    assert failures(server) == []


def _outside(home: Path) -> set[str]:
    """What is beside the server's own folder."""
    return {each.name for each in (*home.iterdir(), *home.parent.iterdir())}


NAMES = (
    "../out",
    "/etc/out",
    "hello/../../out",
    "C:\\out",
    "hello/\x00out",
    "hello/" + "d/" * 300 + "out",
    "hello/task.toml/below",
    "HELLO/task.toml",
    "hello/tests",
    "hello/" + "n" * 300,
    "hello/\u202eout",
    "con/aux",
)


def _wrong(chance: random.Random) -> bytes:  # noqa: PLR0911 - one for each way
    """One archive, wrong in one of many ways."""
    whole = tasks.packed(tasks.files())
    match chance.randrange(7):
        case 0:
            return whole[: chance.randrange(len(whole))]
        case 1:
            changed = bytearray(whole)
            for _ in range(chance.randrange(1, 40)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            return bytes(changed)
        case 2:
            return chance.randbytes(chance.randrange(2000))
        case 3:
            return _with(chance.choice(NAMES), b"x")
        case 4:
            link = zipfile.ZipInfo("hello/link")
            link.external_attr = chance.choice((0o120777, 0o020666, 0o010666, 0o040777)) << 16
            return _with(link, b"/etc/passwd")
        case 5:
            return _with("hello/zeros", bytes(chance.choice((1 << 22, 1 << 24))))
        case _:
            text = chance.choice((b"\xff\xfe", b"version = [", b"a=1\n" * 1000, b"[" * 5000, b""))
            files = {**tasks.files(), "hello/task.toml": text.decode("latin-1")}
            return tasks.packed(files)


def _with(name: str | zipfile.ZipInfo, content: bytes) -> bytes:
    target = BytesIO(tasks.packed(tasks.files()))
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(name, content)
    return target.getvalue()
