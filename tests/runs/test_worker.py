from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.errors import StoreError
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.spec import Retries
from proctor.model.trial import Lease, RunStatus
from proctor.runs.sources import OneRun
from proctor.runs.tickets import Tickets
from proctor.runs.worker import _LOOK_S, Worker
from proctor.store.open import open_store
from proctor.store.store import Store

pytestmark = pytest.mark.anyio


def make_plan(count: int) -> Plan:
    return Plan(
        trials=tuple(
            PlannedTrial(
                key=trial_key(subject_digest="d", params={"n": n}),
                index=n,
                kind="experiment",
                subject="noop",
                subject_digest="d",
                body=0,
                params={"n": n},
            )
            for n in range(count)
        )
    )


@pytest.fixture
def store(tmp_path: Path):
    with open_store(str(tmp_path / "store.db")) as opened:
        yield opened


def begin(store: Store, count: int) -> Plan:
    plan = make_plan(count)
    info = RunInfo(
        id="r1", name="n", kind="experiment", status=RunStatus.PENDING, created_at=1.0, seed=0, total=count
    )
    store.create_run(info, plan)
    return plan


def states(store: Store) -> dict[str, int]:
    return {state: count for state, count in store.state_counts("r1").items() if count}


@dataclass
class FakeExecutor:
    """Ends each attempt with what `decide` says; counts who runs at once."""

    decide: Callable[[PlannedTrial, Lease], Outcome] = lambda trial, lease: Outcome.PASSED
    before: Callable[[PlannedTrial], object] | None = None
    hold: asyncio.Event | None = None
    running: int = 0
    most: int = 0
    closed: bool = False
    calls: Counter[int] = field(default_factory=Counter)

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        self.running += 1
        self.most = max(self.most, self.running)
        self.calls[trial.index] += 1
        try:
            if self.before:
                self.before(trial)
            await (self.hold.wait() if self.hold else asyncio.sleep(0))
        finally:
            self.running -= 1
        return AttemptRecord(
            key=trial.key,
            number=lease.attempt,
            outcome=self.decide(trial, lease),
            started_at=1.0,
            ended_at=2.0,
        )

    async def close(self) -> None:
        self.closed = True


class Ear:
    def __init__(self) -> None:
        self.begun: list[int] = []
        self.heard: list[tuple[int, Outcome, bool]] = []

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        self.begun.append(trial.index)

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        self.heard.append((trial.index, record.outcome, counts))


def worker_for(store: Store, executor: FakeExecutor, ear: Ear, stop: Stop | None = None, **options) -> Worker:
    name = worker_id()
    of_source = {each: options.pop(each) for each in ("retries", "more") if each in options}
    lease_s = options.get("lease_s", 30.0)
    return Worker(
        store=store,
        source=OneRun(store, "r1", executor, worker=name, lease_s=lease_s, **of_source),
        listener=ear,
        stop=stop or Stop(),
        name=name,
        **options,
    )


async def test_every_trial_ends_once(store):
    begin(store, 25)
    executor, ear = FakeExecutor(), Ear()
    await worker_for(store, executor, ear, parallel=4).run()
    assert sorted(index for index, _, counts in ear.heard if counts) == list(range(25))
    assert states(store) == {"done": 25}
    assert executor.closed


async def test_as_many_run_at_once_as_asked_for_and_no_more(store):
    begin(store, 12)
    executor = FakeExecutor()
    await worker_for(store, executor, Ear(), parallel=3).run()
    assert executor.most == 3


@dataclass
class Expectant(FakeExecutor):
    """Wants to know what comes next."""

    expected: list[int] = field(default_factory=list)

    def expect(self, trial: PlannedTrial) -> None:
        assert self.calls[trial.index] == 0
        self.expected.append(trial.index)


async def test_who_wants_to_know_is_told_which_trial_comes_next(store):
    begin(store, 6)
    executor = Expectant()
    await worker_for(store, executor, Ear(), parallel=2).run()
    assert executor.expected == sorted(set(executor.expected))
    assert set(executor.expected) >= {2, 4}
    assert not {0, 1} & set(executor.expected)
    assert executor.calls == Counter(range(6))


async def test_nothing_is_expected_when_no_more_is_to_start(store):
    begin(store, 4)
    stop = Stop()
    executor = Expectant(before=lambda _: stop.request())
    await worker_for(store, executor, Ear(), stop, parallel=1).run()
    assert executor.calls == Counter([0])


async def test_each_record_says_how_long_its_trial_waited_for_room(store):
    begin(store, 3)
    ticks = iter(range(1000))
    worker = worker_for(store, FakeExecutor(), Ear(), parallel=1)
    worker.clock = lambda: float(next(ticks))
    worker._began = worker.clock()
    await worker.run()
    waited = [row.record.phases_s["queue"] for row in store.attempts("r1")]
    assert waited[0] < waited[1] < waited[2]


async def test_infrastructure_is_tried_again_and_every_attempt_is_kept(store):
    begin(store, 1)
    executor = FakeExecutor(
        lambda trial, lease: Outcome.SANDBOX_ERROR if lease.attempt < 3 else Outcome.PASSED
    )
    ear = Ear()
    await worker_for(store, executor, ear, retries=Retries(backoff_s=0.001)).run()
    assert [(outcome, counts) for _, outcome, counts in ear.heard] == [
        (Outcome.SANDBOX_ERROR, False),
        (Outcome.SANDBOX_ERROR, False),
        (Outcome.PASSED, True),
    ]
    assert [row.record.outcome for row in store.attempts("r1")] == [
        Outcome.SANDBOX_ERROR,
        Outcome.SANDBOX_ERROR,
        Outcome.PASSED,
    ]


async def test_a_failure_of_the_subject_is_never_tried_again(store):
    begin(store, 3)
    executor = FakeExecutor(lambda trial, lease: Outcome.FAILED)
    await worker_for(store, executor, Ear()).run()
    assert executor.calls == {0: 1, 1: 1, 2: 1}


async def test_retries_come_to_an_end(store):
    begin(store, 1)
    executor = FakeExecutor(lambda trial, lease: Outcome.PROVIDER_ERROR)
    await worker_for(store, executor, Ear(), retries=Retries(provider=2, backoff_s=0.001)).run()
    assert executor.calls == {0: 3}
    assert store.counts("r1") == {"provider_error": 1}


async def test_asked_once_to_stop_what_runs_is_finished(store):
    begin(store, 10)
    stop = Stop()
    executor, ear = FakeExecutor(before=lambda trial: trial.index == 1 and stop.request()), Ear()
    await worker_for(store, executor, ear, stop, parallel=2).run()
    assert [(index, counts) for index, _, counts in ear.heard] == [(0, True), (1, True)]
    assert states(store) == {"done": 2, "pending": 8}


async def test_asked_twice_what_runs_is_ended_kept_and_stays_to_be_done(store):
    begin(store, 4)
    stop = Stop()
    executor = FakeExecutor(
        hold=asyncio.Event(), before=lambda trial: trial.index == 1 and stop.request(times=2)
    )
    ear = Ear()
    await worker_for(store, executor, ear, stop, parallel=2).run()
    assert {(outcome, counts) for _, outcome, counts in ear.heard} == {(Outcome.CANCELLED, False)}
    assert states(store) == {"pending": 4}
    assert executor.running == 0
    assert executor.closed


async def test_a_result_under_a_lost_lease_is_dropped(store):
    plan = begin(store, 1)

    def steal(trial: PlannedTrial) -> None:
        if executor.calls[0] == 1:
            store.release_worker(worker.name, again=True)

    executor, ear = FakeExecutor(before=steal), Ear()
    worker = worker_for(store, executor, ear)
    await worker.run()
    counted = [row for row in store.attempts("r1") if row.counts]
    assert len(counted) == 1
    assert executor.calls == {0: 2}
    assert len(plan) == 1


async def test_a_cancelled_run_ends_what_is_under_way(store):
    begin(store, 3)
    executor = FakeExecutor(hold=asyncio.Event(), before=lambda trial: store.cancel("r1"))
    await worker_for(store, executor, Ear(), lease_s=0.03).run()
    assert states(store) == {"cancelled": 3}


async def test_a_running_attempt_hears_of_a_cancellation_long_before_its_lease_is_renewed(store):
    begin(store, 1)
    executor = FakeExecutor(hold=asyncio.Event(), before=lambda trial: store.cancel("r1"))
    renewals: list[object] = []
    store.renew = lambda *args, **options: renewals.append(args) or []
    async with asyncio.timeout(60):
        await worker_for(store, executor, Ear(), lease_s=600.0).run()
    assert states(store) == {"cancelled": 1}
    assert renewals == [], "it was a look at the leases that told"
    assert _LOOK_S <= 0.5


async def test_leases_are_renewed_while_the_work_goes_on(store):
    begin(store, 1)
    now = [100.0]
    renewed = asyncio.Event()
    executor, ear = FakeExecutor(hold=renewed), Ear()
    original = store.renew

    def renew(*args, **options):
        renewed.set()
        return original(*args, **options)

    store.renew = renew
    await worker_for(store, executor, ear, lease_s=0.03, clock=lambda: now[0]).run()
    assert [(outcome, counts) for _, outcome, counts in ear.heard] == [(Outcome.PASSED, True)]


async def test_an_error_of_the_harness_itself_is_not_swallowed(store):
    begin(store, 2)

    def fail(trial: PlannedTrial) -> None:
        raise RuntimeError("bug")

    executor = FakeExecutor(before=fail)
    with pytest.raises(RuntimeError, match="bug"):
        await worker_for(store, executor, Ear()).run()
    assert executor.closed


async def test_an_attempt_for_which_the_disk_was_too_full_is_done_again_and_the_worker_goes_on(store):
    begin(store, 2)
    full = [True]

    def fail(trial: PlannedTrial) -> None:
        if trial.index == 0 and full.pop():
            full.append(False)
            raise StoreError("a blob cannot be written here") from OSError(errno.ENOSPC, "No space left")

    executor, ear = FakeExecutor(before=fail), Ear()
    await worker_for(store, executor, ear, retries=Retries(infrastructure=1, backoff_s=0.0)).run()
    assert Counter((outcome, counts) for _, outcome, counts in ear.heard) == {
        (Outcome.SANDBOX_ERROR, False): 1,
        (Outcome.PASSED, True): 2,
    }
    lost = next(row.record for row in store.attempts("r1") if not row.counts)
    assert lost.failure
    assert lost.failure.type == "DiskFull"


async def test_an_attempt_whose_files_found_no_blobs_is_done_again_when_they_are_back(store):
    begin(store, 2)
    away, tried = threading.Event(), []
    away.set()

    def fail(_: PlannedTrial) -> None:
        if away.is_set():
            raise StoreError("the blobs have not answered for 120 s")

    def try_blobs() -> None:
        tried.append(executor.calls.total())
        if len(tried) == 1:
            raise StoreError("they are still away")
        away.clear()

    executor, ear = FakeExecutor(before=fail), Ear()
    retries = Retries(infrastructure=1, backoff_s=0.0)
    await worker_for(store, executor, ear, retries=retries, try_blobs=try_blobs).run()
    outcomes = Counter((outcome, counts) for _, outcome, counts in ear.heard)
    assert outcomes[Outcome.PASSED, True] == 2
    assert tried[0] == tried[1], "none begins until they are back"
    lost = next(row.record for row in store.attempts("r1") if not row.counts)
    assert lost.failure
    assert (lost.failure.type, lost.outcome) == ("BlobsAway", Outcome.SANDBOX_ERROR)


async def test_a_trial_that_was_taken_away_gives_its_ticket_back(store):
    """A thread of the broker's client waits for each; it would wait for ever."""
    begin(store, 1)
    tickets, ticket, ear = Tickets(), Future(), Ear()
    tickets.offer(ticket)
    executor = FakeExecutor(hold=asyncio.Event())
    working = asyncio.create_task(worker_for(store, executor, ear, tickets=tickets).run())
    while not executor.running:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)
    store.cancel("r1")
    await asyncio.wait_for(working, 30)
    assert ticket.result(timeout=0) is True
