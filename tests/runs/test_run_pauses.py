"""The beginning and the end of large runs beside an event loop that keeps the leases of all runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.heartbeats import LONGEST_PAUSE_S, Heartbeat
from tests.made_rollouts import TASKS, planned, record
from tests.resources import Resources

from proctor.engine.stop import Stop
from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.render import reporters
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder
from proctor.runs.coordinator import Coordinator
from proctor.runs.holding import Hold
from proctor.runs.running import create, execute
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store.blobs import FolderBlobs
from proctor.store.open import open_store
from proctor.store.store import Store

pytestmark = pytest.mark.anyio


class Quiet:
    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        pass

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "store.db")) as opened:
        yield opened


def ended_run(store: Store, folder: Path, count: int) -> Coordinator:
    """A run of so many rollouts that others have done, which nobody has coordinated yet."""
    trials = [planned(n, TASKS[n % len(TASKS)], rollout=n) for n in range(count)]
    info = RunInfo(
        id="r1",
        name="large",
        kind="task",
        status=RunStatus.RUNNING,
        created_at=1.0,
        seed=0,
        total=count,
        folder=str(folder),
        resolved={"tasks": [{"path": "tasks"}]},
    )
    store.import_run(info, trials, [(record(trial), True) for trial in trials])
    hold = Hold(store, "r1", folder, holder="here:1:a", lease_s=30.0)
    return Coordinator(store, hold, RunFolder(folder, blobs=FolderBlobs(folder / "blobs")), listener=Quiet())


async def test_ten_thousand_records_are_loaded_beside_the_loop(store, tmp_path):
    coordinator = ended_run(store, tmp_path / "run", 10_000)
    assert await coordinator.lead(Stop(), wait=False)
    async with Heartbeat() as heartbeat:
        await coordinator.begin()
    assert heartbeat.longest_s < LONGEST_PAUSE_S
    assert len((tmp_path / "run/series.jsonl").read_bytes().splitlines()) == 10_000


async def test_the_reports_of_thousands_of_trials_are_written_beside_the_loop(store, tmp_path):
    coordinator = ended_run(store, tmp_path / "run", 4_000)
    assert await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    async with Heartbeat() as heartbeat:
        assert await coordinator.close(Stop()) is RunStatus.DONE
    assert heartbeat.longest_s < LONGEST_PAUSE_S
    assert {"summary.json", "report.md", "report.html"} <= {
        each.name for each in (tmp_path / "run").iterdir()
    }


async def test_a_slow_reporter_of_a_user_holds_nothing_up(store, tmp_path, monkeypatch):
    """It ends here when the loop has gone on."""
    beaten = threading.Event()

    def slow(data: RunData, folder: Path) -> None:
        (folder / "slow.txt").write_text("the loop went on" if beaten.wait(10) else "the loop stood still")

    monkeypatch.setattr(reporters, "REPORTERS", {"slow": slow})
    coordinator = ended_run(store, tmp_path / "run", 2)
    assert await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    async with Heartbeat() as heartbeat:
        heartbeat.on_beat = beaten.set
        await coordinator.close(Stop())
    assert (tmp_path / "run/slow.txt").read_text() == "the loop went on"


async def test_what_executes_a_run_is_opened_beside_the_loop(tmp_path, monkeypatch):
    """To open it may read the records of another run, or ask a slow disk."""
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=tmp_path / "home", output_dir=tmp_path / "results")
    written = {"name": "n", "experiment": "memory_db", "iterations": 1}
    run = create(from_mapping(written, base_dir=str(tmp_path)), written, Resources(settings))
    beaten = threading.Event()

    def open_executor(*_):
        raise UsageError("the loop went on" if beaten.wait(10) else "the loop stood still")

    async with Heartbeat(beaten.set):
        with pytest.raises(UsageError, match="the loop went on"):
            await execute(run, listener=Quiet(), stop=Stop(), open_executor=open_executor)


async def test_large_files_of_an_attempt_are_copied_behind_its_row(store, tmp_path):
    coordinator = ended_run(store, tmp_path / "run", 1)
    assert await coordinator.lead(Stop(), wait=False)
    await coordinator.begin()
    blobs = FolderBlobs(tmp_path / "run/blobs")
    large, small = blobs.put_bytes(bytes(8 << 20), "state.tar"), blobs.put_bytes(b"x", "small.txt")
    trial = planned(0, TASKS[0], rollout=0)
    for number, artifact in enumerate((small, large), 2):
        coordinator.ended(trial, record(trial, number=number, artifacts=(artifact,)), counts=False)
    rows = (tmp_path / "run/series.jsonl").read_bytes().splitlines()
    assert len(rows) == 3
    assert [each.name for each in (tmp_path / "run/trials").rglob("*") if each.is_file()] == ["small.txt"]
    coordinator.folder.copy_rest()
    assert next((tmp_path / "run/trials").rglob("state.tar")).stat().st_size == 8 << 20


def test_long_reads_have_a_connection_of_their_own(store):
    """A transaction elsewhere in the process does not hold them up, nor they it."""
    with store.apart() as own, store._db.write():
        rows: list[object] = []
        reading = threading.Thread(target=lambda: rows.append(own.state_counts("r1")))
        reading.start()
        reading.join(10)
        assert rows
