"""A real server, and commands that talk to it or to its store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.server import tasks
from tests.server.conftest import Serving, one_server, serve, shared_home

from proctor.cli.main import main

__all__ = ["one_server", "serve", "shared_home"]


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture
def run_command(monkeypatch, capsys, tmp_path: Path) -> Command:
    """Run a command in this process: of the server's store itself, or over the server's API."""

    def run(*args: str, home: Path | None = None, url: str = "local") -> Ended:
        monkeypatch.setenv("PROCTOR_HOME", str(home or tmp_path / "mine"))
        monkeypatch.setenv("PROCTOR_URL", url)
        monkeypatch.setenv("PROCTOR_LOGIN_FILE", str(tmp_path / "servers.json"))
        capsys.readouterr()
        code = main(list(args))
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def remote(run_command: Command, one_server: Serving) -> Command:
    """Commands over the API."""
    return lambda *args: run_command(*args, url=one_server.address)


@pytest.fixture
def beside(run_command: Command, one_server: Serving) -> Command:
    """The same commands on the server's own store."""
    return lambda *args: run_command(*args, home=one_server.home / ".proctor")


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., Path]:
    """Make a task folder."""

    def make(name: str = "hello", seconds: float = 0.0) -> Path:
        for path, text in tasks.files(name, seconds).items():
            file = tmp_path / "tasks" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755)
        return tmp_path / "tasks" / name

    return make
