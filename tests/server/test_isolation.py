"""Nothing of one project is shown to a token of another: every route is asked for what the other has."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs
from tests.made_rollouts import Study, record
from tests.server import tasks
from tests.server.conftest import Serving, here
from tests.server.reading.conftest import CTRF, put

from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.server.auth.tokens import first_admin, make_token
from proctor.server.state import Mode
from proctor.store.blobs import FolderBlobs
from proctor.store.open import open_store
from proctor.store.service.accounts import Project
from proctor.store.service.ownership import Owner, own
from proctor.store.store import Store

MARK = "crimson-mark"
"""In everything that the project `red` has."""
RUN, OTHER, OWN = "20260101T000000-aaaaaa", "20260102T000000-bbbbbb", "20260103T000000-cccccc"
OPEN = {"/livez", "/readyz", "/health", "/openapi.json", "/docs"}
STREAMS = {"/api/events", "/api/trials/{run}/{index}/logs/{name}/follow"}


@dataclass(slots=True)
class Two:
    """A server with two projects, and somebody in each."""

    server: Serving
    red: httpx.Client
    blue: httpx.Client
    reader: httpx.Client
    """In `red`, and may only read."""
    known: dict[str, str] = field(default_factory=dict)
    """What belongs to `red`, by the names of parameters."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    home = tmp_path_factory.mktemp("two")
    with open_store(str(home / ".proctor/proctor.db")) as store:
        admin = first_admin(store)
        for each in ("red", "blue"):
            store.service.accounts.put_project(Project(each, f"{each} {MARK if each == 'red' else ''}"))
        fill(store, home)
        most = ("read", "run", "code", "worker")
        secrets = [
            make_token(store, name=name, user=user, scopes=scopes, project=project, expires_at=None)[0]
            for name, user, scopes, project in (
                (MARK, f"ada-{MARK}", most, "red"),
                ("blue", "bob", most, "blue"),
                ("reader", f"ada-{MARK}", ("read",), "red"),
            )
        ]
    with here(home, Mode.TOKENS) as server:
        server.client.headers["Authorization"] = f"Bearer {admin}"
        red, blue, reader = (
            httpx.Client(
                base_url=server.address,
                timeout=30,
                trust_env=False,
                headers={"Authorization": f"Bearer {each}"},
            )
            for each in secrets
        )
        found = Two(server, red, blue, reader)
        put_key = server.client.put(
            "/api/secrets/RED_API_KEY", params={"project": "red"}, json={"value": f"{MARK}-key"}
        )
        assert put_key.status_code == 204, put_key.text
        found.known = belongings(found)
        yield found
        for client in (red, blue, reader):
            client.close()


def fill(store: Store, home: Path) -> None:
    blobs = FolderBlobs(home / ".proctor/blobs")
    more: dict[str, Any] = {"tags": (MARK,), "notes": MARK, "name": MARK}
    paths = {"base_dir": str(home), "tasks": [{"path": str(home / MARK), "agent": ["oracle"]}]}
    for run, project in ((RUN, "red"), (OTHER, "red"), (OWN, "blue")):
        named = more if project == "red" else {"name": "own"}
        task = f"org/{MARK}" if project == "red" else "org/plain"
        study = Study().cell(task, [1.0, 0.0, "sandbox_error"], "oracle").cell(task, [1.0, 1.0, 0.0], "nop")
        put(store, home, run, study.data(), lambda trial, tries: marked(trial, tries, blobs), **named)
        with store._db.write() as tx:
            own(
                tx,
                run,
                Owner(project=project, user=f"ada-{MARK}" if project == "red" else "bob", wanted=False),
            )
            tx.execute(
                "INSERT INTO events (run_id, at, kind, data) VALUES (:run, 1, 'run.changed', :data)",
                {"run": run, "data": json.dumps({"note": MARK if project == "red" else "own"})},
            )
            if project == "red":
                _remarks(tx, run)
                _calls(tx, run)
    info = store.run(RUN)
    store.set_resolved(structs.replace(info, resolved={**info.resolved, **paths}))


def _remarks(tx: Any, run: str) -> None:
    tx.execute(
        "INSERT INTO trial_labels (run_id, idx, label, author, at) VALUES (:run, 0, :mark, :mark, 1)",
        {"run": run, "mark": MARK},
    )
    tx.execute(
        "INSERT INTO trial_comments (id, run_id, idx, author, at, body) "
        "VALUES (:id, :run, 0, :mark, 1, :mark)",
        {"id": f"c-{run}", "run": run, "mark": MARK},
    )


def _calls(tx: Any, run: str) -> None:
    tx.execute(
        "INSERT INTO model_calls (id, run_id, idx, number, at, model, settled, nano_usd, prompt_tokens, "
        "held_tokens, held_nano_usd) VALUES (:id, :run, 0, 1, {now}, :model, 1, 5, 5, 0, 0)",
        {"id": f"call-{run}", "run": run, "model": f"openai/{MARK}"},
    )


def marked(
    trial: PlannedTrial, tries: tuple[AttemptRecord, ...], blobs: FolderBlobs
) -> Iterator[AttemptRecord]:
    """Every attempt left files; those of `red` say so."""
    word = MARK if MARK in trial.subject else "plain"
    lost = Failure(phase="start", type="SandboxError", message=word)
    for each in tries:
        scored = each.outcome != "sandbox_error"
        yield record(
            trial, each.outcome, each.reward, artifacts=left(word, blobs), failure=None if scored else lost
        )


def left(word: str, blobs: FolderBlobs) -> tuple[Artifact, ...]:
    steps = [{"step_id": 1, "source": "agent", "message": word}]
    atif = {"schema_version": "ATIF-v1.4", "agent": {"name": "x", "version": "1"}, "steps": steps}
    return (
        blobs.put_bytes(json.dumps(atif).encode(), "trajectory.json", "application/json"),
        blobs.put_bytes(json.dumps(CTRF).encode(), "verifier/ctrf.json", "application/json"),
        blobs.put_bytes(f"+{word}\n".encode(), "artifacts/diff.patch", "text/x-diff"),
        blobs.put_bytes(f"{word}\n".encode(), "logs/agent.txt"),
    )


def belongings(two: Two) -> dict[str, str]:
    """What `red` has, by the names that parameters have."""
    upload = tasks.upload(two.red, MARK)["id"]
    token = next(
        each["id"]
        for each in two.server.client.get("/api/tokens", params={"limit": 500}).json()["items"]
        if each["name"] == MARK
    )
    spec = {"name": MARK, "tasks": [{"path": {"upload": upload}, "agent": "oracle"}]}
    planned = two.red.post("/api/schedules", json={"name": MARK, "cron": "daily 02:00", "spec": spec})
    assert planned.status_code == 201, planned.text
    hook = {"url": f"https://example.org/{MARK}", "events": ["run.finished"], "project": "red"}
    hooked = two.server.client.post("/api/webhooks", json=hook)
    assert hooked.status_code == 201, hooked.text
    return {
        "schedule": planned.json()["id"], "webhook": hooked.json()["id"], "comment": f"c-{RUN}",
        "run": RUN, "a": RUN, "b": OTHER, "task": upload, "upload": upload, "index": "0", "attempt": "1",
        "rid": f"{upload}-1", "project": "red", "series": MARK, "path": "logs/agent.txt", "q": MARK[:7],
        "name": "agent.txt", "token": token, "user": f"ada-{MARK}", "tag": MARK, "model": f"openai/{MARK}",
        "by": "model",
    }  # fmt: skip


def routes(two: Two) -> list[tuple[str, str, dict[str, Any]]]:
    spec = two.server.client.get("/openapi.json").json()
    return [
        (method, path, operation)
        for path, item in spec["paths"].items()
        for method, operation in item.items()
        if method in {"get", "post", "put", "patch", "delete"} and path not in OPEN
    ]


def filled(path: str, known: dict[str, str]) -> str:
    return re.sub(r"\{([^}:]+)[^}]*\}", lambda found: known.get(found[1], "0"), path)


def asked_of(operation: dict[str, Any], known: dict[str, str]) -> list[dict[str, str]]:
    """Queries: with what is needed, and with everything that names something of `red`."""
    given = [each for each in operation.get("parameters", []) if each["in"] == "query"]
    needed = {each["name"]: known.get(each["name"], "0") for each in given if each.get("required")}
    named = {each["name"]: known[each["name"]] for each in given if each["name"] in known}
    return [needed] if named == needed else [needed, {**needed, **named}]


def test_the_things_that_are_hidden_are_there(two):
    """The same questions by their owner find them; otherwise the next test would prove nothing."""
    seen = set()
    for method, path, operation in routes(two):
        if method != "get" or path in STREAMS:
            continue
        for query in asked_of(operation, two.known):
            answer = two.red.get(filled(path, two.known), params=query)
            assert answer.status_code < 500, (path, query, answer.text)
            if answer.status_code == 200 and MARK in answer.text:
                seen.add(path)
    trial = "/api/trials/{run}/{index}"
    assert {
        "/api/runs", "/api/runs/{run}", "/api/runs/{run}/document", "/api/runs/{run}/matrix",
        "/api/runs/{run}/trials", "/api/runs/{run}/errors", "/api/runs/{run}/costs", trial,
        f"{trial}/transcript", f"{trial}/diff", f"{trial}/file", f"{trial}/calls", f"{trial}/logs/{{name}}",
        f"{trial}/logs/{{name}}/search", "/api/compare", "/api/history", "/api/series", "/api/leaderboard",
        "/api/costs", "/api/uploads", "/api/tasks", "/api/tasks/{task}", "/api/models", "/api/projects",
    } <= seen  # fmt: skip


def test_a_token_reads_nothing_of_another_project(two):
    for method, path, operation in routes(two):
        if path == "/api/events":
            continue
        for query in asked_of(operation, two.known):
            where, body = filled(path, two.known), None if method == "get" else {}
            answer = two.blue.request(method, where, params=query, json=body)
            about = (method, path, query, answer.text[:2000])
            assert answer.status_code < 500, about
            assert answer.status_code >= 400 or "{run}" not in path, about
            told = answer.text
            if answer.status_code >= 400:  # what was asked may be said again
                for given in two.known.values():
                    told = told.replace(given, "")
            asked = any(MARK in value for value in query.values()) and '"items":[]' in told
            assert asked or MARK not in told, about
            assert RUN not in told, about
            assert OTHER not in told, about
    assert two.red.get(f"/api/runs/{RUN}").json()["status"] == "done"
    assert two.red.get(f"/api/tasks/{two.known['task']}").status_code == 200


def test_a_stream_has_only_events_of_its_project(two):
    assert two.blue.get("/api/events", params={"run": RUN, "after": 0}).status_code == 404
    with two.blue.stream("GET", "/api/events", params={"after": 0}) as stream:
        told = ""
        for part in stream.iter_text():
            told += part
            if OWN in told:
                break
    assert MARK not in told
    assert RUN not in told


def test_a_spec_names_nothing_of_another_project(two):
    upload = {"path": {"upload": two.known["upload"]}, "agent": "oracle"}
    named = {"path": {"task": MARK}, "agent": "oracle"}
    mine = {"path": {"upload": tasks.upload(two.blue, "mine")["id"]}, "agent": "oracle"}
    rule = [{"baseline": RUN}, "pass_rate >= baseline"]
    for spec in (
        {"tasks": [upload]},
        {"tasks": [named]},
        {"tasks": [mine], "tape": RUN},
        {"tasks": [mine], "gates": rule},
        {"tasks": [mine], "gates": [{"baseline": "/etc/passwd"}, "pass_rate >= baseline"]},
    ):
        for route in ("/api/runs", "/api/plan"):
            answer = two.blue.post(route, json={"spec": {"name": "x", **spec}})
            assert answer.status_code == 404, (spec, answer.text)
    own_rule = [{"baseline": OWN}, "pass_rate >= baseline"]
    answer = two.blue.post("/api/plan", json={"spec": {"name": "x", "tasks": [mine], "gates": own_rule}})
    assert answer.status_code == 200, answer.text


def test_an_estimate_knows_only_what_the_project_ran(two):
    stored = sqlite3.connect(two.server.home / ".proctor/proctor.db")
    with stored:
        stored.execute("UPDATE trials SET subject = 'same' WHERE run_id = ?", (RUN,))
        stored.execute("UPDATE attempts SET subject = 'same' WHERE run_id = ?", (RUN,))
    stored.close()
    with open_store(str(two.server.home / ".proctor/proctor.db")) as store:
        usual = store.service.usual
        assert usual.times(["same"], "blue") == usual.costs(["same"], "blue") == {}
        assert set(usual.times(["same"], "red")) == {("same", "oracle", ""), ("same", "nop", "")}
        assert usual.costs(["same"], "red") == {("same", "oracle", ""): [5e-9]}


def test_paths_of_the_machine_are_shown_only_to_who_may_run_code_there(two):
    home = str(two.server.home)
    for method, path, operation in routes(two):
        if method == "get" and path not in STREAMS:
            for query in asked_of(operation, two.known):
                answer = two.reader.get(filled(path, two.known), params=query)
                assert home not in answer.text, (path, answer.text[:2000])
    assert two.reader.get(f"/api/runs/{RUN}").json()["resolved"]["tasks"][0]["path"] == MARK
    assert two.red.get(f"/api/runs/{RUN}").json()["resolved"]["base_dir"] == home
