"""From a task to the root of its sandboxes: made once per content, found in no time after that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from proctor.errors import ImageError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Backend, Root
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image.build import Build
from proctor.sandbox.image.dockerfile import parse
from proctor.sandbox.image.layered import HOST, LayeredRoots
from proctor.sandbox.image.once import RootsOnce
from proctor.sandbox.image.recipe import UnsupportedError, plan

Began = Callable[[Build], None]


class Images:
    """Makes roots for sandboxes that stack layers, or that have no file system of their own."""

    def __init__(self, cache_dir: Path, backend: Backend) -> None:
        self._make_root = _maker(cache_dir, backend)
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
