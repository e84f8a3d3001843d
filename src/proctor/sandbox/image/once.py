"""One build per content, however many ask at the same time, in any process; a failing one is tried twice."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from proctor.errors import TaskError, is_lasting
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Root

_TRIES = 2
"""How often a failing build is tried in one process; after that its error is repeated."""

_FIRST_WAIT_S = 0.005
_LONGEST_WAIT_S = 0.25

Key = tuple[object, ...]


@contextlib.asynccontextmanager
async def alone(lock: Path) -> AsyncIterator[None]:
    """While it lasts, no other process of this machine holds the lock; one that is killed lets go of it."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    wait_s = _FIRST_WAIT_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        yield
    finally:
        os.close(fd)


class RootsOnce:
    """Roots of tasks, made by `make`. One per process; those who ask for the same root wait for one build."""

    def __init__(self, make: Callable[[TaskEnvironment], Coroutine[Any, Any, Root]]) -> None:
        self._make = make
        self._roots: dict[Key, asyncio.Task[Root]] = {}
        self._failures: dict[Key, int] = {}

    async def root(self, task: Task, environment: TaskEnvironment | None = None) -> Root:
        """The root of a task, or of one of its environments; ImageError says which step failed and how."""
        wanted = environment or task.environment
        key = (task.digest, wanted.image, wanted.folder, wanted.dockerfile, wanted.compose)
        making = self._roots.get(key)
        if making is None or self._may_retry(key, making):
            making = asyncio.get_running_loop().create_task(self._make(wanted))
            self._roots[key] = making
        return making.result() if making.done() else await asyncio.shield(making)

    async def close(self) -> None:
        """End builds that are still going on."""
        for making in self._roots.values():
            making.cancel()
        await asyncio.gather(*self._roots.values(), return_exceptions=True)
        self._roots.clear()

    def _may_retry(self, key: Key, making: asyncio.Task[Root]) -> bool:
        """A build that failed may do better once more; what is wrong in a task stays wrong."""
        if not making.done() or making.cancelled():
            return making.done()
        error = making.exception()
        if error is None or isinstance(error, TaskError) or is_lasting(error):
            return False
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key] < _TRIES
