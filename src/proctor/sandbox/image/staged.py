"""A Dockerfile's stages, built as far as the wanted one needs them, each once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.disk import read_small
from proctor.errors import LastingImageError, TaskError
from proctor.sandbox.base import Network, Root
from proctor.sandbox.image.build import Base, Build
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.copying import Copying, Origins
from proctor.sandbox.image.definition import Definition
from proctor.sandbox.image.dockerfile import MOST_BYTES, parse
from proctor.sandbox.image.mounting import Mounting
from proctor.sandbox.image.recipe import Recipe, Settings, plan
from proctor.sandbox.image.stages import Origin, Stages, read_stages
from proctor.sandbox.init.served import PATH

if TYPE_CHECKING:
    from proctor.sandbox.image.layered import LayeredRoots

HOST = Settings(env={"PATH": PATH})
_HOST_STATE = ("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed", "/usr/bin", "/usr/local/bin")


def stages_of(asked: Definition) -> Stages:
    """The stages of a Dockerfile; TaskError when it cannot be read."""
    file = asked.dockerfile
    assert file is not None
    try:
        data = read_small(file, MOST_BYTES)
    except OSError as error:
        raise TaskError(f"{file}: {error.strerror}") from error
    return read_stages(parse(data, str(file)), str(file), asked.arguments)


class StagedBuild:
    """The build of one Dockerfile. Making one plans it; UnsupportedError when our builder cannot do it."""

    def __init__(self, roots: LayeredRoots, asked: Definition, context: Context) -> None:
        self._roots = roots
        self._context = context
        self._where = str(asked.dockerfile)
        self._stages = stages_of(asked)
        self._last = self._stages.target(asked.target)
        self._bases: dict[str, Base] = {}
        self._recipes: dict[int, Recipe] = {}
        self._made: dict[int, Root] = {}
        for index in self._stages.needed(self._last):
            plan(self._stages, index, HOST)  # what cannot be built is reported before any image is requested

    async def find_bases(self) -> None:
        """Ask for every outside image, then plan with their settings."""
        for index in self._stages.needed(self._last):
            await self._base(self._stages.base(index))
        for reference in self._stages.bases(self._last):
            await self._base(reference)
        for index in self._stages.needed(self._last):
            self._recipes[index] = plan(self._stages, index, self._base_of(index).settings)

    @property
    def base(self) -> Base:
        """What the wanted stage begins with."""
        return self._base_of(self._last)

    @property
    def settings(self) -> Settings:
        """How commands run in the result."""
        return self._recipes[self._last].settings

    def keys(self) -> list[str]:
        """Names the content of every outside image."""
        return sorted(base.key for base in self._bases.values())

    async def layers(self, began: Callable[[Build], None], *, network: Network) -> tuple[str, ...]:
        """The names of the layers of the wanted stage, made now as far as they are not there."""
        roots = self._roots
        origins = Origins(roots.backend, self._root_of)
        copying = Copying(roots.store, self._context, origins, self._where, roots.options.network_allow)
        mounting = Mounting(roots.store, self._context, origins)
        build = Build(roots.backend, roots.store, copying, mounting, self._where, network=network)
        began(build)
        try:
            for index in self._stages.needed(self._last):
                names = await build.layers(self._recipes[index], self._base_of(index))
                base = self._base_of(index)
                layers = (*base.layers, *(roots.store.layers / each for each in names))
                self._made[index] = Root(layers=layers, host=base.host)
        finally:
            await origins.close()
        return names

    async def _root_of(self, origin: Origin) -> Root:
        if isinstance(origin, int):
            return self._made[origin]
        base = self._bases[origin]
        if base.host and not base.layers:
            raise LastingImageError(
                f"with host root there is no image {origin} to take files from; run without host root"
            )
        return Root(layers=base.layers, host=base.host)

    def _base_of(self, index: int) -> Base:
        return self._bases[self._stages.base(index)]

    async def _base(self, reference: str) -> None:
        if reference not in self._bases:
            self._bases[reference] = await self._roots.base(reference)


@cache
def host_fingerprint() -> str:
    """Names the host's system as far as builds can tell; other programs on it give another name."""
    seen = [os.uname().machine]
    for path in _HOST_STATE:
        with suppress(OSError):
            seen.append(f"{path} {Path(path).stat().st_mtime_ns}")
    with suppress(OSError):
        seen.append(Path("/etc/os-release").read_text())
    return "host-" + hashlib.sha256("\n".join(seen).encode()).hexdigest()
