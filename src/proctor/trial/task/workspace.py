"""What a run puts into the sandbox before the agent starts: a repository, removals, added files."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import SandboxError, TaskError
from proctor.model.canonical import digest
from proctor.model.task import Repository, Task
from proctor.sandbox.base import Sandbox, end_processes, standing
from proctor.tasks.overrides import additions, removals

_GIT_TIMEOUT_S = 600
_LOGS = ("/logs/agent", "/logs/artifacts")
"""Folders that agents and tests expect; made without running anything inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Changes to make in the working folder. The task's own folder is only ever read."""

    source: Path | None = None
    """A folder whose content is the workspace."""
    remove: tuple[str, ...] = ()
    add: tuple[tuple[str, bytes | Path], ...] = field(default=())

    async def lay_out(self, sandbox: Sandbox, workdir: str, *, made: bool = False) -> None:
        """Put everything in its place. `made`: the image already has the working folder."""
        ready = standing(sandbox)
        if missing := [path for path in _LOGS if path not in ready]:
            await end_processes(sandbox, fresh=missing)
        if not made:
            await _must(
                sandbox, f"mkdir -p {shlex.quote(workdir)}", ("the working folder could not be created")
            )
        if self.source:
            await sandbox.upload(self.source, workdir)
        if self.remove:
            targets = " ".join(shlex.quote(f"{workdir}/{path}") for path in self.remove)
            await _must(sandbox, f"rm -rf -- {targets}", "files could not be removed")
        if self.add:
            with tempfile.TemporaryDirectory(prefix="proctor-add-") as scratch:
                await self._add(sandbox, workdir, Path(scratch))

    async def _add(self, sandbox: Sandbox, workdir: str, scratch: Path) -> None:
        for target, content in self.add:
            place = scratch / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                place.write_bytes(content)
            elif content.is_dir():
                shutil.copytree(content, place, dirs_exist_ok=True)
            else:
                shutil.copy2(content, place)
        await sandbox.upload(scratch, workdir)


async def _must(sandbox: Sandbox, script: str, what: str) -> None:
    result = await sandbox.exec(["/bin/sh", "-c", script], cwd="/", user="root", timeout_s=60)
    if result.exit_code:
        raise SandboxError(f"{what}: {result.stderr.decode(errors='replace').strip()}")


def workspace_for(task: Task, overrides: Mapping[str, Any], base: Path, cache_dir: Path) -> Workspace:
    """The workspace of a task under some overrides; a repository is fetched once per commit."""
    source = None
    if task.repository:
        source = task.repository.path or fetch(task.repository, cache_dir)
        if task.repository.subdir:
            source = _below(source, task.repository.subdir)
    return Workspace(source=source, remove=removals(overrides), add=tuple(additions(overrides, base)))


def commits(task: Task) -> dict[str, str]:
    """Which part of which history a task's repository is, for the record."""
    repository = task.repository
    names = ("branch", "start_commit_sha", "end_commit_sha", "subdir")
    found = {name: str(getattr(repository, name)) for name in names} if repository else {}
    return {name: value for name, value in found.items() if value}


def fetch(repository: Repository, cache_dir: Path) -> Path:
    """A checkout of the start commit, kept by address and commit. Concurrent callers do not race."""
    if repository.git_url.startswith("-") or repository.start_commit_sha.startswith("-"):
        raise TaskError(f"repo: {repository.git_url!r} is not an address")
    name = digest(
        [repository.git_url, repository.branch, repository.start_commit_sha, repository.sparse_checkout]
    )
    target = cache_dir / "repositories" / name[:32]
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".clone-", dir=target.parent))
    try:
        _git("clone", "--quiet", "--no-checkout", "--", repository.git_url, str(scratch))
        if repository.sparse_checkout:
            _git("-C", str(scratch), "sparse-checkout", "set", "--", *repository.sparse_checkout)
        commit = repository.start_commit_sha or repository.branch or "HEAD"
        _git("-C", str(scratch), "checkout", "--quiet", commit)
        try:
            scratch.rename(target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _git(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", *arguments],
            capture_output=True,
            check=False,
            timeout=_GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TaskError(f"git {arguments[0]}: {error}") from error
    if done.returncode:
        raise TaskError(f"git {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")


def _below(folder: Path, subdir: str) -> Path:
    place = (folder / subdir).resolve()
    if not place.is_relative_to(folder.resolve()) or not place.is_dir():
        raise TaskError(f"repo.subdir: '{subdir}' is not a folder of the repository")
    return place
