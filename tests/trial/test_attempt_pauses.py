"""The end of an attempt beside an event loop that keeps the leases of all runs."""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
from pathlib import Path

import pytest
from tests.heartbeats import LONGEST_PAUSE_S, Heartbeat

from proctor.agents.base import AgentResult
from proctor.errors import TaskError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.sandbox.base import Root
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.store.blobs import open_blobs
from proctor.tasks.read import read_task
from proctor.trial.collect import Collector
from proctor.trial.redact import NOTHING_SECRET
from proctor.trial.task.prepare import Preparation
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor

pytestmark = pytest.mark.anyio
SECRET = "a" * 39 + "b"
HEX = SECRET.encode().hex().encode()
LEASE = Lease(run_id="run", key="k" * 64, index=0, worker="w", fence=1, attempt=1, expires_at=1.0)


class Saved:
    """A sandbox in which one file was changed."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def save_state(self, target: Path, *, max_bytes: int) -> bool:
        member = tarfile.TarInfo("app/numbers.txt")
        member.size = len(self.content)
        with tarfile.open(target, "w") as archive:
            archive.addfile(member, io.BytesIO(self.content))
        return max_bytes > 0


def numbers(step: int, different: int, size: int) -> bytes:
    """Lines that come again and again, in another order for each step."""
    return b"".join(b"%d\n" % (at * step % different) for at in range(size))[: (1 << 20) - 4096]


async def test_a_diff_of_a_mebibyte_of_repetitive_lines_holds_nothing_up(tmp_path):
    before, after = numbers(1, 150, 300_000), numbers(7, 151, 300_000)
    collector = Collector(tmp_path / "run", open_blobs(tmp_path / "blobs"))
    async with Heartbeat() as heartbeat:
        kept, _ = await collector.state(
            Saved(after), "/app", lambda _: before, tmp_path / "run/1", NOTHING_SECRET
        )
    assert heartbeat.longest_s < LONGEST_PAUSE_S
    patch = (tmp_path / "run/1/artifacts/diff.patch").read_text().splitlines()
    assert [line[1:] for line in patch if line[0] == "+" and line[:3] != "+++"] != []
    assert len(kept) == 3


async def host_root(task, environment=None):
    return Root(host=True, workdir="/app")


def executor_in(
    folder: Path, agent=None, handler=None, plans=None, secrets=None
) -> tuple[TaskExecutor, PlannedTrial]:
    for name, text in {
        "task.toml": 'schema_version = "1.4"\n',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM debian\n",
        "tests/test.sh": "true\n",
    }.items():
        (folder / "task" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "task" / name).write_text(text)
    task = read_task(folder / "task")
    setting = TaskSetting(
        run_id="run",
        run_dir=folder / "run",
        sandbox=SandboxSpec(),
        backend=Fake(handler=handler or passes()),
        collector=Collector(folder / "run", open_blobs(folder / "blobs")),
        make_root=host_root,
        given={},
        secrets=secrets or {"KEY": SECRET},
        worker="w",
    )
    spec = Spec(name="s", tasks=(TaskEntry(path=str(task.path), agents=("nop",)),))
    preparation = Preparation(spec, folder / "cache")
    if agent:
        preparation._agents[0, "nop"] = agent
    trial = PlannedTrial(
        key=LEASE.key,
        index=0,
        kind="task",
        subject=task.name,
        subject_digest=task.digest,
        body=0,
        agent="nop",
        path=str(task.path),
    )
    return TaskExecutor(setting, plans or preparation.plan), trial


def passes(**files: bytes):
    """A verifier that leaves these files."""

    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" in command.argv[-1]:
            command.files["/logs/verifier/reward.txt"] = b"1"
            command.files.update({f"/logs/verifier/{name}.log": data for name, data in files.items()})
        return FakeResult()

    return handle


async def test_a_large_file_that_is_hard_to_redact_holds_nothing_up(tmp_path):
    """A secret, and then its beginning again and again: a pattern begins to match at every byte."""
    hard = HEX + HEX[:2] * (1 << 21)
    executor, trial = executor_in(tmp_path, handler=passes(hard=hard))
    async with Heartbeat() as heartbeat:
        record = await executor.execute(trial, LEASE)
    assert heartbeat.longest_s < LONGEST_PAUSE_S
    assert record.outcome is Outcome.PASSED
    (found,) = (tmp_path / "run").rglob("hard.log")
    assert found.read_bytes().startswith(b"[redacted:KEY]")


class Talkative:
    name = "talkative"
    version = "1"

    async def run(self, task, sandbox, model, context):
        for number in range(8_000):
            context.trajectory.add("agent", f"{number} " + "word " * 400)
            if not number % 100:
                await asyncio.sleep(0)
        return AgentResult()


async def test_a_long_trajectory_holds_nothing_up(tmp_path):
    secrets = {f"KEY_{number}": f"{number:040}" for number in range(40)}
    executor, trial = executor_in(tmp_path, agent=Talkative(), secrets=secrets)
    async with Heartbeat() as heartbeat:
        record = await executor.execute(trial, LEASE)
    assert heartbeat.longest_s < LONGEST_PAUSE_S
    assert record.outcome is Outcome.PASSED
    assert next(each for each in record.artifacts if each.name == "trajectory.json").size_bytes > 16 << 20


async def test_a_clone_that_takes_its_time_holds_nothing_up(tmp_path):
    """Making a trial ready clones repositories and imports agents: it ends here when the loop has gone on."""
    beaten = threading.Event()

    def plans(trial: PlannedTrial):
        raise TaskError("the loop went on" if beaten.wait(10) else "the loop stood still")

    executor, trial = executor_in(tmp_path, plans=plans)
    async with Heartbeat(beaten.set):
        record = await executor.execute(trial, LEASE)
    assert record.failure is not None
    assert record.failure.message == "the loop went on"


async def test_trials_that_need_the_same_are_made_ready_once(tmp_path, monkeypatch):
    executor, trial = executor_in(tmp_path)
    preparation = executor.plans.__self__
    made: list[str] = []
    original = preparation._make
    both = threading.Barrier(2, timeout=10)

    def make(trial: PlannedTrial):
        made.append(trial.key)
        return original(trial)

    def plan() -> object:
        both.wait()
        return preparation(trial)

    monkeypatch.setattr(preparation, "_make", make)
    one, other = await asyncio.gather(*(asyncio.to_thread(plan) for _ in range(2)))
    assert one is other
    assert len(made) == 1
