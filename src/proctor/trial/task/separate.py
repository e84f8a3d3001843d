"""A verifier in a sandbox of its own: it gets the files it asked for, and nothing else of the agent's."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.model.plan import PlannedTrial
from proctor.model.task import Task, VerifierSpec
from proctor.model.trial import Lease
from proctor.sandbox.base import Sandbox, end_processes
from proctor.trial.task.request import sandbox_request, workdir_of

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskSetting

_MAX_BYTES = 1 << 30


async def open_separate(
    setting: TaskSetting,
    task: Task,
    spec: VerifierSpec,
    trial: PlannedTrial,
    lease: Lease,
    agents_place: Sandbox,
    workdir: str,
) -> Sandbox:
    """A fresh sandbox with the agent's collected files in place, ready for the tests."""
    await end_processes(agents_place)
    root = await setting.make_root(task, spec.environment)
    suffix = f"{lease.attempt}-{lease.fence}-verifier"
    sandbox = setting.backend.sandbox(sandbox_request(setting, task, trial, root, {}, suffix=suffix))
    await sandbox.start()
    try:
        await sandbox.exec(["/bin/mkdir", "-p", workdir_of(task, root), workdir, "/logs/artifacts"], cwd="/")
        for path in (workdir, "/logs/artifacts", *task.artifacts):
            source = path if path.startswith("/") else f"{workdir}/{path}"
            with tempfile.TemporaryDirectory(prefix="proctor-") as scratch, suppress(FileNotFoundError):
                await agents_place.download(source, Path(scratch), max_bytes=_MAX_BYTES)
                await sandbox.upload(Path(scratch), source)
    except BaseException:
        await sandbox.stop()
        raise
    return sandbox
