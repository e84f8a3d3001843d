"""Runs that start by themselves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.server import tasks

from proctor.server.state import Mode
from proctor.server.team.starting import start_due
from proctor.store.team.schedules import Schedule

NOW = 1_800_000_000.0
DAY_S = 86400.0


@pytest.fixture
def add(store, hello):
    """Keep a schedule that is due at a time."""

    def make(next_at: float = NOW - 1, spec: object = None, **more: object) -> Schedule:
        body = {"submission": {"spec": spec or tasks.spec(hello)}, "scopes": ["run", "code"]}
        made = Schedule(
            "sc_1", "default", "ada", "nightly", NOW, "daily 08:00", "UTC", json.dumps(body), True, next_at
        )
        store.service.schedules.add(replace(made, **more))
        return made

    return make


def test_a_run_begins_when_it_is_due_and_once(state, store, add):
    add()
    assert start_due(store, state) == 1
    assert start_due(store, state) == 0
    found = store.service.schedules.find("sc_1", None)
    assert (found.missed, found.last_error, found.last_at) == (0, "", NOW)
    assert found.next_at > NOW
    place = store.service.ownership.place(found.last_run)
    assert (place.owner, place.wanted, place.source) == ("ada", True, "schedule:sc_1")


def test_missed_ones_are_told_and_not_made_up_for(state, store, add):
    add(next_at=NOW - 5 * DAY_S)
    assert start_due(store, state) == 0
    found = store.service.schedules.find("sc_1", None)
    assert (found.missed, found.last_run) == (6, None)
    assert found.last_error == "missed 6: no server was running"
    assert store.runs() == []
    store.service.schedules.change(found)
    assert store.service.schedules.find("sc_1", None).missed == 0


def test_a_run_that_still_goes_on_is_not_joined_by_another(state, store, add):
    made = add()
    start_due(store, state)
    store.service.schedules.change(replace(made, next_at=NOW - 1))
    assert start_due(store, state) == 0
    assert "still goes on" in store.service.schedules.find("sc_1", None).last_error
    assert len(store.runs()) == 1


def test_of_two_servers_one_begins_it(state, store, add):
    made = add()
    assert store.service.schedules.claim(made, NOW + 1, NOW)
    assert not store.service.schedules.claim(made, NOW + 1, NOW)


def test_what_cannot_begin_says_why(state, store, add):
    add(spec={"name": "x", "tasks": [{"path": {"upload": "up_gone"}, "agent": "oracle"}]})
    assert start_due(store, state) == 0
    assert "up_gone" in store.service.schedules.find("sc_1", None).last_error


def test_the_schedule_of_somebody_who_was_disabled_does_not_begin(state, store, add):
    state.mode = Mode.TOKENS
    add()
    assert start_due(store, state) == 0
    assert "disabled" in store.service.schedules.find("sc_1", None).last_error


def test_schedules_over_the_api(one_server):
    client = one_server.client
    upload = tasks.upload(client)["id"]
    body = {"name": "nightly", "cron": "0 2 * * *", "timezone": "Europe/Berlin", "spec": tasks.spec(upload)}
    made = client.post("/api/schedules", json=body)
    assert made.status_code == 201, made.text
    where = made.headers["location"]
    assert made.json()["next_at"] > made.json()["created_at"]
    assert client.get(where).json()["submission"]["spec"]["name"] == "hello"
    off = client.patch(where, json={"enabled": False, "cron": "weekly fri 01:00"}).json()
    assert (off["enabled"], off["next_at"], off["cron"]) == (False, None, "weekly fri 01:00")
    begun = client.post(f"{where}/start", headers={"X-Proctor-Request": "1"})
    assert begun.status_code == 200, begun.text
    assert client.get(f"/api/runs/{begun.json()['last_run']}").json()["owner"] == "local"
    assert [each["id"] for each in client.get("/api/schedules").json()["items"]] == [made.json()["id"]]
    assert client.delete(where, headers={"X-Proctor-Request": "1"}).status_code == 204
    assert client.get(where).status_code == 404


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cron": "sometimes"}, "bad_request"),
        ({"cron": "0 0 31 2 *"}, "invalid"),
        ({"timezone": "Mars/Base"}, "bad_request"),
        ({"spec": {"name": "x", "tasks": [{"path": "/etc"}]}}, "spec_forbidden"),
        ({"name": ""}, "invalid"),
    ],
)
def test_a_schedule_that_could_never_run_is_refused(one_server, change, code):
    body = {"name": "x", "cron": "@daily", "spec": "experiment: sorting\n", **change}
    answer = one_server.client.post("/api/schedules", json=body)
    assert answer.json()["code"] == code, answer.text
