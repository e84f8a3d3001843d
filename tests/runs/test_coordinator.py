"""The coordinator by itself: no worker, and a store that others write to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.errors import FenceError, RunHeldError
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import Artifact, AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import read_series
from proctor.runfolder.write import RunFolder
from proctor.runs.coordinator import Coordinator
from proctor.runs.holding import Hold, check_free
from proctor.store.blobs import FolderBlobs
from proctor.store.open import open_store

pytestmark = pytest.mark.anyio


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[int, Outcome, bool]] = []

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        pass

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        self.heard.append((trial.index, record.outcome, counts))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def store(tmp_path: Path, folder: Path):
    trials = [
        PlannedTrial(
            key=trial_key(subject_digest="d", params={"n": n}),
            index=n,
            kind="experiment",
            subject="noop",
            subject_digest="d",
            body=0,
            params={"n": n},
        )
        for n in range(2)
    ]
    plan = Plan(trials=tuple(trials))
    info = RunInfo(
        id="r1",
        name="n",
        kind="experiment",
        status=RunStatus.PENDING,
        created_at=1.0,
        seed=0,
        total=2,
        folder=str(folder),
        resolved={"experiment": "noop", "retries": {"infrastructure": 0}},
    )
    with open_store(str(tmp_path / "store.db")) as opened:
        opened.create_run(info, plan)
        RunFolder(folder).begin(info, plan)
        yield opened


def make(store, folder: Path, *, lease_s: float = 60.0, holder: str = ""):
    hold = Hold(store, "r1", folder, holder=holder or worker_id(), lease_s=lease_s)
    return Coordinator(store, hold, RunFolder(folder), listener=Ear())


class Once:
    """A rule that one result satisfies."""

    def answered(self, record: AttemptRecord) -> bool:
        return record.outcome is Outcome.PASSED


async def test_a_rule_that_another_workers_result_satisfies_cancels_the_rest(store, folder):
    coordinator = make(store, folder)
    coordinator.rule = Once()
    stop = Stop()
    assert await coordinator.lead(stop, wait=False)
    await coordinator.begin()
    answer(store)
    held = store.take("r1", worker="elsewhere:1:1:abc", lease_s=60).begun
    await coordinator.tick()
    assert await coordinator.close(stop) is RunStatus.DONE
    assert store.lost([lease for lease, _ in held])
    ended = [(row.record.outcome, row.counts) for row in store.attempts("r1")]
    assert ended == [(Outcome.PASSED, True), (Outcome.CANCELLED, True)]
    assert len(list(read_series(folder, run_id="r1"))) == 2


def answer(
    store, worker: str = "elsewhere:1:1:abc", artifacts: tuple[Artifact, ...] = ()
) -> list[tuple[PlannedTrial, AttemptRecord]]:
    """What a worker of another process does."""
    now, done = time.time(), []
    for lease, trial in store.take("r1", worker=worker, lease_s=60).begun:
        record = AttemptRecord(
            key=trial.key,
            number=lease.attempt,
            outcome=Outcome.PASSED,
            started_at=now,
            ended_at=now,
            worker=worker,
            artifacts=artifacts,
        )
        store.finish(lease, record, counts=True)
        done.append((trial, record))
    return done


def series(folder: Path) -> list[tuple[int, int, bool]]:
    return [(row.trial.index, row.record.number, row.counts) for row in read_series(folder, run_id="r1")]


async def test_what_other_workers_commit_is_written_to_the_folder_and_told(store, folder):
    coordinator = make(store, folder)
    await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    answer(store)
    await coordinator.tick()
    assert coordinator.listener.heard == [(0, Outcome.PASSED, True)]
    answer(store)
    await coordinator.tick()
    await coordinator.tick()
    assert len(coordinator.listener.heard) == 2
    assert not await coordinator.unfinished()
    assert await coordinator.close(Stop()) is RunStatus.DONE
    coordinator.hold.release()
    assert series(folder) == [(0, 1, True), (1, 1, True)]
    assert (folder / "summary.json").is_file()
    assert store.run("r1").status is RunStatus.DONE


async def test_an_attempt_of_its_own_worker_is_written_once_whoever_is_first(store, folder):
    coordinator = make(store, folder)
    await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    ((trial, record),) = answer(store, worker=coordinator.hold.holder)
    await coordinator.tick()
    coordinator.ended(trial, record, True)
    await coordinator.tick()
    coordinator.folder.close()
    assert series(folder) == [(0, 1, True)]
    assert coordinator.listener.heard == [(0, Outcome.PASSED, True)]


async def test_trials_of_lost_workers_are_taken_back_while_it_lives(store, folder):
    coordinator = make(store, folder)
    await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    store.take("r1", worker="elsewhere:1:1:abc", lease_s=-70)
    store.take("r1", worker="elsewhere:2:1:abc", lease_s=30)
    await coordinator.tick()
    assert coordinator.listener.heard == [(0, Outcome.WORKER_LOST, True)]
    assert list(store.holders("r1")) == ["elsewhere:2:1:abc"]


async def test_after_a_sleep_of_the_machine_workers_may_renew_before_anything_is_reaped(store, folder):
    coordinator = make(store, folder)
    await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    store.take("r1", worker="elsewhere:1:1:abc", lease_s=-70)
    coordinator._ticked_at -= 100
    await coordinator.tick()
    assert store.workers("r1") == ["elsewhere:1:1:abc"]


async def test_a_second_coordinator_is_refused_or_waits_and_takes_over(store, folder):
    first = Hold(store, "r1", folder, holder="elsewhere:1:1:00000000:abc", lease_s=60)
    assert first.take()
    second = make(store, folder)
    with pytest.raises(RunHeldError, match="is being executed by process 1 on elsewhere"):
        await second.lead(Stop(), wait=False)
    with pytest.raises(RunHeldError):
        check_free(store, "r1", folder)
    waiting = asyncio.create_task(second.lead(Stop(), wait=True))
    await asyncio.sleep(0)
    first.release()
    assert await waiting
    assert store.coordination.holder("r1").holder == second.hold.holder
    second.hold.release()
    check_free(store, "r1", folder)


async def test_a_person_can_stop_the_waiting(store, folder):
    first = Hold(store, "r1", folder, holder="elsewhere:1:1:00000000:abc", lease_s=60)
    assert first.take()
    stop = Stop()
    stop.request()
    assert not await make(store, folder).lead(stop, wait=True)


async def test_a_coordinator_whose_lease_has_passed_on_writes_nothing(store, folder):
    coordinator = make(store, folder)
    await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    other = store.coordination.take("r1", holder="other", lease_s=60, dead=coordinator.hold.holder)
    with pytest.raises(FenceError):
        coordinator.hold.set_status(RunStatus.DONE)
    coordinator.hold._renewed -= 60
    assert not coordinator.hold.ours
    ((trial, record),) = answer(store, worker=coordinator.hold.holder)
    coordinator.ended(trial, record, True)
    await coordinator.tick()
    assert series(folder) == []
    assert coordinator.listener.heard == [(0, Outcome.PASSED, True)]
    stop = Stop()
    stop.request()
    assert await coordinator.close(stop) is RunStatus.INTERRUPTED
    assert store.run("r1").status is RunStatus.RUNNING
    store.coordination.release(other)
    await coordinator.tick()
    assert coordinator.hold.ours
    coordinator.folder.close()
    assert series(folder) == [(0, 1, True)]


class StuckBlobs(FolderBlobs):
    """Blobs that are far away and give nothing until they are let."""

    remote = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.let = threading.Event(), threading.Event()

    def copy_to(self, digest: str, target: BinaryIO) -> None:
        self.asked.set()
        assert self.let.wait(60)
        super().copy_to(digest, target)


async def test_rows_listeners_rules_and_the_end_do_not_wait_for_artifacts(store, folder, tmp_path):
    blobs = StuckBlobs(tmp_path / "blobs")
    artifact = blobs.put_bytes(b"what it left", "log")
    coordinator = make(store, folder)
    coordinator.folder = RunFolder(folder, blobs=blobs)
    coordinator.rule = Once()
    await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    answer(store, artifacts=(artifact,))
    store.take("r1", worker="elsewhere:1:1:abc", lease_s=60)
    keeping = asyncio.create_task(coordinator.keep())
    await until(lambda: blobs.asked.is_set() and len(coordinator.listener.heard) == 2)
    assert series(folder) == [(0, 1, True), (1, 1, True)]
    assert [outcome for _, outcome, _ in coordinator.listener.heard] == [Outcome.PASSED, Outcome.CANCELLED]
    closing = asyncio.create_task(coordinator.close(Stop()))
    await until((folder / "summary.json").is_file)
    assert store.run("r1").status is RunStatus.DONE
    assert not closing.done(), "the run's process ends when the folder is complete"
    blobs.let.set()
    assert await closing is RunStatus.DONE
    ((found,),) = [
        artifact_paths(row.trial, row.record) for row in read_series(folder) if row.record.artifacts
    ]
    assert (folder / found).read_bytes() == b"what it left"
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    coordinator.hold.release()


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
