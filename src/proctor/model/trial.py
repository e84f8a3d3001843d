"""The life of a trial: `pending → leased → running → done`, or `cancelled`."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class TrialState(StrEnum):
    """The state of a trial."""

    PENDING = "pending"
    LEASED = "leased"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class RunStatus(StrEnum):
    """The status of a run. `interrupted` can be resumed."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class Lease(Struct, frozen=True, gc=False):
    """The right to write one trial's result, until it expires or passes to another worker."""

    run_id: str
    key: str
    index: int
    worker: str
    fence: int
    attempt: int
    expires_at: float
    memory_mb: int = 0
    """What the trial may use of its worker's memory; 0 where nobody asked."""


class Offers(Struct, frozen=True, kw_only=True):
    """What a worker can execute, for work of whatever run."""

    kinds: tuple[str, ...] = ("experiment", "task")
    backends: tuple[str, ...] = ()
    """Sandboxes it has; trials that name none are for everybody."""
    memory_mb: int = 0
    """What all trials that it takes may need together; trials that do not say need 0."""
    place: str = ""
    """Whose memory that is: workers with the same place promise from the same; empty: its own."""
    cpus: float = 0.0
    """The most that one trial may need; trials that do not say need 0."""
    labels: tuple[str, ...] = ()
    """Words it has; a trial goes to a worker that has all of its own."""
    runs: tuple[str, ...] | None = None
    """Of these runs only; None: of any."""
