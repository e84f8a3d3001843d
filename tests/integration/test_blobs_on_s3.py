"""A whole run whose files are on S3: coordinator and worker with nothing in common but store and bucket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from tests.s3 import s3_server

from proctor.store.open import open_store

pytestmark = pytest.mark.needs("bubblewrap")
START_DEADLINE_S = 60.0
SPEC = {
    "name": "on-s3",
    "sandbox": {"host_root": True},
    "parallel": 1,
    "tasks": [{"path": "TASK", "agent": ["oracle"], "rollouts": 8}],
}


class Machine:
    """A home of its own with the addresses that a team shares."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        folder.mkdir()
        own = {"PROCTOR_HOME": str(folder / "home"), "PROCTOR_ROLLOUTS_DIR": str(folder / "rollouts")}
        self.folder, self.environ = folder, os.environ | environ | own
        self.started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.started:
            each.kill()
            each.communicate()

    def start(self, *words: str) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [sys.executable, "-m", "proctor.cli.main", *words],
            cwd=self.folder, env=self.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(started)
        return started

    def proctor(self, *words: str) -> str:
        done = self.start(*words)
        said, _ = done.communicate(timeout=180)
        assert done.returncode == 0, f"{words}: {said}"
        return said


@pytest.mark.timeout(300)
def test_a_run_with_a_worker_elsewhere_keeps_all_its_files_in_the_bucket(
    tmp_path: Path, make_task: Callable[..., Path]
):
    task = make_task("easy", solve="sleep 1; echo yes > /app/solved; echo said")
    with s3_server(tmp_path / "s3") as (url, environ):
        shared = {**environ, "PROCTOR_STORE": str(tmp_path / "store.db"), "PROCTOR_BLOBS": url}
        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps(SPEC).replace("TASK", str(task)))
        with Machine(tmp_path / "one", shared) as one, Machine(tmp_path / "two", shared) as two:
            running = one.start("run", str(spec))
            run_id = _wait_for_run(tmp_path / "store.db", running)
            working = two.start("worker", "--run", run_id, "--until-idle")
            said, _ = running.communicate(timeout=200)
            helped, _ = working.communicate(timeout=60)
            assert running.returncode == 0, said
            assert working.returncode == 0, helped
            with open_store(str(tmp_path / "store.db")) as store:
                rows = list(store.attempts(run_id))
                assert [row.record.outcome.value for row in rows] == ["passed"] * 8
                assert len({row.record.worker for row in rows}) == 2
            for machine in (one, two):
                assert not (machine.folder / "home/blobs").exists()
            _use(one, two, run_id)
            secret = environ["AWS_SECRET_ACCESS_KEY"]
            kept = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert not [path for path in kept if secret.encode() in path.read_bytes()]
            assert secret not in said + helped


def _wait_for_run(store: Path, running: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + START_DEADLINE_S
    while running.poll() is None and time.monotonic() < deadline:
        with open_store(str(store), create=False) as opened:
            found = opened.runs(status="running")
        if found:
            return found[0].id
        time.sleep(0.1)
    pytest.fail("the run did not begin")


def _use(one: Machine, two: Machine, run_id: str) -> None:
    """What people do with a run, on the machine that coordinated it and on the one that helped."""
    assert "said" in one.proctor("logs", run_id, "0")
    one.proctor("report", run_id)
    two.proctor("receipt", run_id, str(two.folder / "receipt.zip"))
    two.proctor("verify", str(two.folder / "receipt.zip"))
    two.proctor("export", run_id, str(two.folder / "exported"))
    assert list((two.folder / "exported").rglob("state.tar"))
    assert "all read and right" in one.proctor("db", "check", "--deep")
    assert json.loads(one.proctor("db", "gc", "--json"))["removed"] == 0
    # All of them are young, and a run that is being created might be about to use them.
    assert "0 artifacts (" in two.proctor("rm", run_id, "--yes")
    assert json.loads(one.proctor("db", "gc", "--json"))["removed"] == 0
