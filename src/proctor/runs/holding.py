"""One process at a time coordinates a run: it holds the run's lease in the store, and a lock in its folder.

The kernel lets go of the lock when the process ends, also when it is killed, so that the next one on this
machine goes on at once; elsewhere the lease has to expire. The fence of the lease refuses what a coordinator
writes to the store after its lease has passed on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proctor import owner
from proctor.engine.lease import in_words, is_dead
from proctor.errors import FenceError, RunHeldError
from proctor.model.trial import RunStatus
from proctor.runfolder.files import make_folder, write_error
from proctor.store.coordination import RunLease
from proctor.store.store import Store

LOCK = ".lock"
"""In the run's folder while it is executed, with the holder's name; after a kill it stays until a resume."""


class Hold:
    """The right to coordinate one run, as far as this process has it."""

    def __init__(self, store: Store, run_id: str, folder: Path, *, holder: str, lease_s: float) -> None:
        self.store = store
        self.run_id = run_id
        self.holder = holder
        self.lease_s = lease_s
        self.before = ""
        """Who held the lock before and let it go by dying; empty when it was released."""
        self._lock = folder / LOCK
        self._lease: RunLease | None = None
        self._renewed = 0.0

    @property
    def ours(self) -> bool:
        """Whether the lease is ours for certain. Asked before each write to the folder: it costs nothing."""
        return self._lease is not None and time.monotonic() < self._renewed + self.lease_s

    def take(self) -> bool:
        """Try to become the coordinator."""
        make_folder(self._lock.parent)
        try:
            if owner.held_here(self._lock) or not owner.hold(self._lock):
                return False
        except OSError as error:
            raise write_error(self._lock, error) from error
        self.before = _read(self._lock)
        began = time.monotonic()
        try:
            other = self.store.coordination.holder(self.run_id)
            dead = other.holder if other and _has_died(other.holder, self.before) else ""
            self._lease = self.store.coordination.take(
                self.run_id, holder=self.holder, lease_s=self.lease_s, dead=dead
            )
        finally:
            if self._lease is None:  # also while the store fails: else this process would shut itself out
                owner.release(self._lock, remove=True)
        if self._lease is None:
            return False
        self._renewed = began
        with suppress(OSError):  # a full disk; then the next one asks the process table, or waits
            self._lock.write_text(self.holder)
        return True

    def renew(self) -> bool:
        """Keep the lease, where a third of it is over; False when it is not ours or has passed on."""
        if self._lease is None:
            return False
        began = time.monotonic()
        if began - self._renewed < self.lease_s / 3:
            return True
        if self.store.coordination.renew(self._lease, self.lease_s):
            self._renewed = began
            return True
        self._lease = None
        owner.release(self._lock, remove=True)
        return False

    def set_status(self, status: RunStatus) -> None:
        """The status of the run, which only its coordinator sets; else FenceError."""
        if self._lease is None:
            raise FenceError(f"run {self.run_id} is not coordinated by this process; nothing was written")
        self.store.set_status(self.run_id, status, lease=self._lease)

    def release(self) -> None:
        """Let the next one in."""
        if self._lease is not None:
            try:
                self.store.coordination.release(self._lease)
            finally:
                self._lease = None
                owner.release(self._lock, remove=True)

    def refusal(self) -> RunHeldError:
        """What to tell a person who cannot have it."""
        return _held_by(self.store, self.run_id, _read(self._lock))


def check_free(store: Store, run_id: str, folder: Path) -> None:
    """RunHeldError when another process executes the run now."""
    lock = folder / LOCK
    named = _read(lock)
    other = store.coordination.holder(run_id)
    if owner.is_held(lock) or (other and not _has_died(other.holder, named)):
        raise _held_by(store, run_id, named)


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """For a short write to the folder of a run that nobody executes; whether that is true."""
    with owner.held_if_free(folder / LOCK, remove=True) as free:
        yield free


def _has_died(holder: str, named: str) -> bool:
    """Whether a holder is dead for certain. `named` is in a lock that nobody holds: so that one is."""
    return holder == named or is_dead(holder)


def _held_by(store: Store, run_id: str, worker: str) -> RunHeldError:
    lease = store.coordination.holder(run_id)
    holders = store.holders(run_id) | ({lease.holder: lease.expires_at} if lease else {})
    worker = worker or (lease.holder if lease else "") or next(iter(holders), "")
    who = in_words(worker) if worker else "another process"
    until = max(holders.values(), default=0.0)
    lasts = f" Its lease lasts until {_clock(until)} and is renewed while it lives." if until else ""
    return RunHeldError(
        f"run {run_id} is being executed by {who}; nothing was changed.{lasts} "
        f"See 'proctor watch {run_id}', or end it with 'proctor cancel {run_id}'"
    )


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def _read(lock: Path) -> str:
    with suppress(OSError, ValueError):
        return lock.read_text().strip()
    return ""
