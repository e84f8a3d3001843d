"""Our own builder: a recipe's groups of steps, each done in a sandbox and kept as a layer.

Every path of the image is looked up by the sandbox itself, so neither a link in an image nor one in the
context can make a step write or read elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import tarfile
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from proctor.errors import ImageError, SandboxError
from proctor.sandbox.base import Backend, Limits, Network, Root, Sandbox, SandboxRequest
from proctor.sandbox.image.context import Context, Selected, digest, stage
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.recipe import Copy, Group, MakeFolder, Recipe, Run, Settings

_FORMAT = "proctor-layer-1"
_LAST_LINES = 20
_TAIL_BYTES = 1 << 16
_PIDS = 4096
_CHUNK = 200


@runtime_checkable
class MakesLayers(Protocol):
    """A sandbox whose changes can become a layer."""

    async def take_layer(self, target: Path) -> None:
        """Move all that changed to `target`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What a Dockerfile stands on."""

    key: str
    """Names its content; what is built over it is kept under names derived from this one."""
    layers: tuple[Path, ...] = ()
    host: bool = False
    settings: Settings = field(default_factory=Settings)
    wanted: str = ""
    """The image that the Dockerfile names; the host's system may stand in for it."""


class Build:
    """One build of one Dockerfile."""

    def __init__(
        self, backend: Backend, store: LayerStore, context: Context, where: str, *, network: Network
    ) -> None:
        self._backend = backend
        self._store = store
        self._context = context
        self._where = where
        self._network = network
        self.doing = "the build"
        """What it is at, for when time runs out."""

    async def layers(self, recipe: Recipe, base: Base) -> tuple[str, ...]:
        """The names of the layers over the base, lowest first; those without content are left out."""
        names: list[str] = []
        below, key = list(base.layers), base.key
        for group in recipe.groups:
            chosen = [self._select(step) for step in group.steps]
            key = _key(key, group, chosen)
            self.doing = self._place(group)

            async def make(target: Path, group: Group = group, chosen: list[list[Selected]] = chosen) -> None:
                root = Root(layers=tuple(below), host=base.host)
                await self._make(group, chosen, root, base, target)

            layer = await self._store.obtain(key, make)
            if _has_content(layer):
                below.append(layer)
                names.append(key)
        return tuple(names)

    def _select(self, step: MakeFolder | Copy) -> list[Selected]:
        if isinstance(step, MakeFolder):
            return []
        where = f"{self._where}:{step.line}: {step.text}"
        return [each for source in step.sources for each in self._context.select(source, where)]

    async def _make(
        self, group: Group, chosen: Sequence[list[Selected]], root: Root, base: Base, target: Path
    ) -> None:
        run = group.run
        root = Root(
            layers=root.layers,
            host=root.host,
            workdir=run.settings.workdir if run else "/",
            env=base.settings.env,
        )
        limits = Limits(pids=_PIDS, network=self._network if run else "none")
        sandbox = self._backend.sandbox(SandboxRequest(name=f"build-{os.getpid()}", root=root, limits=limits))
        await sandbox.start()
        try:
            assert isinstance(sandbox, MakesLayers)
            for step, selected in zip(group.steps, chosen, strict=True):
                self.doing = f"{self._where}:{step.line}"
                try:
                    if isinstance(step, Copy):
                        await self._copy(sandbox, step, selected)
                    elif not run or step.path != run.settings.workdir:
                        await _make_folder(sandbox, step.path)
                except ImageError:
                    raise
                except SandboxError as error:
                    said = step.text if isinstance(step, Copy) else f"WORKDIR {step.path}"
                    raise ImageError(f"{self._where}:{step.line}: {said}: {error}") from error
            if run:
                self.doing = f"{self._where}:{run.line}: {run.text}"
                await self._run(sandbox, run, base)
            await sandbox.take_layer(target)
        finally:
            await sandbox.stop()

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
            run.argv,
            env=settings.env,
            cwd=settings.workdir,
            user=settings.user,
            on_output=take,
            keep_bytes=0,
        )
        if result.exit_code:
            raise ImageError(self._explain(run, result.exit_code, b"".join(tail), base))

    def _explain(self, run: Run, code: int, output: bytes, base: Base) -> str:
        lines = [f"{self._where}:{run.line}: '{run.text}' ended with exit code {code}"]
        if base.host:
            lines.append(
                f"the image {base.wanted} is not on this machine, so this ran on the host's own read-only "
                f"system, without network unless slirp4netns is there: install what is missing on the host, "
                f"or bring the image with `proctor images import FILE`"
            )
        printable = output.decode(errors="replace")
        lines += [f"  | {line}" for line in printable.splitlines()[-_LAST_LINES:]]
        return "\n".join(lines)

    async def _copy(self, sandbox: Sandbox, step: Copy, selected: list[Selected]) -> None:
        archives = [each for each in selected if step.unpacks and _is_archive(each)]
        plain = [each for each in selected if each not in archives]
        target = step.target
        if not target.endswith("/") and target != "/" and await _is_folder(sandbox, target):
            target += "/"
        for each in archives:
            await self._unpack(sandbox, step, each, target)
        if not plain and not step.texts:
            if not archives:
                await _make_folder(sandbox, target)
            return
        into = self._single(step, plain, target)
        with self._store.scratch() as scratch:
            staged = scratch / "files"
            staged.mkdir(mode=0o755)
            stage(plain, staged)
            for text_name, text in step.texts:
                (staged / text_name).write_text(text)
                (staged / text_name).chmod(0o644)
            if into:
                only = plain[0].name if plain else step.texts[0][0]
                await sandbox.upload(staged / only, into)
            else:
                await sandbox.upload(staged, target)
        names = [each.name for each in plain] + [text_name for text_name, _ in step.texts]
        await self._change(
            sandbox, step, [into] if into else [posixpath.join(target, each) for each in names]
        )

    def _single(self, step: Copy, plain: list[Selected], target: str) -> str:
        """Where a single file goes; nothing when a folder's content is copied."""
        count = len(plain) + len(step.texts)
        folder_given = any(each.is_folder for each in plain) or any("/" in each.name for each in plain)
        if count != 1 or folder_given or self._stands_for_content(step):
            return ""
        name = plain[0].name if plain else step.texts[0][0]
        return posixpath.join(target, name) if target.endswith("/") or target == "/" else target

    def _stands_for_content(self, step: Copy) -> bool:
        """Whether a source is a folder, which stands for what is in it."""
        return any(self._context.is_folder(source) for source in step.sources)

    async def _unpack(self, sandbox: Sandbox, step: Copy, archive: Selected, target: str) -> None:
        await _make_folder(sandbox, target)
        place = f"/.proctor-{hashlib.sha256(archive.name.encode()).hexdigest()[:16]}"
        await sandbox.upload(archive.source, place)
        script = 'tar -x -f "$1" -C "$2"; code=$?; rm -f "$1"; exit $code'
        result = await sandbox.exec(["/bin/sh", "-c", script, "sh", place, target], cwd="/", user="root")
        if result.exit_code:
            said = result.stderr.decode(errors="replace").strip()[-500:]
            raise ImageError(f"{self._where}:{step.line}: {step.text}: cannot unpack {archive.name}: {said}")

    async def _change(self, sandbox: Sandbox, step: Copy, paths: Sequence[str]) -> None:
        """Owner and mode of what was copied, by the image's own programs: they know its users."""
        for program, argument in (("chown", step.chown), ("chmod", step.chmod)):
            for start in range(0, len(paths) if argument else 0, _CHUNK):
                argv = [program, *(["-h"] if program == "chown" else []), argument, "--"]
                result = await sandbox.exec([*argv, *paths[start : start + _CHUNK]], cwd="/", user="root")
                if result.exit_code:
                    said = result.stderr.decode(errors="replace").strip()[-500:]
                    raise ImageError(f"{self._where}:{step.line}: {step.text}: {program} failed: {said}")

    def _place(self, group: Group) -> str:
        step = group.run or group.steps[0]
        return f"{self._where}:{step.line}"


def _key(parent: str, group: Group, chosen: Sequence[Sequence[Selected]]) -> str:
    described = {
        "format": _FORMAT,
        "parent": parent,
        "steps": [
            {**_without_line(step), "content": digest(selected) if selected else ""}
            for step, selected in zip(group.steps, chosen, strict=True)
        ],
        "run": _without_line(group.run) if group.run else None,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _without_line(step: MakeFolder | Copy | Run) -> dict[str, object]:
    return {name: value for name, value in asdict(step).items() if name not in {"line", "text"}}


def _has_content(layer: Path) -> bool:
    try:
        with os.scandir(layer) as entries:
            return next(entries, None) is not None
    except PermissionError:
        return True


def _is_archive(each: Selected) -> bool:
    return (
        not each.is_folder and not each.is_link and "/" not in each.name and tarfile.is_tarfile(each.source)
    )


async def _is_folder(sandbox: Sandbox, path: str) -> bool:
    """Whether an image without a shell has a folder there cannot be known; then it is taken for a file."""
    result = await sandbox.exec(["/bin/sh", "-c", '[ -d "$1" ]', "sh", path], cwd="/", user="root")
    return result.exit_code == 0


async def _make_folder(sandbox: Sandbox, path: str) -> None:
    with tempfile.TemporaryDirectory(prefix="proctor-") as empty:
        Path(empty).chmod(0o755)
        await sandbox.upload(Path(empty), path)
