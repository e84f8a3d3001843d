"""A verifier in a sandbox of its own: it gets the files it asked for, and nothing else of the agent's."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from proctor.errors import HostError, SandboxError
from proctor.model.plan import PlannedTrial
from proctor.model.task import Step
from proctor.model.trial import Lease
from proctor.sandbox.base import Sandbox, end_processes
from proctor.trial.task.declared import PUBLISHED, copy_in, copy_out, wanted
from proctor.trial.task.network import Policy
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.request import sandbox_request, workdir_of
from proctor.trial.task.setting import TaskSetting, filled


async def open_separate(
    setting: TaskSetting,
    plan: TaskTrialPlan,
    step: Step | None,
    policy: Policy,
    trial: PlannedTrial,
    lease: Lease,
    agents_place: Sandbox,
    workdir: str,
    env: Mapping[str, str],
) -> tuple[Sandbox, str]:
    """A fresh sandbox with the agent's collected files in place, and the folder to run the tests in."""
    task = plan.task
    spec = step.verifier if step else task.verifier
    if spec.environment:
        env = filled(setting, plan, spec.environment.env, "verifier.environment")
    await end_processes(agents_place)
    own = replace(task, environment=spec.environment) if spec.environment else task
    root = await setting.make_root(task, spec.environment)
    suffix = f"{lease.attempt}-{lease.fence}-verifier{'-' + str(task.steps.index(step)) if step else ''}"
    request = sandbox_request(setting, own, trial, root, env, suffix=suffix, policy=policy)
    sandbox = setting.backend.sandbox(request)
    cwd = workdir_of(own, root)
    try:
        try:
            await sandbox.start()
            await sandbox.exec(["/bin/mkdir", "-p", cwd, PUBLISHED], cwd="/", user="root")
            if own.environment.loose_files and not spec.bundled:
                await sandbox.upload(own.environment.loose_files, cwd)
        except SandboxError as error:  # nothing of the agent's is in it yet
            raise HostError(str(error)) from error
        with tempfile.TemporaryDirectory(prefix="proctor-") as scratch:
            taken = await copy_out(agents_place, wanted(task, step), workdir, Path(scratch))
            await copy_in(sandbox, taken, workdir)
    except BaseException:
        await sandbox.stop()
        raise
    return sandbox, cwd
