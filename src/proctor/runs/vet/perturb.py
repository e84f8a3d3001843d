"""Sandboxes with disturbances: the real ones, with less of something or with another clock.

A disturbance without effect never counts as passed: it is checked from the inside
after the start, and NotTried says why when it is not there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from proctor.errors import SandboxError
from proctor.model.vetting import Check
from proctor.processes import allowed_cpus
from proctor.sandbox.base import (
    Backend,
    Download,
    ExecResult,
    Limits,
    Network,
    OnOutput,
    Sandbox,
    SandboxInfo,
    SandboxRequest,
    end_processes,
    set_network,
)
from proctor.sandbox.lower import Lower, lower_of
from proctor.sandbox.programs import AHEAD_S, clock_library
from proctor.trial.collect import KeepsState

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
        kind = StateKeepingSandbox if isinstance(made, KeepsState) else DisturbedSandbox
        return kind(made, self.change)

    async def reap(self) -> tuple[str, ...]:
        """As the real one."""
        return await self.inner.reap()

    async def close(self) -> None:
        """The wrapped sandbox is closed by its owner."""


class DisturbedSandbox:
    """One sandbox; see `proctor.sandbox.base.Sandbox`."""

    def __init__(self, inner: Sandbox, change: Disturbance) -> None:
        self.inner = inner
        self.change = change
        self.dress = Dress()

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
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | None = None,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        keep_bytes: int = 1 << 20,
    ) -> ExecResult:
        """Run a command in the disturbed surroundings."""
        return await self.inner.exec(
            [*self.dress.prefix, *argv],
            env={**(env or {}), **self.dress.env},
            cwd=cwd,
            user=user,
            stdin=stdin,
            timeout_s=timeout_s,
            on_output=on_output,
            keep_bytes=keep_bytes,
        )

    async def upload(self, source: Path, target: str) -> None:
        """As the real one."""
        await self.inner.upload(source, target)

    async def download(self, source: str, target: Path, *, max_bytes: int = 1 << 30) -> Download:
        """As the real one."""
        return await self.inner.download(source, target, max_bytes=max_bytes)

    async def end_processes(self, fresh: Sequence[str] = ()) -> None:
        """As the real one."""
        await end_processes(self.inner, fresh=fresh)

    async def set_network(self, network: Network, allowed_hosts: Sequence[str] = ()) -> None:
        """As the real one, unless the disturbance is about the network."""
        given = self.change.limits(Limits(network=network, allowed_hosts=tuple(allowed_hosts)))
        await set_network(self.inner, given.network, given.allowed_hosts)

    async def stop(self) -> None:
        """As the real one."""
        await self.inner.stop()

    def info(self) -> SandboxInfo:
        """As the real one."""
        return self.inner.info()


class StateKeepingSandbox(DisturbedSandbox):
    """The same, of a kind that can write down what changed in it."""

    async def save_state(self, target: Path, *, max_bytes: int) -> bool:
        """As the real one."""
        assert isinstance(self.inner, KeepsState)
        return await self.inner.save_state(target, max_bytes=max_bytes)

    def lower(self) -> Lower | None:
        """As the real one."""
        return lower_of(self.inner)
