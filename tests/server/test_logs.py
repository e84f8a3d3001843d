"""Names of callers in the server's log, and its files on a machine with others."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.server import tasks
from tests.server.conftest import Serving
from tests.server.test_auth import projects

from proctor.server.logs import LineFormatter, escaped
from proctor.server.routes.team.remarks import LabelsBody

__all__ = ["projects"]

FORGED = "x\n2026-01-01 proctor.server ERROR: all is lost\x1b[2J\u2028"


def test_what_is_logged_is_one_line():
    record = logging.LogRecord("a", logging.WARNING, "f", 1, "run %s: %s", ("1", FORGED), None)
    line = LineFormatter("%(levelname)s: %(message)s").format(record)
    assert line == f"WARNING: run 1: {escaped(FORGED)}"
    assert line.isprintable()


def test_a_traceback_has_no_line_that_looks_like_the_log():
    error = ValueError(FORGED)
    record = logging.LogRecord("a", logging.ERROR, "f", 1, "it broke", (), (ValueError, error, None))
    _, *lines = LineFormatter("%(levelname)s: %(message)s").format(record).splitlines()
    assert lines
    assert all(line.startswith("    ") for line in lines)


def _refused(server: Serving, method: str, path: str, **body: object) -> None:
    answer = server.client.request(method, path, **body)  # type: ignore[arg-type]
    assert answer.status_code == 422, (path, answer.text)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1b[2Jb", "a\x00b", "a\u2028b"])
def test_names_have_no_line_breaks_and_no_control_characters(team_server, projects, name: str):
    spec = {"name": "x", "tasks": []}
    _refused(team_server, "POST", "/api/tokens", json={"name": name, "user": "ada", "scopes": ["read"]})
    _refused(team_server, "PUT", "/api/projects/red", json={"title": name})
    _refused(team_server, "POST", "/api/schedules", json={"name": name, "cron": "daily 02:00", "spec": spec})
    _refused(team_server, "POST", "/api/runs", json={"spec": spec, "tags": [name]})
    with pytest.raises(ValidationError):
        LabelsBody(labels=[name])
    _refused(
        team_server,
        "POST",
        "/api/tasks",
        files={"file": ("hello.zip", tasks.packed(tasks.files()))},
        data={"name": name},
    )


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_home_and_store_are_their_owners_alone(serve, tmp_path: Path, umask: int):
    home = tmp_path / ".proctor"
    if umask == 0:  # one that an earlier version has made
        (home / "blobs").mkdir(parents=True)
        home.chmod(0o755)
    before = os.umask(umask)
    try:
        server = serve()
        tasks.upload(server.client)
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE((home / name).stat().st_mode)
        for name in ("", "proctor.db", "proctor.db-wal", "proctor.db-shm", "blobs")
    }
    assert modes == {
        "": 0o700,
        "proctor.db": 0o600,
        "proctor.db-wal": 0o600,
        "proctor.db-shm": 0o600,
        "blobs": 0o700,
    }
