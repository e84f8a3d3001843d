"""One process at a time executes a run and writes its folder: it holds a lock there until it ends.

The kernel lets go of the lock when the process ends, also when it is killed, so the next one goes on at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proctor import owner
from proctor.engine.lease import in_words, is_dead
from proctor.errors import RunHeldError
from proctor.runfolder.files import make_folder, write_error
from proctor.store.store import Store

LOCK = ".lock"
"""In the run's folder while it is executed, with the worker's name; after a kill it stays until a resume."""


@contextmanager
def held(store: Store, run_id: str, folder: Path, *, worker: str, again: bool = False) -> Iterator[None]:
    """Execute a run alone. The trials of dead workers are taken back; where one lives: RunHeldError.

    A trial that was lost more often than the run allows has ended; with `again` it is tried again.
    """
    lock = folder / LOCK
    make_folder(folder)
    try:
        free = not owner.held_here(lock) and owner.hold(lock)
    except OSError as error:
        raise write_error(lock, error) from error
    if not free:
        raise _held_by(store, run_id, _read(lock))
    try:
        _take_over(store, run_id, _read(lock), again=again)
        with suppress(OSError):  # a full disk; then the next one asks the process table, or waits
            lock.write_text(worker)
        yield
    finally:
        owner.release(lock, remove=True)


def check_free(store: Store, run_id: str, folder: Path) -> None:
    """RunHeldError when another process executes the run now."""
    if owner.is_held(folder / LOCK):
        raise _held_by(store, run_id, _read(folder / LOCK))


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """For a short write to the folder of a run that nobody executes; whether that is true."""
    with owner.held_if_free(folder / LOCK, remove=True) as free:
        yield free


def _take_over(store: Store, run_id: str, before: str, *, again: bool) -> None:
    """Take back the trials of dead workers. `before` held the lock that is ours now, so it is dead."""
    for other in store.workers(run_id):
        if other == before or is_dead(other):
            store.release_worker(other, again=again)
    store.reap(run_id, again=again)
    if store.workers(run_id):
        raise _held_by(store, run_id, "")


def _held_by(store: Store, run_id: str, worker: str) -> RunHeldError:
    holders = store.holders(run_id)
    worker = worker or next(iter(holders), "")
    who = in_words(worker) if worker else "another process"
    until = max(holders.values(), default=0.0)
    lease = f" Its lease lasts until {_clock(until)} and is renewed while it lives." if until else ""
    return RunHeldError(
        f"run {run_id} is being executed by {who}; nothing was changed.{lease} "
        f"See 'proctor watch {run_id}', or end it with 'proctor cancel {run_id}'"
    )


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def _read(lock: Path) -> str:
    with suppress(OSError, ValueError):
        return lock.read_text().strip()
    return ""
