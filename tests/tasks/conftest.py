"""A repository of tasks, served over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tasks.git_server import GitServer, commit_all, git, serve, write_task


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work tree with two tasks under `tasks/` and something large beside them."""
    folder = tmp_path / "work"
    for name in ("alpha", "beta"):
        write_task(folder / "tasks" / name)
    (folder / "other").mkdir()
    (folder / "other/large.bin").write_bytes(bytes(range(256)) * 400)
    commit_all(folder)
    return folder


@pytest.fixture
def served(tmp_path: Path, work: Path) -> Iterator[GitServer]:
    """The repository as `<url>/tasks.git`."""
    folder = tmp_path / "served"
    folder.mkdir()
    publish(work, folder / "tasks.git")
    with serve(folder) as server:
        yield server


def publish(work: Path, bare: Path) -> None:
    """Bring a bare repository up to date with a work tree."""
    if not bare.exists():
        git(work, "clone", "-q", "--bare", ".", str(bare))
        git(bare, "config", "uploadpack.allowFilter", "true")
    git(work, "push", "-q", "--force", str(bare), "HEAD:main", "--tags")
