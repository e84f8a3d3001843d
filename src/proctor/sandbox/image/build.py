"""Our own builder: the stages of a Dockerfile, each group of steps done in a sandbox and kept as a layer.

Every path of an image is looked up with the image as root, so neither a link in an image nor one in the
context can make a step write or read elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from proctor.errors import ImageError, LastingImageError, SandboxError
from proctor.sandbox.base import Limits, Network, Root, Sandbox, SandboxRequest
from proctor.sandbox.image import grafting
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.copying import Files, Gathered, Mounted, Origins, make_folder
from proctor.sandbox.image.definition import Definition
from proctor.sandbox.image.images import BuildProgress
from proctor.sandbox.image.recipe import Copy, Group, MakeFolder, Recipe, Run, plan
from proctor.sandbox.image.references import HOST, Settings
from proctor.sandbox.image.sharing import Chain
from proctor.sandbox.image.stages import Origin, stages_of

if TYPE_CHECKING:
    from proctor.sandbox.image.layered import Base, LayeredImages

_FORMAT = "proctor-layer-2"
_LAST_LINES = 20
_TAIL_BYTES = 1 << 16
_PRIVATE = " (builds reach the internet only; the setting network_allow opens a private package mirror)"
_UNREACHED = re.compile(rb"No route to host|Network is unreachable", re.IGNORECASE)
_PIDS = 4096
_SCRIPT = "/dev/shm/proctor-run"  # noqa: S108 - the one inside, which is not part of the layer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """Everything from outside that a group uses."""

    steps: Sequence[Gathered]
    mounts: Sequence[Mounted]


class Build:
    """The build of one Dockerfile. Making one plans it; UnsupportedError when our builder cannot do it."""

    def __init__(
        self,
        images: LayeredImages,
        asked: Definition,
        context: Context,
        progress: BuildProgress,
        *,
        network: Network,
    ) -> None:
        self._progress = progress
        self._network = network
        self._images = images
        self._where = str(asked.dockerfile)
        assert asked.dockerfile is not None
        self._stages = stages_of(asked.dockerfile, asked.arguments)
        self._last = self._stages.target(asked.target)
        self._bases: dict[str, Base] = {}
        self._recipes: dict[int, Recipe] = {}
        self._made: dict[int, Root] = {}
        self._backend, self._store = images.backend, images.store
        origins = Origins(images.backend, self._root_of)
        self._origins = origins
        self._files = Files(images.store, context, origins, self._where, images.options.network_allow)
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
    def reference(self) -> str:
        """The image under the wanted stage, as the Dockerfile names it."""
        return self._stages.base(self._last)

    @property
    def base(self) -> Base:
        """What the wanted stage begins with."""
        return self._base_of(self._last)

    @property
    def settings(self) -> Settings:
        """How commands run in the result."""
        return self._recipes[self._last].settings

    @property
    def keys(self) -> dict[str, str]:
        """Every outside image with what names its content."""
        return {reference: base.key for reference, base in self._bases.items()}

    async def layers(self) -> tuple[str, ...]:
        """The names of the layers of the wanted stage, made now as far as they are not there."""
        try:
            for index in self._stages.needed(self._last):
                base = self._base_of(index)
                names = await self._stage_layers(self._recipes[index], base)
                layers = (*base.layers, *(self._store.layers / each for each in names))
                self._made[index] = Root(layers=layers, host=base.host)
        finally:
            await self._origins.close()
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
            self._bases[reference] = await self._images.base(reference)

    async def _stage_layers(self, recipe: Recipe, base: Base) -> tuple[str, ...]:
        """The names of the layers over the base, lowest first; those without content are left out."""
        names: list[str] = []
        below, key = list(base.layers), base.key
        chain = Chain(self._store, self._images.exchange, base.key, pure=not base.host)
        for group in recipe.groups:
            self._progress.at = f"{self._where}:{(group.run or group.steps[0]).line}"
            with contextlib.ExitStack() as kept:
                material = await self._gathered(group, kept)
                key = _key(key, group, material)
                root = Root(layers=tuple(below), host=base.host)

                async def make(
                    target: Path, group: Group = group, material: _Material = material, root: Root = root
                ) -> None:
                    await self._make(group, material, root, base, target)

                if any(each.mount.kind == "cache" for each in material.mounts):
                    chain.stop()
                layer = await chain.obtain(key, make)
            if _has_content(layer):
                below.append(layer)
                names.append(key)
        return tuple(names)

    async def _gathered(self, group: Group, kept: contextlib.ExitStack) -> _Material:
        steps = [await self._files.gather(step, kept) for step in group.steps]
        wanted = group.run.mounts if group.run else ()
        where = f"{self._where}:{group.run.line}: {group.run.text}" if group.run else ""
        return _Material(steps=steps, mounts=[await self._files.gather_mount(each, where) for each in wanted])

    async def _make(self, group: Group, material: _Material, root: Root, base: Base, target: Path) -> None:
        run = group.run
        async with self._files.mounts_ready(material.mounts) as (binds, writable):
            root = Root(
                layers=root.layers,
                host=root.host,
                binds=binds,
                writable=writable,
                workdir=run.settings.workdir if run else "/",
                env=base.settings.env,
            )
            limits = Limits(pids=_PIDS, network=self._network if run and not run.offline else "none")
            request = SandboxRequest(name=f"build-{os.getpid()}", root=root, limits=limits)
            sandbox = self._backend.sandbox(request)
            await sandbox.start()
            try:
                await self._prepare(sandbox, group, material)
                if run:
                    self._progress.at = f"{self._where}:{run.line}: {run.text}"
                    await self._run(sandbox, run, base)
                await sandbox.take_layer(target)
            finally:
                await sandbox.stop()
        if material.mounts and run:
            kept = [
                run.settings.workdir,
                *(each.path for each in group.steps if isinstance(each, MakeFolder)),
            ]
            places = [each.mount.target for each in material.mounts]
            await grafting.prune(await self._store.keeper(), target, places, keep=kept)

    async def _prepare(self, sandbox: Sandbox, group: Group, material: _Material) -> None:
        """The steps before a RUN."""
        for step, gathered in zip(group.steps, material.steps, strict=True):
            self._progress.at = f"{self._where}:{step.line}"
            said = step.text if isinstance(step, Copy) else f"WORKDIR {step.path}"
            try:
                if isinstance(step, Copy):
                    await self._files.copy(sandbox, step, gathered)
                elif not group.run or step.path != group.run.settings.workdir:
                    await make_folder(sandbox, step.path)
            except SandboxError as error:
                if str(error).startswith(f"{self._where}:"):
                    raise
                raise ImageError(f"{self._where}:{step.line}: {said}: {error}") from error

    async def _run(self, sandbox: Sandbox, run: Run, base: Base) -> None:
        tail: deque[bytes] = deque()
        size = 0

        def take(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            nonlocal size
            del stream
            tail.append(data)
            size += len(data)
            while size > _TAIL_BYTES and len(tail) > 1:
                size -= len(tail.popleft())

        settings = run.settings
        result = await sandbox.exec(
            [*(await self._script(sandbox, run)), *run.argv],
            env=settings.env,
            cwd=settings.workdir,
            user=settings.user,
            on_output=take,
            keep_bytes=0,
        )
        if result.exit_code:
            raise ImageError(self._explain(run, result.exit_code, b"".join(tail), base))

    async def _script(self, sandbox: Sandbox, run: Run) -> list[str]:
        """The program that a RUN itself holds, where it can be executed."""
        if not run.script:
            return []
        with self._store.scratch() as scratch:
            file = scratch / "script"
            file.write_text(run.script)
            file.chmod(0o755)
            await sandbox.upload(file, _SCRIPT)
        return [_SCRIPT]

    def _explain(self, run: Run, code: int, output: bytes, base: Base) -> str:
        private = "" if not _UNREACHED.search(output) else _PRIVATE
        lines = [f"{self._where}:{run.line}: '{run.text}' ended with exit code {code}{private}"]
        if base.host:
            lines.append(
                f"with host root this ran on this machine's own read-only system in place of {base.wanted}: "
                f"install what is missing on this machine, or run without host root"
            )
        printable = output.decode(errors="replace")
        lines += [f"  | {line}" for line in printable.splitlines()[-_LAST_LINES:]]
        return "\n".join(lines)


def _key(parent: str, group: Group, material: _Material) -> str:
    described = {
        "format": _FORMAT,
        "parent": parent,
        "steps": [
            {**_without_line(step), "content": gathered.digest}
            for step, gathered in zip(group.steps, material.steps, strict=True)
        ],
        "run": _without_line(group.run) if group.run else None,
        "mounts": [each.digest for each in material.mounts],
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _without_line(step: MakeFolder | Copy | Run) -> dict[str, object]:
    """What a step is, without where it is written; the content of what it takes is known by itself."""
    left_out = {"line", "text", "origin"}
    found = {name: value for name, value in asdict(step).items() if name not in left_out}
    if isinstance(step, Run):
        found["mounts"] = [{**asdict(each), "origin": None} for each in step.mounts]
    return found


def _has_content(layer: Path) -> bool:
    try:
        with os.scandir(layer) as entries:
            return next(entries, None) is not None
    except PermissionError:
        return True
