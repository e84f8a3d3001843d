"""The steps of a task: what is made ready before one, when later ones are not tried, what all are worth."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import SandboxError, TaskError
from proctor.model.outcome import from_reward
from proctor.model.task import Healthcheck, Step
from proctor.sandbox.base import Sandbox, end_processes
from proctor.trial.verify import FRESH, Verdict

_SETUP = "setup.sh"
_SETUP_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a step's own commands run."""

    cwd: str
    env: Mapping[str, str]
    user: str | None


async def make_ready(sandbox: Sandbox, step: Step, place: Place, *, first: bool) -> None:
    """Take away what the last verifier left, lay out the step's files, run its set-up, wait until healthy."""
    if not first:
        await end_processes(sandbox, fresh=FRESH)
    if step.workdir is not None:
        await sandbox.upload(step.workdir, place.cwd)
        if (step.workdir / _SETUP).is_file():
            await _set_up(sandbox, step, place)
    if step.healthcheck:
        await wait_healthy(sandbox, step.healthcheck, place)


async def _set_up(sandbox: Sandbox, step: Step, place: Place) -> None:
    script = f"{place.cwd.rstrip('/')}/{_SETUP}"
    result = await sandbox.exec(
        ["/bin/bash", script], env=place.env, cwd=place.cwd, user=place.user, timeout_s=_SETUP_TIMEOUT_S
    )
    if result.exit_code or result.timed_out:
        ended = "did not end in time" if result.timed_out else f"ended with exit code {result.exit_code}"
        said = (result.stderr or result.stdout).decode(errors="replace").strip()[-300:]
        raise TaskError(f"steps/{step.name}/workdir/{_SETUP} {ended}: {shlex.quote(said)}")


async def wait_healthy(
    sandbox: Sandbox, check: Healthcheck, place: Place, clock: Callable[[], float] = time.monotonic
) -> None:
    """Run a health check until it succeeds; SandboxError after too many failures in a row."""
    start_ends = clock() + check.start_period_s
    failures = 0
    while True:
        starting = clock() < start_ends
        result = await sandbox.exec(
            ["/bin/sh", "-c", check.command],
            env=place.env,
            cwd=place.cwd,
            user=place.user,
            timeout_s=check.timeout_s,
        )
        if result.exit_code == 0 and not result.timed_out:
            return
        failures += not starting
        if failures >= check.retries:
            raise SandboxError(f"the task's health check failed {check.retries} times: {check.command}")
        await asyncio.sleep(check.start_interval_s if starting else check.interval_s)


def too_low(minimum: Mapping[str, float], verdict: Verdict) -> bool:
    """Whether a reward, or a part of it that has a minimum, is below it. A part that is missing is."""
    known = {"reward": verdict.reward, **verdict.parts}
    values = ((known.get(part), least) for part, least in minimum.items())
    return any(value is None or value < least for value, least in values)


def combine(strategy: str, judged: Sequence[Verdict], lost: int = 0) -> Verdict:
    """The reward of a task from the steps that were judged: their mean, part by part, or the last one's.

    Steps after one below its minimum do not count. `lost` ones do, with 0: they should have been tried.
    """
    nothing = Verdict(outcome=from_reward(0.0), reward=0.0)
    counted = [*judged, *[nothing] * lost]
    if strategy == "final":
        return counted[-1]
    names = {name: None for verdict in counted for name in verdict.parts}
    parts = {name: sum(each.parts.get(name, 0.0) for each in counted) / len(counted) for name in names}
    reward = sum(each.reward or 0.0 for each in counted) / len(counted)
    return Verdict(outcome=from_reward(reward), reward=reward, parts=parts)
