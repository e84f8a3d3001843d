"""Bring out what an attempt leaves: its final state, the diff, declared artifacts, logs, trajectory.

The sandbox is still hostile here: nothing is followed, everything is bounded, and secrets are taken out.
"""

from __future__ import annotations

import json
import mimetypes
import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from proctor.disk import make_folders
from proctor.errors import SandboxError, StoreError
from proctor.model.place import attempt_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact
from proctor.model.task import Task
from proctor.sandbox.base import Root, Sandbox, can
from proctor.trial.redact import Redactor
from proctor.trial.task.diff import Base, diff_state
from proctor.trial.task.workspace import Workspace

MAX_STATE_BYTES = 256 << 20
MAX_ARTIFACT_BYTES = 256 << 20
_AT_ONCE_BYTES = 1 << 20
"""A file up to this size is read into memory, a state once for the patch and the store."""
_ENCODER = json.JSONEncoder()


class Blobs(Protocol):
    """Where files are kept by content."""

    def put_file(self, path: Path, name: str, media_type: str = ...) -> Artifact:
        """Keep a file."""

    def put_bytes(self, data: bytes, name: str, media_type: str = ...) -> Artifact:
        """Keep some bytes."""


@runtime_checkable
class KeepsState(Protocol):
    """A sandbox that can write down everything that changed in it, so that it can be judged again."""

    async def save_state(self, target: Path, *, max_bytes: int) -> bool:
        """Write a tar of all changes; False when it would be larger than allowed."""


class Collector:
    """Knows where an attempt's files go, and brings them there."""

    def __init__(self, run_dir: Path, blobs: Blobs) -> None:
        self.run_dir = run_dir
        self.blobs = blobs

    def folder(self, trial: PlannedTrial, attempt: int) -> Path:
        """`trials/<task>/<n>` for the first attempt; later ones stand beside it."""
        return self.run_dir / attempt_folder(trial, attempt)

    async def collect(self, sandbox: Sandbox, task: Task, workdir: str, folder: Path) -> list[Artifact]:
        """The artifacts that the task declares, as far as they can be had."""
        found: list[Artifact] = []
        for path in (*task.artifacts, *(each for step in task.steps for each in step.artifacts)):
            found += await self._declared(sandbox, path, workdir, folder)
        return found

    async def state(
        self, sandbox: Sandbox, workdir: str, base: Base, folder: Path, redactor: Redactor
    ) -> list[Artifact]:
        """Everything the agent changed, and the patch of it; nothing from a sandbox that cannot tell."""
        if not can(sandbox, KeepsState):
            return []
        place = str(folder)
        state = folder / "state.tar"
        make_folders(place)
        if not await cast("KeepsState", sandbox).save_state(state, max_bytes=MAX_STATE_BYTES):
            return []
        data = _read_small(f"{place}/state.tar")
        diff = diff_state(state if data is None else data, workdir, base)
        info = _ENCODER.encode({"workdir": workdir, **diff.counts}) + "\n"
        make_folders(f"{place}/artifacts")
        return [
            self._keep(place, "state.tar", data),
            self._keep_bytes(place, "artifacts/diff.patch", redactor.whole(diff.patch.encode())),
            self._keep_bytes(place, "artifacts/repo_info.json", info.encode()),
        ]

    async def _declared(self, sandbox: Sandbox, path: str, workdir: str, folder: Path) -> list[Artifact]:
        """A file or folder the task names; one that is not there is simply not there."""
        source = path if path.startswith("/") else f"{workdir}/{path}"
        target = folder / "artifacts" / "files"
        with suppress(SandboxError, FileNotFoundError):
            target.mkdir(parents=True, exist_ok=True)
            await sandbox.download(source, target, max_bytes=MAX_ARTIFACT_BYTES)
        return self._keep_all(str(folder), "artifacts/files")

    def write(self, folder: Path, *, trajectory: bytes, rubrics: list[dict[str, Any]]) -> list[Artifact]:
        """What Proctor itself knows of the attempt, and the logs that were streamed."""
        place = str(folder)
        kept = [self._keep_bytes(place, "trajectory.json", trajectory)]
        if rubrics:
            text = json.dumps(rubrics, indent=2) + "\n"
            kept.append(self._keep_bytes(place, "rubrics.json", text.encode()))
        for part in ("logs", "verifier"):
            kept += self._keep_all(place, part)
        return kept

    def _keep_all(self, folder: str, part: str) -> list[Artifact]:
        names = _plain_files(folder, part)
        return [self._keep(folder, name, _read_small(f"{folder}/{name}")) for name in names]

    def _keep(self, folder: str, name: str, data: bytes | None) -> Artifact:
        """A file that is there, and its content unless it is too large to be held."""
        if data is None:
            return self.blobs.put_file(Path(folder, name), name, _media_type(name))
        return self.blobs.put_bytes(data, name, _media_type(name))

    def _keep_bytes(self, folder: str, name: str, data: bytes) -> Artifact:
        place = f"{folder}/{name}"
        try:
            try:
                _write(place, data)
            except FileNotFoundError:
                make_folders(folder)
                _write(place, data)
        except OSError as error:
            raise StoreError(f"{place}: cannot be written: {error.strerror or error}") from error
        return self.blobs.put_bytes(data, name, _media_type(name))


def _read_small(file: str) -> bytes | None:
    """The content of a file that is small enough to be held."""
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        return os.read(fd, size) if size <= _AT_ONCE_BYTES else None
    finally:
        os.close(fd)


def _write(place: str, data: bytes) -> None:
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


@cache
def _media_type(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _plain_files(folder: str, part: str) -> list[str]:
    """The plain files below a part of a folder, in order, as paths relative to the folder."""
    found: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(f"{folder}/{part}") as entries:
        for entry in entries:
            name = f"{part}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                found += _plain_files(folder, name)
            elif entry.is_file(follow_symlinks=False):
                found.append(name)
    return sorted(found)


def base_of(root: Root, workspace: Workspace, workdir: str) -> Base:
    """What a path held before the agent came: added files, then the workspace, then the image's layers."""
    prefix = workdir.strip("/") + "/"
    added = {target: content for target, content in workspace.add if isinstance(content, bytes)}

    def content(path: str) -> bytes | None:
        if path.startswith(prefix):
            inner = path[len(prefix) :]
            if inner in added:
                return added[inner]
            if workspace.source and (found := _read_below(workspace.source, inner)) is not None:
                return found
        for layer in reversed(root.layers):
            if (found := _read_below(layer, path)) is not None:
                return found
        return None

    return content


def _read_below(folder: Path, relative: str) -> bytes | None:
    """A plain file of a folder; nothing is followed out of it."""
    place = f"{folder}/{relative}"
    try:
        found = os.lstat(place)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_STATE_BYTES:
            return None
        if not os.path.realpath(place).startswith(f"{os.path.realpath(folder)}/"):
            return None
        return Path(place).read_bytes()
    except OSError:
        return None
