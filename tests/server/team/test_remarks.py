"""Labels and comments on trials."""

from __future__ import annotations

import pytest
from tests.server import tasks

HEAD = {"X-Proctor-Request": "1"}


@pytest.fixture(scope="module")
def trial(one_server) -> str:
    upload = tasks.upload(one_server.client)["id"]
    body = {"spec": tasks.spec(upload), "start": False}
    return f"/api/trials/{one_server.client.post('/api/runs', json=body).json()['id']}/0"


def test_labels_are_set_as_a_whole(one_server, trial):
    client = one_server.client
    assert client.put(f"{trial}/labels", json={"labels": ["flaky", "looked at", "flaky"]}).json() == {
        "labels": ["flaky", "looked at"]
    }
    assert client.get(trial).json()["labels"] == ["flaky", "looked at"]
    assert client.put(f"{trial}/labels", json={"labels": []}).json() == {"labels": []}
    for wrong in ([" x"], ["x" * 61], [""], "x"):
        assert client.put(f"{trial}/labels", json={"labels": wrong}).status_code == 422
    assert client.put(f"{trial[:-1]}7/labels", json={"labels": []}).status_code == 404


def test_a_comment_is_plain_text_with_its_author(one_server, trial):
    client = one_server.client
    made = client.post(f"{trial}/comments", json={"text": "<b>the test expects a tab</b>"})
    assert made.status_code == 201, made.text
    assert made.json()["author"] == "local"
    assert client.get(trial).json()["comments"] == [made.json()]
    where = f"{trial}/comments/{made.json()['id']}"
    assert client.delete(where, headers=HEAD).status_code == 204
    assert client.delete(where, headers=HEAD).status_code == 404
    assert client.post(f"{trial}/comments", json={"text": "  "}).status_code == 422
