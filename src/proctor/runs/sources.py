"""Where a worker's trials come from: one run, whose coordinator is in the same process, or any run.

The one run is finished and taken from in one transaction, which is what makes short trials quick.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from proctor.engine.base import Executor
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.spec import Retries
from proctor.model.trial import Lease, TrialState
from proctor.store.calls import StoreCalls
from proctor.store.steps import Ended, Taken
from proctor.store.store import Store

_POLL_S = 0.25
"""How often to look for trials that another process made ready."""


@dataclass(frozen=True, slots=True)
class Held:
    """A trial that a worker has claimed and begun."""

    trial: PlannedTrial
    lease: Lease
    started_at: float
    queued_s: float = 0.0
    """When it could have started if a slot had been free."""

    def told(self, record: AttemptRecord) -> AttemptRecord:
        """The record with the queue phase, which only the worker knows."""
        queued_s = self.queued_s + record.phases_s.get("queue", 0.0)
        return replace(record, phases_s={**record.phases_s, "queue": queued_s})


class Source(Protocol):
    """What a worker asks: for trials, and for what executes them."""

    idle_s: float
    """How often to look while nothing runs."""
    poll_s: float | None
    """How often to look while places are free beside what runs; None: when something has ended."""

    @property
    def opening(self) -> bool:
        """Whether a run is being made ready, so that there will be trials soon."""

    async def exchange(
        self, finished: Sequence[Ended], room: int, running: Collection[Held]
    ) -> tuple[list[bool], Taken]:
        """Write attempts, and take up to `room` trials; which of the attempts were written."""

    def executor_of(self, run_id: str) -> Executor:
        """What executes the trials of a run of which some were taken."""

    def retries_of(self, run_id: str) -> Retries:
        """The policy of such a run."""

    async def more(self) -> bool:
        """Asked when nothing is at hand: whether there may be trials to take later."""

    async def close(self) -> None:
        """End what was kept ready."""


class OneRun:
    """The trials of one run."""

    idle_s = _POLL_S
    poll_s: float | None = None
    opening = False

    def __init__(
        self,
        store: Store,
        run_id: str,
        executor: Executor,
        *,
        worker: str,
        lease_s: float = 30.0,
        retries: Retries | None = None,
        more: Callable[[], Awaitable[bool]] | None = None,
        calls: StoreCalls | None = None,
    ) -> None:
        """`more`: whether there may be trials later; else that is whether some are pending."""
        self.store = store
        self.run_id = run_id
        self.executor = executor
        self.worker = worker
        self.lease_s = lease_s
        self.retries = retries or Retries()
        self._more = more or self._are_pending
        self._calls = calls or StoreCalls(store)

    async def exchange(
        self, finished: Sequence[Ended], room: int, running: Collection[Held]
    ) -> tuple[list[bool], Taken]:
        """Both in one transaction."""
        del running
        return await self._calls(
            self.store.exchange, self.run_id, finished, worker=self.worker, lease_s=self.lease_s, limit=room
        )

    def executor_of(self, run_id: str) -> Executor:
        """There is one."""
        del run_id
        return self.executor

    def retries_of(self, run_id: str) -> Retries:
        """There is one."""
        del run_id
        return self.retries

    async def more(self) -> bool:
        """Whether there may be trials to take later."""
        return await self._more()

    async def close(self) -> None:
        """End what the executor keeps."""
        await self.executor.close()

    async def _are_pending(self) -> bool:
        states = await self._calls(self.store.state_counts, self.run_id)
        return bool(states.get(TrialState.PENDING))
