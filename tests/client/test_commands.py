"""Commands against a server: the same words, the same data and the same exit codes as on its own store."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.server.conftest import eventually

pytestmark = pytest.mark.needs("bubblewrap")


@pytest.fixture(scope="module")
def ran() -> dict[str, str]:
    return {}


@pytest.fixture
def finished(remote, task, ran) -> str:
    """A run of two trials, submitted once for all tests."""
    if not ran:
        ended = remote("run", "-t", str(task()), "-a", "oracle", "-a", "nop", "--host-root", "--json")
        assert ended.code == 0, ended.err
        ran["id"] = remote("ls", "--json").data[0]["id"]
    return ran["id"]


def test_a_run_uploads_its_tasks_and_ends_with_the_summary_of_a_local_one(remote, beside, task):
    folder = task("shown")
    args = ("run", "-t", str(folder), "-a", "oracle", "-n", "2", "--host-root", "--name", "shown")
    ended = remote(*args, "-v")
    assert ended.code == 0, ended.err
    assert "uploading shown" in ended.err
    assert ended.err.count("passed") == 2
    local = beside(*args)
    headline = ended.out.splitlines()[0]
    assert headline == local.out.splitlines()[0]
    assert "passes 100 %" in headline
    assert "report: http://127.0.0.1:" in ended.out
    again = remote("run", "-t", str(folder), "-a", "nop", "--host-root")
    assert "uploading" not in again.err, "the server has this very task"


def test_every_reading_command_shows_what_it_shows_of_the_store(remote, beside, finished):
    for args in (
        ("show", finished, "--json"),
        ("watch", finished, "--no-follow", "--json"),
        ("compare", finished, finished, "--json"),
        ("compare", finished, finished, "--these-tasks"),
    ):
        over, own = remote(*args), beside(*args)
        assert over.code == own.code, (args, over.err)
        if args[0] == "show":
            ours, theirs = over.data, own.data
            assert {**theirs, "folder": ""} == ours
        else:
            assert over.out.rstrip() == own.out.partition("\nreport of A:")[0].rstrip(), args
    shown, own = remote("show", finished).out, beside("show", finished).out
    assert shown.splitlines() == [line for line in own.splitlines() if not line.startswith("  folder ")]


def test_runs_are_listed_alike(remote, beside, finished):
    over, own = remote("ls", "--json").data, beside("ls", "--json").data
    assert [{**row, "folder": ""} for row in own] == [
        {**row, "folder": row.get("folder", "")} for row in over
    ]
    assert remote("ls").out == beside("ls").out
    assert remote("ls", "--status", "cancelled", "--name", "none*").out == "No run matches.\n"


def test_logs_are_the_same(remote, beside, finished):
    assert remote("logs", finished).out == beside("logs", finished).out
    assert "working" in remote("logs", finished, "0").out
    for args in (
        ("0",),
        ("0", "--log", "verifier"),
        ("0", "--tail", "1"),
        ("0", "-f"),
        ("0", "--log", "trajectory"),
    ):
        assert remote("logs", finished, *args).out == beside("logs", finished, *args).out, args
    listed = remote("logs", finished, "--json").data
    assert [row["logs"] and row["logs"][0]["name"] for row in listed]
    missing = remote("logs", finished, "0", "--log", "nothing")
    assert (missing.code, "no log named 'nothing'" in missing.err) == (2, True)


def test_names_that_mean_nothing_are_refused_alike(remote, beside):
    for args in (("show", "none-such"), ("cancel", "none-such"), ("logs", "none-such"), ("watch", "no")):
        over, own = remote(*args), beside(*args)
        assert over.code == own.code == 2, args
        assert over.err.startswith("proctor: ")


def test_a_gate_decides_the_exit_code(remote, beside, one_server, task, tmp_path):
    spec = tmp_path / "gated.json"
    spec.write_text(
        json.dumps(
            {
                "name": "gated",
                "sandbox": {"host_root": True},
                "tasks": [{"path": str(task()), "agent": "nop"}],
                "gates": ["success_rate >= 0.5"],
            }
        )
    )
    ended = remote("run", str(spec))
    assert ended.code == 1, ended.err
    assert "Regression" in ended.out
    judged = eventually(lambda: one_server.client.get("/api/runs/gated").json()["gate"])
    assert judged["verdict"] == "regression"
    assert judged["sentence"] in " ".join(ended.out.split()), "what is shown is what the server found"
    kept = one_server.client.get("/api/runs/gated/gate").json()
    assert (kept["exit_code"], [each["rule"] for each in kept["rules"]]) == (1, ["success_rate >= 0.5"])
    folder = Path(beside("show", "gated", "--json").data["folder"])
    assert "proctor-gate" in (folder / "gate.md").read_text()


def test_a_wrong_spec_is_exit_code_2_with_the_servers_sentence(remote, task):
    ended = remote("run", "-t", str(task()), "-a", "oracle", "--host-root", "--pass-env", "HOME")
    assert (ended.code, "pass_env" in ended.err) == (2, True)


def test_a_run_is_cancelled_and_a_paused_one_goes_on(remote, one_server, task):
    slow = task("slow", seconds=0.3)
    found: list[int] = []
    args = ("run", "-t", str(slow), "-a", "oracle", "-n", "30", "--host-root", "--name", "slow")
    client = one_server.client
    thread = threading.Thread(target=lambda: found.append(remote(*args).code), daemon=True)
    thread.start()

    def begun() -> object:
        rows = client.get("/api/runs", params={"name": "slow"}).json()["items"]
        return rows[0] if rows and rows[0]["done"] else None

    run = eventually(begun)
    assert client.post(f"/api/runs/{run['id']}/pause", headers={"X-Proctor-Request": "1"}).status_code == 200
    thread.join(30)
    assert found == [130], "a paused run is an interrupted one"
    cancelled = remote("cancel", run["id"], "--json")
    assert cancelled.data["status"] == "cancelled"
    assert cancelled.data["cancelled_trials"] > 0
    assert "already cancelled" in remote("cancel", run["id"]).out
    assert remote("resume", run["id"]).code == 2


def test_what_needs_the_store_itself_says_so():
    from proctor.client.remote_store import as_store

    with pytest.raises(Exception, match="does not work against a server"):
        as_store(None).delete_run("x")  # type: ignore[arg-type]
