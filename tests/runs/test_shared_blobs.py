"""A process with other blobs than the others: it is told at once, and nothing is executed into the void."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.resources import Resources

from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.errors import StoreError, UsageError
from proctor.model.trial import RunStatus
from proctor.runfolder.write import RunFolder
from proctor.runs.coordinator import Coordinator
from proctor.runs.dispatch import Waiting
from proctor.runs.holding import Hold
from proctor.runs.perf.run import Quiet
from proctor.runs.running import ReadyRun, create, reopen
from proctor.runs.serve import Server
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store.blobs import blobs_of
from proctor.store.calls import StoreCalls
from proctor.store.fleet import WorkerInfo
from proctor.store.garbage import collect_garbage
from proctor.store.open import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.needs("postgres")]
WRITTEN = {"experiment": "statement", "params": {"statement": "pass", "number": 1}}


@pytest.fixture
def settings(tmp_path: Path, postgres_url: str) -> Settings:
    return Settings(home=tmp_path / "home", output_dir=tmp_path / "results", store=postgres_url)


@pytest.fixture
def elsewhere(settings: Settings, tmp_path: Path) -> Settings:
    return replace(settings, home=tmp_path / "another")


def begun(settings: Settings) -> ReadyRun:
    run = create(from_mapping(WRITTEN), WRITTEN, Resources(settings))
    with open_store(settings.store_url) as store:
        store.set_status(run.info.id, RunStatus.RUNNING)
    return run


async def served(settings: Settings, name: str = "w") -> tuple[int, str]:
    said: list[str] = []
    server = Server(Resources(settings), None, 2, Stop(), said.append, name=name)
    await server.serve(until_idle=True)
    return server.ended, "\n".join(said)


async def test_a_worker_with_none_of_the_blobs_is_refused_when_it_starts(settings, elsewhere):
    run = begun(settings)
    with pytest.raises(UsageError, match=r"other blobs than those in .*another.*PROCTOR_BLOBS"):
        await served(elsewhere)
    assert (await served(settings))[0] == len(run.plan)


async def test_a_worker_that_cannot_write_blobs_is_refused_when_it_starts(settings, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="a blob cannot be written"):
        await served(replace(settings, blobs=str(tmp_path / "file" / "blobs")))


async def test_a_run_that_was_started_with_other_blobs_is_left_to_others_and_its_coordinator_says_why(
    settings, elsewhere
):
    begun(elsewhere)
    run = create(from_mapping(WRITTEN), WRITTEN, Resources(settings))
    with open_store(settings.store_url) as store, StoreCalls(store) as calls:
        hold = Hold(store, run.info.id, run.folder, holder=worker_id(), lease_s=60)
        coordinator = Coordinator(store, hold, RunFolder(run.folder), listener=Quiet())
        await coordinator.lead(Stop(), wait=False)
        await coordinator.begin()
        ended, said = await served(elsewhere, "h:7")
        assert ended == 1, "its own run"
        assert f"run {run.info.id}: no trials of it are taken: " in said
        left = {run.info.id: said.partition("are taken: ")[2]}
        store.fleet.seen(WorkerInfo(name="h:7", host="h", version="1", parallel=1, left=left))
        told: list[str] = []
        waiting = Waiting(coordinator, Stop(), told.append)
        await waiting._tell(calls, store, run.info.id)
        await waiting._tell(calls, store, run.info.id)
        assert len(told) == 1
        assert f"1 trial waits, and no worker takes it: h: run {run.info.id} was started with" in told[0]
        assert (await served(settings))[0] == 1
        hold.release()


async def test_a_run_is_not_continued_with_other_blobs(settings, elsewhere):
    run = create(from_mapping(WRITTEN), WRITTEN, Resources(settings))
    with pytest.raises(UsageError, match=f"run {run.info.id} was started with other blobs"):
        await asyncio.to_thread(reopen, run.info.id, Resources(elsewhere))
    assert reopen(run.info.id, Resources(settings)).info.id == run.info.id


async def test_the_mark_of_a_run_is_no_garbage_until_the_run_is_removed(settings):
    run = create(from_mapping(WRITTEN), WRITTEN, Resources(settings))
    blobs = blobs_of(settings)
    with open_store(settings.store_url) as store:
        assert collect_garbage(store, blobs, grace_s=-1).removed == 0
        store.delete_run(run.info.id)
        assert collect_garbage(store, blobs, grace_s=-1).kept == 0
