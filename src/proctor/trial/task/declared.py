"""The files a task wants kept: hooks that write them, copies of them, and the same for a separate verifier.

What comes out was written by the agent: nothing is followed, and what does not fit is left out.
"""

from __future__ import annotations

import fnmatch
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from proctor.errors import SandboxError
from proctor.model.task import MAIN_SERVICE, CollectHook, Step, Task, TaskArtifact
from proctor.sandbox.base import HasServices, Sandbox, can, companion, end_processes
from proctor.threads import in_thread

PUBLISHED = "/logs/artifacts"
"""Where an agent leaves what it wants kept; it is kept without being declared."""
MAX_BYTES = 256 << 20
_TRIMMED = "/tmp/.proctor-artifact"  # noqa: S108 - inside the sandbox
_TRIM_TIMEOUT_S = 120.0


def wanted(task: Task, step: Step | None) -> list[TaskArtifact]:
    """Everything to keep after the agent, or after its step: the published folder first."""
    declared = [*task.artifacts, *(step.artifacts if step else ())]
    if any(each.source.rstrip("/") == PUBLISHED and each.service == MAIN_SERVICE for each in declared):
        return declared
    return [TaskArtifact(source=PUBLISHED), *declared]


async def run_hooks(
    sandbox: Sandbox, hooks: Sequence[CollectHook], *, cwd: str, env: Mapping[str, str], last: bool = False
) -> list[str]:
    """Run the collect hooks, those of the agent's own sandbox first; a sentence for each that failed.

    `last`: the agent's sandbox has had its use, so nothing of it runs while the services are asked.
    """
    failed = []
    ordered = sorted(hooks, key=lambda each: each.service != MAIN_SERVICE)
    for number, hook in enumerate(ordered):
        beside = hook.service != MAIN_SERVICE
        if last and beside and (not number or ordered[number - 1].service == MAIN_SERVICE):
            await end_processes(sandbox)
        argv = ["/bin/sh", "-c", hook.command]
        try:
            if hook.service == MAIN_SERVICE:
                result = await sandbox.exec(
                    argv, cwd=cwd, env=env, user=hook.user, timeout_s=hook.timeout_s, keep_bytes=300
                )
            else:
                place = companion(sandbox, hook.service)
                result = await place.exec(argv, user=hook.user, timeout_s=hook.timeout_s)
        except SandboxError as error:
            failed.append(f"collect hook '{hook.command}': {error}")
            continue
        if result.exit_code or result.timed_out:
            ended = "did not end in time" if result.timed_out else f"exit code {result.exit_code}"
            failed.append(f"collect hook '{hook.command}': {ended}")
    return failed


async def copy_out(
    sandbox: Sandbox, artifacts: Sequence[TaskArtifact], workdir: str, folder: Path
) -> list[tuple[TaskArtifact, Path]]:
    """Copy artifacts below a folder; those that exist, with their places. The first of a name wins."""
    taken: list[tuple[TaskArtifact, Path]] = []
    for artifact in artifacts:
        place = folder / (artifact.destination or _mirrored(artifact.source))
        if any(_overlap(place, other) for _, other in taken):
            continue
        with suppress(SandboxError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
            place.parent.mkdir(parents=True, exist_ok=True)
            await _copy(sandbox, artifact, _absolute(artifact.source, workdir), place)
            if artifact.exclude:
                await in_thread(_leave_out, place, artifact.exclude)
        if place.is_file() or (place.is_dir() and any(place.iterdir())):
            taken.append((artifact, place))
    return taken


async def copy_in(sandbox: Sandbox, taken: Sequence[tuple[TaskArtifact, Path]], workdir: str) -> None:
    """Lay collected artifacts into another sandbox, each where it came from."""
    for artifact, place in taken:
        target = _absolute(artifact.source, workdir)
        parent = target if place.is_dir() else str(PurePosixPath(target).parent)
        await sandbox.exec(["/bin/mkdir", "-p", parent], cwd="/", user="root")
        await sandbox.upload(place, target)


async def _copy(sandbox: Sandbox, artifact: TaskArtifact, source: str, place: Path) -> None:
    if artifact.service != MAIN_SERVICE:
        await companion(sandbox, artifact.service).download(source, place, max_bytes=MAX_BYTES)
        return
    if artifact.exclude and await _trimmed(sandbox, source, artifact.exclude):
        source = _TRIMMED
    await sandbox.download(source, place, max_bytes=MAX_BYTES)


async def _trimmed(sandbox: Sandbox, source: str, exclude: Sequence[str]) -> bool:
    """Copy a folder inside without what is excluded: large things never come out. False without a tar."""
    patterns = " ".join(f"--exclude={shlex.quote(each)}" for each in exclude)
    script = (
        f"[ -d {shlex.quote(source)} ] && rm -rf {_TRIMMED} && mkdir {_TRIMMED} && set -e && "
        f"tar -C {shlex.quote(source)} {patterns} -cf - . | tar -C {_TRIMMED} -xf -"
    )
    result = await sandbox.exec(["/bin/sh", "-c", script], cwd="/", user="root", timeout_s=_TRIM_TIMEOUT_S)
    return result.exit_code == 0 and not result.timed_out


def _leave_out(folder: Path, exclude: Sequence[str]) -> None:
    """Remove what matches a pattern by its name or by its path; the copy inside may have had no tar."""
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        relative = path.relative_to(folder).as_posix()
        if any(_matches(relative, pattern) for pattern in exclude):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _matches(relative: str, pattern: str) -> bool:
    """As `tar --exclude`: against the path, and against its ends after each slash."""
    parts = relative.split("/")
    wanted_pattern = pattern.removeprefix("./").rstrip("/")
    return any(fnmatch.fnmatchcase("/".join(parts[start:]), wanted_pattern) for start in range(len(parts)))


def _mirrored(source: str) -> str:
    return "/".join(part for part in PurePosixPath(source).parts if part not in {"/", ".."}) or "root"


def _absolute(source: str, workdir: str) -> str:
    return source if source.startswith("/") else f"{workdir.rstrip('/')}/{source}"


def _overlap(one: Path, other: Path) -> bool:
    return one == other or one in other.parents or other in one.parents


def services_missing(sandbox: Sandbox, task: Task) -> str | None:
    """A sentence when the task takes files from services that this sandbox does not have."""
    steps = task.steps
    named = {
        *(each.service for each in (*task.artifacts, *(a for step in steps for a in step.artifacts))),
        *(each.service for each in (*task.verifier.collect, *(h for s in steps for h in s.verifier.collect))),
    } - {MAIN_SERVICE}
    if not named or can(sandbox, HasServices):
        return None
    names = ", ".join(sorted(named))
    return f"the task collects files from its services ({names}); use the podman or docker back end"
