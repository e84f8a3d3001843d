"""Roots as stacks of layers: an image, or on request the host's own system, with a Dockerfile on top."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from proctor.errors import ImageError, LastingImageError, SandboxError, TaskError, UsageError
from proctor.model.task import TaskEnvironment
from proctor.sandbox import slirp, state
from proctor.sandbox.base import Network, Root, RootOptions, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image import engines
from proctor.sandbox.image.build import Base, Build
from proctor.sandbox.image.collect_garbage import collect_garbage
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.copying import make_folder
from proctor.sandbox.image.definition import Definition, definition_of
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.oci import import_image
from proctor.sandbox.image.recipe import Settings
from proctor.sandbox.image.references import Image, References, read_json, write_json
from proctor.sandbox.image.registry.access import Access, access_of
from proctor.sandbox.image.staged import HOST, StagedBuild, host_fingerprint
from proctor.sandbox.image.stages import SCRATCH, UnsupportedError
from proctor.settings import load_settings

_COLLECT_EVERY_S = 86_400.0
_REMEMBER_REFUSAL_S = 60.0
_OTHER_WAYS = (
    "import it from a file with `proctor images import FILE`, or use this machine's own system with "
    "--host-root"
)


class LayeredRoots:
    """Makes roots for bubblewrap."""

    def __init__(self, cache_dir: Path, backend: Bubblewrap, options: RootOptions | None = None) -> None:
        self.folder = cache_dir.absolute()
        self.references = References(self.folder / "references")
        self.store = LayerStore(self.folder, backend)
        self.backend = backend
        self.options = options or RootOptions()
        self.access: Access | None = None
        """How registries are asked; None: as the settings say."""
        self._pulling: dict[str, asyncio.Lock] = {}
        self._refused: dict[str, tuple[float, ImageError | None]] = {}

    async def root(self, wanted: TaskEnvironment, began: Callable[[Build], None]) -> Root:
        """The root of an environment; `began` is called with a build that starts."""
        asked = definition_of(wanted)
        await self.store.open()
        return asked.dressed(await self._with_folders(await self._made(asked, began), asked))

    async def _with_folders(self, root: Root, asked: Definition) -> Root:
        """A root that has the folders that are asked for."""
        if not asked.folders:
            return root
        described = json.dumps([root.digest, asked.folders]).encode()
        key = hashlib.sha256(described).hexdigest()

        async def make(target: Path) -> None:
            plain = Root(layers=root.layers, host=root.host)
            sandbox = self.backend.sandbox(SandboxRequest(name="folders", root=plain))
            await sandbox.start()
            try:
                for path in asked.folders:
                    await make_folder(sandbox, path)
                await sandbox.take_layer(target)
            finally:
                await sandbox.stop()

        layer = await self.store.obtain(key, make)
        return replace(root, layers=(*root.layers, layer), digest=key)

    async def _made(self, asked: Definition, began: Callable[[Build], None]) -> Root:
        if self.options.host_root:
            if asked.dockerfile:
                return await self._from_dockerfile(asked, began)
            return Root(host=True, env=HOST.env, digest=host_fingerprint())
        if asked.image:
            try:
                image = await self.image(asked.image)
            except ImageError:
                if not asked.dockerfile:
                    raise
            else:
                return self._root_of(self._image_base(image), (), image.settings)
        if asked.dockerfile:
            return await self._from_dockerfile(asked, began)
        raise LastingImageError(
            f"{asked.where}: there is no Dockerfile, no compose file and no docker_image; add one, or run "
            f"with --host-root to use this machine's own system"
        )

    async def image(self, reference: str) -> Image:
        """An image as unpacked layers: from here, else from podman or docker, else from its registry.

        ImageError says why it is not available, TaskError that it is not the name of an image.
        """
        return await self.image_here(reference) or await self._pulled(reference)

    async def image_here(self, reference: str) -> Image | None:
        """An image of this machine: pulled or imported earlier, or in the storage of podman or docker."""
        image = self._here(reference)
        if image and image.source in {"archive", "registry"}:
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
                return await self._import(engine, reference, found, stamp or "")
        return image

    def _here(self, reference: str) -> Image | None:
        image = self.references.find(reference)
        return image if image and all(self.store.find(each) for each in image.layers) else None

    async def _import(self, engine: engines.Engine, reference: str, known_id: str, stamp: str) -> Image:
        with self.store.scratch() as scratch:
            file = scratch / "image.tar"
            await engines.save(engine, reference, file)
            images = await import_image(
                self.store,
                self.references,
                file,
                name=reference,
                source=engine.name,
                stamp=stamp,
                known_id=known_id,
            )
        return images[0]

    async def _pulled(self, reference: str) -> Image:
        """Pull an image, once for all who want it; those who ask soon after a failure get the same error."""
        async with self._pulling.setdefault(reference, asyncio.Lock()):
            if image := self._here(reference):
                return image
            when, refusal = self._refused.get(reference, (-_REMEMBER_REFUSAL_S, None))
            if refusal and time.monotonic() - when < _REMEMBER_REFUSAL_S:
                raise ImageError(f"{refusal}; {_OTHER_WAYS}") from refusal
            try:
                return await self._pull(reference)
            except ImageError as error:
                self._refused[reference] = (time.monotonic(), error)
                raise ImageError(f"{error}; {_OTHER_WAYS}") from error
            except TaskError:
                raise
            except UsageError as error:
                raise TaskError(str(error)) from error

    async def _pull(self, reference: str) -> Image:
        try:
            from proctor.sandbox.image.registry.client import Client
            from proctor.sandbox.image.registry.pull import pull
        except ImportError as error:
            raise ImageError(f"{reference} cannot be pulled: {error}; reinstall proctor-bench") from error
        async with Client(self.access or access_of(load_settings())) as client:
            return (await pull(client, self.store, self.references, reference)).image

    def _misses(self, engine: engines.Engine) -> dict[str, str]:
        return {str(key): str(value) for key, value in read_json(self._miss_file(engine)).items()}

    def _note_miss(self, engine: engines.Engine, reference: str, stamp: str | None) -> None:
        if stamp is not None:
            write_json(self._miss_file(engine), {**self._misses(engine), reference: stamp})

    def _miss_file(self, engine: engines.Engine) -> Path:
        return self.folder / f"missing-in-{engine.name}.json"

    async def _from_dockerfile(self, asked: Definition, began: Callable[[Build], None]) -> Root:
        assert asked.dockerfile is not None
        file, context = asked.dockerfile, Context(asked.folder or asked.dockerfile.parent, asked.dockerfile)
        try:
            build = StagedBuild(self, asked, context)
            await build.find_bases()
        except UnsupportedError as error:
            if self.options.host_root:
                raise LastingImageError(
                    f"{file}:{error.line}: {error.what} cannot be built with host root"
                ) from None
            return await self._delegated(error, asked, context)
        remembered = _Remembered(self.folder, asked, build, context, self.store)
        names = remembered.names()
        if names is None:
            names = await build.layers(began, network=network_for_builds())
            remembered.write(names)
            await self._collect_sometimes()
        return self._root_of(build.base, names, build.settings)

    async def _delegated(self, problem: UnsupportedError, asked: Definition, context: Context) -> Root:
        """Let an engine build what our builder cannot."""
        file = asked.dockerfile
        assert file is not None
        available = engines.installed()
        if not available:
            raise LastingImageError(
                f"{file}:{problem.line}: {problem.what} is more than Proctor's own builder can do; it needs "
                f"podman or docker, and neither is installed"
            )
        described = json.dumps([context.content_digest(file), asked.target, sorted(asked.arguments.items())])
        tag = f"localhost/proctor-{hashlib.sha256(described.encode()).hexdigest()[:24]}:latest"
        image = self._here(tag)
        if image is None:
            await engines.build(
                available[0], context.folder, file, tag, target=asked.target, arguments=asked.arguments
            )
            image = await self.image_here(tag)
            await engines.remove(available[0], tag)  # its layers are ours now
        if image is None:
            raise ImageError(f"{file}: {available[0].name} built it, but does not have it")
        return self._root_of(self._image_base(image), (), image.settings)

    async def base(self, reference: str) -> Base:
        """What an image that a Dockerfile names is: unpacked layers, nothing at all, or the host's system."""
        if reference == SCRATCH:
            layer = await self.store.obtain(SCRATCH, self._make_empty)
            return Base(key=SCRATCH, layers=(layer,), wanted=reference)
        if self.options.host_root:
            return Base(key=host_fingerprint(), host=True, settings=HOST, wanted=reference)
        return self._image_base(await self.image(reference))

    async def _make_empty(self, target: Path) -> None:
        await state.make_folders(await self.store.keeper(), target)

    def _image_base(self, image: Image) -> Base:
        layers = tuple(self.store.layers / each for each in image.layers)
        return Base(
            key=image.id, layers=layers, settings=image.settings, wanted=image.reference, digest=image.pin
        )

    def _root_of(self, base: Base, names: tuple[str, ...], settings: Settings) -> Root:
        described = json.dumps([base.key, names, asdict(settings)], sort_keys=True)
        return Root(
            layers=(*base.layers, *(self.store.layers / each for each in names)),
            host=base.host,
            env=settings.env,
            workdir=settings.workdir,
            user=settings.user,
            entrypoint=settings.entrypoint,
            digest=hashlib.sha256(described.encode()).hexdigest(),
            image_name=base.wanted if base.digest else "",
            image_digest=base.digest,
        )

    async def _collect_sometimes(self) -> None:
        """Once a day, after a build: without builds there is nothing to collect."""
        mark = self.folder / "collected"
        now = time.time()
        with suppress(OSError, SandboxError):
            if not mark.exists() or now - mark.stat().st_mtime > _COLLECT_EVERY_S:
                mark.touch()
                await collect_garbage(self.store, self.references, now=now)


class _Remembered:
    """Which layers a Dockerfile gave, for as long as no file of its context changes."""

    def __init__(
        self, folder: Path, asked: Definition, build: StagedBuild, context: Context, store: LayerStore
    ) -> None:
        file = asked.dockerfile
        assert file is not None
        parts = [str(file), str(context.folder), asked.target, sorted(asked.arguments.items()), build.keys()]
        name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
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


@cache
def network_for_builds() -> Network:
    """Builds may fetch what they need, where that is possible at all."""
    return "none" if slirp.obstacle() else "public"
