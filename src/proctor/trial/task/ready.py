"""What is made ready before an agent works: the image's ENTRYPOINT, a step's files, health checks.

The entrypoint is left running beside the agent, as Harbor does. It gets a command that only waits, and has
done its preparations once it starts that command.
"""

from __future__ import annotations

import asyncio
import posixpath
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from proctor.errors import SandboxError, TaskError
from proctor.model.task import Healthcheck, Step
from proctor.sandbox.base import ExecResult, Root, Sandbox, end_processes, ended
from proctor.trial.verify import FRESH

LOG = "entrypoint.log"
_REACHED = b"proctor: the entrypoint has started its command; left in the background: "
_WAIT = (
    'read -r left 2>/dev/null < "/proc/$$/task/$$/children"; '
    f'echo "{_REACHED.decode()}${{left:-nothing}}"; exec sleep infinity'
)
_COMMAND = ("sh", "-c", _WAIT)
_REACH_S = 5.0
"""How long an entrypoint may prepare; one that never starts its command is a service itself."""
_SETTLE_S = 1.0
"""What programs in the background get until they are up, where no health check can tell."""


class Entrypoint:
    """The entrypoint of one attempt's sandbox."""

    def __init__(self, log: Callable[[str, bytes], None]) -> None:
        self._log = log
        self._running: asyncio.Task[ExecResult] | None = None
        self._reached = asyncio.Event()
        self._said = b""

    async def start(self, sandbox: Sandbox, root: Root, *, checked: bool) -> list[str]:
        """Start it and wait until it is ready; notes when it has ended. `checked`: a health check follows."""
        if not starts_something(root.entrypoint):
            return []
        self._running = asyncio.create_task(
            sandbox.exec([*root.entrypoint, *_COMMAND], on_output=self._heard, keep_bytes=0)
        )
        reached = asyncio.create_task(self._reached.wait())
        try:
            await asyncio.wait(
                {self._running, reached}, timeout=_REACH_S, return_when=asyncio.FIRST_COMPLETED
            )
            if self._leaves_programs() and not checked:
                await asyncio.wait({self._running}, timeout=_SETTLE_S)
        finally:
            reached.cancel()
        if not self._running.done():
            return []
        code = (await self._running).exit_code
        return [f"the image's ENTRYPOINT ended with exit code {code} before the agent began; see {LOG}"]

    async def stop(self) -> None:
        """Wait for it no longer; it ends with its sandbox."""
        running, self._running = self._running, None
        if running:
            running.cancel()
            await ended(running)

    def _heard(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        del stream
        self._log(LOG, data)
        if not self._reached.is_set():
            self._said = (self._said + data)[-4096:]
            at = self._said.find(_REACHED)
            if at >= 0 and b"\n" in self._said[at:]:
                self._reached.set()

    def _leaves_programs(self) -> bool:
        return self._reached.is_set() and _REACHED + b"nothing" not in self._said


def starts_something(entrypoint: Sequence[str]) -> bool:
    """Whether it is more than a shell that waits for a command."""
    if not entrypoint:
        return False
    shell = posixpath.basename(entrypoint[0]) in {"sh", "bash", "dash", "ash", "zsh"}
    return not (shell and all(word.startswith("-") for word in entrypoint[1:]))


_SETUP = "setup.sh"
_SETUP_TIMEOUT_S = 600.0


async def make_ready(sandbox: Sandbox, step: Step, *, cwd: str, env: Mapping[str, str], first: bool) -> None:
    """Take away what the last verifier left, lay out the step's files, run its set-up, wait until healthy."""
    user = step.agent.user
    if not first:
        await end_processes(sandbox, fresh=FRESH)
    if step.workdir is not None:
        await sandbox.upload(step.workdir, cwd)
        if (step.workdir / _SETUP).is_file():
            script = f"{cwd.rstrip('/')}/{_SETUP}"
            result = await sandbox.exec(
                ["/bin/bash", script], env=env, cwd=cwd, user=user, timeout_s=_SETUP_TIMEOUT_S
            )
            if result.exit_code or result.timed_out:
                raise TaskError(f"steps/{step.name}/workdir/{_SETUP} {_ended(result)}")
    if step.healthcheck:
        await wait_healthy(sandbox, step.healthcheck, cwd=cwd, env=env, user=user)


def _ended(result: ExecResult) -> str:
    ended = "did not end in time" if result.timed_out else f"ended with exit code {result.exit_code}"
    said = (result.stderr or result.stdout).decode(errors="replace").strip()[-300:]
    return f"{ended}: {shlex.quote(said)}"


async def wait_healthy(
    sandbox: Sandbox,
    check: Healthcheck,
    *,
    cwd: str,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run a health check until it succeeds; SandboxError after too many failures in a row."""
    start_ends = clock() + check.start_period_s
    failures = 0
    while True:
        starting = clock() < start_ends
        result = await sandbox.exec(
            ["/bin/sh", "-c", check.command], env=env, cwd=cwd, user=user, timeout_s=check.timeout_s
        )
        if result.exit_code == 0 and not result.timed_out:
            return
        failures += not starting
        if failures >= check.retries:
            raise SandboxError(f"the task's health check failed {check.retries} times: {check.command}")
        await asyncio.sleep(check.start_interval_s if starting else check.interval_s)
