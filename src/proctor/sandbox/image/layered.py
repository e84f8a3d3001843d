"""Roots as stacks of layers: an image that is here, or the host's own system, with a Dockerfile on top."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from proctor.errors import ImageError, SandboxError, TaskError
from proctor.model.task import TaskEnvironment
from proctor.sandbox import state
from proctor.sandbox.base import Network, Root
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image import engines
from proctor.sandbox.image.build import Base, Build
from proctor.sandbox.image.collect_garbage import collect_garbage
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.dockerfile import parse
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.oci import bring
from proctor.sandbox.image.recipe import Settings, UnsupportedError, base_of, plan
from proctor.sandbox.image.references import Image, References, read_json, write_json
from proctor.sandbox.init.served import PATH

HOST = Settings(env={"PATH": PATH})
_HOST_STATE = ("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed", "/usr/bin", "/usr/local/bin")
_COLLECT_EVERY_S = 86_400.0


class LayeredRoots:
    """Makes roots for bubblewrap."""

    def __init__(self, cache_dir: Path, backend: Bubblewrap) -> None:
        self.folder = cache_dir.absolute()
        self.references = References(self.folder / "references")
        self.store = LayerStore(self.folder, backend)
        self._backend = backend

    async def root(self, wanted: TaskEnvironment, began: Callable[[Build], None]) -> Root:
        """The root of an environment; `began` is told of a build, so that one can ask what it is at."""
        if wanted.compose:
            raise ImageError(
                f"{wanted.compose}: several containers need podman or docker; choose one of them as sandbox"
            )
        await self.store.open()
        if wanted.image:
            image = await self.image(wanted.image)
            if image:
                return self._root_of(self._image_base(image), (), image.settings)
            if not wanted.dockerfile:
                raise ImageError(_missing(wanted.image))
        if wanted.dockerfile:
            return await self._from_dockerfile(wanted.dockerfile, wanted.folder, began)
        return Root(host=True, env=HOST.env, digest=host_fingerprint())

    async def image(self, reference: str) -> Image | None:
        """An image as unpacked layers: brought earlier, or now from the storage of podman or docker."""
        image = self._here(reference)
        if image and image.source == "archive":
            return image
        for engine in engines.installed():
            stamp = engines.stamp(engine)
            if image and image.source == engine.name and stamp is not None and stamp == image.stamp:
                return image
            if stamp == "" or self._misses(engine).get(reference) == (stamp or "?"):
                continue
            found = await engines.image_id(engine, reference)
            if found is None:
                self._note_miss(engine, reference, stamp)
            elif image and image.id == found:
                self.references.put(replace(image, stamp=stamp or ""))
                return image
            else:
                return await self._bring(engine, reference, found, stamp or "")
        return image

    def _here(self, reference: str) -> Image | None:
        image = self.references.find(reference)
        return image if image and all(self.store.find(each) for each in image.layers) else None

    async def _bring(self, engine: engines.Engine, reference: str, known_id: str, stamp: str) -> Image:
        with self.store.scratch() as scratch:
            file = scratch / "image.tar"
            await engines.save(engine, reference, file)
            images = await bring(
                self.store,
                self.references,
                file,
                name=reference,
                source=engine.name,
                stamp=stamp,
                known_id=known_id,
            )
        return images[0]

    def _misses(self, engine: engines.Engine) -> dict[str, str]:
        return {str(key): str(value) for key, value in read_json(self._miss_file(engine)).items()}

    def _note_miss(self, engine: engines.Engine, reference: str, stamp: str | None) -> None:
        if stamp is not None:
            write_json(self._miss_file(engine), {**self._misses(engine), reference: stamp})

    def _miss_file(self, engine: engines.Engine) -> Path:
        return self.folder / f"missing-in-{engine.name}.json"

    async def _from_dockerfile(self, file: Path, folder: Path | None, began: Callable[[Build], None]) -> Root:
        where = str(file)
        context = Context(folder or file.parent, file)
        try:
            data = file.read_bytes()
        except OSError as error:
            raise TaskError(f"{file}: {error.strerror}") from error
        try:
            instructions = parse(data, where)
            base = await self._base(base_of(instructions, where))
            recipe = plan(instructions, base.settings, where)
        except UnsupportedError as error:
            return await self._delegated(error, file, context)
        remembered = _Remembered(self.folder, file, base, context, self.store)
        names = remembered.names()
        if names is None:
            build = Build(self._backend, self.store, context, where, network=network_for_builds())
            began(build)
            names = await build.layers(recipe, base)
            remembered.write(names)
            await self._collect_sometimes()
        return self._root_of(base, names, recipe.settings)

    async def _delegated(self, problem: UnsupportedError, file: Path, context: Context) -> Root:
        """Let an engine build what our builder cannot."""
        available = engines.installed()
        if not available:
            raise ImageError(
                f"{file}:{problem.line}: {problem.what} is more than Proctor's own builder can do; it needs "
                f"podman or docker, and neither is here"
            )
        tag = f"localhost/proctor-{context.content_digest(file)[:24]}:latest"
        image = self._here(tag)
        if image is None:
            await engines.build(available[0], context.folder, file, tag)
            image = await self.image(tag)
            await engines.remove(available[0], tag)  # its layers are ours now
        if image is None:
            raise ImageError(f"{file}: {available[0].name} built it, but does not have it")
        return self._root_of(self._image_base(image), (), image.settings)

    async def _base(self, reference: str) -> Base:
        if reference == "scratch":
            layer = await self.store.obtain("scratch", self._make_empty)
            return Base(key="scratch", layers=(layer,), wanted=reference)
        if image := await self.image(reference):
            return self._image_base(image)
        return Base(key=host_fingerprint(), host=True, settings=HOST, wanted=reference)

    async def _make_empty(self, target: Path) -> None:
        await state.make_folders(await self.store.keeper(), target)

    def _image_base(self, image: Image) -> Base:
        layers = tuple(self.store.layers / each for each in image.layers)
        return Base(key=image.id, layers=layers, settings=image.settings, wanted=image.reference)

    def _root_of(self, base: Base, names: tuple[str, ...], settings: Settings) -> Root:
        described = json.dumps([base.key, names, asdict(settings)], sort_keys=True)
        return Root(
            layers=(*base.layers, *(self.store.layers / each for each in names)),
            host=base.host,
            env=settings.env,
            workdir=settings.workdir,
            user=settings.user,
            digest=hashlib.sha256(described.encode()).hexdigest(),
        )

    async def _collect_sometimes(self) -> None:
        """Once a day, after a build: whoever builds nothing has nothing to collect."""
        mark = self.folder / "collected"
        now = time.time()
        with suppress(OSError, SandboxError):
            if not mark.exists() or now - mark.stat().st_mtime > _COLLECT_EVERY_S:
                mark.touch()
                await collect_garbage(self.store, self.references, now=now)


class _Remembered:
    """Which layers a Dockerfile gave, for as long as no file of its context changes."""

    def __init__(self, folder: Path, file: Path, base: Base, context: Context, store: LayerStore) -> None:
        name = hashlib.sha256(f"{file}\0{context.folder}\0{base.key}".encode()).hexdigest()[:32]
        self._file = folder / "builds" / f"{name}.json"
        self._seen = f"{file.stat().st_mtime_ns} {context.fingerprint()}"
        self._store = store

    def names(self) -> tuple[str, ...] | None:
        value = read_json(self._file)
        names = value.get("layers")
        if value.get("seen") != self._seen or not isinstance(names, list):
            return None
        return tuple(names) if all(self._store.find(str(each)) for each in names) else None

    def write(self, names: tuple[str, ...]) -> None:
        write_json(self._file, {"seen": self._seen, "layers": names})


def _missing(reference: str) -> str:
    return (
        f"the image {reference} is not on this machine, and there is no Dockerfile to build it from: save it "
        f"where it is (podman save --format docker-archive -o FILE {reference}) and bring it with "
        f"`proctor images import FILE`"
    )


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


@cache
def network_for_builds() -> Network:
    """Builds may fetch what they need, where that is possible at all."""
    possible = shutil.which("slirp4netns") and os.access("/dev/net/tun", os.R_OK | os.W_OK)
    return "public" if possible else "none"
