"""Whose fault it is that something broke once the agent had begun.

An error proves that the host failed, or it proves nothing: then a control decides.
"""

from __future__ import annotations

import errno
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from proctor.errors import HostError, ImageError, ProctorError, SandboxError, StoreError
from proctor.model.outcome import ENVIRONMENT_BROKEN, Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Failure
from proctor.model.task import Step
from proctor.sandbox.base import Sandbox, end_processes, host_failure
from proctor.trial.redact import Redactor
from proctor.trial.verify import Verdict

if TYPE_CHECKING:
    from proctor.trial.control import Control, Controls
    from proctor.trial.task.prepare import TaskTrialPlan

_OF_THE_HOST = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""What the machine lacks or has lost. All of them are about files of the host: inside, errors are results."""


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


def unjudged(error: Exception, redactor: Redactor) -> Verdict:
    """The verdict where the tests could not even be run, or what they left could not be read."""
    trace = "" if isinstance(error, ProctorError) else "".join(traceback.format_exception(error))
    failure = Failure(
        phase="verify",
        type=type(error).__name__,
        message=redactor.text(str(error)),
        traceback=redactor.text(trace),
    )
    return Verdict(outcome=Outcome.VERIFIER_ERROR, failure=failure)


async def compare(
    controls: Controls,
    plan: TaskTrialPlan,
    trial: PlannedTrial,
    step: Step | None,
    sandbox: Sandbox,
    verdict: Verdict,
) -> tuple[Verdict, Control]:
    """Tests that broke are the agent's failure if they work in an untouched sandbox, else the task's.

    The verdict and the control; HostError when the infrastructure allowed no control.
    """
    with suppress(SandboxError):
        await end_processes(sandbox)  # nothing of the agent's may compete with the control
    control = await controls.of(plan, trial, step)
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
