"""From a task to the root of its sandboxes: made once per content, and found quickly after that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from proctor.errors import ImageError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Backend, Root, RootOptions
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image.build import Build
from proctor.sandbox.image.definition import definition_of
from proctor.sandbox.image.layered import LayeredRoots
from proctor.sandbox.image.once import RootsOnce
from proctor.sandbox.image.recipe import plan
from proctor.sandbox.image.staged import HOST, stages_of
from proctor.sandbox.image.stages import UnsupportedError

Began = Callable[[Build], None]


class Images:
    """Makes roots for sandboxes that stack layers, or that have no file system of their own."""

    def __init__(self, cache_dir: Path, backend: Backend, options: RootOptions | None = None) -> None:
        self._make_root = _maker(cache_dir, backend, options or RootOptions())
        once = RootsOnce(self._make)
        self.root, self.close = once.root, once.close

    async def _make(self, wanted: TaskEnvironment) -> Root:
        builds: list[Build] = []
        try:
            async with asyncio.timeout(wanted.build_timeout_s):
                return await self._make_root(wanted, builds.append)
        except TimeoutError:
            at = f", at {builds[0].doing}" if builds else ""
            msg = f"the image was not built within {wanted.build_timeout_s:g} s (build_timeout_sec){at}"
            raise ImageError(msg) from None


def _maker(
    cache_dir: Path, backend: Backend, options: RootOptions
) -> Callable[[TaskEnvironment, Began], Awaitable[Root]]:
    if isinstance(backend, Bubblewrap):
        return LayeredRoots(cache_dir, backend, options).root
    return _settings_only


async def _settings_only(wanted: TaskEnvironment, began: Began) -> Root:
    """For sandboxes that have no file system of their own."""
    del began
    if not wanted.dockerfile or wanted.compose:
        return Root()
    try:
        stages = stages_of(definition_of(wanted))
        settings = plan(stages, stages.target(), HOST).settings
    except UnsupportedError:
        settings = HOST
    return Root(env=settings.env, workdir=settings.workdir, user=settings.user)
