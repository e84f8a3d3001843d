"""What the child process does, without one: warm-up, episodes, turns, heart beat."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.resources import Resources
from tests.taking import take

from proctor.engine.stop import Stop
from proctor.errors import Exit, SandboxError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import Execution
from proctor.model.trial import RunStatus
from proctor.runs.executors import WorkerContext
from proctor.runs.perf.executor import Guilt, perf_executor
from proctor.runs.perf.guard import Ended, Guard, _beat, last_word, work
from proctor.runs.perf.run import Quiet, quiet
from proctor.runs.perf.scenario import DEFAULT, load_scenario, plan_episodes
from proctor.runs.perf.system import SystemSampler
from proctor.runs.running import ReadyRun, create, execute
from proctor.sandbox.fake import Fake
from proctor.settings import Settings
from proctor.store.open import open_store

pytestmark = pytest.mark.anyio
MakeJob = Callable[..., ReadyRun]


class Ear(Quiet):
    def __init__(self) -> None:
        self.ends: list[tuple[int, str]] = []

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        self.ends.append((trial.index, record.outcome.value))


@pytest.fixture
def make_job(tmp_path: Path, settings: Settings) -> MakeJob:
    def make(agents: str = "oracle, nop", episodes: int = 4, **more: Any) -> ReadyRun:
        file = tmp_path / "scenario.yaml"
        task = more.get("task", DEFAULT.parent / "word-count")
        file.write_text("".join(f"- {{task: {task}, agent: '{name}'}}\n" for name in agents.split(", ")))
        planned = plan_episodes(
            load_scenario(file),
            episodes=episodes,
            workers=2,
            timeout_s=5.0,
            sandbox="fake",
            settings=settings,
        )
        return create(planned.spec, {}, Resources(settings), plan=planned.plan, execution=Execution.PERF)

    return make


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for each in (reader, writer):
        try:
            os.close(each)
        except OSError:
            continue


async def test_the_child_says_that_it_lives_and_how_it_ended(make_job: MakeJob, pipe: tuple[int, int]):
    said = await work(make_job(), quiet, {}, 0, pipe[1])
    assert said == {"status": "done", "turn_over": False}
    os.close(pipe[1])
    told = os.read(pipe[0], 1000)
    assert told.startswith(b".")
    assert (told.count(b"+"), told.count(b"-")) == (4, 4)


async def test_a_turn_alone_ends_after_its_episodes_and_leaves_the_rest(
    make_job: MakeJob, pipe: tuple[int, int], settings: Settings
):
    job = make_job(episodes=6)
    said = await work(job, quiet, {}, 2, pipe[1])
    assert said == {"status": "interrupted", "turn_over": True}
    with open_store(settings.store_url) as store:
        assert store.run(job.info.id).status is RunStatus.RUNNING
        assert 2 <= store.run(job.info.id).done < 6
    said = await work(job, quiet, {}, 0, pipe[1])
    assert said["status"] == "done"


async def test_a_guilty_episode_gets_its_outcome_without_running(make_job: MakeJob):
    job, ear = make_job(), Ear()
    key = job.plan.trials[1].key
    guilt = Guilt(outcome=Outcome.AGENT_ERROR, message="it did it", started_at=10.0, ended_at=12.0)
    status = await execute(
        job,
        listener=ear,
        stop=Stop(),
        open_executor=lambda job, worker: perf_executor(job, worker, {key: guilt}),
    )
    assert status is RunStatus.DONE
    assert sorted(ear.ends) == [(0, "passed"), (1, "agent_error"), (2, "passed"), (3, "failed")]


async def test_a_person_who_stops_leaves_closed_books(make_job: MakeJob, settings: Settings):
    stop = Stop()

    class Impatient(Quiet):
        def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
            stop.request()

    job = make_job(episodes=6)
    assert await execute(job, listener=Impatient(), stop=stop, parallel=1) is RunStatus.INTERRUPTED
    with open_store(settings.store_url) as store:
        assert store.run(job.info.id).status is RunStatus.INTERRUPTED
    assert (job.folder / "summary.json").is_file()


async def test_the_warm_up_starts_one_sandbox_per_root_and_leaves_none(make_job: MakeJob, settings: Settings):
    job = make_job(episodes=4)
    executor = perf_executor(job, WorkerContext("w"))
    await executor.warm_up(job.plan.trials)
    backend = executor.executor.setting.backend
    assert isinstance(backend, Fake)
    assert [sandbox.running for sandbox in backend.sandboxes] == [False]
    await executor.close()


async def test_what_fails_in_the_warm_up_is_left_to_the_episodes(make_job: MakeJob, settings: Settings):
    job = make_job(episodes=2)
    executor = perf_executor(job, WorkerContext("w"))
    backend = executor.executor.setting.backend
    assert isinstance(backend, Fake)
    backend.fail_start = 1
    await executor.warm_up(job.plan.trials)
    await executor.close()


async def test_a_worker_that_died_gives_its_episodes_back(make_job: MakeJob, settings: Settings):

    job, ear = make_job(), Ear()
    import socket

    dead = f"{socket.gethostname()}:999999999:1:abc"
    with open_store(settings.store_url) as store:
        take(store, job.info.id, worker=dead, lease_s=1000)
    assert await execute(job, listener=ear, stop=Stop()) is RunStatus.DONE
    assert len(ear.ends) == 4


async def test_when_nobody_listens_any_more_the_child_stops_now(pipe: tuple[int, int]):
    os.close(pipe[0])
    stop = Stop()
    await _beat(pipe[1], stop)
    assert stop.now


async def test_a_listener_is_closed_with_the_work(make_job: MakeJob, pipe: tuple[int, int]):
    closed = []

    @contextmanager
    def listen() -> Iterator[Quiet]:
        yield Quiet()
        closed.append(True)

    await work(make_job(episodes=1), listen, {}, 0, pipe[1])
    assert closed == [True]


@pytest.mark.parametrize(
    ("error", "told", "code"),
    [
        (UsageError("not so"), "not so", Exit.USAGE),
        (KeyboardInterrupt(), "interrupted", Exit.INTERRUPTED),
        (ValueError("a bug"), "ValueError: a bug", Exit.INFRASTRUCTURE),
    ],
)
def test_what_the_child_ran_into_becomes_its_last_word(error: BaseException, told: str, code: Exit):
    async def fail() -> dict[str, Any]:
        raise error

    said = last_word(fail)
    assert told in said["error"]
    assert said["exit"] == code


def test_a_harness_that_dies_again_and_again_is_given_up(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch):
    """Two episodes beside each other each time, and neither is guilty alone: no end would ever come."""
    job = make_job(episodes=2)
    died = []
    guard = Guard(job, quiet, SystemSampler())

    def die(alone: int) -> tuple[int, int]:
        died.append(alone)
        return 0, 0

    monkeypatch.setattr(guard, "_fork", die)
    monkeypatch.setattr(guard, "_watch", lambda *_: Ended(status=9))
    monkeypatch.setattr(guard, "_suspects", lambda _: 2)
    with pytest.raises(SandboxError, match="keeps failing"):
        guard.run()
    assert len(died) == 9


def test_the_harness_may_run_outside_the_main_thread(make_job: MakeJob):
    import threading

    results: list[RunStatus] = []
    guard = Guard(make_job(episodes=2), quiet, SystemSampler())
    thread = threading.Thread(target=lambda: results.append(guard.run()))
    thread.start()
    thread.join(60)
    assert results == [RunStatus.DONE]
