"""Find out what an engine must be told to work on this machine, by making real containers, and remember it.

Some machines refuse the usual runtime (a mixed control group hierarchy), the usual resource limits (no right
to raise them) or control groups at all. Nothing is assumed: each way is tried with a container of nothing but
our init, and the first that works is kept for this boot.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import resource
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from proctor import owner
from proctor.errors import SandboxError
from proctor.sandbox import network
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.container.compose import compose_program
from proctor.sandbox.container.engine import LIMITS, Adjustment, Engine, call
from proctor.sandbox.container.sandbox import ContainerSandbox
from proctor.sandbox.probe import Check
from proctor.sandbox.programs import init_program

if TYPE_CHECKING:
    from proctor.sandbox.container.backend import Containers

_TRY_S = 60.0
_MOST = {"nofile": (resource.RLIMIT_NOFILE, 1 << 20), "nproc": (resource.RLIMIT_NPROC, 1 << 14)}
"""podman lowers its own limit of processes to 32,768 and may not give more than it has."""


async def remembered(backend: Containers) -> Adjustment:
    """What was found before during this boot, or what is found now."""
    file = await _file(backend)
    with suppress(OSError, ValueError, TypeError):
        known = json.loads(file.read_text())
        return Adjustment(
            options=tuple(known["options"]), ulimits=tuple(known["ulimits"]), limits=tuple(known["limits"])
        )
    found = await find(backend)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as writing:
        json.dump(asdict(found), writing)
    os.replace(writing.name, file)  # noqa: PTH105 - a name, not a path
    return found


async def find(backend: Containers) -> Adjustment:
    """The first way that works; SandboxError with the reason that each had not to."""
    image = await empty_image(backend, f"localhost/proctor-empty:probe-{owner.owner_name()}")
    reasons: list[str] = []
    ignored: set[tuple[str, ...]] = set()
    try:
        for fit in candidates(backend):
            if fit.limits in ignored:
                continue
            try:
                unset = await _limits_not_set(backend, fit, image)
            except (SandboxError, TimeoutError) as error:
                reasons.append(str(error) or "it took too long")
                continue
            if not unset:
                return fit
            ignored.add(fit.limits)
    finally:
        with suppress(SandboxError):
            await call([backend.engine.program, "image", "rm", "--force", image])
    said = "; ".join(dict.fromkeys(reasons))
    raise SandboxError(f"{backend.name} cannot run a container here: {said}")


def candidates(backend: Containers) -> Iterator[Adjustment]:
    """Ways to try, the plainest first; with fewer limits only when no way can set them all."""
    engine = backend.engine
    runtimes = [each for each in engine.runtimes if shutil.which(each)]
    options = [(), *(("--runtime", each) for each in runtimes)]
    for limits in (LIMITS, ("memory", "pids"), ()):
        for each in options:
            for ulimits in ((), own_ulimits()):
                yield Adjustment(options=each, ulimits=ulimits, limits=limits)


def own_ulimits() -> tuple[str, ...]:
    """Limits no higher than those of this very process, which it may give to others."""
    words: list[str] = []
    for name, (what, most) in _MOST.items():
        hard = resource.getrlimit(what)[1]
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        words += ["--ulimit", f"{name}={value}:{value}"]
    return tuple(words)


async def _limits_not_set(backend: Containers, fit: Adjustment, image: str) -> list[str]:
    """Make a container in one way: which limits were accepted and then not set. Errors pass through."""
    limits = Limits(pids=64, memory_bytes=64 << 20, cpus=1.0)
    request = SandboxRequest(name="probe", root=Root(image=image), limits=limits)
    sandbox = ContainerSandbox(backend, request, fit)
    try:
        async with asyncio.timeout(_TRY_S):
            await sandbox.start()
            await sandbox.end_processes(fresh=["/fresh"])
            held = sandbox.info().enforced
    finally:
        with suppress(SandboxError):
            await sandbox.stop()
    return [each for each in fit.limits if not held[each].startswith("cgroup")]


async def empty_image(backend: Containers, name: str) -> str:
    """An image with nothing in it but empty folders; the init comes as in every container."""
    await asyncio.to_thread(init_program)
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for folder in ("dev", "etc", "proc", "run", "sys", "tmp"):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            empty = tarfile.TarInfo("etc/passwd")
            archive.addfile(empty, io.BytesIO())
        file.seek(0)
        said = await call([backend.engine.program, "import", "-", name], stdin=file.fileno())
    if said.code:
        raise SandboxError(f"{backend.name} cannot import an image: {said.reason}")
    return name


async def _file(backend: Containers) -> Path:
    """One file per engine version, account, boot and limits: what was found holds as long as these do."""
    facts = (await backend.ask("--version"), owner.boot_id(), os.geteuid(), own_ulimits())
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return backend.cache_dir / f"{backend.name}-{digest}.json"


async def probe(backend: Containers) -> tuple[Check, ...]:
    """Everything that matters to containers of an engine, the first being one that was really made."""
    try:
        fit = await find(backend)
    except SandboxError as error:
        return (Check(name="a container", ok=False, detail=str(error), needed=True),)
    finally:
        await backend.close()
    return (
        Check(name="a container", ok=True, detail=explain(fit), needed=True),
        _limits(fit),
        await _storage(backend),
        _public(backend),
        _compose(backend.engine),
    )


def explain(fit: Adjustment) -> str:
    """How containers are run here, for a person."""
    ways = []
    if fit.options:
        ways.append(f"with {' '.join(fit.options)}, since the usual runtime fails")
    if fit.ulimits:
        values = " and ".join(word for word in fit.ulimits if "=" in word)
        ways.append(f"with {values}, since higher limits may not be set")
    return f"worked {'; '.join(ways) or 'with the defaults of the engine'}"


def _limits(fit: Adjustment) -> Check:
    missing = [each for each in LIMITS if each not in fit.limits]
    if not missing:
        return Check(name="limits", ok=True, detail=f"{', '.join(LIMITS)} through control groups")
    instead = "each process is limited instead; this is recorded"
    return Check(name="limits", ok=False, detail=f"{', '.join(missing)} cannot be set here: {instead}")


async def _storage(backend: Containers) -> Check:
    asked = "{{.Store.GraphDriverName}}" if backend.name == "podman" else "{{.Driver}}"
    try:
        driver = await backend.ask("info", "--format", asked)
    except SandboxError as error:
        return Check(name="storage", ok=False, detail=str(error))
    if driver != "vfs":
        return Check(name="storage", ok=True, detail=driver)
    where = "/etc/containers" if os.geteuid() == 0 else "~/.config/containers"
    advice = f'vfs copies whole images and takes seconds: set driver = "overlay" in {where}/storage.conf'
    return Check(name="storage", ok=False, detail=advice)


def _public(backend: Containers) -> Check:
    problem = network.obstacle()
    if not problem and backend.launch() is None:
        problem = f"only root may enter the networks of {backend.name} containers: run Proctor as root"
    detail = problem or "slirp4netns, as for bubblewrap"
    return Check(name="network 'public'", ok=not problem, detail=detail)


def _compose(engine: Engine) -> Check:
    try:
        return Check(name="compose files", ok=True, detail=" ".join(compose_program(engine)))
    except SandboxError:
        return Check(name="compose files", ok=False, detail=f"not supported: {engine.compose_hint}")
