"""A race without sandboxes: rewards follow from the keys of rollouts, so that every run of it is alike."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.resources import Resources

from proctor.engine.stop import Stop
from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease, RunStatus
from proctor.runs.race.planning import RaceRequest, create_race
from proctor.runs.running import ReadyRun, execute
from proctor.settings import load_settings
from proctor.spec.load import load, written


class Deaf:
    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        pass

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        pass


class Drawn:
    """Passes with the chance of its side; `kill_after` results the process kills itself."""

    def __init__(self, chances: tuple[float, float], kill_after: int = 0, flaky: bool = False) -> None:
        self.chances = chances
        self.kill_after = kill_after
        self.flaky = flaky
        self.begun: list[int] = []
        self.ended = 0

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        self.begun.append(trial.index)
        drawn = int(trial.key[:8], 16) / 16**8
        for _ in range(int(trial.key[8:10], 16)):  # they end in another order than they began
            await asyncio.sleep(0)
        reward = float(drawn < self.chances[trial.body % 2])
        outcome = from_reward(reward)
        if self.flaky and lease.attempt == 1 and trial.index % 5 == 0:
            outcome, reward = Outcome.SANDBOX_ERROR, None
        self.ended += 1
        if self.kill_after and self.ended >= self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return AttemptRecord(
            key=trial.key,
            number=lease.attempt,
            outcome=outcome,
            started_at=1.0,
            ended_at=2.0,
            reward=reward,
            worker=lease.worker,
        )

    async def close(self) -> None:
        pass


def prepared(spec_file: Path, baseline: str = "oracle", candidate: str = "nop", **more: object) -> ReadyRun:
    asked: dict[str, object] = {"error": 0.05, "margin": 0.05, **more}
    request = RaceRequest(
        baseline=baseline,
        candidate=candidate,
        spec=load(spec_file),
        written=written(spec_file),
        **asked,
    )
    return create_race(request, Resources(load_settings()))


def carried_out(job: ReadyRun, executor: Drawn) -> RunStatus:
    return asyncio.run(
        execute(job, listener=Deaf(), stop=Stop(), open_executor=lambda *_: executor, wait=True)
    )


if __name__ == "__main__":
    carried_out(prepared(Path(sys.argv[1])), Drawn((0.8, 0.35), kill_after=int(sys.argv[2])))
