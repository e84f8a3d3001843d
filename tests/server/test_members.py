"""Members of projects, the priority of runs, and quotas."""

from __future__ import annotations

import httpx
import pytest
from tests.server import tasks
from tests.server.conftest import Serving
from tests.server.test_auth import person, projects

__all__ = ["projects"]


def members(server: Serving, project: str) -> list[str]:
    items = server.client.get(f"/api/projects/{project}/members").json()["items"]
    return [each["user"] for each in items]


def test_a_token_makes_its_user_a_member_and_a_removed_member_is_out(team_server, projects):
    with person(team_server, "red", user="carol") as carol:
        assert "carol" in members(team_server, "red")
        assert {"user": "carol"} in carol.get("/api/projects/red/members").json()["items"]
        assert carol.get("/api/projects/blue/members").status_code == 404
        assert carol.put("/api/projects/red/members/dave").status_code == 403
        gone = team_server.client.delete("/api/projects/red/members/carol")
        assert gone.status_code == 204, gone.text
        assert carol.get("/api/runs").status_code == 401
        assert team_server.client.delete("/api/projects/red/members/carol").status_code == 404
    assert "carol" not in members(team_server, "red")


def test_an_administrator_adds_members(team_server, projects):
    assert team_server.client.put("/api/projects/blue/members/erin").status_code == 204
    assert team_server.client.put("/api/projects/none/members/erin").status_code == 404
    assert members(team_server, "blue") == ["erin"]
    assert any(each["id"] == "erin" for each in team_server.client.get("/api/users").json()["items"])


def plain(client: httpx.Client, **more: object) -> dict[str, object]:
    spec = tasks.spec(tasks.upload(client)["id"])
    spec.pop("sandbox")
    return {"spec": spec, "start": False, **more}


@pytest.mark.needs("bubblewrap")
def test_only_an_administrator_lets_a_run_go_before_all_others(team_server, projects):
    with person(team_server, "red") as ada:
        answer = ada.post("/api/runs", json=plain(ada, priority=5))
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        made = ada.post("/api/runs", json=plain(ada, priority=-5)).json()
        assert made["priority"] == -5
        where = f"/api/runs/{made['id']}"
        assert ada.patch(where, json={"priority": 1}).status_code == 403
        assert team_server.client.patch(where, json={"priority": 7}).json()["priority"] == 7
        assert ada.patch(where, json={"priority": 101}).status_code == 422
        assert ada.get(where).json()["priority"] == 7


@pytest.mark.needs("bubblewrap")
def test_a_spent_day_refuses_new_runs_and_resumes_until_the_quota_is_raised(team_server, projects):
    put = team_server.client.put
    put("/api/projects/thrifty", json={"title": "Thrifty", "max_runs": 1, "day_usd": 1})
    with person(team_server, "thrifty") as client:
        body = plain(client)
        run = client.post("/api/runs", json=body).json()["id"]
        task = f"/api/tasks/{tasks.upload(client, agent='oracle', num_runs=1)['id']}"
        assert client.post(f"{task}/execute-async").status_code == 202
        put("/api/projects/thrifty", json={"title": "Thrifty", "max_runs": 1, "day_usd": 0})
        older = (f"{task}/execute-async", f"{task}/runs/{task[-19:]}-1/execute-async", f"{task}/retry")
        for route in ("/api/runs", f"/api/runs/{run}/resume", *older):
            answer = client.post(route, json=body if route == "/api/runs" else {})
            assert (answer.status_code, answer.json()["code"]) == (429, "quota"), route
        found = client.get("/api/projects").json()["items"]
        assert [(each["id"], each["max_runs"], each["day_usd"]) for each in found] == [("thrifty", 1, 0)]
        put("/api/projects/thrifty", json={"title": "Thrifty"})
        assert client.post("/api/runs", json=body).status_code == 201
