"""Repositories that tasks name: what a stranger's may be; and a revision is never an option of git."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tasks.conftest import publish
from tests.tasks.git_server import GitServer, commit_all, git, serve

from proctor.errors import TaskError
from proctor.model.task import Repository, Task
from proctor.outbound import Reach
from proctor.trial.task.workspace import fetch, workspace_for

OPEN = Reach(allow=("127.0.0.1",))


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("content\n")
    commit_all(folder)
    return folder


@pytest.fixture
def served(tmp_path: Path, work: Path) -> Iterator[GitServer]:
    (tmp_path / "served").mkdir()
    publish(work, tmp_path / "served/code.git")
    with serve(tmp_path / "served") as server:
        yield server


@pytest.fixture
def moved(served: GitServer) -> Iterator[str]:
    """A server that sends everybody to the other one."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{served.url}{self.path}")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "{work}", "file://{work}", "FILE://{work}", "ext::sh -c id", "ssh://git@10.0.0.1/x.git",
        "git@github.com:org/repo.git", "../work", "--upload-pack=id", "http::{work}", "https:///{work}",
    ],
)  # fmt: skip
def test_a_stranger_names_no_folder_no_program_and_no_key_of_the_server(work, tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(TaskError):
        fetch(Repository(git_url=url.format(work=work)), tmp_path / "cache", OPEN)
    assert not list(tmp_path.glob("cache/repositories/*"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f.1", "①②⑦.0.0.1", "127.0.0.1."])
def test_a_stranger_reaches_no_server_inside_however_its_address_is_written(served, tmp_path, host):
    url = served.url.replace("127.0.0.1", host)
    with pytest.raises(TaskError, match=r"is not an address of the internet|no usable host"):
        fetch(Repository(git_url=f"{url}/code.git"), tmp_path / "cache", Reach())
    assert served.requests == []


def test_what_may_be_reached_is_fetched_at_the_address_that_was_checked(served, tmp_path, monkeypatch):
    """Git could not look this name up: it gets the address that was checked, and no second look."""
    real = socket.getaddrinfo

    def known(host, *args, **given):
        return real("127.0.0.1" if host == "code.invalid" else host, *args, **given)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    url = served.url.replace("127.0.0.1", "code.invalid") + "/code.git"
    place = fetch(Repository(git_url=url, branch="main"), tmp_path / "cache", OPEN)
    assert (place / "a.txt").read_text() == "content\n"
    assert git(place, "status", "--short", "--branch").startswith("## main")


def test_a_redirect_of_a_strangers_server_is_not_followed(served, moved, tmp_path):
    with pytest.raises(TaskError, match="git clone failed"):
        fetch(Repository(git_url=f"{moved}/code.git"), tmp_path / "cache", OPEN)
    assert served.requests == []
    assert fetch(Repository(git_url=f"{moved}/code.git"), tmp_path / "cache"), "a person's is, as git does"


def test_a_strangers_repository_is_fetched_without_the_logins_of_this_machine(served, tmp_path, monkeypatch):
    served.password = "name:word"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine 127.0.0.1 login name password word\n")
    monkeypatch.setenv("HOME", str(home))
    wanted = Repository(git_url=f"{served.url}/code.git")
    assert (fetch(wanted, tmp_path / "cache") / "a.txt").exists(), "a person's own logins are used"
    with pytest.raises(TaskError, match="git clone failed"):
        fetch(wanted, tmp_path / "cache", OPEN)


@pytest.mark.parametrize(
    "wanted", [{"branch": "--orphan=evil"}, {"start_commit_sha": "HEAD--detach"}, {"branch": "-q"}]
)
def test_a_revision_is_never_an_option(work, tmp_path, wanted):
    with pytest.raises(TaskError):
        fetch(Repository(git_url=str(work), **wanted), tmp_path / "cache")
    assert not list(tmp_path.glob("cache/repositories/*"))


def test_a_revision_is_never_a_path(work, tmp_path):
    with pytest.raises(TaskError, match="git checkout failed"):
        fetch(Repository(git_url=str(work), branch="a.txt"), tmp_path / "cache")


def test_the_repository_around_this_process_is_not_touched(work, tmp_path, monkeypatch):
    """A hook of git sets this variable; the policy of all other git calls takes it away."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert (fetch(Repository(git_url=str(work)), tmp_path / "cache") / "a.txt").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_a_task_of_a_dataset_names_no_folder_of_this_machine(work, tmp_path):
    cache = tmp_path / "cache"
    folder = cache / "datasets/key/files/set/task"
    folder.mkdir(parents=True)
    task = Task(name="t", path=folder, digest="d", repository=Repository(git_url=str(work)))
    with pytest.raises(TaskError, match="cannot name a folder of this machine"):
        workspace_for(task, {}, folder, cache)
