"""Runs on worker processes beside a real broker: they end as local ones do, whatever happens to workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.brokers import redis_server

from proctor.engine.celery.app import make_app
from proctor.model.trial import RunStatus
from proctor.store.open import open_store

pytestmark = [pytest.mark.needs("redis"), pytest.mark.needs("bubblewrap")]
DEADLINE_S = 120.0
KEY = "sk-a-key-that-must-stay-secret"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Cluster:
    """Commands on one store and one broker; what still runs at the end is killed."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder = folder
        self.store = str(folder / "store.db")
        self.environ = {
            **os.environ,
            "PROCTOR_STORE": self.store,
            "PROCTOR_HOME": str(folder / "home"),
            "PROCTOR_BROKER": broker,
            "PROCTOR_LEASE_S": "5",
            "OPENAI_API_KEY": KEY,
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log-{len(self.started)}").open("wb") as log:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "proctor.cli.main", *words],
                    env=self.environ, cwd=self.folder, stdout=log, stderr=log,
                )
            )  # fmt: skip
        return self.started[-1]

    def running(self) -> list[str]:
        if not Path(self.store).exists():
            return []
        with open_store(self.store) as store:
            return [worker for run in store.runs() for worker in store.workers(run.id)]

    def outcomes(self) -> list[str]:
        """Of all attempts, in the order in which they ended."""
        with open_store(self.store) as store:
            found = [row.record for run in store.runs() for row in store.attempts(run.id)]
        return [each.outcome.value for each in sorted(found, key=lambda each: each.ended_at)]

    @property
    def sleep(self) -> str:
        """A command of a task that `asleep` finds."""
        return f"(exec -a asleep-{self.folder.name} sleep 600)"

    def asleep(self) -> list[int]:
        """The processes of that command, inside of sandboxes."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (entry / "cmdline").read_bytes().startswith(f"asleep-{self.folder.name}\0".encode()):
                    found.append(int(entry.name))
        return found

    def logs(self) -> str:
        return "\n".join(each.read_text() for each in sorted(self.folder.glob("log-*")))

    def close(self) -> None:
        for each in self.started:
            if each.poll() is None:
                each.kill()
            each.wait()


@pytest.fixture
def cluster(tmp_path: Path, broker: str) -> Iterator[Cluster]:
    made = Cluster(tmp_path, broker)
    yield made
    made.close()


def spec_of(cluster: Cluster, task: Path, rollouts: int, **more: object) -> str:
    written = {
        "name": "r",
        "tasks": [{"path": str(task), "rollouts": rollouts}],
        "sandbox": {"host_root": True},
        **more,
    }
    (cluster.folder / "spec.json").write_text(json.dumps(written))
    return "spec.json"


def ended(cluster: Cluster, coordinator: subprocess.Popen[bytes]) -> None:
    assert coordinator.wait(DEADLINE_S) == 0, cluster.logs()


def test_workers_do_a_run_and_a_drained_one_ends_its_attempts(cluster: Cluster, make_task):
    """Also: the broker's tools see the worker, the plan is the local one, and no key is anywhere."""
    task = make_task("one")
    spec = spec_of(cluster, task, 6)
    worker = cluster.start("worker", "--parallel", "3")
    ended(cluster, cluster.start("run", spec))
    with open_store(cluster.store) as store:
        (run,) = store.runs()
        assert run.counts == {"passed": 6}
        assert {row.record.worker.split(":")[1] for row in store.attempts(run.id)} == {str(worker.pid)}
    check_inspection(cluster, worker.pid)
    worker.terminate()
    assert worker.wait(DEADLINE_S) == 0
    assert "6 attempts executed" in cluster.logs()
    ended(cluster, cluster.start("run", spec, "--engine", "local"))
    with open_store(cluster.store) as store:
        here, there = store.runs()
        assert here.plan_digest == there.plan_digest
        assert [each.key for each in store.planned(here.id)] == [each.key for each in store.planned(there.id)]
        assert here.counts == there.counts
    assert KEY not in cluster.logs()
    assert KEY.encode() not in Path(cluster.store).read_bytes()


def check_inspection(cluster: Cluster, pid: int) -> None:
    """Celery's own tools see a worker, by the command that the docs name."""
    name = f"proctor-{pid}@{socket.gethostname()}"
    command = [sys.executable, "-m", "celery", "-A", "proctor.engine.celery", "inspect", "stats", "--json"]
    done = subprocess.run(
        # With its name the command ends with its answer, and does not wait for others.
        [*command, "-d", name, "-t", "60"],
        env=cluster.environ, cwd=cluster.folder,
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)[name]["pool"]["max-concurrency"] == 3, done.stdout + done.stderr
    asked = make_app(cluster.environ["PROCTOR_BROKER"]).control.inspect([name], timeout=60, limit=1)
    assert asked.ping() == {name: {"ok": "pong"}}
    assert asked.active() == {name: []}
    assert "proctor" in {queue["name"] for queue in asked.active_queues()[name]}


def test_a_termination_drains_and_a_second_one_gives_back_what_runs(cluster: Cluster, make_task):
    spec = spec_of(cluster, make_task("slow", solve=f"{cluster.sleep}; echo yes > /app/solved"), 2)
    coordinator = cluster.start("run", spec)
    drained = terminated(cluster)
    wake(cluster)
    assert drained.wait(DEADLINE_S) == 0, cluster.logs()
    assert cluster.outcomes() == ["passed"], "it ends what runs, and takes nothing more"
    stopped = terminated(cluster)
    stopped.terminate()
    assert stopped.wait(DEADLINE_S) == 0, cluster.logs()
    assert cluster.outcomes() == ["passed", "cancelled"]
    home = cluster.folder / "home"
    assert [*cluster.asleep(), *home.glob("worker/*"), *home.glob("sandboxes/sandboxes/*")] == []
    cluster.start("worker")
    until(cluster.asleep)
    wake(cluster)
    ended(cluster, coordinator)
    assert cluster.outcomes() == ["passed", "cancelled", "passed"]


def terminated(cluster: Cluster) -> subprocess.Popen[bytes]:
    """A worker that has heard a termination while an attempt of its runs."""
    worker = cluster.start("worker")
    until(cluster.asleep)
    before = cluster.logs().count("a second signal")
    worker.terminate()
    until(lambda: cluster.logs().count("a second signal") > before)
    return worker


def wake(cluster: Cluster) -> None:
    for each in cluster.asleep():
        os.kill(each, signal.SIGKILL)


def test_a_killed_worker_loses_no_result(cluster: Cluster, make_task):
    spec = spec_of(cluster, make_task("slow", solve="sleep 2; echo yes > /app/solved"), 4)
    first = cluster.start("worker", "--parallel", "2")
    coordinator = cluster.start("run", spec)
    until(cluster.running)
    first.send_signal(signal.SIGKILL)
    first.wait()
    cluster.start("worker", "--parallel", "4")
    ended(cluster, coordinator)
    with open_store(cluster.store) as store:
        (run,) = store.runs()
        assert run.counts == {"passed": 4}
        assert store.check() == []


def test_a_cancelled_run_reaches_what_runs(cluster: Cluster, make_task):
    spec = spec_of(cluster, make_task("long", solve=cluster.sleep), 2)
    worker = cluster.start("worker", "--parallel", "2")
    coordinator = cluster.start("run", spec)
    until(lambda: len(cluster.asleep()) == 2)
    assert cluster.start("cancel", "latest").wait(DEADLINE_S) == 0
    until(lambda: not cluster.asleep())
    assert coordinator.wait(DEADLINE_S) == 130, cluster.logs()
    with open_store(cluster.store) as store:
        assert store.runs()[0].status is RunStatus.CANCELLED
    worker.terminate()
    assert worker.wait(DEADLINE_S) == 0, "nothing keeps it"


def test_a_run_begun_on_workers_goes_on_here(cluster: Cluster, make_task):
    spec = spec_of(cluster, make_task("one"), 3)
    coordinator = cluster.start("run", spec)
    until(lambda: Path(cluster.store).exists() and "3 trials" in cluster.logs())
    until(lambda: _status(cluster) is RunStatus.RUNNING)
    coordinator.send_signal(signal.SIGINT)
    assert coordinator.wait(DEADLINE_S) == 130, cluster.logs()
    ended(cluster, cluster.start("resume", "latest", "--engine", "local"))
    with open_store(cluster.store) as store:
        assert store.runs()[0].counts == {"passed": 3}


def _status(cluster: Cluster) -> RunStatus | None:
    with open_store(cluster.store) as store:
        found = store.runs()
        return found[0].status if found else None
