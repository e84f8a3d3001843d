"""However workers claim, stall, die, come back late and are cancelled: every trial counts at most once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.store.conftest import FakeClock
from tests.taking import take

from proctor.errors import FenceError
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.store.open import open_store
from proctor.store.store import Store

SIZE = 4
LEASE_S = 10.0
WORKERS = ("a", "b", "c")


@dataclass
class Known:
    """What the test believes about one trial."""

    state: str = "pending"
    fence: int = 0
    worker: str = ""
    expires_at: float = 0.0
    attempts: list[tuple[str, bool]] = field(default_factory=list)


class TrialLife(RuleBasedStateMachine):
    """The store against a model in plain Python."""

    store: Store
    clock: FakeClock
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        TrialLife.number = getattr(TrialLife, "number", 0) + 1
        self.run_id = f"run-{TrialLife.number}"
        self.clock.now = 100.0
        self.known = [Known() for _ in range(SIZE)]
        self.store.create_run(_info(self.run_id), _plan())

    @rule(target=leases, worker=st.sampled_from(WORKERS), limit=st.integers(1, 3))
    def take(self, worker: str, limit: int) -> object:
        leases = take(self.store, self.run_id, worker=worker, lease_s=LEASE_S, limit=limit)
        waiting = [index for index, known in enumerate(self.known) if known.state == "pending"]
        assert [lease.index for lease in leases] == waiting[:limit]
        for lease in leases:
            known = self.known[lease.index]
            assert lease.fence > known.fence
            assert lease.attempt == len(known.attempts) + 1
            known.state, known.worker, known.fence = "running", worker, lease.fence
            known.expires_at = self.clock.now + LEASE_S
        return multiple(*leases)

    @rule(lease=leases)
    def renew(self, lease: Lease) -> None:
        lost = self.store.renew([lease], lease_s=LEASE_S)
        assert lost == ([] if self._ours(lease) else [lease])
        if not lost:
            self.known[lease.index].expires_at = self.clock.now + LEASE_S

    @rule(lease=leases, counts=st.booleans())
    def finish(self, lease: Lease, counts: bool) -> None:
        outcome = Outcome.PASSED if counts else Outcome.SANDBOX_ERROR
        record = AttemptRecord(
            key=lease.key, number=lease.attempt, outcome=outcome, started_at=1.0, ended_at=2.0
        )
        if not self._ours(lease):
            with pytest.raises(FenceError):
                self.store.finish(lease, record, counts=counts)
            return
        self.store.finish(lease, record, counts=counts)
        known = self.known[lease.index]
        known.state = "done" if counts else "pending"
        known.attempts.append((outcome.value, counts))

    @rule(passed_s=st.floats(0.0, 15.0))
    def time_passes(self, passed_s: float) -> None:
        self.clock.now += passed_s

    @rule()
    def reap(self) -> None:
        taken = self.store.reap(self.run_id)
        self._lose(taken, [known for known in self._held() if known.expires_at <= self.clock.now])

    @rule(worker=st.sampled_from(WORKERS))
    def a_worker_dies(self, worker: str) -> None:
        taken = [lease for lease in self.store.release_worker(worker) if lease.run_id == self.run_id]
        self._lose(taken, [known for known in self._held() if known.worker == worker])

    @rule(chance=st.integers(0, 9))
    def cancel(self, chance: int) -> None:
        if chance:
            return
        left = [known for known in self.known if known.state in {"pending", "leased", "running"}]
        assert self.store.cancel(self.run_id) == len(left)
        for known in left:
            if known.state == "running":
                known.attempts.append(("cancelled", True))
            known.state = "cancelled"

    @invariant()
    def the_store_agrees(self) -> None:
        states = dict.fromkeys(("pending", "leased", "running", "done", "cancelled"), 0)
        for known in self.known:
            states[known.state] += 1
        assert self.store.state_counts(self.run_id) == states
        assert self.store.run(self.run_id).done == states["done"]
        found: list[list[tuple[str, bool]]] = [[] for _ in self.known]
        for row in self.store.attempts(self.run_id):
            found[row.trial.index].append((row.record.outcome.value, row.counts))
        assert found == [known.attempts for known in self.known]
        assert all(sum(counts for _, counts in attempts) <= 1 for attempts in found)

    def teardown(self) -> None:
        assert self.store.check() == []

    def _ours(self, lease: Lease) -> bool:
        known = self.known[lease.index]
        return known.state in {"leased", "running"} and known.fence == lease.fence

    def _held(self) -> list[Known]:
        return [known for known in self.known if known.state in {"leased", "running"}]

    def _lose(self, taken: list[Lease], expected: list[Known]) -> None:
        assert [self.known[lease.index] for lease in taken] == expected
        for known in expected:
            if known.state == "running":
                known.attempts.append(("worker_lost", False))
            known.state = "pending"


def test_every_trial_counts_at_most_once_whatever_workers_do(store_url: str, clock: FakeClock):
    on_a_server = store_url.startswith("postgresql")
    with open_store(store_url, clock=clock) as store:
        TrialLife.store, TrialLife.clock = store, clock
        run_state_machine_as_test(
            TrialLife,
            settings=settings(
                max_examples=12 if on_a_server else 40,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


def _plan() -> Plan:
    return Plan(
        trials=tuple(
            PlannedTrial(
                key=f"key-{index}", index=index, kind="experiment", subject="s", subject_digest="d", body=0
            )
            for index in range(SIZE)
        )
    )


def _info(run_id: str) -> RunInfo:
    return RunInfo(id=run_id, name="n", kind="experiment", status=RunStatus.PENDING, created_at=1.0, seed=0)
