"""Whose fault it is that something broke once the agent had begun, or that a limit was reached.

An error proves that the host failed, or it proves nothing: then a control decides. The task's own limits are
the agent's doing, what the host has too little of is not.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from proctor.errors import (
    HostError,
    ImageError,
    ProctorError,
    ProviderError,
    SandboxError,
    StoreError,
    TaskError,
)
from proctor.model.outcome import ENVIRONMENT_BROKEN, Outcome
from proctor.model.record import Failure
from proctor.model.task import Step
from proctor.sandbox.base import Sandbox, end_processes, host_failure
from proctor.trial.redact import Redactor
from proctor.trial.task.models import RunBudgetSpent
from proctor.trial.verify import Verdict

if TYPE_CHECKING:
    from proctor.trial.control import Control
    from proctor.trial.task_trial import TaskAttempt


_OF_THE_HOST = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""What the machine lacks or has lost. All of them are about files of the host: inside, errors are results."""


_ENDINGS = (
    (TaskError, Outcome.INVALID),
    (ImageError, Outcome.IMAGE_ERROR),
    (ProviderError, Outcome.PROVIDER_ERROR),
    (RunBudgetSpent, Outcome.CANCELLED),
)
"""What errors mean that end an attempt; any other is the sandbox's, or the harness's own."""


def outcome_of(error: Exception) -> Outcome:
    """How an attempt ended that an error cut off."""
    return next((outcome for kind, outcome in _ENDINGS if isinstance(error, kind)), Outcome.SANDBOX_ERROR)


async def is_hosts(error: BaseException, sandbox: Sandbox) -> bool:
    """Whether the machine around the sandbox provably caused an error."""
    return _proves_host(error) or bool(await host_failure(sandbox))


def _proves_host(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, HostError | ImageError | StoreError | MemoryError):
            return True
        if isinstance(error, OSError) and error.errno in _OF_THE_HOST:
            return True
        error = error.__cause__
    return False


def failure_of(error: BaseException, phase: str, redactor: Redactor, message: str = "") -> Failure:
    """An error as it is recorded: with its traceback unless it is one of ours, which says enough."""
    expected = isinstance(error, ProctorError | TimeoutError)
    return Failure(
        phase=phase,
        type=getattr(error, "failure_type", "") or type(error).__name__,
        message=redactor.text(message or str(error)),
        traceback="" if expected else redactor.text("".join(traceback.format_exception(error))),
    )


async def compare(attempt: TaskAttempt, step: Step | None, verdict: Verdict) -> tuple[Verdict, Control]:
    """Tests that broke are the agent's failure if they work in an untouched sandbox, else the task's.

    The verdict and the control; HostError when the infrastructure allowed no control.
    """
    with suppress(SandboxError):
        await end_processes(attempt.sandbox)  # nothing of the agent's may compete with the control
    assert attempt.controls is not None
    control = await attempt.controls.of(attempt.plan, attempt.trial, step)
    if not control.decided:
        raise HostError(f"{said(verdict)}; whose fault that is stays unknown: {control.message}")
    return (_broken_by_agent(verdict) if control.works else verdict), control


def said(verdict: Verdict) -> str:
    """Why a verdict has no reward."""
    return verdict.failure.message if verdict.failure else verdict.outcome


def _broken_by_agent(verdict: Verdict) -> Verdict:
    assert verdict.failure is not None
    why = "the same tests work in an untouched sandbox of this task, so the agent broke its environment"
    message = f"{verdict.failure.message.rstrip('.')}; {why}"
    failure = replace(verdict.failure, type=ENVIRONMENT_BROKEN, message=message)
    return Verdict(outcome=Outcome.FAILED, reward=0.0, failure=failure)


def is_broken(verdict: Verdict) -> bool:
    """Whether the agent broke its environment."""
    return verdict.failure is not None and verdict.failure.type == ENVIRONMENT_BROKEN


_HOST_LACKED = {
    "host_oom": (
        "the host ran out of memory and killed a process of this attempt, which was below its own limit and "
        "used less than half of what was free when it began"
    ),
    "host_full": (
        "the disk of the host is nearly full; this attempt was stopped, although it was below its own limit "
        "and wrote less than half of what was written since it began"
    ),
}


def own_limits(ledger: Mapping[str, Any]) -> list[str]:
    """What was ended at the task's own limits: part of what the agent did, and not to be seen in its logs."""
    found = []
    if (kills := ledger.get("oom_kills")) and not ledger.get("host_oom"):
        some = "a process was" if kills == 1 else f"{kills} processes were"
        found.append(f"memory: {some} killed at the task's own limit")
    if ledger.get("host_oom") and took_most_memory(ledger):
        used, free = ledger["peak_memory_bytes"] >> 20, ledger["memory_free_bytes"] >> 20
        found.append(
            f"memory: the host ran out and killed a process of this attempt, which itself had used {used} MB "
            f"of the {free} MB that were free when it began"
        )
    if (reason := ledger.get("storage_exceeded")) and not ledger.get("host_full"):
        found.append(f"storage: {reason}; everything that ran was ended")
    if paused_s := ledger.get("output_paused_s"):
        found.append(f"output: so much was written that its writers had to wait for {paused_s:.1f} s")
    return found


def lost_to_host(ledger: Mapping[str, Any]) -> tuple[Outcome, Failure] | None:
    """What an attempt was that the host had too little for, or cut off; None where it did neither."""
    lacked = "host_full" if ledger.get("host_full") else ""
    if ledger.get("host_oom") and not took_most_memory(ledger):
        lacked = "host_oom"
    if lacked:
        return Outcome.STARVED, Failure(phase="run", type="Starved", message=_HOST_LACKED[lacked])
    if lost := ledger.get("network_lost"):
        message = f"the network was lost: {lost}"
        return Outcome.SANDBOX_ERROR, Failure(phase="run", type="SandboxError", message=message)
    return None


def took_most_memory(ledger: Mapping[str, Any]) -> bool:
    """Whether an attempt used more memory than everything else that began to use some meanwhile."""
    used, free = ledger.get("peak_memory_bytes"), ledger.get("memory_free_bytes")
    return bool(used and free and used * 2 > free)
