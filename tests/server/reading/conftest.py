"""One server for all reading tests, on a store with two projects; and who asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs
from tests.made_rollouts import Study, record
from tests.postgres import BOTH, database
from tests.server.conftest import running

from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.runfolder.read import RunData
from proctor.server.auth.tokens import make_token
from proctor.store.blobs import FolderBlobs
from proctor.store.open import open_store
from proctor.store.store import Store

FIRST, SECOND, LIVE, OTHERS = (
    "20260101T000000-aaaaaa",
    "20260102T000000-bbbbbb",
    "20260103T000000-cccccc",
    "20260104T000000-dddddd",
)
LONG = "x" * 40_000
HUGE, HUGE_END = 1 << 30, b"\nthe last Word\n"
HOSTILE = "<script>alert(1)</script>\n"
CTRF = {
    "results": {
        "tests": [
            {"name": "test_one", "status": "passed", "duration": 12},
            {"name": "test_two", "status": "failed", "duration": 3, "message": "\nexpected 4, found 5\nmore"},
        ]
    }
}
USED = {
    "at_s": [2.0, 3.0, 5.0],
    "memory_bytes": [10, 20, 15],
    "cpu_s": [1.0, 3.0, None],
    "limits": {"memory_bytes": 100, "cpus": 2.0},
    "events": [{"at_s": 3.0, "kind": "oom", "text": "1 process killed for memory"}],
}
ATIF = {
    "schema_version": "ATIF-v1.4",
    "agent": {"name": "terminal", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "do it", "timestamp": "2026-01-01T00:00:00+00:00"},
        *(
            {
                "step_id": at,
                "source": "agent",
                "message": f"step {at}",
                "tool_calls": [
                    {"tool_call_id": "c", "function_name": "shell", "arguments": {"command": "ls"}}
                ],
                "observation": {"results": [{"source_call_id": "c", "content": LONG if at == 3 else "ok"}]},
                "metrics": {"prompt_tokens": 5},
            }
            for at in range(2, 1001)
        ),
    ],
}


@dataclass(slots=True)
class Reading:
    """A server on a filled store, and its readers."""

    admin: httpx.Client
    ours: httpx.Client
    """Sees the project `default` only."""
    theirs: httpx.Client
    """Sees the project `others` only."""
    home: Path
    pid: int
    url: str

    @property
    def store(self) -> Store:
        return open_store(self.url)

    def get(self, path: str, **params: Any) -> Any:
        answer = self.ours.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="session", params=BOTH)
def reading(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reading]:
    home = tmp_path_factory.mktemp("reading")
    if request.param == "sqlite":
        with serving(home, str(home / ".proctor" / "proctor.db")) as found:
            yield found
    else:
        with database(request) as url, serving(home, url) as found:
            yield found


@contextmanager
def serving(home: Path, url: str) -> Iterator[Reading]:
    """A server on a filled store."""
    with open_store(url) as store:
        fill(store, home)
        secrets = [make_token(store, **each, expires_at=None)[0] for each in _TOKENS]
    with running(home, "--tokens", env={"PROCTOR_STORE": url, "PROCTOR_SERVE_RATE": "100000"}) as server:
        clients = [
            httpx.Client(base_url=server.address, timeout=30, headers={"Authorization": f"Bearer {each}"})
            for each in secrets
        ]
        yield Reading(clients[0], clients[1], clients[2], home, server.process.pid, url)
        for each in clients:
            each.close()


_TOKENS = (
    {"name": "admin", "user": "ada", "scopes": ("admin",), "project": None},
    {"name": "ours", "user": "bob", "scopes": ("read",), "project": "default"},
    {"name": "theirs", "user": "eve", "scopes": ("read",), "project": "others"},
)


def fill(store: Store, home: Path) -> None:
    blobs = FolderBlobs(home / ".proctor" / "blobs")
    first = Study().cell("org/a", [1.0, 1.0, 0.0], "oracle").cell("org/b", [1.0, 0.0, 0.0], "oracle")
    first.cell("org/a", [0.0, 0.0, "sandbox_error"], "nop").cell("org/b", [0.0, 0.0, 0.0], "nop")
    put(store, home, FIRST, first.data(), lambda trial, tries: with_files(trial, tries, blobs))
    second = Study().cell("org/a", [1.0, 1.0, 1.0], "oracle").cell("org/b", [1.0, 1.0, 0.0], "oracle")
    put(store, home, SECOND, second.data(), lambda _, tries: tries)
    live = Study().cell("org/a", [1.0, None, None], "oracle")
    put(store, home, LIVE, live.data(), lambda _, tries: tries, status=RunStatus.RUNNING, name="going")
    put(store, home, OTHERS, second.data(), lambda _, tries: tries, name="secret")
    with store._db.write() as tx:
        tx.execute("INSERT INTO projects (id, title, created_at) VALUES ('others', 'Others', 0)", {})
        tx.execute(
            "INSERT INTO run_service (run_id, project, owner, wanted, queued_at) "
            "VALUES (:run, 'others', 'eve', 0, 0)",
            {"run": OTHERS},
        )


def put(store: Store, home: Path, run_id: str, data: RunData, change: Any, **more: Any) -> None:
    folder = home / "data" / run_id
    folder.mkdir(parents=True, exist_ok=True)
    at = 1_760_000_000.0 + int(run_id[7]) * 86_400
    fields = {"name": "study", "status": RunStatus.DONE, "tags": ("nightly",), "folder": str(folder), **more}
    info = RunInfo(
        id=run_id, kind="task", created_at=at, started_at=at, finished_at=at + 60, seed=1,
        total=len(data.trials), resolved={"budget_usd": 5.0}, **fields,
    )  # fmt: skip
    pairs = [(each.planned, list(change(each.planned, each.attempts))) for each in data.trials]
    attempts = [(record_, at_ == len(tries) - 1) for _, tries in pairs for at_, record_ in enumerate(tries)]
    store.import_run(info, [trial for trial, _ in pairs], attempts, warnings=["mind the gap"])


def with_files(
    trial: PlannedTrial, tries: tuple[AttemptRecord, ...], blobs: FolderBlobs
) -> Iterator[AttemptRecord]:
    """The third trial has every kind of file; the lost one was tried twice."""
    for each in tries:
        if trial.index == 2:
            yield record(trial, each.outcome, each.reward, artifacts=files(blobs), suspect=False)
        elif trial.index == 1:
            yield record(trial, each.outcome, each.reward, artifacts=(huge(blobs),))
        elif trial.index == 0:
            yield record(trial, each.outcome, each.reward, suspect=True)
        elif each.outcome == "sandbox_error":
            yield record(trial, "sandbox_error", failure=lost(1))
            yield record(trial, "sandbox_error", number=2, failure=lost(2))
        else:
            yield each


def huge(blobs: FolderBlobs) -> Artifact:
    """A log of a gigabyte, most of which is a hole; its last line has a word."""
    made = blobs.put_bytes(b"first line\n", "logs/huge.txt")
    with blobs.path(made.digest).open("r+b") as file:
        file.truncate(HUGE)
        file.seek(HUGE - len(HUGE_END))
        file.write(HUGE_END)
    return structs.replace(made, size_bytes=HUGE)


def lost(number: int) -> Failure:
    return Failure(phase="start", type="SandboxError", message=f"no room for {number} on /dev/sda{number}")


def files(blobs: FolderBlobs) -> tuple[Artifact, ...]:
    log = b"".join(b"line %d\n" % at for at in range(50_000)) + b"the Needle is here\nend\n"
    return (
        blobs.put_bytes(json.dumps(ATIF).encode(), "trajectory.json", "application/json"),
        blobs.put_bytes(json.dumps(CTRF).encode(), "verifier/ctrf.json", "application/json"),
        blobs.put_bytes(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n", "artifacts/diff.patch", "text/x-diff"),
        blobs.put_bytes(log, "logs/agent.txt"),
        blobs.put_bytes(json.dumps(USED).encode(), "resources.json", "application/json"),
        blobs.put_bytes(b"1 failed\n", "logs/eval.log"),
        blobs.put_bytes(HOSTILE.encode(), "artifacts/files/evil.html", "text/html"),
    )
