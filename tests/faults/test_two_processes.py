"""Two processes and one run, one of them killed again and again: every trial once, in store and folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.errors import Exit
from proctor.model.outcome import Outcome
from proctor.model.trial import RunStatus
from proctor.runfolder.transfer import import_folder
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store
from proctor.store.store import Store

pytestmark = pytest.mark.fault
SECONDS = 30 if os.environ.get("PROCTOR_SOAK") else 8
POINTS = 300
EXPERIMENT = """
import time
from pathlib import Path
from proctor import Experiment, register_experiment

@register_experiment("waiting")
class Waiting(Experiment):
    def __init__(self, n: int = 0, seconds: float = 0.02, until: str = "") -> None:
        self.n, self.seconds, self.until = n, seconds, until

    def execute_once(self, context):
        while self.until and not Path(self.until).exists():
            time.sleep(0.02)
        time.sleep(self.seconds)
        return {"n": self.n}
"""
ELSEWHERE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "waiting.py").write_text(EXPERIMENT)
    return tmp_path


def spec(project: Path, **sweep: list[object]) -> str:
    document = {"experiment": "waiting", "sources": ["waiting.py"], "sweep": sweep, "parallel": 2}
    (project / "spec.json").write_text(json.dumps(document))
    return "spec.json"


def proctor(project: Path, *arguments: str, before: list[str] | None = None) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PROCTOR_HOME": str(project / ".proctor"),
        "PROCTOR_OUTPUT_DIR": str(project / "results"),
    }
    return subprocess.Popen(
        [*(before or []), sys.executable, "-m", "proctor.cli.main", *arguments],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def store_of(project: Path) -> Store:
    return open_store(str(project / ".proctor/proctor.db"))


def wait_for(true: Callable[[], object], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def works(project: Path, pid: int | None = None) -> bool:
    """Whether a process holds trials of the run: this one, or any."""
    if not (project / ".proctor/proctor.db").exists():
        return False
    with store_of(project) as store:
        workers = [worker for run in store.runs() for worker in store.holders(run.id)]
    return any(pid is None or f":{pid}:" in worker for worker in workers)


def kill(process: subprocess.Popen[str]) -> str:
    """Kill a process and all it started; what it had said."""
    os.killpg(process.pid, signal.SIGKILL)
    return process.communicate(timeout=30)[0]


def check_once(project: Path, points: int) -> None:
    """Every trial has one result that counts, in the store, in the folder, and in a store that imports it."""
    with store_of(project) as store, open_store(str(project / "other.db")) as other:
        run = store.run("latest")
        assert run.status is RunStatus.DONE
        counted = [row.trial.key for row in store.attempts(run.id) if row.counts]
        rows = [json.loads(line) for line in (Path(run.folder) / "series.jsonl").read_text().splitlines()]
        assert import_folder(other, open_blobs(project / "blobs"), Path(run.folder)).added
        assert store.check() == []
    assert len(counted) == len(set(counted)) == points
    assert sum(row["counts"] for row in rows) == points
    assert len({(row["key"], row["number"]) for row in rows}) == len(rows)
    assert not (Path(run.folder) / ".lock").exists()


def test_two_processes_of_which_one_is_killed_again_and_again_repeat_and_lose_nothing(project: Path):
    dice = random.Random(12)
    running = [proctor(project, "run", spec(project, n=list(range(POINTS))))]
    wait_for(lambda: works(project))
    ended: list[tuple[int, str]] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        while len(running) < 2:
            running.append(proctor(project, "resume", "latest", "--json"))
        time.sleep(dice.uniform(0.05, 0.9))
        gone = [each for each in running if each.poll() is not None]
        ended += [(each.returncode, each.communicate()[0]) for each in gone]
        running = [each for each in running if each not in gone]
        if running and dice.random() < 0.6:
            kill(running.pop(dice.randrange(len(running))))
    for each in running:
        ended.append((each.wait(60), each.communicate()[0]))
    last = proctor(project, "resume", "latest", "--json")
    output = last.communicate(timeout=120)[0]
    assert last.returncode in {Exit.OK, Exit.INFRASTRUCTURE}, output
    for code, said in ended:
        assert code in {Exit.OK, Exit.USAGE, Exit.INFRASTRUCTURE}, said
        assert code != Exit.USAGE or "is being executed by" in said, said
    check_once(project, POINTS)


def test_the_second_process_says_who_executes_the_run_and_changes_nothing(project: Path):
    go = project / "go"
    first = proctor(project, "run", spec(project, n=[1, 2, 3, 4], until=[str(go)]))
    wait_for(lambda: works(project))
    second = proctor(project, "resume", "latest", "--errors")
    said = second.communicate(timeout=60)[0]
    assert second.returncode == Exit.USAGE, said
    assert f"is being executed by process {first.pid} on" in said
    assert "Its lease lasts until" in said
    with store_of(project) as store:
        assert store.run("latest").status is RunStatus.RUNNING
    go.touch()
    assert first.wait(60) == Exit.OK, first.communicate()[0]
    first.communicate()
    check_once(project, 4)


def test_a_trial_whose_worker_is_killed_each_time_ends_as_the_retry_policy_says(project: Path):
    command = ["run", spec(project, n=[0], seconds=[1000])]
    for number in range(1, 4):
        process = proctor(project, *command)
        wait_for(lambda pid=process.pid: works(project, pid))
        kill(process)
        command = ["resume", "latest"]
        with store_of(project) as store:
            assert len(list(store.attempts(store.run("latest").id))) == number - 1
    last = proctor(project, *command)
    said = last.communicate(timeout=60)[0]
    assert last.returncode == Exit.INFRASTRUCTURE, said
    assert "worker_lost" in said or "worker lost" in said, said
    with store_of(project) as store:
        rows = list(store.attempts(store.run("latest").id))
    assert [row.record.outcome for row in rows] == [Outcome.WORKER_LOST] * 3
    assert [row.counts for row in rows] == [False, False, True]
    check_once(project, 1)


@pytest.mark.needs("root")
def test_a_process_that_cannot_see_the_other_neither_steals_its_trials_nor_waits_once_it_is_killed(
    project: Path,
):
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    go = project / "go"
    first = proctor(project, "run", spec(project, n=[1, 2], until=[str(go)]), before=ELSEWHERE)
    wait_for(lambda: works(project))
    second = proctor(project, "resume", "latest")
    said = second.communicate(timeout=60)[0]
    assert second.returncode == Exit.USAGE, said
    assert "is being executed by" in said
    kill(first)
    go.touch()
    third = proctor(project, "resume", "latest")
    said = third.communicate(timeout=25)[0]
    assert third.returncode == Exit.OK, said
    check_once(project, 2)


def test_a_closed_terminal_ends_a_run_as_a_termination_does(project: Path):
    listening = ["env", "--default-signal=HUP"]  # whoever runs the tests may have started them with nohup
    process = proctor(project, "run", spec(project, n=[0], seconds=[1000]), before=listening)
    wait_for(lambda: works(project))
    process.send_signal(signal.SIGHUP)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == Exit.INTERRUPTED, said
    with store_of(project) as store:
        assert store.run("latest").status is RunStatus.INTERRUPTED
        assert store.holders(store.run("latest").id) == {}


def test_a_cancelled_run_stays_cancelled_and_is_not_resumed(project: Path):
    process = proctor(project, "run", spec(project, n=[0, 1, 2], seconds=[1000]))
    wait_for(lambda: works(project))
    cancelled = proctor(project, "cancel", "latest")
    said = cancelled.communicate(timeout=60)[0]
    assert cancelled.returncode == Exit.OK, said
    said = process.communicate(timeout=60)[0]
    assert process.returncode == Exit.INTERRUPTED, said
    resumed = proctor(project, "resume", "latest")
    said = resumed.communicate(timeout=60)[0]
    assert resumed.returncode == Exit.USAGE
    assert "was cancelled and cannot be continued" in said
    with store_of(project) as store:
        assert store.run("latest").status is RunStatus.CANCELLED
