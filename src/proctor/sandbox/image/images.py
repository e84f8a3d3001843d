"""From a task to the root of its sandboxes: made once per content, found in no time after that."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from dataclasses import asdict
from functools import cache
from pathlib import Path

from proctor.errors import ImageError, TaskError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Backend, Network, Root
from proctor.sandbox.bubblewrap import PATH, Bubblewrap
from proctor.sandbox.image.build import Base, Build
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.dockerfile import parse
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.recipe import Settings, UnsupportedError, base_of, plan
from proctor.sandbox.image.references import Image, References, read_json, write_json

_TRIES = 2
"""How often a failing build is tried in one process; after that its error is repeated."""
_HOST = Settings(env={"PATH": PATH})
_HOST_STATE = ("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed", "/usr/bin", "/usr/local/bin")


class Images:
    """Makes roots. One per process; those who ask for the same root wait for one build."""

    def __init__(self, cache_dir: Path, backend: Backend) -> None:
        self.folder = cache_dir.absolute()
        self.references = References(self.folder / "references")
        self._backend = backend
        self._store = LayerStore(self.folder, backend) if isinstance(backend, Bubblewrap) else None
        self._roots: dict[tuple[object, ...], asyncio.Task[Root]] = {}
        self._failures: dict[tuple[object, ...], int] = {}
        self._doing: dict[tuple[object, ...], Build] = {}

    async def root(self, task: Task, environment: TaskEnvironment | None = None) -> Root:
        """The root of a task, or of one of its environments; ImageError says which step failed and how."""
        wanted = environment or task.environment
        key = (task.digest, wanted.image, wanted.folder, wanted.dockerfile, wanted.compose)
        making = self._roots.get(key)
        if making is None or self._may_retry(key, making):
            making = asyncio.get_running_loop().create_task(self._make(wanted, key))
            self._roots[key] = making
        return await asyncio.shield(making)

    async def close(self) -> None:
        """End builds that are still going on."""
        for making in self._roots.values():
            making.cancel()
        await asyncio.gather(*self._roots.values(), return_exceptions=True)
        self._roots.clear()

    def _may_retry(self, key: tuple[object, ...], making: asyncio.Task[Root]) -> bool:
        if not making.done() or (not making.cancelled() and making.exception() is None):
            return False
        self._failures[key] = self._failures.get(key, 0) + 1
        return making.cancelled() or self._failures[key] < _TRIES

    async def _make(self, wanted: TaskEnvironment, key: tuple[object, ...]) -> Root:
        try:
            async with asyncio.timeout(wanted.build_timeout_s):
                return await self._resolve(wanted, key)
        except TimeoutError:
            at = f", at {self._doing[key].doing}" if key in self._doing else ""
            msg = f"the image was not built within {wanted.build_timeout_s:g} s (build_timeout_sec){at}"
            raise ImageError(msg) from None
        finally:
            self._doing.pop(key, None)

    async def _resolve(self, wanted: TaskEnvironment, key: tuple[object, ...]) -> Root:
        if self._store is None:
            return _settings_only(wanted)
        if wanted.compose:
            raise ImageError(
                f"{wanted.compose}: several containers need podman or docker; choose one of them as sandbox"
            )
        await self._store.open()
        if wanted.image:
            image = await self._image(wanted.image)
            if image or not wanted.dockerfile:
                return self._root_of(self._base(wanted.image, image, host=False), (), None)
        if wanted.dockerfile:
            return await self._from_dockerfile(wanted.dockerfile, wanted.folder, key)
        return Root(host=True, env=_HOST.env, digest=host_fingerprint())

    async def _image(self, reference: str) -> Image | None:
        """An image of that name whose layers are here."""
        assert self._store is not None
        image = self.references.find(reference)
        return image if image and all(self._store.find(each) for each in image.layers) else None

    def _base(self, reference: str, image: Image | None, *, host: bool = True) -> Base:
        assert self._store is not None
        if image:
            layers = tuple(self._store.layers / each for each in image.layers)
            return Base(key=image.id, layers=layers, settings=image.settings, wanted=reference)
        if not host:
            raise ImageError(
                f"the image {reference} is not on this machine, and there is no Dockerfile to build it from: "
                f"save it where it is (podman save --format docker-archive -o FILE {reference}) and bring it "
                f"with `proctor images import FILE`"
            )
        return Base(key=host_fingerprint(), host=True, settings=_HOST, wanted=reference)

    async def _from_dockerfile(self, file: Path, folder: Path | None, key: tuple[object, ...]) -> Root:
        assert self._store is not None
        instructions = parse(_read(file), str(file))
        base = await self._base_for(base_of(instructions, str(file)))
        context = Context(folder or file.parent, file)
        build = Build(self._backend, self._store, context, str(file), network=network_for_builds())
        self._doing[key] = build
        remembered = self._remembered(file, base, context)
        try:
            recipe = plan(instructions, base.settings, str(file))
        except UnsupportedError as error:
            raise ImageError(
                f"{file}:{error.line}: {error.what} needs podman or docker to build it; neither is here"
            ) from None
        names = remembered.names()
        if names is None:
            names = await build.layers(recipe, base)
            remembered.write(names)
        return self._root_of(base, names, recipe.settings)

    async def _base_for(self, reference: str) -> Base:
        assert self._store is not None
        if reference == "scratch":
            layer = await self._store.obtain("scratch", _make_empty)
            return Base(key="scratch", layers=(layer,), wanted=reference)
        return self._base(reference, await self._image(reference))

    def _remembered(self, file: Path, base: Base, context: Context) -> _Remembered:
        assert self._store is not None
        name = hashlib.sha256(f"{file}\0{context.folder}\0{base.key}".encode()).hexdigest()[:32]
        seen = f"{file.stat().st_mtime_ns} {context.fingerprint()}"
        return _Remembered(self.folder / "builds" / f"{name}.json", seen, self._store)

    def _root_of(self, base: Base, names: tuple[str, ...], settings: Settings | None) -> Root:
        assert self._store is not None
        settings = settings or base.settings
        layers = (*base.layers, *(self._store.layers / each for each in names))
        described = json.dumps([base.key, names, asdict(settings)], sort_keys=True)
        return Root(
            layers=layers,
            host=base.host,
            env=settings.env,
            workdir=settings.workdir,
            user=settings.user,
            digest=hashlib.sha256(described.encode()).hexdigest(),
        )


class _Remembered:
    """Which layers a Dockerfile gave, for as long as no file of its context changes."""

    def __init__(self, file: Path, seen: str, store: LayerStore) -> None:
        self._file = file
        self._seen = seen
        self._store = store

    def names(self) -> tuple[str, ...] | None:
        value = read_json(self._file)
        names = value.get("layers")
        if value.get("seen") != self._seen or not isinstance(names, list):
            return None
        return tuple(names) if all(self._store.find(str(each)) for each in names) else None

    def write(self, names: tuple[str, ...]) -> None:
        write_json(self._file, {"seen": self._seen, "layers": names})


def _settings_only(wanted: TaskEnvironment) -> Root:
    """For sandboxes that have no file system of their own."""
    if not wanted.dockerfile:
        return Root(host=True)
    where = str(wanted.dockerfile)
    try:
        settings = plan(parse(_read(wanted.dockerfile), where), _HOST, where).settings
    except UnsupportedError:
        settings = _HOST
    return Root(host=True, env=settings.env, workdir=settings.workdir, user=settings.user)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TaskError(f"{file}: {error.strerror}") from error


async def _make_empty(target: Path) -> None:
    target.mkdir(mode=0o755)


@cache
def host_fingerprint() -> str:
    """Names the host's system as far as builds can tell; other programs on it give another name."""
    seen = [os.uname().machine]
    for path in _HOST_STATE:
        try:
            seen.append(f"{path} {Path(path).stat().st_mtime_ns}")
        except OSError:
            continue
    try:
        seen.append(Path("/etc/os-release").read_text())
    except OSError:
        seen.append("")
    return "host-" + hashlib.sha256("\n".join(seen).encode()).hexdigest()


@cache
def network_for_builds() -> Network:
    """Builds may fetch what they need, where that is possible at all."""
    possible = shutil.which("slirp4netns") and os.access("/dev/net/tun", os.R_OK | os.W_OK)
    return "public" if possible else "none"
