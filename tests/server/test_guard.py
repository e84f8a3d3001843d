"""What is refused before any route: other origins, other host names, keys in addresses, large bodies."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import httpx


def test_a_page_of_another_site_can_do_nothing_on_loopback(one_server):
    server = one_server
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = server.client.post("/api/plan", json={"spec": {}}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")
    rebound = server.client.get("/api/runs", headers={"Host": "evil.example"})
    assert (rebound.status_code, rebound.json()["code"]) == (403, "host_refused")
    assert "access-control-allow-origin" not in rebound.headers
    same = server.client.post("/api/plan", json={"spec": {}}, headers={"Origin": server.address})
    assert same.status_code == 400


def test_a_key_in_the_address_is_refused_and_not_logged(one_server, caplog):
    server = one_server
    key = f"sk-{secrets.token_hex(12)}"
    for query in (f"api_key={key}", f"openrouter_api_key={key}", f"name={key}"):
        answer = server.client.post(f"/api/tasks/x/execute-async?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "key_in_address")
        assert key not in answer.text
    assert key not in caplog.text


def test_a_body_that_is_too_large_is_refused_while_it_is_read(one_server):
    said = one_server.client.post("/api/plan", content=b"x" * (5 << 20), headers={"X-Proctor-Request": "1"})
    assert (said.status_code, said.json()["code"]) == (413, "too_large")

    def pieces():
        for _ in range(80):
            yield b" " * (1 << 16)

    headers = {"X-Proctor-Request": "1", "Content-Type": "application/json"}
    unsaid = one_server.client.post("/api/plan", content=pieces(), headers=headers)
    assert (unsaid.status_code, unsaid.json()["code"]) == (413, "too_large")


def test_a_read_only_page_changes_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", "view", "--no-open"],
        cwd=tmp_path,
        env={**os.environ, "PROCTOR_HOME": str(tmp_path / ".proctor")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        address = process.stdout.readline().strip()
        with httpx.Client(base_url=address, trust_env=False) as client:
            assert client.get("/api/session").json()["read_only"] is True
            answer = client.post("/api/runs", json={"spec": {}})
            assert (answer.status_code, answer.json()["code"]) == (403, "read_only")
        assert not (tmp_path / ".proctor/proctor.db").exists()
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
