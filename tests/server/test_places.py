"""Paths of the server's machine are told only to who may run code there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.server import tasks
from tests.server.conftest import Serving
from tests.server.test_auth import person, projects

from proctor.model.trial import RunStatus
from proctor.server.places import Places
from proctor.settings import Settings
from proctor.store.open import open_store

__all__ = ["projects"]


def test_a_path_loses_where_it_is_and_one_inside_a_sandbox_stays(tmp_path: Path):
    places = Places(Settings(home=tmp_path / "home", output_dir=tmp_path / "results"))
    said = f"{tmp_path}/home/cache/a.tar: bad; in {tmp_path}/home, {tmp_path}/homely, /root/x, /tmp/y"
    assert places.hide(said.encode()) == f"cache/a.tar: bad; in , {tmp_path}/homely, /root/x, /tmp/y".encode()


@pytest.fixture
def member(team_server: Serving, projects: None) -> Iterator[httpx.Client]:
    with person(team_server, "red") as client:
        yield client


def test_a_failure_that_names_a_file_of_the_server_does_not_tell_a_member_where(team_server, member):
    spec = tasks.spec(tasks.upload(member)["id"])
    spec.pop("sandbox")
    run = member.post("/api/runs", json={"spec": spec, "start": False}).json()["id"]
    home = str(team_server.home / ".proctor")
    with open_store(f"{home}/proctor.db") as store:
        why = f"{home}/cache/images/x.tar: the image is damaged"
        store.service.queue.want(run, wanted=False, failure=why, event="run.failed")
        store.set_status(run, RunStatus.INTERRUPTED)
    for client, shown in ((member, "cache/images/x.tar: the image"), (team_server.client, why)):
        found = client.get(f"/api/runs/{run}")
        assert found.json()["failure"].startswith(shown)
        assert int(found.headers["content-length"]) == len(found.content)
    assert home not in member.get("/api/runs").text
    with member.stream("GET", "/api/events", params={"after": 0, "run": run}) as stream:
        told = ""
        for part in stream.iter_text():
            told += part
            if "run.failed" in told:
                break
    assert home not in told
