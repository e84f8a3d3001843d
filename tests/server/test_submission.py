"""Runs that are submitted: executed, refused, paused, cancelled, deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server import tasks
from tests.server.conftest import ended, eventually

pytestmark = pytest.mark.needs("bubblewrap")


@pytest.fixture(scope="module")
def hello(one_server) -> str:
    return str(tasks.upload(one_server.client)["id"])


def submit(server, spec: Any, **more: Any) -> Any:
    return server.client.post("/api/runs", json={"spec": spec, **more})


def test_a_submitted_run_is_executed_and_kept(one_server, hello: str):
    answer = submit(one_server, tasks.spec(hello, rollouts=2), tags=["nightly"], notes="the first")
    assert answer.status_code == 201, answer.text
    run = answer.json()
    assert answer.headers["location"] == f"/api/runs/{run['id']}"
    assert run["spec"]["tasks"][0]["path"] == {"upload": hello}
    row = ended(one_server.client, run["id"])
    assert (row["status"], row["counts"], row["tags"], row["owner"]) == (
        "done",
        {"passed": 2},
        ["nightly"],
        "local",
    )


def test_a_spec_may_be_the_text_of_a_file(one_server, hello: str):
    text = f'name = "as-toml"\nsandbox = {{host_root = true}}\n[[tasks]]\npath = {{upload = "{hello}"}}\n'
    answer = submit(one_server, text, format="toml", set={"tasks.0.agent": "nop"}, start=False)
    assert answer.status_code == 201, answer.text
    assert answer.json()["resolved"]["tasks"][0]["agent"] == ["nop"]
    assert (answer.json()["status"], answer.json()["wanted"]) == ("pending", False)


def test_a_stored_task_is_known_by_its_name(one_server, hello: str):
    spec = tasks.spec(hello)
    spec["tasks"][0]["path"] = {"task": "hello"}
    answer = submit(one_server, spec, start=False)
    assert answer.status_code == 201, answer.text


def test_a_plan_says_what_would_run_and_writes_nothing(one_server, hello: str):
    def runs() -> list[str]:
        return [each["id"] for each in one_server.client.get("/api/runs").json()["items"]]

    before = runs()
    answer = one_server.client.post("/api/plan", json={"spec": tasks.spec(hello, rollouts=7)})
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert plan["trials"] == 7
    assert plan["by"]["agent"] == {"oracle": 7}
    assert plan["errors"] == []
    assert runs() == before


def test_the_same_idempotency_key_makes_one_run(one_server, hello: str):
    body = {"spec": tasks.spec(hello), "start": False}
    headers = {"Idempotency-Key": "once"}
    first = one_server.client.post("/api/runs", json=body, headers=headers)
    again = one_server.client.post("/api/runs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again.headers["idempotency-replayed"] == "true"
    other = one_server.client.post("/api/runs", json={**body, "name": "other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


ENTRY: dict[str, Any] = {"path": {"upload": "UPLOAD"}, "agent": "oracle"}
REACHES_THE_HOST = {
    "a path": {"tasks": [{"path": "/etc", "agent": "oracle"}]},
    "a prepared folder": {"tasks": [{"prepared_dir": "/etc", "agent": "oracle"}]},
    "a ZIP of the server": {"tasks": [{"zip": "/tmp/a.zip", "agent": "oracle"}]},
    "a dataset": {"tasks": [{"dataset": "git+file:///root/x.git@main", "agent": "oracle"}]},
    "a file of overrides": {"tasks": [{**ENTRY, "overrides": "/etc/passwd"}]},
    "files to lay over": {"tasks": [{**ENTRY, "overrides": {"overlay_files": {"a": "b"}}}]},
    "a repository": {"tasks": [{**ENTRY, "overrides": {"repo": {"git_url": "file:///root/x.git"}}}]},
    "a folder for results": {"tasks": [ENTRY], "output_dir": "/tmp/out"},
    "a base folder": {"tasks": [ENTRY], "base_dir": "/"},
    "variables for tasks": {"tasks": [ENTRY], "pass_env": ["HOME"]},
    "a reference to a variable": {"tasks": [{**ENTRY, "environment_variables": {"A": {"secret": "HOME"}}}]},
    "a secret in the spec": {"tasks": [{**ENTRY, "environment_variables": {"API_KEY": "sk-" + "x" * 40}}]},
    "private networks": {"tasks": [ENTRY], "sandbox": {"network_allow": ["10.0.0.0/8"]}},
    "a recording of the server": {
        "tasks": [{**ENTRY, "agent": "replay", "agent_options": {"trajectory": "/etc"}}]
    },
}


@pytest.mark.parametrize("what", REACHES_THE_HOST)
def test_a_spec_that_reaches_the_host_is_refused(one_server, hello: str, what: str):
    text = repr(REACHES_THE_HOST[what]).replace("UPLOAD", hello)
    answer = submit(one_server, {"name": "x", **eval(text)})
    assert (answer.status_code, answer.json()["code"]) == (403, "spec_forbidden"), answer.text
    assert answer.json()["errors"]


def test_a_wrong_spec_says_where(one_server, hello: str):
    answer = submit(one_server, {**tasks.spec(hello), "rollout": 3})
    assert (answer.status_code, answer.json()["code"]) == (400, "spec_invalid")
    assert "rollout" in answer.json()["detail"]
    assert str(one_server.home) not in answer.text


def test_an_unknown_upload_is_not_found(one_server):
    assert submit(one_server, tasks.spec("up_none")).status_code == 404


def test_a_spec_with_far_too_many_trials_is_refused_at_once(one_server, hello: str):
    answer = submit(one_server, tasks.spec(hello, rollouts=10_000_000))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_a_paused_run_goes_on_where_it_stopped(one_server):
    slow = tasks.upload(one_server.client, "slow", 0.4)["id"]
    run = submit(one_server, tasks.spec(slow, rollouts=4), parallel=1).json()["id"]
    eventually(lambda: _row(one_server, run)["done"] >= 1)
    paused = one_server.client.post(f"/api/runs/{run}/pause").json()
    assert paused["wanted"] is False
    stopped = ended(one_server.client, run)
    assert stopped["status"] == "interrupted"
    assert 1 <= int(str(stopped["done"])) < 4
    again = one_server.client.post(f"/api/runs/{run}/resume", json={"budget_tokens": 1000})
    assert again.status_code == 200, again.text
    assert again.json()["resolved"]["budget_tokens"] == 1000
    eventually(lambda: _row(one_server, run)["status"] == "done")
    assert _row(one_server, run)["counts"] == {"passed": 4}


def test_a_cancelled_run_ends_and_is_deleted(one_server):
    slow = tasks.upload(one_server.client, "slower", 20)["id"]
    run = submit(one_server, tasks.spec(slow)).json()["id"]
    eventually(lambda: _row(one_server, run)["status"] == "running")
    assert one_server.client.delete(f"/api/runs/{run}").status_code == 409
    assert one_server.client.post(f"/api/runs/{run}/cancel").json()["status"] == "cancelled"
    assert one_server.client.post(f"/api/runs/{run}/resume").status_code == 409
    eventually(lambda: one_server.client.delete(f"/api/runs/{run}").status_code in {204, 404})
    assert one_server.client.post(f"/api/runs/{run}/cancel").status_code == 404


def test_words_about_a_run_can_be_changed(one_server, hello: str):
    run = submit(one_server, tasks.spec(hello), start=False).json()["id"]
    changed = one_server.client.patch(f"/api/runs/{run}", json={"notes": "odd", "tags": ["a", "b"]})
    assert (changed.json()["notes"], changed.json()["tags"], changed.json()["name"]) == (
        "odd",
        ["a", "b"],
        "hello",
    )


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a\nb", "a\x1b[31m", ".hidden", "x" * 129])
def test_a_name_obeys_one_grammar_wherever_it_is_set(one_server, hello: str, name: str):
    run = submit(one_server, tasks.spec(hello), start=False).json()["id"]
    for answer in (
        one_server.client.patch(f"/api/runs/{run}", json={"name": name}),
        submit(one_server, tasks.spec(hello), name=name),
        submit(one_server, {**tasks.spec(hello), "name": name}),
    ):
        assert answer.status_code in {400, 422}, answer.text
        assert "\n" not in answer.json()["detail"]
    assert _row(one_server, run)["name"] == "hello"


def test_a_run_that_cannot_begin_stays_and_says_why(one_server, hello: str):
    spec = tasks.spec(hello)
    spec["sandbox"] = {}
    run = submit(one_server, spec).json()["id"]
    row = ended(one_server.client, run, within_s=60)
    found = one_server.client.patch(f"/api/runs/{run}", json={}).json()
    assert row["status"] == "done" or found["failure"], found


def test_an_experiment_runs_with_the_scope_for_code(one_server):
    run = submit(one_server, {"name": "quick", "experiment": "memory_db"})
    assert run.status_code == 201, run.text
    assert ended(one_server.client, run.json()["id"])["status"] == "done"


def _row(server, run: str) -> dict[str, Any]:
    rows = server.client.get("/api/runs", params={"limit": 500}).json()["items"]
    return next(row for row in rows if row["id"] == run)
