"""Images for containers: found, pulled or built by the engine itself, once per content."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proctor import owner
from proctor.errors import ImageError, LastingImageError, SandboxError, TaskError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Root
from proctor.sandbox.container import composition, leftovers
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import ASK_S, Answer, call, engine_environment
from proctor.sandbox.image.context import Context
from proctor.sandbox.image.definition import Definition, definition_of, main_service
from proctor.sandbox.image.images import BuildProgress, Images
from proctor.sandbox.image.layers import alone
from proctor.sandbox.image.manifest import settings_of
from proctor.sandbox.image.references import SCRATCH, normal
from proctor.sandbox.image.stages import UnsupportedError, stages_of

LABEL = "proctor.image"
_LAST_LINES = 20
_LAST_BYTES = 16 << 10
_MISSING = re.compile(
    r"manifest unknown|name unknown|not found|denied|unauthorized|not known|invalid reference", re.IGNORECASE
)
"""What engines say when a registry answered, and asking it again would change nothing."""


class ContainerImages(Images):
    """Makes roots that are images of the engine."""

    def __init__(self, cache_dir: Path, backend: Containers) -> None:
        super().__init__()
        self._cache_dir = cache_dir
        self._backend = backend
        self._numbers = itertools.count()

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
        found = await self._inspect(asked.image) if asked.image else None
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

    async def _pulled(self, reference: str) -> dict[str, Any] | None:
        said = await self._engine("pull", "--quiet", reference, timeout_s=None)
        found = await self._inspect(reference) if said.code == 0 else None
        if found is None:
            kind = LastingImageError if _MISSING.search(said.reason) else ImageError
            raise kind(
                f"image {reference} is not in the storage of {self._backend.name} and cannot be pulled: "
                f"{said.reason}"
            )
        return found

    async def _built(self, asked: Definition) -> dict[str, Any] | None:
        dockerfile = asked.dockerfile
        assert dockerfile is not None
        folder, options = asked.folder or dockerfile.parent, _build_options(asked)
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
                    await self._build(folder, dockerfile, tag, digest, options)
                    found = await self._inspect(tag)
        return found

    def _alone(self, digest: str) -> contextlib.AbstractAsyncContextManager[None]:
        """One build per content on this machine: other processes wait here."""
        folder = self._cache_dir / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return alone(folder / digest[:40])

    async def _build(
        self, folder: Path, dockerfile: Path, tag: str, digest: str, options: Sequence[str]
    ) -> None:
        backend, engine = self._backend, self._backend.engine
        fit = await backend.adjustment()
        mark = f"{owner.owner_name()}.{next(self._numbers)}"
        place = leftovers.build_folder(backend.open_folder()) / mark
        place.mkdir(parents=True, mode=0o700)
        log = self._cache_dir / "logs" / f"{digest[:40]}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        marks = ["--build-arg", f"{leftovers.BUILD}={mark}"] if engine.build_marks else []
        command = [
            engine.program, *fit.options, *engine.build, *fit.ulimits, *marks, *options,
            "--label", f"{LABEL}={digest}", "--tag", tag, "--file", str(dockerfile), str(folder),
        ]  # fmt: skip
        env = engine_environment({"TMPDIR": str(place), leftovers.BUILD: mark})
        try:
            code = await self._logged(command, env, log)
        except BaseException:
            await leftovers.end_build_of(engine, fit, mark, place)
            raise
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if code:
            shown = "".join(f"\n  | {line}" for line in _last_lines(log))
            raise ImageError(
                f"{dockerfile}: {engine.name} build ended with exit code {code} (full log: {log}){shown}"
            )

    @staticmethod
    async def _logged(command: Sequence[str], env: dict[str, str], log: Path) -> int:
        """Run a build, with what it says in a file. Cancelled, it goes on: its end needs care."""
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=asyncio.subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        return await process.wait()

    async def _engine(self, *arguments: str, timeout_s: float | None = ASK_S) -> Answer:
        fit = await self._backend.adjustment()
        return await call([self._backend.engine.program, *fit.options, *arguments], timeout_s=timeout_s)


def _asked(wanted: TaskEnvironment) -> tuple[Definition, str]:
    """What the main container is made of, and its service's name."""
    if not wanted.compose:
        return definition_of(wanted), "main"
    variables = composition.variables_of(wanted)
    named = "main" if wanted.image or wanted.dockerfile else ""
    composed = composition.read(wanted.compose, variables, main=named)
    return main_service(wanted, composed, variables), composed.main


def _build_options(asked: Definition) -> tuple[str, ...]:
    """What a build is told beyond its files."""
    stage = ["--target", asked.target] if asked.target else []
    given = asked.arguments.items()
    return (*stage, *(word for pair in given for word in ("--build-arg", "=".join(pair))))


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


def _last_lines(log: Path) -> list[str]:
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_BYTES))
        return file.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
    return []
