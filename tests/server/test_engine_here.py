"""The engine itself, in the process of the tests: what it takes, what it leaves, why it gives up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.resources import Resources
from tests.server import tasks

from proctor.errors import StoreError
from proctor.model.trial import RunStatus
from proctor.runs import actions, process_resources
from proctor.runs.running import reopen
from proctor.server.auth.authenticate import LOCAL
from proctor.server.auth.vault import Vault
from proctor.server.engine.engine import Engine
from proctor.server.engine.slots import Slots
from proctor.server.state import Mode, State, open_state
from proctor.server.submit import making, older, older_logs
from proctor.server.submit.reading import Submission
from proctor.server.upload import Uploading, keep
from proctor.settings import Settings
from proctor.store import open as opening
from proctor.store import outage
from proctor.store.open import StorePool, open_store
from proctor.store.service.accounts import Project
from proctor.store.service.uploads import Upload
from proctor.store.sqlite import SqliteDatabase
from proctor.store.store import Store

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


@pytest.fixture
def state(tmp_path: Path):
    settings = Settings(
        home=tmp_path / "home", output_dir=tmp_path / "results", rollouts_dir=tmp_path / "rollouts"
    )
    found = open_state(settings, Mode.LOCAL)
    yield found
    found.close()


def stores_of(state: State) -> StorePool:
    return state.resources.stores


def wanted(state: State, run: str) -> bool:
    return stores_of(state).now(lambda store: store.service.ownership.place(run).wanted)


def uploaded(state: State, name: str = "hello", seconds: float = 0.0, **more: Any) -> Upload:
    archive = state.settings.home.parent / f"{name}.zip"
    archive.write_bytes(tasks.packed(tasks.files(name, seconds)))
    given = Uploading(filename=f"{name}.zip", agent="oracle", **more)
    return stores_of(state).now(keep, state, LOCAL, archive, given)[0]


def submitted(state: State, upload: Upload, **more: Any) -> str:
    spec = tasks.spec(upload.id, **more)
    return stores_of(state).now(making.submit, state, LOCAL, Submission(spec=spec)).info.id


async def until(state: State, run: str, *statuses: RunStatus, within_s: float = 30.0) -> None:
    await happens(lambda: stores_of(state).now(Store.run, run).status in statuses, within_s)


async def happens(look: Callable[[], bool], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not look():  # noqa: ASYNC110 - what is awaited is in a store
            await asyncio.sleep(0.05)


@asynccontextmanager
async def engine_of(state: State, total: int = 2) -> AsyncIterator[Engine]:
    engine = Engine(Resources(state.settings, {}), Vault(b"test"), total)
    task = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        engine.stop.request(times=2)
        await asyncio.wait_for(task, 20)


async def test_runs_of_one_process_share_a_back_end_and_all_end(state: State):
    upload = uploaded(state)
    runs = [submitted(state, upload, rollouts=2) for _ in range(3)]
    async with engine_of(state) as engine:
        for run in runs:
            await until(state, run, RunStatus.DONE)
            assert open_store(state.settings.store_url).run(run).counts == {"passed": 2}
        assert len(engine.resources.backends._open) == 1
    assert [wanted(state, run) for run in runs] == [False] * 3


async def test_neither_a_submission_nor_a_run_of_the_engine_opens_a_store_or_blobs(
    state: State, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **more: (opened.append(name), real(*args, **more))[1]

    upload = uploaded(state)
    first = submitted(state, upload, rollouts=2)
    async with engine_of(state, total=1):
        await until(state, first, RunStatus.DONE)
        monkeypatch.setattr(opening, "open_store", counted("store", opening.open_store))
        monkeypatch.setattr(process_resources, "blobs_of", counted("blobs", process_resources.blobs_of))
        for _ in range(3):
            run = submitted(state, upload, rollouts=2)
            await until(state, run, RunStatus.DONE)
            await happens(lambda run=run: not wanted(state, run))
    assert opened == []


async def test_while_people_submit_runs_begin_a_little_later(state: State, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proctor.server.engine.engine.HELD_BACK_S", 3600.0)
    upload = uploaded(state)
    first = submitted(state, upload)
    async with engine_of(state) as engine:
        await until(state, first, RunStatus.DONE)
        engine.held_back = True
        second = submitted(state, upload)
        await engine._begin(Slots(2))
        assert second not in engine._active
        engine.held_back = False
        engine.woken.set()
        await until(state, second, RunStatus.DONE)


async def test_the_engine_is_told_while_anything_is_being_planned(state: State):
    told: list[str] = []

    class Told:
        def hold_back(self) -> None:
            told.append("hold back")

        def go_on(self) -> None:
            told.append("go on")

    state.engine = Told()  # type: ignore[assignment]
    both = threading.Barrier(2)
    await asyncio.gather(*(state.submitting(lambda _: both.wait(20)) for _ in range(2)))
    assert told == ["hold back", "go on"]


async def test_a_stop_leaves_a_run_to_be_done_later(state: State):
    run = submitted(state, uploaded(state, "long", 30))
    async with engine_of(state):
        await until(state, run, RunStatus.RUNNING)
    store = open_store(state.settings.store_url)
    assert store.run(run).status is RunStatus.INTERRUPTED
    assert store.service.ownership.place(run).wanted
    actions.cancel(store, state.blobs, run)


async def test_a_run_that_cannot_begin_leaves_the_queue_with_the_reason(state: State):
    run = submitted(state, uploaded(state))
    store = open_store(state.settings.store_url)
    info = store.run(run)
    sandbox = {**info.resolved["sandbox"], "backend": "nonsense"}
    store.set_resolved(structs.replace(info, resolved={**info.resolved, "sandbox": sandbox}))
    async with engine_of(state):
        await until(state, run, RunStatus.INTERRUPTED)
        await happens(lambda: not store.service.ownership.place(run).wanted)
    assert "nonsense" in store.service.ownership.place(run).failure


async def test_a_project_that_spends_its_day_is_stopped(state: State):
    store = open_store(state.settings.store_url)
    run = submitted(state, uploaded(state, "slow", 0.4), rollouts=6)
    store.service.accounts.put_project(Project("default", "Default", day_usd=0.0))
    async with engine_of(state, 1):
        await until(state, run, RunStatus.INTERRUPTED)
        await happens(lambda: bool(store.service.ownership.place(run).failure))
    assert "has spent" in store.service.ownership.place(run).failure


async def test_one_rollout_of_a_task_is_done_and_the_others_wait(state: State):
    """The older API's way to execute one run; here on this machine's own system."""
    upload = uploaded(state, num_runs=3)
    store = open_store(state.settings.store_url)
    run = submitted(state, upload, rollouts=3)
    store.service.queue.want(run, wanted=False)
    store.service.uploads.set_run(upload.id, run)
    known = store.service.uploads.find(upload.id, None)
    assert known
    assert older.execute(store, state, LOCAL, known, index=1) == 1
    async with engine_of(state):
        await until(state, run, RunStatus.INTERRUPTED)
        found = store.service.rollouts.of(run)
        assert [each.state for each in found] == ["pending", "done", "pending"]
        await happens(lambda: not store.service.ownership.place(run).wanted)
        assert older.execute(store, state, LOCAL, known) == 2
        await until(state, run, RunStatus.DONE)
    assert store.run(run).counts == {"passed": 3}
    assert "judged" in older_logs.text(store, known, 1)
    assert older_logs.text(store, known, 1, tail=4) == older_logs.text(store, known, 1)[-4:]
    assert older_logs.text(store, known, 9) == ""


async def test_a_store_that_fails_is_said_once_and_its_runs_go_on_when_it_is_back(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Reading goes on, so the run is chosen again and again; it filled the disk with the same sentence."""
    run = submitted(state, uploaded(state))
    whole, tries = SqliteDatabase.write, []

    def broken(database: SqliteDatabase) -> Any:
        tries.append(database)
        raise StoreError("disk I/O error")

    monkeypatch.setattr(outage, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(outage, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(SqliteDatabase, "write", broken)
    async with engine_of(state):
        await happens(lambda: len(tries) > 20)
        monkeypatch.setattr(SqliteDatabase, "write", whole)
        await until(state, run, RunStatus.DONE)
        await happens(lambda: "the store works again" in caplog.messages)
    assert sum("disk I/O error" in each for each in caplog.messages) == 1
    assert caplog.messages.count("the store works again") == 1


async def test_what_a_submitted_task_names_is_fetched_on_behalf_of_its_project(state: State):
    """An image and a file of the server's own network: a stranger wrote the Dockerfiles."""
    store = open_store(state.settings.store_url)
    connections = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer.get_extra_info("peername"))
        writer.close()

    inside = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = inside.sockets[0].getsockname()[1]
    lines = {"from": f"FROM 127.0.0.1:{port}/x\n", "add": f"FROM scratch\nADD http://①②⑦.0.0.1:{port}/x /x\n"}
    runs = {}
    for name, text in lines.items():
        files = tasks.files(name)
        files[f"{name}/task.toml"] = files[f"{name}/task.toml"].replace('docker_image = "example/none:1"', "")
        files[f"{name}/environment/Dockerfile"] = text
        archive = state.settings.home.parent / f"{name}.zip"
        archive.write_bytes(tasks.packed(files))
        given = Uploading(filename=f"{name}.zip", agent="oracle")
        upload = stores_of(state).now(keep, state, LOCAL, archive, given)[0]
        runs[name] = submitted(state, upload, sandbox={}, retries={"infrastructure": 0})
    async with engine_of(state):
        for run in runs.values():
            await until(state, run, RunStatus.DONE)
            assert store.run(run).counts == {"image_error": 1}
    inside.close()
    assert connections == []
    assert {reopen(run, Resources(state.settings), wait=True).project for run in runs.values()} == {"default"}


@pytest.mark.parametrize(("person", "project"), [("local", None), ("", "default"), ("ada", "default")])
async def test_on_a_server_of_one_person_their_runs_are_as_from_a_command_line(state: State, person, project):
    submitted(state, uploaded(state))
    (queued,) = open_store(state.settings.store_url).service.queue.waiting()
    engine = Engine(Resources(state.settings, {}), Vault(b"test"), 1, person=person)
    assert engine._ready(queued).project == project
