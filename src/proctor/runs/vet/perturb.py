"""Sandboxes with disturbances: the real ones, with less of something or with another clock.

A disturbance without effect never counts as passed: it is checked from the inside
after the start, and NotTried says why when it is not there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.errors import SandboxError
from proctor.model.vetting import Check
from proctor.processes import allowed_cpus
from proctor.sandbox.base import (
    Backend,
    Before,
    Download,
    ExecResult,
    Limits,
    Line,
    Network,
    Sandbox,
    SandboxInfo,
    SandboxRequest,
    dial,
    exec_after,
    set_network,
)
from proctor.sandbox.programs import AHEAD_S, clock_library

ZONE = "<+1345>-13:45"
"""An unusual time zone that needs no zone files in the sandbox; often it is another day there."""
LIBRARY = "/opt/proctor-clock.so"
_PROBE_S = 60.0


class NotTried(SandboxError):  # noqa: N818 - it is no error, like Interrupted
    """The disturbance did not take; nothing is known of what it would have done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dress:
    """What every command inside is given on top."""

    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


Prepare = Callable[[Sandbox], Awaitable[Dress]]
"""Disturbs a sandbox that has just started; raises NotTried when it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """How the surroundings differ."""

    limits: Callable[[Limits], Limits] = lambda limits: limits
    prepare: Prepare | None = None


def disturbance(check: Check, cache_dir: Path) -> Disturbance | None:
    """What a check does to its sandboxes; None when it leaves them alone."""
    if check is Check.ONE_CPU:
        return Disturbance(
            limits=lambda limits: replace(limits, cpus=min(limits.cpus or 1.0, 1.0)), prepare=_one_cpu
        )
    if check is Check.NETWORK_OFF:
        return Disturbance(limits=lambda limits: replace(limits, network="none", allowed_hosts=()))
    if check is Check.CLOCK:
        return Disturbance(prepare=lambda sandbox: _clock_ahead(sandbox, cache_dir))
    if check is Check.TIME_ZONE:
        return Disturbance(prepare=_other_zone)
    return None


async def _one_cpu(sandbox: Sandbox) -> Dress:
    """One CPU to run on, and so to count: a quota alone leaves all of them in sight."""
    cpu = allowed_cpus()[-1]
    found = await _ask(sandbox, "command -v taskset")
    dress = Dress(prefix=(found, "-c", str(cpu))) if found.startswith("/") else Dress()
    if await _ask(sandbox, "nproc", dress) != "1":
        raise NotTried("the sandbox could not be limited to one CPU: the image has no working taskset")
    return dress


async def _clock_ahead(sandbox: Sandbox, cache_dir: Path) -> Dress:
    library = clock_library(cache_dir)
    if library is None:
        raise NotTried("this machine has no C compiler to build the clock library")
    try:
        await sandbox.upload(library, LIBRARY)
    except SandboxError as error:
        raise NotTried(f"the clock library could not be copied into the sandbox: {error}") from error
    dress = Dress(env={"LD_PRELOAD": LIBRARY})
    moved = await _ask(sandbox, "date +%s", dress)
    if not moved.isdigit() or int(moved) - time.time() < AHEAD_S - 3600:
        raise NotTried("the clock in the sandbox did not change: its programs do not load the clock library")
    return dress


async def _other_zone(sandbox: Sandbox) -> Dress:
    dress = Dress(env={"TZ": ZONE})
    if await _ask(sandbox, "date +%z", dress) != "+1345":
        raise NotTried("the time zone in the sandbox did not change: its date program ignores TZ")
    return dress


async def _ask(sandbox: Sandbox, script: str, dress: Dress | None = None) -> str:
    given = dress or Dress()
    result = await sandbox.exec(
        [*given.prefix, "/bin/sh", "-c", script], env=given.env, cwd="/", timeout_s=_PROBE_S
    )
    return result.stdout.decode(errors="replace").strip()


class DisturbedBackend:
    """A back end whose sandboxes are disturbed; what they share stays with the real one."""

    def __init__(self, inner: Backend, change: Disturbance) -> None:
        self.inner = inner
        self.change = change
        self.name = inner.name

    def sandbox(self, request: SandboxRequest) -> DisturbedSandbox:
        """One sandbox, not yet started."""
        made = self.inner.sandbox(replace(request, limits=self.change.limits(request.limits)))
        return disturbed_kind(type(made))(made, self.change)

    async def reap(self) -> tuple[str, ...]:
        """As the real one."""
        return await self.inner.reap()

    async def close(self) -> None:
        """The wrapped sandbox is closed by its owner."""


class DisturbedSandbox:
    """What a disturbance changes of a sandbox; `disturbed_kind` passes everything else on to the real one."""

    def __init__(self, inner: Sandbox, change: Disturbance) -> None:
        self.inner = inner
        self.change = change
        self.dress = Dress()

    def __getattr__(self, name: str) -> Any:
        """What only the object of the real sandbox has, not its class."""
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def start(self) -> None:
        """Start it and disturb it; when either fails nothing is left behind."""
        await self.inner.start()
        if self.change.prepare is None:
            return
        try:
            self.dress = await self.change.prepare(self.inner)
        except BaseException:
            await self.inner.stop()
            raise

    async def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> ExecResult:
        """Run a command in the disturbed surroundings."""
        return await self.inner.exec([*self.dress.prefix, *argv], env=self._env(env), **options)

    async def exec_after(
        self, before: Before, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> ExecResult:
        """Make everything ready as the real one does, then run a command in the disturbed surroundings."""
        return await exec_after(
            self.inner, before, [*self.dress.prefix, *argv], env=self._env(env), **options
        )

    async def dial(
        self, program: Path, arguments: Sequence[str], **options: Any
    ) -> tuple[ExecResult, Line] | None:
        """None where commands are changed: a program that is no file inside cannot be started that way."""
        if self.dress != Dress():
            return None
        return await dial(self.inner, program, arguments, **options)

    async def set_network(self, network: Network, allowed_hosts: Sequence[str] = ()) -> None:
        """As the real one, unless the disturbance is about the network."""
        given = self.change.limits(Limits(network=network, allowed_hosts=tuple(allowed_hosts)))
        await set_network(self.inner, given.network, given.allowed_hosts)

    def _env(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**(env or {}), **self.dress.env}

    if TYPE_CHECKING:  # passed on by `disturbed_kind`

        async def upload(self, source: Path, target: str) -> None: ...  # noqa: D102
        async def download(  # noqa: D102
            self, source: str, target: Path, *, max_bytes: int = 1 << 30
        ) -> Download: ...
        async def stop(self) -> None: ...  # noqa: D102
        def info(self) -> SandboxInfo: ...  # noqa: D102


@cache
def disturbed_kind(kind: type) -> type[DisturbedSandbox]:
    """The class of disturbed sandboxes of a kind, with all that the kind has: `can` asks classes."""
    others = [name for name in dir(kind) if not name.startswith("_") and name not in vars(DisturbedSandbox)]
    return type(f"Disturbed{kind.__name__}", (DisturbedSandbox,), {name: _passed_on(name) for name in others})


def _passed_on(name: str) -> property:
    return property(lambda disturbed: getattr(disturbed.inner, name))
