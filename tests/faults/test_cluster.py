"""Workers on four machines and a run, while everything under them is killed, cut off, filled and wiped.

A short form runs with every test run; `make soak` has 1,000 trials and five minutes of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import RabbitMQ
from tests.clusters import Redis
from tests.faults import chaos
from tests.faults.chaos import ELSEWHERE, LEASE_S, Cluster, Machine, wait_for

from proctor.errors import Exit
from proctor.model.outcome import Outcome
from proctor.model.trial import RunStatus
from proctor.owner import place_id
from proctor.runfolder.transfer import import_folder
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store

SOAK = bool(os.environ.get("PROCTOR_SOAK"))
TRIALS = 1000 if SOAK else 60
SECONDS = 300 if SOAK else 1
"""As many rounds of faults as begin within; one at least."""
EACH_S = 3.0 if SOAK else 4.0
RABBITMQ = pytest.param(
    RabbitMQ,
    marks=[
        pytest.mark.needs("rabbitmq"),
        pytest.mark.skipif(not SOAK, reason="takes as long as the one with Redis: PROCTOR_SOAK=1"),
    ],
)
FAULTS = ("kill", "pause", "broker", "wipe", "postgres", "s3", "disk")
pytestmark = [
    pytest.mark.fault,
    pytest.mark.needs("postgres", "redis", "bubblewrap", "root", "cc"),
    pytest.mark.timeout(1200 if SOAK else 400),
]


class Chaos:
    """Does one thing after the other to a cluster, and keeps a diary."""

    def __init__(self, made: Cluster, run_id: str) -> None:
        self.made, self.run_id = made, run_id
        self.dice = random.Random(17)
        self.lost: list[tuple[float, str]] = []
        """When a worker was lost, and its name."""
        self.away: list[tuple[float, float]] = []
        """When the store was away."""

    def during(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < until:
            order = list(FAULTS)
            self.dice.shuffle(order)
            for name in order:
                getattr(self, f"_{name}")()
                for machine in self.made.machines:
                    machine.look()
                time.sleep(self.dice.uniform(0.5, 2.0) if SOAK else 0.5)
            turn += 1
        self.made.note(f"{turn} rounds of {len(FAULTS)} faults")

    def _holding(self, machine: Machine) -> list[str]:
        """The names under which the worker of a machine holds trials now."""
        assert machine.process
        pid = 1 if machine.before else machine.process.pid
        with open_store(self.made.environ["PROCTOR_STORE"]) as store:
            held = store.holders(self.run_id)
        # The fourth part of a name is the PID namespace: one that this test sees none of its ids in.
        return [
            name
            for name in held
            if name.split(":")[1] == str(pid) and bool(machine.before) == (name.split(":")[3] != place_id())
        ]

    def _some(self) -> Machine:
        return self.dice.choice(self.made.machines[:3])

    def _kill(self) -> None:
        machine = self._some()
        names = self._holding(machine)
        machine.kill()
        self.lost += [(time.time(), name) for name in names]
        self.made.note(f"killed the worker of {machine.name}, which held trials as {names}")
        machine.start()

    def _pause(self) -> None:
        machine = self.made.machines[0]
        assert machine.process
        worker = machine.inner() if machine.before else machine.process.pid
        names = self._holding(machine)
        os.kill(worker, signal.SIGSTOP)
        stopped = time.time()
        self.made.note(f"stopped the worker of {machine.name}")
        time.sleep(1.6 * LEASE_S)
        os.kill(worker, signal.SIGCONT)
        self.lost += [(stopped, name) for name in names]
        self.made.note(f"let the worker of {machine.name} go on, after its lease")

    def _broker(self) -> None:
        self.made.broker.stop()
        self.made.note("killed the broker")
        time.sleep(1.0)
        self.made.broker.start()
        self.made.note("started the broker")

    def _wipe(self) -> None:
        self.made.broker.wipe()
        self.made.note("wiped the broker")

    def _postgres(self) -> None:
        began = time.time()
        self.made.postgres.stop(self.dice.choice((signal.SIGQUIT, signal.SIGINT)))
        self.made.note("stopped PostgreSQL")
        time.sleep(1.0)
        self.made.postgres.start()
        self.made.note("started PostgreSQL")
        self.away.append((began, time.time()))

    def _s3(self) -> None:
        self.made.s3.cut()
        self.made.note("cut S3 off")
        time.sleep(3.0)
        self.made.s3.restore()
        self.made.note("S3 is back")

    def _disk(self) -> None:
        machine = self.made.machines[3]
        with chaos.full(machine.home):
            self.made.note(f"filled the disk of {machine.name}")
            time.sleep(3.0)
        self.made.note(f"emptied the disk of {machine.name}")


def machines(made: Cluster, stack: ExitStack) -> None:
    """Two that nobody sees dying, one with a wrong clock, one with a small disk."""
    ahead = chaos.clock_ahead(made.folder / "clock")
    made.add("elsewhere", before=ELSEWHERE)
    made.add("here")
    made.add("ahead", LD_PRELOAD=str(ahead))
    small = made.add("small")
    stack.enter_context(chaos.small_disk(small.home))
    made.note(f"the clock of ahead is {chaos.AHEAD_S} s ahead, from the beginning")
    for machine in made.machines:
        machine.start()


@pytest.mark.parametrize("broker", [Redis, RABBITMQ])
def test_a_cluster_under_chaos_loses_nothing_and_counts_nothing_twice(
    broker: type[Redis | RabbitMQ], tmp_path: Path
):
    with ExitStack() as stack:
        made = stack.enter_context(chaos.cluster(tmp_path / "c", broker))
        project = tmp_path / "project"
        project.mkdir()
        spec = chaos.write_spec(project, TRIALS, EACH_S)
        coordinator = made.proctor("run", str(spec), "--engine", "celery", cwd=project)
        stack.callback(end, coordinator)
        run_id = begun(made, coordinator)
        machines(made, stack)
        treated = Chaos(made, run_id)
        wait_for(lambda: holders(made, run_id), 120, "no worker took a trial")
        treated.during(SECONDS)
        said = coordinator.communicate(timeout=900 if SOAK else 240)[0]
        made.note("the run has ended")
        assert coordinator.returncode == Exit.OK, said
        check_results(made, run_id, tmp_path)
        check_recovery(made, treated, run_id)
        check_blobs(made, run_id)
        for machine in made.machines:
            machine.drain()
        for machine in made.machines:
            assert machine.process
            assert machine.process.wait(90) == Exit.OK, machine.log.read_text()[-2000:]
        wait_for(lambda: not chaos.leftovers(made), 20, "left:\n" + "\n".join(chaos.leftovers(made)))
        check_secrets(made, tmp_path)


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def begun(made: Cluster, coordinator: subprocess.Popen[str]) -> str:
    """The run, as soon as it is running."""
    found: list[str] = []

    def running() -> bool:
        assert coordinator.poll() is None, coordinator.communicate()[0]
        with open_store(made.environ["PROCTOR_STORE"]) as store:
            found[:] = [each.id for each in store.runs(status=RunStatus.RUNNING)]
        return bool(found)

    wait_for(running, 120, "the run does not begin")
    return found[0]


def holders(made: Cluster, run_id: str) -> dict[str, float]:
    with open_store(made.environ["PROCTOR_STORE"]) as store:
        return store.holders(run_id)


def check_results(made: Cluster, run_id: str, tmp_path: Path) -> None:
    """One result per trial, in store and folder, and every execution has its row."""
    with open_store(made.environ["PROCTOR_STORE"]) as store:
        run = store.run(run_id)
        rows = list(store.attempts(run_id))
        assert store.check() == []
        began = Counter(
            (event["idx"], json.loads(event["data"])["attempt"])
            for event in events(made, run_id, "trial.running")
        )
    assert run.status is RunStatus.DONE
    counted = [row.trial.key for row in rows if row.counts]
    assert len(counted) == len(set(counted)) == TRIALS
    assert {row.record.outcome for row in rows if row.counts} == {Outcome.PASSED}
    listed = Counter((row.trial.index, row.record.number) for row in rows)
    assert listed == began, "an execution that began has no row, or has two"
    series = [json.loads(line) for line in (Path(run.folder) / "series.jsonl").read_text().splitlines()]
    assert {(row["key"], row["number"]) for row in series} == {(r.trial.key, r.record.number) for r in rows}
    assert len(series) == len(rows)
    again = [row for row in rows if not row.counts]
    made.note(
        f"{len(rows)} executions of {TRIALS} trials; others: {Counter(r.record.outcome for r in again)}"
    )
    with open_store(str(tmp_path / "other.db")) as other:
        assert import_folder(other, open_blobs(tmp_path / "blobs"), Path(run.folder)).added


def events(made: Cluster, run_id: str, kind: str) -> list[dict[str, Any]]:
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(made.environ["PROCTOR_STORE"], row_factory=dict_row) as connection:
        return connection.execute(
            "SELECT * FROM events WHERE run_id = %s AND kind = %s ORDER BY id", (run_id, kind)
        ).fetchall()


def check_recovery(made: Cluster, treated: Chaos, run_id: str) -> None:
    """What a lost worker held was taken back within two leases, the store's absences apart."""
    with open_store(made.environ["PROCTOR_STORE"]) as store:
        lost = [row.record for row in store.attempts(run_id) if row.record.outcome is Outcome.WORKER_LOST]
    slowest = 0.0
    for at, name in treated.lost:
        for record in lost:
            if record.worker == name and record.started_at <= at <= record.ended_at:
                until = record.ended_at
                away_s = sum(max(0.0, min(end, until) - max(begin, at)) for begin, end in treated.away)
                slowest = max(slowest, until - at - away_s)
    made.note(f"lost work was taken back after {slowest:.1f} s at most; the lease is {LEASE_S:g} s")
    assert slowest <= 2 * LEASE_S


def check_blobs(made: Cluster, run_id: str) -> None:
    """Every artifact is there, and is what its digest says."""
    with open_store(made.environ["PROCTOR_STORE"]) as store:
        wanted = {each.digest for row in store.attempts(run_id) for each in row.record.artifacts}
    found = {hashlib.sha256(data).hexdigest() for data in objects(made).values()}
    assert {each.removeprefix("sha256:") for each in wanted} <= found


def objects(made: Cluster) -> dict[str, bytes]:
    """All objects of the bucket."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{made.s3_port}",
        region_name="us-east-1",
        aws_access_key_id=made.environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=made.environ["AWS_SECRET_ACCESS_KEY"],
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=chaos.BUCKET)
    keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
    found = {key: client.get_object(Bucket=chaos.BUCKET, Key=key)["Body"].read() for key in keys}
    client.close()
    return found


def check_secrets(made: Cluster, tmp_path: Path) -> None:
    """Credentials of the object store are in no log."""
    secret = made.environ["AWS_SECRET_ACCESS_KEY"].encode()
    logs = [each.log for each in made.machines]
    assert not [str(log) for log in logs if secret in log.read_bytes()]
