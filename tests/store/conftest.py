"""Stores to test on, with a clock that a test sets; and plans, runs and records in few words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.taking import take

from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.store.open import open_store
from proctor.store.store import Store


class FakeClock:
    """Stands where it is put; takes the place of the database's own."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1.0)


@pytest.fixture
def store(store_url: str, clock: FakeClock) -> Iterator[Store]:
    with open_store(store_url, clock=clock) as opened:
        yield opened
        assert opened.check() == []


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "one.db")) as opened:
        yield opened


class Make:
    """Plans, runs and records in few words."""

    @staticmethod
    def plan(size: int = 3, subject: str = "noop") -> Plan:
        return Plan(
            trials=tuple(
                PlannedTrial(
                    key=trial_key(subject_digest="d", params={"n": number, "s": subject}),
                    index=number,
                    kind="experiment",
                    subject=subject,
                    subject_digest="d" * 64,
                    body=0,
                    params={"n": number},
                    seed=number,
                )
                for number in range(size)
            )
        )

    @staticmethod
    def info(run_id: str = "20260101-aaaa", **changes: object) -> RunInfo:
        values: dict[str, object] = {
            "id": run_id,
            "name": "bench",
            "kind": "experiment",
            "status": RunStatus.PENDING,
            "created_at": 100.0,
            "seed": 7,
        }
        return RunInfo(**{**values, **changes})

    @staticmethod
    def record(lease: Lease, outcome: Outcome = Outcome.PASSED, **changes: object) -> AttemptRecord:
        values: dict[str, object] = {
            "key": lease.key,
            "number": lease.attempt,
            "outcome": outcome,
            "started_at": 10.0,
            "ended_at": 12.5,
            "worker": lease.worker,
        }
        return AttemptRecord(**{**values, **changes})

    @classmethod
    def run(cls, store: Store, run_id: str = "20260101-aaaa", size: int = 3, **changes: object) -> Plan:
        plan = cls.plan(size)
        store.create_run(cls.info(run_id, **changes), plan)
        return plan

    @classmethod
    def answered(cls, store: Store, run_id: str = "20260101-aaaa", size: int = 3, **changes: object) -> Plan:
        plan = cls.run(store, run_id, size, **changes)
        for lease in take(store, run_id, worker="w", lease_s=30, limit=size):
            store.finish(lease, cls.record(lease), counts=True)
        return plan


@pytest.fixture
def make() -> type[Make]:
    return Make
