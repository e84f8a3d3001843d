"""A worker process, without the process: it helps with a run that another coordinates."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.resources import Resources

from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.errors import StoreError, UsageError
from proctor.model.run import Execution
from proctor.model.trial import RunStatus
from proctor.runfolder.write import RunFolder
from proctor.runs.coordinator import Coordinator
from proctor.runs.holding import Hold
from proctor.runs.perf.run import Quiet
from proctor.runs.running import create
from proctor.runs.secrets import Grant
from proctor.runs.serve import Server
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store import postgres
from proctor.store.again import LostError
from proctor.store.database import VERSION_TABLE
from proctor.store.fleet import nobody_can
from proctor.store.open import open_store
from proctor.store.postgres import PostgresDatabase

pytestmark = pytest.mark.anyio
EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("helped")
class Helped(Experiment):
    def __init__(self, n: int = 0) -> None:
        self.n = n

    def execute_once(self, context):
        return {"n": self.n}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", output_dir=tmp_path / "results")


def make(settings: Settings, text: str = EXPERIMENT, **more):
    source = settings.home.with_name("helped.py")
    source.write_text(text)
    written = {"experiment": "helped", "sources": [str(source)], "sweep": {"n": [1, 2, 3]}}
    return create(from_mapping(written), written, Resources(settings), **more)


def serving(settings: Settings, run: str | None, said: list[str]) -> Server:
    return Server(Resources(settings), run, 2, Stop(), said.append)


async def test_a_worker_finishes_what_another_process_coordinates(settings):
    job, said = make(settings), []
    with open_store(settings.store_url) as store:
        hold = Hold(store, job.info.id, job.folder, holder=worker_id(), lease_s=60)
        coordinator = Coordinator(store, hold, RunFolder(job.folder), listener=Quiet())
        await coordinator.lead(Stop(), wait=False)
        await coordinator.begin()
        server = serving(settings, None, said)
        await server.serve(until_idle=True)
        assert server.ended == len(job.plan)
        assert not await coordinator.unfinished()
        assert store.run(job.info.id).status is RunStatus.RUNNING, "that is the coordinator's to say"
        await coordinator.tick()
        assert await coordinator.close(Stop()) is RunStatus.DONE
        hold.release()


async def test_a_run_that_nobody_has_begun_is_left_alone(settings):
    make(settings)
    server = serving(settings, "latest", [])
    await server.serve(until_idle=True)
    assert server.ended == 0


async def test_a_measured_harness_is_left_alone(settings):
    job, said = make(settings, execution=Execution.PERF), []
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
    await serving(settings, None, said).serve(until_idle=True)
    assert "has to work alone" in said[0]
    with pytest.raises(UsageError, match="has to work alone"):
        await serving(settings, job.info.id, said).serve(until_idle=True)


async def test_who_is_asked_to_stop_takes_nothing(settings):
    job = make(settings)
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
    server = serving(settings, None, [])
    server.stop.request()
    await server.serve(until_idle=False)
    assert server.ended == 0


@pytest.mark.needs("postgres")
async def test_who_is_asked_to_stop_with_nothing_to_save_does_not_wait_for_a_store_that_is_away(
    settings, postgres_url, monkeypatch
):
    server = serving(replace(settings, store=postgres_url), None, [])
    asked = threading.Event()

    def gone(_: PostgresDatabase) -> None:
        asked.set()
        error = LostError("the server is gone")
        error.wait_s = 3600.0
        raise error

    async with asyncio.timeout(60):
        with open_store(postgres_url) as store:
            serving_it = asyncio.create_task(server.serve(until_idle=False))
            while not store.fleet.live():  # noqa: ASYNC110 - another thread registers it
                await asyncio.sleep(0.01)
        monkeypatch.setattr(PostgresDatabase, "_live", gone)
        await asyncio.to_thread(asked.wait)
        server.stop.request()
        with suppress(StoreError):
            await serving_it


@pytest.mark.needs("postgres")
async def test_a_worker_of_a_store_that_a_newer_proctor_has_upgraded_ends_and_says_so(
    settings, postgres_url, monkeypatch
):
    settings = replace(settings, store=postgres_url)
    run = make(settings).info.id
    server = serving(settings, None, [])
    async with asyncio.timeout(60):
        with open_store(postgres_url) as store:
            serving_it = asyncio.create_task(server.serve(until_idle=False))
            while not store.fleet.live():  # noqa: ASYNC110 - another thread registers it
                await asyncio.sleep(0.01)
            monkeypatch.setattr(postgres, "_LOOK_S", 0.0)
            with store._db.write() as tx:
                tx.change(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
                tx.change("UPDATE runs SET status = 'running' WHERE id = :run", {"run": run})
        with pytest.raises(StoreError, match="a newer Proctor"):
            await serving_it


async def test_what_trials_wrote_is_removed_and_what_lies_beside_them_is_kept_and_named(settings):
    writes = '(context.run_dir / "in").write_text("x"); (context.output_dir / "beside").write_text("x")'
    job = make(settings, EXPERIMENT.replace("        return", f"        {writes}\n        return"))
    dead = settings.home / "worker" / "elsewhere:1:1:abcd:ef" / job.info.id
    ours = settings.home / "worker" / f"{socket.gethostname()}:999999999:1:abc" / job.info.id
    for left in (dead, ours):
        (left / "trials/half").mkdir(parents=True)
    said: list[str] = []
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
        server = serving(settings, None, said)
        await server.serve(until_idle=True)
        (row, *_) = store.attempts(job.info.id)
    assert [each.name for each in row.record.artifacts] == ["in"]
    place = settings.home / "worker" / server.name / job.info.id
    assert [each.name for each in place.iterdir()] == ["beside"]
    assert str(place) in said[-1]
    assert dead.exists(), "nobody here can tell whether that one lives"
    assert not ours.parent.exists()


async def test_a_run_that_another_version_made_is_left_to_others_and_that_is_said_once(settings, monkeypatch):
    job, said = make(settings), []
    monkeypatch.setattr("proctor.runs.versions.own_version", lambda: "99.7.0")
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
    server = serving(settings, None, said)
    await server.serve(until_idle=True)
    assert server.ended == 0
    assert sum("no trials of it are taken" in each and "99.7.0" in each for each in said) == 1


async def test_a_run_whose_blobs_are_missing_is_left_to_others_and_that_is_said(settings):
    job, said = make(settings), []
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
    settings.home.with_name("helped.py").unlink()
    shutil.rmtree(settings.home / "blobs")
    shutil.rmtree(settings.cache_dir, ignore_errors=True)
    server = serving(settings, None, said)
    await server.serve(until_idle=True)
    assert server.ended == 0
    assert "no trials of it are taken: something that it is made from is missing: no blob" in said[-1]


async def test_a_run_with_labels_waits_for_a_worker_that_has_them(settings):
    source = settings.home.with_name("helped.py")
    source.write_text(EXPERIMENT)
    written = {"experiment": "helped", "sources": [str(source)], "labels": ["quiet"]}
    job = create(from_mapping(written), written, Resources(settings))
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
        without, has = (
            Server(Resources(settings), None, 2, Stop(), lambda _: None, labels=each)
            for each in ((), ("quiet",))
        )
        await without.serve(until_idle=True)
        await has.serve(until_idle=True)
        assert (without.ended, has.ended) == (0, 1)
        assert store.fleet.live() == [], "both have said that they are gone"


async def test_keys_of_a_run_come_from_whoever_has_them_and_stay_in_memory(settings):
    asked: list[str] = []

    def grant_of(run_id: str) -> Grant:
        asked.append(run_id)
        return Grant({"SOME_KEY": "a-key-of-a-run"})

    job = make(settings)
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
    with Resources(settings) as resources:
        server = Server(resources, None, 2, Stop(), lambda _: None, grant_of=grant_of)
        await server.serve(until_idle=True)
    job.resources.close()
    assert asked == [job.info.id]
    assert b"a-key-of-a-run" not in Path(settings.store_url).read_bytes()


async def test_a_run_that_lacks_something_is_told_of_in_the_store_and_taken_when_that_has_come(
    settings, monkeypatch
):
    monkeypatch.setattr("proctor.runs.any_run._AGAIN_S", 0.3)
    monkeypatch.setattr("proctor.runs.serve._BEAT_S", 0.05)
    job, said, has_key = make(settings), [], threading.Event()

    def grant_of(_: str) -> Grant:
        if not has_key.is_set():
            raise UsageError("the key is missing")
        return Grant()

    server = Server(Resources(settings), None, 2, Stop(), said.append, grant_of=grant_of)
    with open_store(settings.store_url) as store:
        store.set_status(job.info.id, RunStatus.RUNNING)
        serving_it = asyncio.create_task(server.serve(until_idle=False))
        async with asyncio.timeout(60):
            while not any(each.left for each in store.fleet.live()):  # noqa: ASYNC110 - another thread writes it
                await asyncio.sleep(0.01)
            assert "the key is missing" in nobody_can(store.fleet.unmet(job.info.id))
            has_key.set()
            while server.ended < len(job.plan):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            server.stop.request()
            await serving_it
    assert [each for each in said if "the key is missing" in each] == said[:1]
