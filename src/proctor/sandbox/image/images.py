"""From a task to the root of its sandboxes: made once per content, found in no time after that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from proctor.errors import ImageError, TaskError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Backend, Root
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image.build import Build
from proctor.sandbox.image.dockerfile import parse
from proctor.sandbox.image.layered import HOST, LayeredRoots
from proctor.sandbox.image.recipe import UnsupportedError, plan

_TRIES = 2
"""How often a failing build is tried in one process; after that its error is repeated."""

Key = tuple[object, ...]
Began = Callable[[Build], None]


class Images:
    """Makes roots. One per process; those who ask for the same root wait for one build."""

    def __init__(self, cache_dir: Path, backend: Backend) -> None:
        self._make_root = _maker(cache_dir, backend)
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
        return await asyncio.shield(making)

    async def close(self) -> None:
        """End builds that are still going on."""
        for making in self._roots.values():
            making.cancel()
        await asyncio.gather(*self._roots.values(), return_exceptions=True)
        self._roots.clear()

    def _may_retry(self, key: Key, making: asyncio.Task[Root]) -> bool:
        if not making.done():
            return False
        if making.cancelled():
            return True
        error = making.exception()
        if error is None or isinstance(error, TaskError):
            return False  # what is wrong in the Dockerfile stays wrong
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key] < _TRIES

    async def _make(self, wanted: TaskEnvironment) -> Root:
        builds: list[Build] = []
        try:
            async with asyncio.timeout(wanted.build_timeout_s):
                return await self._make_root(wanted, builds.append)
        except TimeoutError:
            at = f", at {builds[0].doing}" if builds else ""
            msg = f"the image was not built within {wanted.build_timeout_s:g} s (build_timeout_sec){at}"
            raise ImageError(msg) from None


def _maker(cache_dir: Path, backend: Backend) -> Callable[[TaskEnvironment, Began], Awaitable[Root]]:
    if isinstance(backend, Bubblewrap):
        return LayeredRoots(cache_dir, backend).root
    return _settings_only


async def _settings_only(wanted: TaskEnvironment, began: Began) -> Root:
    """For sandboxes that have no file system of their own."""
    del began
    if not wanted.dockerfile:
        return Root(host=True)
    where = str(wanted.dockerfile)
    try:
        settings = plan(parse(wanted.dockerfile.read_bytes(), where), HOST, where).settings
    except UnsupportedError:
        settings = HOST
    return Root(host=True, env=settings.env, workdir=settings.workdir, user=settings.user)
