"""Two coordinators and four workers on one run, each killed at random: every trial once, and a right end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.errors import Exit
from proctor.model.trial import RunStatus
from proctor.store.open import open_store

pytestmark = pytest.mark.fault
SECONDS = 120 if os.environ.get("PROCTOR_SOAK") else 10
POINTS = 4000 if os.environ.get("PROCTOR_SOAK") else 400
EXPERIMENT = """
import time
from proctor import Experiment, register_experiment

@register_experiment("waiting")
class Waiting(Experiment):
    def __init__(self, n: int = 0) -> None:
        self.n = n

    def execute_once(self, context):
        time.sleep(0.1)
        return {"n": self.n}
"""
COORDINATOR = ["resume", "latest", "--wait", "--json"]
WORKER = ["worker", "--run", "latest", "--parallel", "2"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "waiting.py").write_text(EXPERIMENT)
    spec = {
        "experiment": "waiting",
        "sources": ["waiting.py"],
        "sweep": {"n": list(range(POINTS))},
        "parallel": 2,
        # What is killed this often would end as lost, and then nothing is left to be executed twice.
        "retries": {"infrastructure": 1000},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    return tmp_path


class Crowd:
    """Processes of Proctor on one project, and what those that ended by themselves have said."""

    def __init__(self, project: Path, store_url: str) -> None:
        self.project = project
        self.environment = {
            **os.environ,
            "PROCTOR_HOME": str(project / ".proctor"),
            "PROCTOR_OUTPUT_DIR": str(project / "results"),
            "PROCTOR_STORE": store_url,
        }
        self.ended: list[tuple[list[str], int, str]] = []

    def start(self, arguments: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "proctor.cli.main", *arguments],
            cwd=self.project,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def note(self, arguments: list[str], process: subprocess.Popen[str]) -> None:
        said = process.communicate(timeout=120)[0]
        self.ended.append((arguments, process.returncode, said))


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and all it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)


def wait_until_it_runs(store_url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        with open_store(store_url) as store:
            if any(run.status is RunStatus.RUNNING for run in store.runs()):
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_coordinators_and_four_workers_killed_at_random_do_every_trial_once(
    project: Path, store_url: str
):
    dice = random.Random(13)
    crowd = Crowd(project, store_url)
    roles = [["run", "spec.json", "--json"], COORDINATOR, WORKER, WORKER, WORKER, WORKER]
    places: list[subprocess.Popen[str]] = [crowd.start(roles[0])]
    wait_until_it_runs(store_url)
    places += [crowd.start(role) for role in roles[1:]]
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(dice.uniform(0.1, 0.8))
        at = dice.randrange(len(places))
        if places[at].poll() is None:
            kill(places[at])
        for at, process in enumerate(places):
            if process.poll() is not None:
                if process.returncode >= 0:
                    crowd.note(roles[at], process)
                roles[at] = COORDINATOR if at < 2 else WORKER
                places[at] = crowd.start(roles[at])
    for at in (0, 1):
        crowd.note(roles[at], places[at])
    for at in range(2, 6):
        places[at].send_signal(signal.SIGINT)
        crowd.note(roles[at], places[at])
    for arguments, code, said in crowd.ended:
        assert code == Exit.OK, (arguments, code, said)
    check_once(store_url)


def check_once(store_url: str) -> None:
    """Every trial has one result that counts, in the store and in the folder, and the run is done."""
    with open_store(store_url) as store:
        run = store.run("latest")
        attempts = [(row.trial.key, row.record.number, row.counts) for row in store.attempts(run.id)]
        assert run.status is RunStatus.DONE
        assert store.check() == []
        assert store.workers(run.id) == []
        assert store.coordination.holder(run.id) is None
    rows = [json.loads(line) for line in (Path(run.folder) / "series.jsonl").read_text().splitlines()]
    assert sum(counts for _, _, counts in attempts) == POINTS
    assert len({key for key, _, counts in attempts if counts}) == POINTS
    assert sorted((row["key"], row["number"], row["counts"]) for row in rows) == sorted(attempts)
    summary = json.loads((Path(run.folder) / "summary.json").read_text())
    assert summary["run"]["status"] == "done"
    assert summary["run"]["done"] == POINTS
    assert not (Path(run.folder) / ".lock").exists()
