from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proctor.errors import FetchError, UsageError
from proctor.outbound import Reach
from proctor.tasks.registry import find_dataset, newest, read_registry, tasks_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TASK = {"name": "a", "git_url": "https://host/r.git", "git_commit_id": COMMIT, "path": "tasks/a"}


def silent(_: str) -> None:
    pass


def write(path: Path, tasks: list[object], **more: object) -> str:
    row = {"name": "one", "version": "1.0", "description": "d", "tasks": tasks, "metrics": [], **more}
    path.write_text(json.dumps([row]))
    return str(path)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (["1.0", "2.0", "10.0"], "10.0"),
        (["1.0", "head", "2.0"], "head"),
        (["parity", "verified"], "verified"),
        (["parity", "0.1"], "0.1"),
    ],
)
def test_without_a_version_the_one_is_taken_that_harbor_takes(versions, chosen):
    assert newest(versions) == chosen


def test_a_registry_file_lists_datasets_and_their_tasks(tmp_path):
    source = write(tmp_path / "r.json", [TASK, TASK])
    found = find_dataset("one", [source], tmp_path, silent)
    assert (found.reference, found.description) == ("one@1.0", "d")
    (task,) = tasks_of(found)
    assert (task.name, task.commit, task.path) == ("a", COMMIT, "tasks/a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"git_commit_id": "main"}, "'main' is not a commit; a branch can change"),
        ({"git_commit_id": None}, "the commit is missing"),
        ({"git_url": None}, "has no git_url"),
        ({"git_url": "--upload-pack=x"}, "not the address of a git repository"),
        ({"git_url": "ext::sh -c x"}, "not the address of a git repository"),
        ({"path": "../../etc"}, "leads out of the repository"),
        ({"path": "/etc"}, "leads out of the repository"),
        ({"path": 3}, "has no path"),
        ({"path": "tasks/a\u0007b"}, "leads out of the repository"),
        ({"path": "tasks/-rf"}, "cannot be the name of a task"),
    ],
)
def test_a_task_that_cannot_be_trusted_is_named(tmp_path, change, message):
    source = write(tmp_path / "r.json", [TASK | change])
    with pytest.raises(UsageError, match=message):
        tasks_of(find_dataset("one@1.0", [source], tmp_path, silent))


def test_passwords_in_a_registry_are_not_repeated(tmp_path):
    source = write(
        tmp_path / "r.json", [TASK | {"git_url": "https://me:hidden@host/r", "git_commit_id": "x"}]
    )
    with pytest.raises(UsageError) as caught:
        tasks_of(find_dataset("one@1.0", [source], tmp_path, silent))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("{}", "expected a JSON list"),
        ("[1]", "entry 1 is not a dataset"),
        ('[{"name": "../x", "version": "1", "tasks": []}]', "cannot name a dataset"),
        ('[{"name": "x", "version": "", "tasks": []}]', "cannot name a dataset"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_file_that_is_no_registry_is_named(tmp_path, content, message):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(UsageError, match=message):
        read_registry(str(tmp_path / "r.json"), tmp_path, silent)


def test_a_registry_that_is_missing_or_unreachable_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_registry(str(tmp_path / "none.json"), tmp_path, silent)
    with pytest.raises(FetchError, match=r"http://127.0.0.1:9/r.json: the registry file cannot be fetched"):
        read_registry("http://me:pw@127.0.0.1:9/r.json", tmp_path, silent)


def test_a_registry_of_the_internet_does_not_lead_into_this_network(tmp_path, monkeypatch):
    """127.0.0.1 stands for the internet here, 127.0.0.2 for what is inside."""
    monkeypatch.setattr("proctor.tasks.registry._REACH", Reach(allow=("127.0.0.1",)))
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Host"].partition(":")[0])
            self.send_response(302 if self.path == "/r.json" else 200)
            self.send_header("Location", f"http://127.0.0.2:{server.server_port}/inside")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("0.0.0.0", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises(FetchError, match=r"127\.0\.0\.2 is not an address of the internet"):
            read_registry(f"http://127.0.0.1:{server.server_port}/r.json", tmp_path, silent)
        server.shutdown()
    assert asked == ["127.0.0.1"]


def test_a_dataset_without_tasks_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="has no tasks"):
        tasks_of(find_dataset("one@1.0", [write(tmp_path / "r.json", [])], tmp_path, silent))


def test_the_first_registry_that_has_the_name_wins(tmp_path):
    first = write(tmp_path / "a.json", [TASK], version="1.0")
    second = write(tmp_path / "b.json", [TASK], version="2.0")
    assert find_dataset("one", [first, second], tmp_path, silent).version == "1.0"
    assert find_dataset("one@2.0", [first, second], tmp_path, silent).registry == second
