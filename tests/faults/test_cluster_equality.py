"""The same spec on one machine and on a cluster: one plan, one verdict; and no secret on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests import leaks
from tests.brokers import QUEUES
from tests.faults import chaos
from tests.faults.chaos import Cluster, wait_for
from tests.faults.test_cluster import begun, end, objects
from tests.providers import serving

from proctor.errors import Exit
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider
from proctor.model.trial import RunStatus
from proctor.store.fleet import WorkerInfo
from proctor.store.open import open_store

SOAK = bool(os.environ.get("PROCTOR_SOAK"))
pytestmark = [
    pytest.mark.fault,
    pytest.mark.needs("postgres", "redis", "bubblewrap"),
    pytest.mark.xdist_group("rabbitmq"),  # servers start once
]
REDIS = pytest.param(
    "redis",
    marks=pytest.mark.skipif(not SOAK, reason="other tests of this file have Redis: PROCTOR_SOAK=1"),
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with chaos.cluster(tmp_path_factory.mktemp("servers"), PROCTOR_MODEL_API_KEY=chaos.SECRET) as found:
        yield found


@pytest.fixture
def made(servers: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """The same servers with a database of one's own, and no message."""
    servers.broker.wipe()
    with chaos.own_database(servers, tmp_path / "c") as found:
        yield found


def ended(process: subprocess.Popen[str], *codes: int) -> str:
    said = process.communicate(timeout=200)[0]
    assert process.returncode in (codes or (Exit.OK,)), said
    return said


def facts(store_url: str, name: str) -> tuple[str, list[tuple[str, int]], dict[str, Any]]:
    """Of a run: the digest of its plan, the keys with their places, what was counted."""
    with open_store(store_url) as store:
        run = store.run(name)
        keys = [(trial.key, trial.index) for trial in store.planned(run.id)]
        rewards = {row.trial.index: row.record.reward for row in store.attempts(run.id) if row.counts}
    return run.plan_digest, keys, rewards


def verdict(folder: Path) -> dict[str, Any]:
    """What a run says, without when and how fast it ran."""
    found = json.loads(next(folder.rglob("summary.json")).read_text())
    told = {name: found[name] for name in ("headline", "metric", "outcomes", "blame", "score", "warnings")}
    return {**told, "rates": [(arm["label"], arm["pass_rate"]) for arm in found["arms"]]}


def test_a_cluster_gives_the_plan_the_keys_and_the_verdict_of_one_machine(made: Cluster, tmp_path: Path):
    project = tmp_path / "project"
    spec = chaos.write_spec(project, 3, 0.1, seed=7)
    document = json.loads(spec.read_text())
    document["tasks"][0]["agent"] = ["oracle", "nop"]
    spec.write_text(json.dumps(document))
    alone = {"PROCTOR_STORE": "", "PROCTOR_BLOBS": "", "PROCTOR_BROKER": ""}
    ended(made.proctor("run", str(spec), cwd=project, **alone))
    made.add("w", parallel=2).start()
    other = tmp_path / "other"
    other.mkdir()
    ended(made.proctor("run", str(spec), "--engine", "celery", cwd=other))
    local = facts(str(project / ".proctor/proctor.db"), "latest")
    assert facts(made.environ["PROCTOR_STORE"], "latest") == local
    assert len(local[1]) == 6
    assert verdict(other) == verdict(project)
    assert verdict(other)["outcomes"] == {"passed": 3, "failed": 3}


def test_a_run_goes_from_one_machine_to_the_cluster_and_back(made: Cluster, tmp_path: Path):
    project = tmp_path / "project"
    spec = chaos.write_spec(project, 16, 0.4, parallel=2)
    run = made.proctor("run", str(spec), "--engine", "local", cwd=project)
    with closing(Ending(run)):
        name = begun(made, run)
        done_by(made, name, 2)
        run.send_signal(signal.SIGTERM)
        ended(run, Exit.INTERRUPTED)
    before = counted(made, name)
    assert 2 <= before < 16
    made.add("w", parallel=2).start()
    cluster = made.proctor("resume", name, "--engine", "celery", cwd=project)
    with closing(Ending(cluster)):
        done_by(made, name, before + 2)
        cluster.send_signal(signal.SIGTERM)
        ended(cluster, Exit.INTERRUPTED, Exit.OK)
    ended(made.proctor("resume", name, "--engine", "local", cwd=project))
    with open_store(made.environ["PROCTOR_STORE"]) as store:
        rows = [row for row in store.attempts(name) if row.counts]
        assert store.run(name).status is RunStatus.DONE
        assert store.check() == []
    assert len({row.trial.key for row in rows}) == len(rows) == 16
    assert len({row.record.worker for row in rows}) >= 2


class Ending:
    """Ends a process that a failed test left."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def close(self) -> None:
        end(self.process)


def counted(made: Cluster, name: str) -> int:
    with open_store(made.environ["PROCTOR_STORE"]) as store:
        return sum(row.counts for row in store.attempts(name))


def done_by(made: Cluster, name: str, number: int) -> None:
    wait_for(lambda: counted(made, name) >= number, 120, f"not {number} results")


@pytest.mark.parametrize("kind", [REDIS, pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def test_no_key_is_in_messages_rows_objects_or_logs(
    kind: str, made: Cluster, tmp_path: Path, request: pytest.FixtureRequest
):
    """Agents ask a model with a key that only the environment of workers has."""
    project = tmp_path / "project"
    spec = chaos.write_spec(project, 1, 0.1)
    document = json.loads(spec.read_text())
    document["tasks"][0] |= {"agent": "terminal", "model": "fake", "rollouts": 4}
    spec.write_text(json.dumps(document))
    script = commands("echo yes > /app/solved", "env")
    with ExitStack() as stack:
        provider = stack.enter_context(serving(FakeProvider(script, latency_s=0.2)))
        broker = request.getfixturevalue("rabbitmq") if kind == "rabbitmq" else made.broker.url
        here = {"PROCTOR_BROKER": broker, "PROCTOR_MODEL_BASE_URL": provider.base_url}
        run = made.proctor("run", str(spec), "--engine", "celery", cwd=project, **here)
        stack.callback(end, run)
        begun(made, run)
        bodies: list[bytes] = []
        wait_for(lambda: one_is_idle(made) or bodies.extend(messages(broker)) or bodies, 60, "no message")
        made.add("w", parallel=2, **here).start()
        ended(run)
        assert len(provider.statuses) >= 4 * 3
    assert not leaking(bodies)
    assert all(b"/" in body for body in bodies)
    made.machines[-1].kill()
    assert leaks.leaking_files(chaos.SECRET, [project / "rollouts", tmp_path / "c"]) == []
    assert not leaking(objects(made).values())
    dumped = subprocess.run(
        ["pg_dump", "--inserts", made.environ["PROCTOR_STORE"]], capture_output=True, check=True
    )
    assert len(dumped.stdout) > 10_000
    assert not leaking([dumped.stdout])


def one_is_idle(made: Cluster) -> None:
    """A worker that listens to nobody: messages for its places stay in the broker."""
    idle = WorkerInfo(name="idle", host="h", version="1", parallel=2, backends=("bubblewrap",))
    with open_store(made.environ["PROCTOR_STORE"]) as store:
        store.fleet.seen(idle)


def leaking(found: Any) -> list[bytes]:
    return [shape for data in found for shape in leaks.shapes(chaos.SECRET) if shape in data]


def messages(broker: str) -> list[bytes]:
    """The messages that wait, as the broker has them: they stay there."""
    from kombu import Connection

    if broker.startswith("redis"):
        from redis import Redis

        with Redis.from_url(broker) as client:
            lists = [key for key in client.scan_iter("proctor*") if client.type(key) == b"list"]
            return [body for key in lists for body in client.lrange(key, 0, -1)]
    with Connection(broker) as connection:
        channel = connection.channel()
        found = []
        for name in QUEUES:
            try:
                while message := channel.basic_get(name):
                    found.append(bytes(str(message.body), "utf-8") + repr(message.headers).encode())
                    channel.basic_reject(message.delivery_tag, requeue=False)
            except Exception:  # noqa: BLE001 - a queue that nobody has made yet
                channel = connection.channel()
        return found
