"""A submission is one transaction: made once, with its audit and its key, and answered from its plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server import tasks

from proctor.errors import StoreError
from proctor.server.submit import known_tasks
from proctor.store.open import open_store
from proctor.store.service.answers import Answers
from proctor.store.store import Store

pytestmark = pytest.mark.needs("bubblewrap")


@pytest.fixture(scope="module")
def hello(one_server) -> str:
    return str(tasks.upload(one_server.client)["id"])


@contextmanager
def store_of(server) -> Iterator[Store]:
    with open_store(str(server.home / ".proctor/proctor.db")) as store:
        yield store


def submit(server, spec: Any, key: str = "", **more: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return server.client.post("/api/runs", json={"spec": spec, "start": False, **more}, headers=headers)


def named(server, name: str) -> list[str]:
    return [row["id"] for row in server.client.get("/api/runs", params={"name": name}).json()["items"]]


@pytest.mark.parametrize("kind", ["task", "experiment"])
def test_the_answer_is_the_run_as_it_is_read_later(one_server, hello: str, kind: str):
    spec = tasks.spec(hello, rollouts=2) | {"tags": ["a"], "notes": "b"}
    spec["tasks"][0]["agent"] = ["nop", "oracle"]
    if kind == "experiment":
        spec = {"name": "points", "experiment": "memory_db"}
    answer = submit(one_server, spec)
    assert answer.status_code == 201, answer.text
    assert answer.json() == one_server.client.get(answer.headers["location"]).json()


def test_a_run_that_waits_has_no_folder(one_server, hello: str):
    run = submit(one_server, tasks.spec(hello)).json()["id"]
    with store_of(one_server) as store:
        assert not Path(store.run(run).folder).exists()


def test_the_task_of_an_upload_is_read_once(one_server, hello: str, monkeypatch):
    assert submit(one_server, tasks.spec(hello)).status_code == 201
    monkeypatch.setattr(known_tasks, "find_tasks", None)
    assert submit(one_server, tasks.spec(hello)).status_code == 201


def test_a_server_that_died_before_its_answer_made_one_run(one_server, hello: str, monkeypatch):
    def dies(*_: object, **__: object) -> None:
        raise StoreError("the server died")

    spec = tasks.spec(hello) | {"name": "died"}
    with monkeypatch.context() as patch:
        patch.setattr(Answers, "keep", dies)
        assert submit(one_server, spec, "died").status_code >= 500
    made = named(one_server, "died")
    assert len(made) == 1
    again = submit(one_server, spec, "died")
    assert (again.status_code, again.json()["id"]) == (201, made[0])
    assert again.headers["idempotency-replayed"] == "true"
    assert submit(one_server, spec, "died").content == again.content
    assert submit(one_server, spec, "died", notes="another").status_code == 422
    assert named(one_server, "died") == made


def test_the_same_request_twice_at_once_makes_one_run(one_server, hello: str, monkeypatch):
    spec = tasks.spec(hello) | {"name": "twice"}
    first = submit(one_server, spec, "twice")
    find, looks = Answers.find, iter([None])
    monkeypatch.setattr(Answers, "find", lambda *asked: next(looks, find(*asked)))
    second = submit(one_server, spec, "twice")
    assert second.headers["idempotency-replayed"] == "true"
    assert second.content == first.content
    assert named(one_server, "twice") == [first.json()["id"]]
    with store_of(one_server) as store:
        deeds = [each.target for each in store.service.audit.page(None) if each.action == "run.submit"]
    assert deeds.count(first.json()["id"]) == 1
    assert len(set(deeds)) == len(deeds)
    assert first.json()["id"] == deeds[0]
