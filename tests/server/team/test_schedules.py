"""Runs that start by themselves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.server import tasks
from tests.server.test_auth import person

from proctor.server.auth.tokens import make_token
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


@pytest.fixture
def owned(state, store, add):
    """A schedule of somebody with a token, on a server that needs tokens; its token's id."""
    state.mode = Mode.TOKENS

    def make(scopes=("read", "run", "code"), project="default", token="") -> str:
        if not token:
            token = make_token(store, name="t", user="ada", scopes=scopes, project=project, expires_at=None)[
                1
            ].id
        body = {"submission": {"spec": SPEC}, "scopes": list(scopes), "token": token}
        add(body=json.dumps(body))
        return token

    return make


SPEC = {"name": "points", "experiment": "memory_db"}


def last_error(store) -> str:
    return store.service.schedules.find("sc_1", None).last_error


def sign_in(store, *, user: str = "ada", expires_at: float | None, member: bool = False) -> str:
    """What stands behind a sign-in through an issuer."""
    store.service.accounts.add_token(
        "oidc_1",
        "hash",
        name="signed in",
        user=user,
        project="default",
        scopes=("read", "run", "code"),
        expires_at=expires_at,
        member=member,
    )
    return "oidc_1"


def test_a_schedule_starts_with_the_rights_of_its_token(state, store, owned):
    owned()
    assert start_due(store, state) == 1, last_error(store)
    assert last_error(store) == ""


def test_the_schedule_of_a_revoked_token_does_not_begin_and_says_why(state, store, owned):
    """Also not when its owner has another token: who stole this one may have made it."""
    token = owned()
    make_token(store, name="new", user="ada", scopes=["run", "code"], project="default", expires_at=None)
    store.service.accounts.revoke(token)
    assert start_due(store, state) == 0
    assert f"was revoked or has expired ('{token}')" in last_error(store)
    assert store.runs() == []


def test_the_schedule_of_a_removed_member_does_not_begin_and_says_why(state, store, owned):
    owned()
    assert store.service.accounts.remove_member("default", "ada")
    assert start_due(store, state) == 0
    assert "revoked" in last_error(store)


def test_a_scope_that_the_owner_has_lost_does_not_help_their_schedule(state, store, owned):
    token = owned()
    with store._db.write() as tx:
        tx.change("UPDATE tokens SET scopes = 'read run' WHERE id = :id", {"id": token})
    assert start_due(store, state) == 0
    assert "code" in last_error(store)
    with store._db.write() as tx:
        tx.change("UPDATE tokens SET scopes = 'read' WHERE id = :id", {"id": token})
        tx.change("UPDATE schedules SET next_at = :now", {"now": NOW - 1})
    assert start_due(store, state) == 0
    assert "may no longer run anything" in last_error(store)


def test_a_schedule_made_without_a_token_does_not_begin_where_tokens_are_needed(state, store, add):
    state.mode = Mode.TOKENS
    store.service.accounts.add_member("default", "ada")
    add(spec=SPEC)
    assert start_due(store, state) == 0
    assert "token" in last_error(store)


def test_after_a_sign_in_has_ended_a_members_schedule_has_what_members_have(state, store, owned, hello):
    owned(token=sign_in(store, expires_at=1.0, member=True))
    assert start_due(store, state) == 0
    assert "code" in last_error(store)  # a member may run tasks, not code on the server
    store.service.accounts.remove_member("default", "ada")
    with store._db.write() as tx:
        tx.change("UPDATE schedules SET next_at = :now", {"now": NOW - 1})
    assert start_due(store, state) == 0
    assert "no member of 'default'" in last_error(store)


def test_who_was_let_in_by_a_group_has_a_schedule_as_long_as_a_sign_in(state, store, owned):
    owned(token=sign_in(store, expires_at=None))
    assert start_due(store, state) == 1, last_error(store)
    store.service.schedules.change(replace(store.service.schedules.find("sc_1", None), next_at=NOW - 1))
    with store._db.write() as tx:
        tx.change("UPDATE run_service SET wanted = 0")
        tx.change("UPDATE tokens SET expires_at = 1.0")
    assert start_due(store, state) == 0
    assert "sign-in" in last_error(store)


def test_a_revoked_sign_in_is_not_forgotten_for_its_schedule(state, store, owned):
    owned(token=sign_in(store, expires_at=1.0, member=True))
    store.service.accounts.revoke("oidc_1")
    store.service.accounts.forget_sign_ins()
    assert start_due(store, state) == 0
    assert "sign-in" in last_error(store)


def test_its_owner_lets_a_schedule_go_on_with_another_token(team_server):
    admin = team_server.client
    admin.put("/api/projects/red", json={"title": "Red"})
    with person(team_server, "red", ("read", "run", "code")) as ada:
        made = ada.post("/api/schedules", json={"name": "nightly", "cron": "@daily", "spec": SPEC})
        assert made.status_code == 201, made.text
    where = made.headers["location"]
    tokens = [each["id"] for each in admin.get("/api/tokens").json()["items"] if each["user"] == "ada"]
    for token in tokens:
        admin.delete(f"/api/tokens/{token}")
    with (
        person(team_server, "red", ("read", "run", "code")) as ada,
        person(team_server, "red", user="bob") as bob,
    ):
        refused = bob.post(f"{where}/start")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "was revoked" in refused.json()["detail"]
        assert bob.patch(where, json={"enabled": True}).status_code == 200
        assert bob.post(f"{where}/start").status_code == 409
        assert ada.patch(where, json={"enabled": True}).status_code == 200
        begun = bob.post(f"{where}/start")
        assert begun.status_code == 200, begun.text
        ada.post(f"/api/runs/{begun.json()['last_run']}/cancel")
        assert ada.delete(where).status_code == 204
    audit = admin.get("/api/audit", params={"project": "red"}).json()["items"]
    assert next(each["actor"] for each in audit if each["action"] == "schedule.start") == "bob"


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
