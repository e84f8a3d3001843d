"""Who did what is noted in the project of what was touched."""

from __future__ import annotations

from typing import Any

from tests.server.test_auth import projects

__all__ = ["projects"]

SPEC = {"name": "points", "experiment": "memory_db"}


def noted(server, project: str | None) -> list[dict[str, Any]]:
    params = {"limit": 500} | ({"project": project} if project is not None else {})
    return server.client.get("/api/audit", params=params).json()["items"]


def test_what_an_administrator_does_to_a_run_is_noted_in_the_projects_log(team_server, projects):
    """An administrator has no project; what they make without naming one is in `default`."""
    admin = team_server.client
    made = admin.post("/api/runs", json={"spec": SPEC, "project": "red", "start": False})
    assert made.status_code == 201, made.text
    run = made.json()["id"]
    where = f"/api/runs/{run}"
    assert admin.patch(where, json={"notes": "x"}).status_code == 200
    assert admin.post(f"{where}/resume", json={}).status_code == 200
    assert admin.post(f"{where}/pause").status_code == 200
    assert admin.put(f"/api/trials/{run}/0/labels", json={"labels": ["seen"]}).status_code == 200
    comment = admin.post(f"/api/trials/{run}/0/comments", json={"text": "hm"}).json()["id"]
    assert admin.delete(f"/api/trials/{run}/0/comments/{comment}").status_code == 204
    assert admin.post(f"{where}/cancel").status_code == 200
    assert admin.delete(where).status_code == 204
    actions = [each["action"] for each in noted(team_server, "red") if each["target"].startswith(run)]
    assert actions[::-1] == [
        "run.submit",
        "run.describe",
        "run.resume",
        "run.pause",
        "trial.label",
        "trial.comment",
        "comment.remove",
        "run.cancel",
        "run.delete",
    ]
    assert not [each for each in noted(team_server, "default") if each["target"].startswith(run)]


def test_a_token_is_noted_in_its_own_project(team_server, projects):
    body = {"name": "t", "user": "uma", "project": "blue", "scopes": ["read"]}
    token = team_server.client.post("/api/tokens", json=body).json()["id"]
    assert team_server.client.delete(f"/api/tokens/{token}").status_code == 204
    found = [each["action"] for each in noted(team_server, "blue") if each["target"] == token]
    assert found == ["token.revoke", "token.make"]
    assert not [each for each in noted(team_server, "red") if each["target"] == token]
