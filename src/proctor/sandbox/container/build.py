"""Builds by an engine, inside a network that Proctor made for them.

A build gets the internet and what `network_allow` opens, never this machine or its private networks. Its
network belongs to an empty container of ours. podman runs in that network as a whole, so that `ADD` of an
address and base images that are not here yet keep to the rules too. docker's daemon cannot be moved: its
steps join the network, where nothing is but a proxy of ours (they have raw sockets, which no route stops),
and `ADD` of an address, which the daemon would fetch itself, is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proctor import owner
from proctor.disk import read_small
from proctor.errors import ImageError, LastingImageError
from proctor.sandbox import network
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.container import adjust, leftovers
from proctor.sandbox.container.engine import call, engine_environment
from proctor.sandbox.container.sandbox import ContainerSandbox
from proctor.sandbox.image.definition import Definition
from proctor.sandbox.image.dockerfile import MOST_BYTES, parse
from proctor.sandbox.network_rules import resolve_rules
from proctor.sandbox.proxy import EVERY_HOST, PORT, AllowListProxy, proxy_environment

if TYPE_CHECKING:
    from proctor.sandbox.container.backend import Containers

_LAST_LINES = 20
_LAST_BYTES = 16 << 10
_NAMES_FROM_FILE = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One image to build."""

    folder: Path
    dockerfile: Path
    tag: str
    label: str
    options: Sequence[str]
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuildNetwork:
    """How a build is started in its network."""

    before: tuple[str, ...] = ()
    """Words before the engine's own."""
    options: tuple[str, ...] = ()
    env: dict[str, str]


def build_options(asked: Definition) -> tuple[str, ...]:
    """What a build is told beyond its files."""
    stage = ["--target", asked.target] if asked.target else []
    given = asked.arguments.items()
    return (*stage, *(word for pair in given for word in ("--build-arg", "=".join(pair))))


async def build(backend: Containers, request: BuildRequest) -> None:
    """Build an image; ImageError with the last lines of its log when it fails."""
    engine, fit = backend.engine, await backend.adjustment()
    if not engine.builds_inside:
        refuse_fetched_by_daemon(request.dockerfile)
    mark = f"{owner.owner_name()}.{next(_numbers)}"
    place = leftovers.build_folder(backend.open_folder()) / mark
    place.mkdir(parents=True, mode=0o700)
    request.log.parent.mkdir(parents=True, exist_ok=True)
    marks = ["--build-arg", f"{leftovers.BUILD}={mark}"] if engine.build_marks else []
    try:
        async with _build_network(backend, place) as connected:
            command = [
                *connected.before, engine.program, *fit.options, *engine.build, *connected.options,
                *fit.ulimits, *marks, *request.options, "--label", request.label, "--tag", request.tag,
                "--file", str(request.dockerfile), str(request.folder),
            ]  # fmt: skip
            env = engine_environment({**connected.env, "TMPDIR": str(place), leftovers.BUILD: mark})
            try:
                code = await _logged(command, env, request.log)
            except BaseException:
                await leftovers.end_build_of(engine, fit, mark, place)
                raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if code:
        shown = "".join(f"\n  | {line}" for line in _last_lines(request.log))
        raise ImageError(
            f"{request.dockerfile}: {engine.name} build ended with exit code {code} (full log: "
            f"{request.log}); builds reach the internet only, and what the setting network_allow opens{shown}"
        )


@contextlib.asynccontextmanager
async def _build_network(backend: Containers, place: Path) -> AsyncIterator[_BuildNetwork]:
    """The network of one build, for as long as this lasts."""
    routed = backend.engine.builds_inside and not network.obstacle()
    image = await adjust.empty_image(backend, leftovers.network_image(place.name))
    limits = Limits(pids=64, network="public" if routed else "none")
    holder = ContainerSandbox(backend, SandboxRequest(name="build", root=Root(image=image), limits=limits))
    try:
        await holder.start()
        async with contextlib.AsyncExitStack() as opened:
            env = {} if routed else await opened.enter_async_context(_proxy(backend, holder))
            if backend.engine.builds_inside:
                yield _BuildNetwork(before=_inside(backend, holder, place), env=env)
            else:
                given = [word for pair in env.items() for word in ("--build-arg", "=".join(pair))]
                options = ("--network", f"container:{holder.container}", *given)
                yield _BuildNetwork(options=options, env={"DOCKER_BUILDKIT": "0"})
    finally:
        await holder.stop()
        await call([backend.engine.program, "image", "rm", "--force", image])


def _inside(backend: Containers, holder: ContainerSandbox, place: Path) -> tuple[str, ...]:
    """What starts the engine in the network of a container, with the names that are answered there."""
    resolver = place / "resolv.conf"
    shutil.copyfile(backend.resolver_file(), resolver)
    enter = backend.as_root()
    assert enter is not None
    return (
        *enter, "nsenter", f"--net=/proc/{holder.init_pid}/ns/net",
        "unshare", "--mount", "--propagation", "slave", "sh", "-c", _NAMES_FROM_FILE, "sh", str(resolver),
    )  # fmt: skip


@contextlib.asynccontextmanager
async def _proxy(backend: Containers, holder: ContainerSandbox) -> AsyncIterator[dict[str, str]]:
    """A way to every host of the internet where a network cannot be routed."""
    proxy = AllowListProxy([EVERY_HOST], await resolve_rules(backend.network_rules))
    listener = await holder.listen(PORT)
    port: int = listener.getsockname()[1]
    await proxy.start(listener)
    try:
        yield proxy_environment(port)
    finally:
        await proxy.stop()


def refuse_fetched_by_daemon(dockerfile: Path) -> None:
    """Refuse what docker's daemon would fetch itself, from wherever this machine reaches."""
    for each in parse(read_small(dockerfile, MOST_BYTES), str(dockerfile)):
        words = each.text.upper().split()
        adds = each.name == "ADD" or (each.name == "ONBUILD" and words[:1] == ["ADD"])
        if adds and any(sign in each.text for sign in ("://", "$", "git@")):
            raise LastingImageError(
                f"{dockerfile}:{each.line}: ADD of an address is fetched by docker's daemon, outside the "
                "network of the build: fetch it by RUN, or use podman or bubblewrap (PROCTOR_SANDBOX)"
            )


async def _logged(command: Sequence[str], env: dict[str, str], log: Path) -> int:
    """Run a build, with its output in a file. Cancelled, it goes on: its end needs care."""
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


def _last_lines(log: Path) -> list[str]:
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_BYTES))
        return file.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
    return []
