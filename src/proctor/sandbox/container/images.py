"""Images for containers: found, pulled or built by the engine itself, once per content."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from proctor.errors import ImageError, LastingImageError, SandboxError, TaskError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Root, RootOptions
from proctor.sandbox.container import composition
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.build import BuildRequest, build, build_options
from proctor.sandbox.container.engine import ASK_S, Answer, call
from proctor.sandbox.container.engine_logins import EngineLogins
from proctor.sandbox.container.registry import check_registry
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.definition import Definition, definition_of, main_service, service_definition
from proctor.sandbox.image.images import BuildProgress, Images
from proctor.sandbox.image.layers import alone
from proctor.sandbox.image.manifest import settings_of
from proctor.sandbox.image.references import SCRATCH, normal
from proctor.sandbox.image.stages import UnsupportedError, stages_of

LABEL = "proctor.image"
_MISSING = re.compile(
    r"manifest unknown|name unknown|not found|denied|unauthorized|not known|invalid reference", re.IGNORECASE
)
"""What engines say when a registry answered, and asking it again would change nothing."""


class ContainerImages(Images):
    """Makes roots that are images of the engine."""

    def __init__(self, cache_dir: Path, backend: Containers, options: RootOptions | None = None) -> None:
        super().__init__()
        self._options = options or RootOptions()
        self._logins = EngineLogins(backend.engine, cache_dir, self._options)
        self._cache_dir = cache_dir
        self._backend = backend

    async def _make(self, wanted: TaskEnvironment, progress: BuildProgress) -> Root:
        del progress
        try:
            return await self._root(wanted)
        except ImageError:
            raise
        except SandboxError as error:
            raise ImageError(str(error)) from error

    async def _root(self, wanted: TaskEnvironment) -> Root:
        asked, service = _asked(wanted)
        found = await self._named(asked.image) if asked.image else None
        begun = asked.image if found else ""
        if found is None and asked.dockerfile:
            found, begun = await self._built(asked), _base_of(asked)
        elif found is None and asked.image:
            found, begun = await self._pulled(asked.image), asked.image
        if found is None:
            raise LastingImageError(
                f"neither an image nor a Dockerfile is given, and {self._backend.name} needs one"
            )
        settings = settings_of(found.get("Config") or {})
        ident = str(found["Id"]).removeprefix("sha256:")
        base = await self._inspect(begun) if begun else None
        root = Root(
            image=ident,
            compose=wanted.compose,
            service=service,
            companions=await self._companions(wanted),
            env=settings.env,
            workdir=settings.workdir,
            user=settings.user,
            entrypoint=settings.entrypoint,
            digest=ident,
            image_name=normal(begun) if begun and base else "",
            image_digest=_pin(base) if base else "",
        )
        return asked.dressed(root)

    async def _inspect(self, reference: str) -> dict[str, Any] | None:
        said = await self._engine("image", "inspect", reference)
        with contextlib.suppress(ValueError, LookupError, TypeError):
            found = json.loads(said.out)[0] if said.code == 0 else {}
            if isinstance(found, dict) and found["Id"]:
                return found
        return None

    async def _pull_bases(self, asked: Definition) -> None:
        """Have the images that a build begins with: inside its network it gets no private ones."""
        for reference in bases_of(asked):
            if await self._named(reference) is None:
                await self._pulled(reference)

    async def _companions(self, wanted: TaskEnvironment) -> dict[str, str]:
        """The images of the services beside the main one; nothing is built or pulled when they start."""
        if not wanted.compose:
            return {}
        variables = composition.variables_of(wanted)
        composed = composition.read(wanted.compose, variables, main=_named_main(wanted))
        known = set(composition.used(wanted.compose)) <= variables.keys()
        images: dict[str, str] = {}
        for name, service in composed.document["services"].items():
            if name == composed.main:
                continue
            image = str(service.get("image") or "")
            if service.get("build"):
                found = await self._built(service_definition(composed, name, variables))
            elif known and image:
                found = await self._named(image) or await self._pulled(image)
            else:
                continue  # a variable of the start decides which
            if found:
                images[name] = str(found["Id"]).removeprefix("sha256:")
        return images

    async def _named(self, reference: str) -> dict[str, Any] | None:
        """An image of the engine's storage that a task names."""
        return await self._inspect(reference) if self._logins.granted(reference) else None

    async def _pulled(self, reference: str) -> dict[str, Any] | None:
        if self._options.project is not None:  # a person of this machine may name a registry of it
            await check_registry(reference, self._backend.network_rules)
        said = await self._engine(*self._logins.before_pull(reference), reference, timeout_s=None)
        found = await self._inspect(reference) if said.code == 0 else None
        if found is None:
            kind = LastingImageError if _MISSING.search(said.reason) else ImageError
            raise kind(
                f"image {reference} is not in the storage of {self._backend.name} and cannot be pulled: "
                f"{said.reason}{self._logins.hint(reference)}"
            )
        return found

    async def _built(self, asked: Definition) -> dict[str, Any] | None:
        dockerfile = asked.dockerfile
        assert dockerfile is not None
        folder = asked.folder or dockerfile.parent
        options = (*build_options(asked), *self._logins.build_options(bases_of(asked)))
        if not dockerfile.is_file():
            raise TaskError(f"{dockerfile}: there is no such Dockerfile")
        digest = await asyncio.to_thread(Context(folder, dockerfile).content_digest, dockerfile)
        if options:
            digest = hashlib.sha256(json.dumps([digest, *options]).encode()).hexdigest()
        tag = f"localhost/proctor-task:{digest[:40]}"
        found = await self._inspect(tag)
        if found is None:
            async with self._alone(digest):
                found = await self._inspect(tag)
                if found is None:
                    await self._pull_bases(asked)
                    request = BuildRequest(
                        folder=folder,
                        dockerfile=dockerfile,
                        tag=tag,
                        label=f"{LABEL}={digest}",
                        options=options,
                        log=self._cache_dir / "logs" / f"{digest[:40]}.txt",
                    )
                    await build(self._backend, request)
                    found = await self._inspect(tag)
        return found

    def _alone(self, digest: str) -> contextlib.AbstractAsyncContextManager[None]:
        """One build per content on this machine: other processes wait here."""
        folder = self._cache_dir / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return alone(folder / digest[:40])

    async def _engine(self, *arguments: str, timeout_s: float | None = ASK_S) -> Answer:
        fit = await self._backend.adjustment()
        return await call([self._backend.engine.program, *fit.options, *arguments], timeout_s=timeout_s)


def _asked(wanted: TaskEnvironment) -> tuple[Definition, str]:
    """What the main container is made of, and its service's name."""
    if not wanted.compose:
        return definition_of(wanted), "main"
    variables = composition.variables_of(wanted)
    composed = composition.read(wanted.compose, variables, main=_named_main(wanted))
    return main_service(wanted, composed, variables), composed.main


def _named_main(wanted: TaskEnvironment) -> str:
    return "main" if wanted.image or wanted.dockerfile else ""


def bases_of(asked: Definition) -> tuple[str, ...]:
    """The images that a Dockerfile needs, as far as we can read it."""
    with contextlib.suppress(UnsupportedError, TaskError):
        assert asked.dockerfile is not None
        stages = stages_of(asked.dockerfile, asked.arguments)
        return tuple(stages.bases(stages.target(asked.target)))
    return ()


def _base_of(asked: Definition) -> str:
    """The image that a Dockerfile begins with, as far as we can read it: engines build more than we do."""
    with contextlib.suppress(UnsupportedError, TaskError):
        assert asked.dockerfile is not None
        stages = stages_of(asked.dockerfile, asked.arguments)
        base = stages.base(stages.target(asked.target))
        return "" if base == SCRATCH else base
    return ""


def _pin(found: dict[str, Any]) -> str:
    """What tells an image from every other one: its digest in a registry, else its id here."""
    listed = [str(each).partition("@")[2] for each in found.get("RepoDigests") or ()]
    if str(found.get("Digest")) in listed:
        return str(found["Digest"])
    return listed[0] if listed else f"sha256:{str(found['Id']).removeprefix('sha256:')}"
