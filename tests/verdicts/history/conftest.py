"""Series of runs that never happened, in a store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.model.describe import describe
from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import PlannedTrial, trial_key
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.store import Store

ENVIRONMENT = {"cpu_model": "Example", "cores": 8, "python": {"version": "3.11.7"}}
T0 = 1_780_000_000.0


class Series:
    """Puts one run after another into a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def points(
        self,
        name: str,
        number: int,
        factor: float | Callable[[Mapping[str, Any]], float],
        *,
        params: Sequence[Mapping[str, Any]] = ({"size": 1000},),
        outcome: Outcome = Outcome.PASSED,
        count: int = 8,
        waited: float | None = None,
        **more: Any,
    ) -> str:
        """One run. `waited`: the share of its elapsed time in which it was ready without a CPU."""
        rng = random.Random(f"{name}{number}")
        luck = rng.lognormvariate(0, 0.01)
        pairs = []
        for index, each in enumerate(params):
            trial = PlannedTrial(
                key=trial_key(subject_digest="s", params=each),
                index=index,
                kind="experiment",
                subject="sorting",
                subject_digest="d",
                body=0,
                params=each,
            )
            size = factor(each) if callable(factor) else factor
            values = [0.001 * size * luck * rng.lognormvariate(0, 0.01) for _ in range(count)]
            good = outcome is Outcome.PASSED
            rows = [{"duration_s": value} for value in values]
            ledger = {}
            if waited is not None:
                rows = [{"duration_s": value / (1 - waited), "cpu_s": value} for value in values]
                ledger = {"noise": {"cpu_over_wall": 1 - waited, "waited_for_cpu": waited}}
            columns = {name: describe([row[name] for row in rows]) for name in rows[0]}
            record = AttemptRecord(
                key=trial.key,
                number=1,
                outcome=outcome,
                started_at=1.0,
                ended_at=2.0,
                metrics=columns if good else {},
                iterations=tuple(rows) if good else (),
                ledger=ledger,
                failure=None if good else Failure(phase="work", type="Lost", message="gone"),
            )
            pairs.append((trial, record))
        return self._put(name, number, "experiment", pairs, more)

    def rollouts(
        self,
        name: str,
        number: int,
        ability: float,
        *,
        tasks: int = 10,
        each: int = 6,
        agents: Sequence[str] = ("terminal",),
        broken: float = 0.0,
        **more: Any,
    ) -> str:
        rng = random.Random(f"{name}{number}")
        pairs = []
        for task in range(tasks):
            for agent in agents:
                for rollout in range(each):
                    trial = PlannedTrial(
                        key=trial_key(subject_digest=f"t{task}", agent=agent, rollout=rollout),
                        index=len(pairs),
                        kind="task",
                        subject=f"org/task-{task}",
                        subject_digest=f"t{task}",
                        body=0,
                        agent=agent,
                        model="m1",
                        rollout=rollout,
                    )
                    pairs.append((trial, self._end(trial, rng, ability, broken)))
        return self._put(name, number, "task", pairs, more)

    @staticmethod
    def _end(trial: PlannedTrial, rng: random.Random, ability: float, broken: float) -> AttemptRecord:
        reward = None if rng.random() < broken else float(rng.random() < ability)
        return AttemptRecord(
            key=trial.key,
            number=1,
            outcome=Outcome.SANDBOX_ERROR if reward is None else from_reward(reward),
            started_at=T0,
            ended_at=T0 + rng.lognormvariate(2, 0.2),
            reward=reward,
            usage={"cost_usd": rng.lognormvariate(-3, 0.2), "steps": 4},
            ledger={"peak_memory_bytes": rng.randint(1000, 2000)},
        )

    def _put(
        self,
        name: str,
        number: int,
        kind: str,
        pairs: Sequence[tuple[PlannedTrial, AttemptRecord]],
        more: Mapping[str, Any],
    ) -> str:
        at = T0 + 86_400 * number
        fields: dict[str, Any] = {
            "status": RunStatus.DONE,
            "environment": ENVIRONMENT,
            "vcs": {"commit": f"{number:040x}", "dirty": False},
            "started_at": at,
            "finished_at": at + 60,
            "total": len(pairs),
            **more,
        }
        info = RunInfo(id=f"{name}-{number:03d}", name=name, kind=kind, created_at=at, seed=0, **fields)
        self.store.import_run(info, [trial for trial, _ in pairs], [(record, True) for _, record in pairs])
        return info.id


@pytest.fixture
def series(tmp_path: Path) -> Iterator[Series]:
    with open_store(str(tmp_path / "store.db")) as store:
        yield Series(store)
