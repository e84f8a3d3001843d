"""A request that is sent again: what is kept of the first one, and what counts as the same request."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.server import tasks

from proctor.store.open import open_store

ZIP = tasks.packed(tasks.files())


def kept(server, key: str) -> tuple[int, bytes]:
    """Status and body of an answer as the store holds it."""
    with open_store(str(server.home / ".proctor/proctor.db")) as store:
        status, body = store._db.read("SELECT status, body FROM answers WHERE key = :key", {"key": key})[0]
        return status, bytes(body)


def test_the_secret_of_a_webhook_is_not_kept_in_clear_and_comes_again(one_server):
    body = {"url": "https://example.org/hook", "events": ["run.finished"]}
    first = one_server.client.post("/api/webhooks", json=body, headers={"Idempotency-Key": "hook"})
    assert first.status_code == 201, first.text
    secret = first.json()["secret"]
    status, stored = kept(one_server, "hook")
    assert status == 201
    assert secret.encode() not in stored
    again = one_server.client.post("/api/webhooks", json=body, headers={"Idempotency-Key": "hook"})
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    for file in (one_server.home / ".proctor").glob("proctor.db*"):
        # In a process of its own: a read here would drop the server's locks, and is refused.
        content = subprocess.run(["cat", str(file)], capture_output=True, check=True).stdout
        assert secret.encode() not in content, file.name


def test_an_answer_without_a_body_comes_again(one_server):
    body = {"url": "https://example.org/gone"}
    made = one_server.client.post("/api/webhooks", json=body).json()["id"]
    headers = {"Idempotency-Key": "gone", "X-Proctor-Request": "1"}
    for _ in range(2):
        answer = one_server.client.delete(f"/api/webhooks/{made}", headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["idempotency-replayed"] == "true"


def upload(server, key: str, content: bytes, **fields: str):
    return server.client.post(
        "/api/tasks",
        files={"file": ("hello.zip", content, "application/zip")},
        data=fields,
        headers={"Idempotency-Key": key, "X-Proctor-Request": "1"},
    )


def test_an_upload_that_is_sent_again_is_the_same_whatever_separates_its_parts(one_server):
    first = upload(one_server, "same", ZIP, name="hello")
    assert first.status_code == 201, first.text
    again = upload(one_server, "same", ZIP, name="hello")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["id"] == first.json()["id"]


@pytest.mark.parametrize("change", ["bytes", "field", "filename"])
def test_an_upload_of_the_same_length_with_another_content_is_another_request(one_server, change: str):
    assert upload(one_server, change, ZIP, name="hello").status_code == 201
    if change == "bytes":
        other = upload(one_server, change, ZIP[:-1] + bytes([ZIP[-1] ^ 1]), name="hello")
    elif change == "field":
        other = upload(one_server, change, ZIP, name="jello")
    else:
        other = one_server.client.post(
            "/api/tasks",
            files={"file": ("jello.zip", ZIP, "application/zip")},
            data={"name": "hello"},
            headers={"Idempotency-Key": change, "X-Proctor-Request": "1"},
        )
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


def test_a_key_of_a_submission_is_refused_for_something_else(one_server):
    """Whose answer is not sealed, and is not even looked at."""
    spec = json.dumps({"name": "points", "experiment": "memory_db"})
    headers = {"Idempotency-Key": "both", "X-Proctor-Request": "1"}
    run = one_server.client.post("/api/runs", json={"spec": spec, "start": False}, headers=headers)
    assert run.status_code == 201, run.text
    other = one_server.client.post("/api/webhooks", json={"url": "https://example.org/x"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
