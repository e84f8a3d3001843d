"""Who may do what: tokens, scopes, projects, sessions, other origins, keys in addresses."""

from __future__ import annotations

import re
import secrets
import sqlite3
import time
from typing import Any

import httpx
import pytest
from tests.server import tasks

from proctor.server.auth.tokens import first_admin
from proctor.store.open import open_store


@pytest.fixture(scope="module")
def projects(team_server) -> None:
    for project in ("red", "blue"):
        made = team_server.client.put(f"/api/projects/{project}", json={"title": project.title()})
        assert made.status_code == 200, made.text


def person(
    server, project: str | None = "red", scopes: tuple[str, ...] = ("read", "run"), **more: Any
) -> httpx.Client:
    body = {"name": "test", "user": "ada", "project": project, "scopes": list(scopes), **more}
    made = server.client.post("/api/tokens", json=body)
    assert made.status_code == 201, made.text
    return httpx.Client(
        base_url=server.address, headers={"Authorization": f"Bearer {made.json()['token']}"}, trust_env=False
    )


def nobody(server) -> httpx.Client:
    return httpx.Client(base_url=server.address, trust_env=False)


def paths(server) -> list[tuple[str, str, dict[str, Any]]]:
    spec = server.client.get("/openapi.json").json()
    return [
        (method, path, operation)
        for path, item in spec["paths"].items()
        for method, operation in item.items()
        if method in {"get", "post", "put", "patch", "delete"}
    ]


OPEN = {"/livez", "/readyz", "/health", "/api/session", "/openapi.json", "/docs"} | {
    f"/api/oidc{each}" for each in ("", "/login", "/callback")
}


def test_no_route_answers_without_a_token(team_server, projects):
    with nobody(team_server) as client:
        for method, path, _ in paths(team_server):
            if path in OPEN and (method, path) != ("get", "/api/session"):
                continue
            where = re.sub(r"\{[^}]+\}", "x", path)
            answer = client.request(method, where, headers={"X-Proctor-Request": "1"})
            assert answer.status_code == 401, (method, path, answer.text)
            assert answer.json()["code"] == "not_signed_in"


def test_a_scope_that_a_token_lacks_is_refused(team_server, projects):
    with person(team_server, "red", ("read",)) as reader:
        assert reader.get("/api/runs").status_code == 200
        answer = reader.post("/api/runs", json={"spec": {}})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert reader.get("/api/tokens").status_code == 403


def test_experiments_and_host_code_need_the_scope_for_code(team_server, projects):
    with person(team_server, "red") as runner:
        up = tasks.upload(runner)["id"]
        for spec in (
            {"name": "x", "experiment": "memory_db"},
            tasks.spec(up),
            {"name": "x", "tasks": [{"path": {"upload": up}, "agent": "os:path"}]},
        ):
            answer = runner.post("/api/runs", json={"spec": spec})
            assert (answer.status_code, answer.json()["code"]) == (403, "spec_forbidden"), answer.text


def test_a_revoked_or_expired_token_ends(team_server, projects):
    with person(team_server) as client:
        assert client.get("/api/runs").status_code == 200
        token = next(
            each
            for each in team_server.client.get("/api/tokens", params={"limit": 500}).json()["items"]
            if each["revoked_at"] is None and each["user"] == "ada" and each["used_at"]
        )
        assert "hash" not in token
        assert team_server.client.delete(f"/api/tokens/{token['id']}").status_code == 204
        assert team_server.client.delete(f"/api/tokens/{token['id']}").status_code == 404
    with person(team_server, expires_at=time.time() - 1) as late:
        assert late.get("/api/runs").status_code == 401


def test_tokens_and_keys_are_not_in_the_store_as_they_are(team_server, projects, shared_home):
    value = f"sk-{secrets.token_hex(16)}"
    put = team_server.client.put("/api/secrets/OPENAI_API_KEY", json={"value": value})
    assert put.status_code == 204
    listed = team_server.client.get("/api/secrets").json()["items"]
    assert [(each["name"], each["hint"]) for each in listed] == [("OPENAI_API_KEY", f"…{value[-4:]}")]
    assert value not in str(listed)
    token = team_server.client.headers["Authorization"].split()[1]
    connection = sqlite3.connect(shared_home / ".proctor/proctor.db")
    dump = "\n".join(connection.iterdump())
    connection.close()
    assert value not in dump
    assert token not in dump
    assert (shared_home / ".proctor/secret.key").stat().st_mode & 0o077 == 0
    assert team_server.client.delete("/api/secrets/OPENAI_API_KEY").status_code == 204


def test_changes_are_in_the_audit_log(team_server, projects):
    team_server.client.put("/api/projects/audited", json={"title": "Audited", "day_usd": 1.5})
    deeds = team_server.client.get("/api/audit", params={"limit": 1}).json()
    assert deeds["items"][0]["action"] == "project.put"
    assert deeds["items"][0]["target"] == "audited"
    assert deeds["next"]
    assert team_server.client.delete("/api/projects/audited").status_code == 204
    assert team_server.client.delete("/api/projects/default").status_code == 409


def test_a_disabled_user_is_out(team_server, projects):
    with person(team_server, user="bob") as bob:
        assert bob.get("/api/runs").status_code == 200
        team_server.client.patch("/api/users/bob", json={"disabled": True})
        assert bob.get("/api/runs").status_code == 401
        team_server.client.patch("/api/users/bob", json={"disabled": False})
        assert bob.get("/api/runs").status_code == 200


def test_a_session_cookie_is_strict_and_needs_the_header_for_changes(team_server, projects):
    token = team_server.client.headers["Authorization"].split()[1]
    with nobody(team_server) as page:
        headers = {"X-Proctor-Request": "1", "Origin": team_server.address}
        assert page.post("/api/session", json={"token": "pt_wrong"}, headers=headers).status_code == 401
        made = page.post("/api/session", json={"token": token}, headers=headers)
        assert made.status_code == 201
        cookie = made.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert page.get("/api/session").json()["user"] == "admin"
        assert page.put("/api/projects/x", json={"title": "x"}).status_code == 403
        assert page.delete("/api/session", headers=headers).status_code == 204
        assert page.get("/api/session").status_code == 401


@pytest.mark.parametrize(
    ("url", "secure"), [("https://proctor.example", True), ("HTTPS://proctor.example/x", True), ("", False)]
)
def test_a_session_cookie_is_for_tls_alone_where_people_reach_the_server_by_it(serve, tmp_path, url, secure):
    """Behind a proxy that ends TLS the server itself sees none."""
    with open_store(str(tmp_path / ".proctor/proctor.db")) as store:
        token = first_admin(store)
    server = serve("--tokens", env={"PROCTOR_SERVE_URL": url})
    headers = {"X-Proctor-Request": "1", "Origin": server.address}
    made = server.client.post("/api/session", json={"token": token}, headers=headers)
    assert made.status_code == 201, made.text
    assert ("secure" in made.headers["set-cookie"].lower()) is secure


def test_every_answer_has_the_security_headers(team_server):
    for path in ("/livez", "/api/runs", "/nowhere"):
        headers = team_server.client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_a_project_that_has_spent_its_day_begins_nothing(team_server, projects):
    team_server.client.put("/api/projects/poor", json={"title": "Poor", "day_usd": 0})
    with person(team_server, "poor") as client:
        answer = client.post("/api/runs", json={"spec": {"experiment": "memory_db"}})
        assert (answer.status_code, answer.json()["code"]) == (429, "quota")


def test_settings_are_shown_without_secrets(team_server):
    found = team_server.client.get("/api/settings").json()
    assert found["mode"] == "tokens"
    assert found["settings"]["serve_rate"] == 100.0
    assert found["settings"]["store"] == ""
