"""Rights end when they end, also for who is in the middle of a stream."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.server.test_auth import person, projects
from tests.taking import take

from proctor.model.place import attempt_folder
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.service.ownership import Owner
from proctor.store.service.uploads import Upload

__all__ = ["projects"]

ENDS_S = 10.0
"""A stream without events would be told of nothing for longer than that, and lasts an hour."""
RUN = "20260101T000000-eeeeee"
LOG = f"/api/trials/{RUN}/0/logs/agent.txt/follow"
OLDER_LOG = "/api/tasks/up_live/runs/1/logs?follow=true"


@contextmanager
def streaming(client: httpx.Client, path: str) -> Iterator[threading.Event]:
    """Read a stream in a thread until it ends, which sets the event; begins when bytes are here."""
    opened, over = threading.Event(), threading.Event()

    def read() -> None:
        with client.stream("GET", path, timeout=30) as answer:
            assert answer.status_code == 200, answer.read()
            for _ in answer.iter_raw():
                opened.set()
        over.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert opened.wait(20)
    yield over
    thread.join(1)


@pytest.fixture(scope="module")
def live_log(team_server) -> None:
    """The log of an attempt of project `red` that runs and writes nothing more."""
    team_server.client.put("/api/projects/red", json={"title": "Red"})
    folder = Path(team_server.home) / "live"
    trial = PlannedTrial(key="k", index=0, kind="task", subject="s", subject_digest="d", body=0, agent="nop")
    info = RunInfo(
        id=RUN, name="live", kind="task", status=RunStatus.RUNNING, created_at=1.0, seed=1, folder=str(folder)
    )
    with open_store(str(team_server.home / ".proctor/proctor.db")) as store:
        store.create_run(info, Plan(trials=(trial,)), owner=Owner(project="red", user="ada", wanted=False))
        assert take(store, RUN, worker="w", lease_s=600)
        upload = Upload(
            id="up_live", project="red", owner="ada", name="live", description="", filename="live.zip",
            size_bytes=0, blob="", digest="d", subject="s", findings=[], agent="nop", model="", num_runs=1,
        )  # fmt: skip
        store.service.uploads.add(upload)
        store.service.uploads.set_run(upload.id, RUN)
    logs = folder / attempt_folder(trial, 1) / "logs"
    logs.mkdir(parents=True)
    (logs / "agent.txt").write_text("hello\n")


def revoke(server, client: httpx.Client, token: str) -> None:
    assert server.client.delete(f"/api/tokens/{token}").status_code == 204


def remove_member(server, client: httpx.Client, token: str) -> None:
    assert server.client.delete("/api/projects/red/members/zoe").status_code == 204


def disable(server, client: httpx.Client, token: str) -> None:
    assert server.client.patch("/api/users/zoe", json={"disabled": True}).status_code == 200


def lower(server, client: httpx.Client, token: str) -> None:
    """As another server on the same store would."""
    with open_store(str(server.home / ".proctor/proctor.db")) as store, store._db.write() as tx:
        tx.change("UPDATE tokens SET scopes = 'run' WHERE id = :id", {"id": token})


@pytest.mark.parametrize("end", [revoke, remove_member, disable, lower])
@pytest.mark.parametrize("of", ["/api/events", LOG, OLDER_LOG])
def test_a_stream_ends_when_the_right_to_read_it_does(
    team_server, projects, live_log, end: Callable[..., None], of: str
):
    team_server.client.patch("/api/users/zoe", json={"disabled": False})
    with person(team_server, "red", user="zoe") as zoe:
        token = newest_token(team_server)
        with streaming(zoe, of) as over:
            end(team_server, zoe, token)
            assert over.wait(ENDS_S)
    team_server.client.patch("/api/users/zoe", json={"disabled": False})


def newest_token(server) -> str:
    items = server.client.get("/api/tokens", params={"limit": 500}).json()["items"]
    return str(max(items, key=lambda token: token["created_at"])["id"])


def test_a_stream_ends_when_the_session_is_signed_out(team_server, projects):
    body = {"name": "test", "user": "yan", "project": "red", "scopes": ["read"]}
    secret = team_server.client.post("/api/tokens", json=body).json()["token"]
    with httpx.Client(
        base_url=team_server.address, headers={"X-Proctor-Request": "1"}, trust_env=False
    ) as page:
        assert page.post("/api/session", json={"token": secret}).status_code == 201
        with streaming(page, "/api/events") as over:
            assert page.delete("/api/session", headers={"X-Proctor-Request": "1"}).status_code == 204
            assert over.wait(ENDS_S)


def test_a_stream_ends_when_its_project_is_deleted(team_server):
    team_server.client.put("/api/projects/gone", json={"title": "Gone"})
    with person(team_server, "gone", user="xin") as xin, streaming(xin, "/api/events") as over:
        assert team_server.client.delete("/api/projects/gone").status_code == 204
        assert over.wait(ENDS_S)


def test_a_stream_goes_on_while_somebody_elses_rights_end(team_server, projects, live_log):
    person(team_server, "red", user="wim").close()
    with (
        person(team_server, "red", user="vic") as vic,
        vic.stream("GET", "/api/events", timeout=30) as answer,
    ):
        lines = (line for line in answer.iter_lines() if line.startswith("data:"))
        assert json.loads(next(lines)[5:])["kind"] == "stream.open"
        assert team_server.client.delete("/api/projects/red/members/wim").status_code == 204
        with open_store(str(team_server.home / ".proctor/proctor.db")) as store:
            store.service.queue.tell(RUN, "run.later", {})
        assert json.loads(next(lines)[5:])["kind"] == "run.later"
