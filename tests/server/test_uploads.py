"""Uploads, and the older API on them."""

from __future__ import annotations

import io
import zipfile

import pytest
from tests.server import tasks
from tests.server.conftest import eventually


def send(server, content: bytes, name: str = "a.zip", **fields: str):
    return server.client.post("/api/tasks", files={"file": (name, content)}, data=fields)


def zip_of(**entries: str) -> bytes:
    return tasks.packed({name.replace("__", "/"): text for name, text in entries.items()})


def link() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as opened:
        info = zipfile.ZipInfo("task.toml")
        info.external_attr = 0o120777 << 16
        opened.writestr(info, "/etc/passwd")
    return target.getvalue()


WRONG = {
    "no ZIP": b"hello",
    "an empty ZIP": tasks.packed({}),
    "outside": tasks.packed({"../task.toml": "x"}),
    "absolute": tasks.packed({"/task.toml": "x"}),
    "a link": link(),
    "no task": tasks.packed({"readme.md": "x"}),
    "a wrong task": tasks.packed({"task.toml": "this is not = toml ="}),
    "a bomb": tasks.packed({"task.toml": "x", "big": "0" * (64 << 20)}),
    "a fetched repository": tasks.packed(
        {
            "tb_meta.json": '{"instructions": "x", "repo": {"git_url": "file:///root/x.git"}}',
            "tests/test.sh": "true",
        }
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_archive_is_refused_and_nothing_is_kept(one_server, what: str):
    before = one_server.client.get("/api/uploads").json()["total"]
    answer = send(one_server, WRONG[what])
    assert (answer.status_code, answer.json()["code"]) == (400, "task_invalid"), answer.text
    assert str(one_server.home) not in answer.text
    assert one_server.client.get("/api/uploads").json()["total"] == before
    assert not list((one_server.home / ".proctor/uploads").iterdir())


def test_an_upload_says_what_the_checks_found_and_whether_it_is_known(one_server):
    first = tasks.upload(one_server.client, "known", agent="oracle", num_runs=2)
    again = tasks.upload(one_server.client, "known")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["digest"] == again["digest"]
    assert (first["status"], first["num_runs"], first["agent"]) == ("pending", 2, "oracle")
    assert (again["agent"], again["num_runs"]) == ("terminus-2", 10)
    assert all(each["where"] for each in first["findings"])
    shown = one_server.client.get(f"/api/uploads/{first['id']}").json()
    assert shown["task"] == "known"
    assert one_server.client.get("/api/uploads/none").status_code == 404


def test_a_form_with_values_that_do_not_fit_is_refused(one_server):
    answer = send(one_server, tasks.packed(tasks.files()), num_runs="101")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert one_server.client.post("/api/tasks", data={"name": "x"}).status_code == 422


@pytest.mark.needs("bubblewrap")
def test_the_authors_solution_is_run_first_when_asked(one_server):
    content = tasks.packed(tasks.files("checked"))
    answer = one_server.client.post("/api/tasks?check=oracle", files={"file": ("checked.zip", content)})
    assert answer.status_code == 201, answer.text
    check = answer.json()["check_id"]
    rows = one_server.client.get("/api/runs").json()["items"]
    assert next(row for row in rows if row["id"] == check)["tags"] == ["check"]


def test_older_shapes_before_anything_is_executed(one_server):
    up = tasks.upload(one_server.client, "older", agent="oracle", num_runs=2)
    task = one_server.client.get(f"/api/tasks/{up['id']}").json()
    assert task["created_at"].endswith("Z")
    assert set(task) == {
        *("id", "name", "description", "original_filename", "file_size", "model", "agent", "harness"),
        *("num_runs", "status", "created_at", "started_at", "completed_at", "total_runs", "passed_runs"),
        *("failed_runs", "runs"),
    }
    runs = one_server.client.get(f"/api/tasks/{up['id']}/runs").json()
    assert [(run["run_number"], run["status"]) for run in runs] == [(1, "pending"), (2, "pending")]
    assert set(runs[0]) == {
        *("id", "task_id", "run_number", "status", "started_at", "completed_at", "tests_total"),
        *("tests_passed", "tests_failed", "logs", "error_message", "duration_seconds"),
    }
    logs = one_server.client.get(f"/api/tasks/{up['id']}/runs/{runs[0]['id']}/logs").json()
    assert set(logs) == {"run_id", "task_id", "run_number", "status", "logs", "error_message"}
    assert one_server.client.get(f"/api/tasks/{up['id']}/runs/3").status_code == 404
    assert one_server.client.post(f"/api/tasks/{up['id']}/cancel").status_code == 409
    assert one_server.client.post(f"/api/tasks/{up['id']}/retry").status_code == 409


def test_older_lists_are_bare_and_link_to_the_next_page(one_server):
    for number in range(3):
        tasks.upload(one_server.client, f"listed-{number}")
    page = one_server.client.get("/api/tasks", params={"limit": 2})
    assert len(page.json()) == 2
    assert page.headers["link"] == '</api/tasks?skip=2&limit=2>; rel="next"'
    assert one_server.client.get("/api/tasks", params={"status": "completed"}).json() == []
    agents = one_server.client.get("/api/agents", params={"limit": 1})
    assert set(agents.json()[0]) == {"id", "name", "harness"}
    assert 'rel="next"' in agents.headers["link"]
    assert set(one_server.client.get("/api/models").json()[0]) == {"id", "name", "provider"}
    stats = one_server.client.get("/api/stats").json()
    assert set(stats["tasks"]) == {"total", "pending", "running", "completed", "failed"}
    assert set(stats["runs"]) == {"total", "passed", "failed"}


@pytest.mark.needs("bubblewrap")
def test_one_run_of_a_task_is_executed_then_the_others(one_server):
    """Nothing can be pulled here, so each ends as an error: tried again, never counted as a failure."""
    up = tasks.upload(one_server.client, "stepwise", agent="oracle", num_runs=2)
    path = f"/api/tasks/{up['id']}"
    asked = one_server.client.post(f"{path}/runs/{up['id']}-2/execute-async", json={"timeout_seconds": 60})
    assert (asked.status_code, asked.json()["runs_queued"]) == (202, 1), asked.text
    assert set(asked.json()) == {"message", "task_id", "runs_queued", "status", "poll_url"}

    def statuses() -> list[str]:
        return [run["status"] for run in one_server.client.get(f"{path}/runs").json()]

    eventually(lambda: statuses()[1] == "error", within_s=60)
    eventually(lambda: one_server.client.get(path).json()["status"] == "failed", within_s=30)
    assert statuses() == ["pending", "error"]
    rest = one_server.client.post(f"{path}/execute-async", json={"timeout_seconds": 60})
    assert rest.json()["runs_queued"] == 1
    eventually(lambda: statuses() == ["error", "error"], within_s=60)
    eventually(lambda: one_server.client.get(path).json()["status"] == "completed", within_s=30)
    task = one_server.client.get(path).json()
    assert (task["passed_runs"], task["total_runs"]) == (0, 2)
    run = one_server.client.get(f"{path}/runs/1").json()
    assert run["error_message"]
    assert run["duration_seconds"] is not None
    again = one_server.client.post(f"{path}/retry").json()
    assert again["runs_queued"] == 2
    assert one_server.client.post(f"{path}/cancel").json()["status"] == "cancelled"
    eventually(lambda: one_server.client.delete(path).status_code in {204, 404}, within_s=30)
    assert one_server.client.get(path).status_code == 404
