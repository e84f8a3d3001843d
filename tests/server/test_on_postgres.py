"""A server whose store is PostgreSQL: its engine executes runs, and streams tell what happens."""

from __future__ import annotations

import json

import pytest
from tests.postgres import database
from tests.server import tasks
from tests.server.conftest import running

pytestmark = pytest.mark.needs("postgres", "bubblewrap")


def test_the_engine_executes_a_run_and_a_stream_tells_of_it(request, tmp_path):
    with database(request) as url, running(tmp_path, env={"PROCTOR_STORE": url}) as server:
        upload = tasks.upload(server.client, seconds=2.5)
        with server.client.stream("GET", "/api/events") as answer:
            events = (json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:"))
            assert next(events)["kind"] == "stream.open"
            spec = {"spec": tasks.spec(upload["id"], rollouts=2)}
            run = server.client.post("/api/runs", json=spec).json()["id"]
            kinds = [each["kind"] for each in _until(events, "run.finished")]
        found = server.client.get(f"/api/runs/{run}").json()
        assert (found["status"], found["counts"]) == ("done", {"passed": 2})
        assert kinds.count("trial.done") == 2
        assert not (tmp_path / ".proctor/proctor.db").exists()
        used = server.client.get(f"/api/trials/{run}/0/resources").json()
        if used["ledger"]["cpu_s"] is not None:  # counted by control groups, where there are any
            series = {each["name"]: each for each in used["series"]}
            assert {"memory_bytes", "cpu_cores"} <= set(series)
            assert series["memory_bytes"]["at"][0] >= 2
            assert series["memory_bytes"]["values"][0] > 0


def _until(events, kind):
    for each in events:
        yield each
        if each["kind"] == kind:
            return
