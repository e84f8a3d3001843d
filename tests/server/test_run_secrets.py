"""Keys of a run for its workers: with their own scope, while the run is running, written down."""

from __future__ import annotations

import httpx
import pytest

from proctor.gateway.providers import Providers
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.settings import Settings
from proctor.store.open import open_store
from proctor.store.service.ownership import Owner

VALUE = "sk-for-a-worker-alone"


@pytest.fixture
def run(team_server, shared_home) -> str:
    from proctor.model.plan import Plan

    info = RunInfo(
        id="20260101T000000-abcdef", name="n", kind="task", status=RunStatus.RUNNING, created_at=1.0, seed=0,
        total=0, resolved={"tasks": [{"path": "t", "agent": "terminal", "model": "openai/m"}]},
    )  # fmt: skip
    with open_store(str(shared_home / ".proctor/proctor.db")) as store:
        store.create_run(info, Plan(trials=()), (), Owner(wanted=False))
    yield info.id
    with open_store(str(shared_home / ".proctor/proctor.db")) as store:
        store.delete_run(info.id)


def with_scope(server, *scopes: str) -> httpx.Client:
    made = server.client.post(
        "/api/tokens", json={"name": "w", "user": "w", "project": "default", "scopes": list(scopes)}
    )
    return httpx.Client(
        base_url=server.address, headers={"Authorization": f"Bearer {made.json()['token']}"}, trust_env=False
    )


def test_a_worker_gets_the_keys_of_a_running_run_and_nobody_else_does(team_server, shared_home, run):
    assert team_server.client.put("/api/secrets/SOME_API_KEY", json={"value": VALUE}).status_code == 204
    path = f"/api/runs/{run}/secrets"
    with with_scope(team_server, "worker") as worker, with_scope(team_server, "read", "run") as person:
        given = worker.get(path)
        assert given.json()["secrets"]["SOME_API_KEY"] == VALUE
        assert given.headers["cache-control"] == "no-store"
        assert person.get(path).status_code == 403
        assert team_server.client.get(path).status_code == 403, "not even an administrator's token"
        with open_store(str(shared_home / ".proctor/proctor.db")) as store:
            (deed,) = [each for each in store.service.audit.page(None) if each.action == "secret.read"]
            assert (deed.target, deed.detail["names"]) == (run, ["SOME_API_KEY"])
            store.set_status(run, RunStatus.INTERRUPTED)
        refused = worker.get(path)
        assert refused.status_code == 409
        assert VALUE not in refused.text


def test_keys_of_the_server_itself_go_to_workers_with_their_addresses_and_no_others(
    team_server, run, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-server")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-that-the-run-does-not-use")
    with with_scope(team_server, "worker") as worker:
        given = worker.get(f"/api/runs/{run}/secrets")
    keys, tables = given.json()["secrets"], given.json()["providers"]
    assert keys["OPENAI_API_KEY"] == "sk-of-the-server"
    assert "sk-that-the-run-does-not-use" not in given.text
    assert list(tables) == ["openai"]
    tables["openai"]["base_url"] = "https://house.example/v1"
    provider, _ = Providers.load(Settings(providers=tables), keys).of("openai/m")
    assert (provider.key, provider.base_url) == ("sk-of-the-server", "https://house.example/v1")
