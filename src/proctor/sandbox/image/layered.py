"""Roots as stacks of layers: an image, or on request the host's own system, with a Dockerfile on top."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import ImageError, LastingImageError, SandboxError, TaskError, UsageError
from proctor.model.task import HOST_ROOT, TaskEnvironment
from proctor.sandbox import network, state
from proctor.sandbox.base import Network, Root, RootOptions, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.definition import Definition, definition_of
from proctor.sandbox.image.images import BuildProgress, Images
from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.references import (
    HOST,
    SCRATCH,
    Image,
    References,
    Settings,
    parse,
    read_json,
    settings_from,
    write_json,
)
from proctor.settings import load_settings

if TYPE_CHECKING:
    from proctor.sandbox.container.engine import Engine
    from proctor.sandbox.image.registry.access import Access
    from proctor.sandbox.image.stages import UnsupportedError

_HOST_STATE = ("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed", "/usr/bin", "/usr/local/bin")
_FORMAT = "build-2"
"""Changes with what a Dockerfile means to our builder: what was remembered before is not used then."""
_COLLECT_EVERY_S = 86_400.0
_REMEMBER_REFUSAL_S = 60.0
_OTHER_WAYS = f"import it from a file with `proctor images import FILE`, or use {HOST_ROOT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What a stage of a Dockerfile begins with."""

    key: str
    """Names its content; what is built over it is kept under names derived from this one."""
    layers: tuple[Path, ...] = ()
    host: bool = False
    settings: Settings = field(default_factory=Settings)
    wanted: str = ""
    """The image that the Dockerfile names; with host root it is this machine's own system instead."""
    digest: str = ""
    """Of that image: what pins it in a record. Empty for host root and for `scratch`."""


class LayeredImages(Images):
    """Makes roots for bubblewrap."""

    def __init__(self, cache_dir: Path, backend: Bubblewrap, options: RootOptions | None = None) -> None:
        super().__init__()
        self.folder = cache_dir.absolute()
        self.references = References(self.folder / "references")
        self.store = LayerStore(self.folder, backend)
        self.backend = backend
        self.options = options or RootOptions()
        self.access: Access | None = None
        """How registries are asked; as the settings say from the first time on."""
        self.exchange = self.options.exchange
        self._pulling: dict[str, asyncio.Lock] = {}
        self._refused: dict[str, tuple[float, ImageError | None]] = {}

    async def _make(self, wanted: TaskEnvironment, progress: BuildProgress) -> Root:
        asked = definition_of(wanted)
        await self.store.open()
        return asked.dressed(await self._with_folders(await self._made(asked, progress), asked))

    async def _with_folders(self, root: Root, asked: Definition) -> Root:
        """A root that has the folders that are asked for."""
        if not asked.folders:
            return root
        from proctor.sandbox.image.copying import make_folder

        key = _digest([root.digest, asked.folders])

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

    async def _made(self, asked: Definition, progress: BuildProgress) -> Root:
        if self.options.host_root:
            if asked.dockerfile:
                return await self._from_dockerfile(asked, progress)
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
            return await self._from_dockerfile(asked, progress)
        raise LastingImageError(
            f"{asked.where}: there is no Dockerfile, no compose file and no docker_image; add one, or use "
            f"{HOST_ROOT}"
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
        if not self._shares_engines(reference):
            return None
        return await self._of_engines(reference, image)

    def _shares_engines(self, reference: str) -> bool:
        """Whether the storage of podman and docker is open: with which login they pull is not known here."""
        if self.options.project is None:
            return True
        with suppress(UsageError):
            named = parse(reference)
            return bool(self._access().grant(named.registry, named.repository))
        return False

    async def _of_engines(self, reference: str, image: Image | None) -> Image | None:
        from proctor.sandbox.image import engines

        for engine in engines.installed():
            stamp = engines.stamp(engine)
            if image and image.source == engine.name and stamp is not None and stamp == image.stamp:
                return image
            found = await engines.image_id(engine, reference) if stamp != "" else None
            if image and image.id == found:
                self.references.put(replace(image, stamp=stamp or ""))
                return image
            if found:
                return await self._import(engine, reference, found, stamp or "")
        return image

    def _here(self, reference: str) -> Image | None:
        image = self.references.find(reference)
        if image is None or not all(self.store.find(each) for each in image.layers):
            return None
        return image if not image.login or self._access().may_use(parse(reference), image.login) else None

    def _access(self) -> Access:
        from proctor.sandbox.image.registry.access import access_of

        if self.access is None:
            options = self.options
            self.access = access_of(load_settings(), options.project, options.network_allow)
        return self.access

    async def _import(self, engine: Engine, reference: str, known_id: str, stamp: str) -> Image:
        from proctor.sandbox.image import engines
        from proctor.sandbox.image.oci import import_image

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
        from proctor.sandbox.image.registry.client import Client
        from proctor.sandbox.image.registry.pull import pull

        async with Client(self._access()) as client:
            return (await pull(client, self.store, self.references, reference)).image

    async def _from_dockerfile(self, asked: Definition, progress: BuildProgress) -> Root:
        assert asked.dockerfile is not None
        file, context = asked.dockerfile, Context(asked.folder or asked.dockerfile.parent, asked.dockerfile)
        remembered = _Remembered(self.folder, asked, context, host_root=self.options.host_root)
        if root := await self._remembered_root(remembered):
            return root
        from proctor.sandbox.image.build import Build
        from proctor.sandbox.image.stages import UnsupportedError

        try:
            build = Build(self, asked, context, progress, network=network_for_builds())
            await build.find_bases()
        except UnsupportedError as error:
            if self.options.host_root:
                raise LastingImageError(
                    f"{file}:{error.line}: {error.what} cannot be built with host root"
                ) from None
            return await self._delegated(error, asked, context)
        names = await build.layers()
        remembered.write(build.reference, build.keys, names, build.settings)
        await self._collect_sometimes()
        return self._root_of(build.base, names, build.settings)

    async def _remembered_root(self, remembered: _Remembered) -> Root | None:
        """What a Dockerfile gave before, while neither it nor its context nor an image of it has changed."""
        known = remembered.read()
        if known is None:
            return None
        bases = {reference: await self.base(reference) for reference in known.bases}
        names = tuple(known.layers)
        if any(bases[reference].key != key for reference, key in known.bases.items()):
            return None
        if not all(self.store.find(each) for each in names):
            return None
        return self._root_of(bases[known.base], names, known.settings)

    async def _delegated(self, problem: UnsupportedError, asked: Definition, context: Context) -> Root:
        """Let an engine build what our builder cannot."""
        from proctor.sandbox.image import engines

        file = asked.dockerfile
        assert file is not None
        available = engines.installed()
        if not available:
            raise LastingImageError(
                f"{file}:{problem.line}: {problem.what} is more than Proctor's own builder can do; it needs "
                f"podman or docker, and neither is installed"
            )
        from proctor.sandbox.container.engine_logins import EngineLogins
        from proctor.sandbox.container.images import bases_of

        options = EngineLogins(available[0], self.folder, self.options).build_options(bases_of(asked))
        described: list[object] = [context.content_digest(file), asked.target]
        described += [sorted(asked.arguments.items()), *options]
        tag = f"localhost/proctor-{_digest(described)[:24]}:latest"
        image = self._here(tag)
        if image is None:
            from proctor.sandbox.container.build import BuildRequest, build_options

            request = BuildRequest(
                folder=context.folder,
                dockerfile=file,
                tag=tag,
                label="proctor=1",
                options=(*build_options(asked), *options),
                log=self.folder / "logs" / f"{_digest(described)[:24]}.txt",
            )
            home, rules = self.backend.state_dir.parent, self.backend.network_rules
            await engines.build(available[0], home, rules, request)
            image = await self._of_engines(tag, None)
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
        return Root(
            layers=(*base.layers, *(self.store.layers / each for each in names)),
            host=base.host,
            env=settings.env,
            workdir=settings.workdir,
            user=settings.user,
            entrypoint=settings.entrypoint,
            digest=_digest([base.key, names, asdict(settings)]),
            image_name=base.wanted if base.digest else "",
            image_digest=base.digest,
        )

    async def _collect_sometimes(self) -> None:
        """Once a day, after a build: without builds there is nothing to collect."""
        mark = self.folder / "collected"
        now = time.time()
        with suppress(OSError, SandboxError):
            if not mark.exists() or now - mark.stat().st_mtime > _COLLECT_EVERY_S:
                from proctor.sandbox.image.layers import collect_garbage

                mark.touch()
                await collect_garbage(self.store, self.references, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the last build of a Dockerfile gave."""

    base: str
    """The image under the wanted stage."""
    bases: Mapping[str, str]
    """Every outside image → what names its content."""
    layers: Sequence[str]
    settings: Settings


class _Remembered:
    """What a Dockerfile gave, for as long as no file of its context changes."""

    def __init__(self, folder: Path, asked: Definition, context: Context, *, host_root: bool) -> None:
        file = asked.dockerfile
        assert file is not None
        asked_for = [asked.target, sorted(asked.arguments.items()), host_root]
        parts = [_FORMAT, str(file), str(context.folder), *asked_for]
        self._file = folder / "builds" / f"{_digest(parts)[:32]}.json"
        try:
            self._seen = f"{file.stat().st_mtime_ns} {context.fingerprint()}"
        except OSError:
            self._seen = ""  # reading it says what is wrong

    def read(self) -> _Known | None:
        value = read_json(self._file)
        try:
            known = _Known(
                base=value["base"],
                bases=dict(value["bases"]),
                layers=list(value["layers"]),
                settings=settings_from(value["settings"]),
            )
        except (KeyError, TypeError, ValueError):
            return None
        return known if self._seen and value.get("seen") == self._seen else None

    def write(self, base: str, bases: Mapping[str, str], layers: Sequence[str], settings: Settings) -> None:
        known = _Known(base=base, bases=bases, layers=layers, settings=settings)
        write_json(self._file, {"seen": self._seen, **asdict(known)})


def _digest(described: object) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


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
    return "none" if network.obstacle() else "public"
