"""From a task to the root of its sandboxes: one build per root, however many ask for it at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from proctor.errors import ImageError, TaskError, is_lasting
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Root

_TRIES = 2
"""How often a failing build is tried in one process; after that its error is repeated."""

_Key = tuple[object, ...]


@dataclass(slots=True)
class BuildProgress:
    """What a build is at, for when its time runs out."""

    at: str = ""


class Images:
    """Makes roots. One per process; those who ask for the same root wait for one build."""

    def __init__(self) -> None:
        self._roots: dict[_Key, asyncio.Task[Root]] = {}
        self._failures: dict[_Key, int] = {}

    async def root(self, task: Task, environment: TaskEnvironment | None = None) -> Root:
        """The root of a task, or of one of its environments; ImageError says which step failed and how."""
        wanted = environment or task.environment
        key = (task.digest, wanted.image, wanted.folder, wanted.dockerfile, wanted.compose)
        making = self._roots.get(key)
        if making is None or self._may_retry(key, making):
            making = asyncio.get_running_loop().create_task(self._in_time(wanted))
            self._roots[key] = making
        return making.result() if making.done() else await asyncio.shield(making)

    async def close(self) -> None:
        """End builds that are still going on."""
        for making in self._roots.values():
            making.cancel()
        await asyncio.gather(*self._roots.values(), return_exceptions=True)
        self._roots.clear()

    async def _in_time(self, wanted: TaskEnvironment) -> Root:
        progress = BuildProgress()
        try:
            async with asyncio.timeout(wanted.build_timeout_s):
                return await self._make(wanted, progress)
        except TimeoutError:
            at = f", at {progress.at}" if progress.at else ""
            msg = f"the image was not built within {wanted.build_timeout_s:g} s (build_timeout_sec){at}"
            raise ImageError(msg) from None

    async def _make(self, wanted: TaskEnvironment, progress: BuildProgress) -> Root:
        raise NotImplementedError

    def _may_retry(self, key: _Key, making: asyncio.Task[Root]) -> bool:
        """A build that failed may do better once more; what is wrong in a task stays wrong."""
        if not making.done() or making.cancelled():
            return making.done()
        error = making.exception()
        if error is None or isinstance(error, TaskError) or is_lasting(error):
            return False
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key] < _TRIES


class SettingsOnly(Images):
    """For sandboxes that have no file system of their own: how commands run is all there is."""

    async def _make(self, wanted: TaskEnvironment, progress: BuildProgress) -> Root:
        from proctor.sandbox.image.recipe import plan
        from proctor.sandbox.image.references import HOST
        from proctor.sandbox.image.stages import UnsupportedError, stages_of

        del progress
        if not wanted.dockerfile or wanted.compose:
            return Root()
        try:
            stages = stages_of(wanted.dockerfile)
            settings = plan(stages, stages.target(), HOST).settings
        except UnsupportedError:
            settings = HOST
        return Root(env=settings.env, workdir=settings.workdir, user=settings.user)
