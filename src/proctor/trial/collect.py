"""Copy out what an attempt leaves: its final state, the diff, declared artifacts, logs, trajectory.

The sandbox is still hostile here: nothing is followed, everything is bounded, and secrets are taken out.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import mimetypes
import os
import posixpath
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from proctor.bounded_diff import Effort
from proctor.disk import make_folders, write_all
from proctor.errors import StoreError
from proctor.model.place import attempt_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact
from proctor.model.task import Step, Task
from proctor.sandbox.base import Root, Sandbox, can
from proctor.threads import in_own_thread, in_thread
from proctor.trial.redact import Redactor
from proctor.trial.redact_files import clean_folder, clean_state
from proctor.trial.task.declared import copy_out, wanted
from proctor.trial.task.state import Base, Diff, diff_state
from proctor.trial.task.workspace import Workspace, is_removed

MAX_STATE_BYTES = 256 << 20
_STATE = "state.tar"
_LITTLE_BYTES, _LITTLE_STEPS = 1 << 14, 100_000
"""What an event loop may compare by itself: a state, each file that was there before, and the steps."""
Read = Callable[[Path, str], bytes | None]
"""Reads a file of a folder, by its path below it."""
MOST_FILES = 10_000
"""Of one collected folder; an attempt that leaves more would make every reader of its run slow."""
_AT_ONCE_BYTES = 1 << 20
"""A file up to this size is read into memory, a state once for the patch and the store."""
_PUT_AT_ONCE = 4
"""Files of an attempt that are on their way to another machine at the same time."""
_END = bytes(1024)
"""How an archive ends. Readers take the end of the file for it, and a small state then needs one block."""
_ENCODER = json.JSONEncoder()
REPLACED = "secrets were replaced in {changed} files of the stored state, which 'proctor eval' would judge"


class Blobs(Protocol):
    """Where files are kept by content."""

    remote: bool
    """Whether a call waits for another machine."""

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
    """Knows where an attempt's files go, and copies them there."""

    def __init__(self, run_dir: Path, blobs: Blobs) -> None:
        self.run_dir = run_dir
        self.blobs = blobs
        self._waiting: dict[str, list[tuple[Artifact, bytes | None]]] = {}
        """By folder: what is still to be put where that takes its time."""

    def folder(self, trial: PlannedTrial, attempt: int) -> Path:
        """`trials/<task>/<n>` for the first attempt; later ones are next to it."""
        return self.run_dir / attempt_folder(trial, attempt)

    async def collect(
        self,
        sandbox: Sandbox,
        task: Task,
        workdir: str,
        folder: Path,
        redactor: Redactor,
        step: Step | None = None,
    ) -> list[Artifact]:
        """The artifacts that the task or its step declares, as far as they exist."""
        part = f"artifacts/steps/{step.name}" if step else "artifacts/files"
        taken = await copy_out(sandbox, wanted(task, step), workdir, folder / part)
        return await in_thread(self._keep_all, str(folder), part, redactor) if taken else []

    async def state(
        self,
        sandbox: Sandbox,
        workdir: str,
        base: Base,
        folder: Path,
        redactor: Redactor,
        about: Mapping[str, str] | None = None,
    ) -> tuple[list[Artifact], list[str]]:
        """Everything the agent changed, and the patch of it; nothing from a sandbox that cannot tell.

        With notes about what is not as the agent left it. `about` is what is known of the repository that it
        worked on.
        """
        if not can(sandbox, KeepsState):
            return [], []
        make_folders(str(folder))
        if not await cast("KeepsState", sandbox).save_state(folder / _STATE, max_bytes=MAX_STATE_BYTES):
            return [], []
        if (folder / _STATE).stat().st_size > _LITTLE_BYTES or not isinstance(base, BaseFiles):
            return await in_thread(self._keep_state, folder, workdir, base, redactor, about or {})
        # Most states are a few kilobytes, for which a thread would cost more than the work.
        changed, data = self._clean_state(folder, redactor)
        try:
            diff = diff_state(data, workdir, base.small, Effort(_LITTLE_STEPS))
        except LargeBaseError:
            diff = await in_thread(diff_state, data, workdir, base)
        return self._keep_diff(folder, data, changed, diff, workdir, redactor, about or {})

    def _keep_state(
        self, folder: Path, workdir: str, base: Base, redactor: Redactor, about: Mapping[str, str]
    ) -> tuple[list[Artifact], list[str]]:
        changed, data = self._clean_state(folder, redactor)
        diff = diff_state(data, workdir, base)
        return self._keep_diff(folder, data, changed, diff, workdir, redactor, about)

    def _clean_state(self, folder: Path, redactor: Redactor) -> tuple[int, bytes | Path]:
        """Without secrets: how many were replaced, and the state, or its content where that is small."""
        state = folder / _STATE
        changed = clean_state(state, redactor) if redactor else 0
        data = _read_small(str(state))
        if data is not None and data.endswith(_END):
            data = data[: -len(_END)]
            os.truncate(state, len(data))
        return changed, state if data is None else data

    def _keep_diff(
        self,
        folder: Path,
        data: bytes | Path,
        changed: int,
        diff: Diff,
        workdir: str,
        redactor: Redactor,
        about: Mapping[str, str],
    ) -> tuple[list[Artifact], list[str]]:
        place = str(folder)
        info = _ENCODER.encode({"workdir": workdir, **diff.counts, **about}) + "\n"
        make_folders(f"{place}/artifacts")
        kept = [
            self._keep(place, _STATE, data if isinstance(data, bytes) else None),
            self._keep_bytes(place, "artifacts/diff.patch", redactor.whole(diff.patch.encode())),
            self._keep_bytes(place, "artifacts/repo_info.json", info.encode()),
        ]
        return kept, [REPLACED.format(changed=changed)] if changed else []

    def write(
        self, folder: Path, redactor: Redactor, *, trajectory: bytes, rubrics: list[dict[str, Any]]
    ) -> list[Artifact]:
        """What Proctor itself knows of the attempt, and the logs that were streamed."""
        place = str(folder)
        kept = [self._keep_bytes(place, "trajectory.json", trajectory)]
        kept += self.write_rubrics(folder, redactor, rubrics)
        # Logs were redacted as they were written.
        kept += self._keep_all(place, "logs", None)
        return kept + self._keep_all(place, "verifier", redactor)

    def write_rubrics(
        self, folder: Path, redactor: Redactor, rubrics: list[dict[str, Any]]
    ) -> list[Artifact]:
        """The scores by rubric, where there are any."""
        text = json.dumps(redactor.value(rubrics), indent=2) + "\n"
        return [self._keep_bytes(str(folder), "rubrics.json", text.encode())] if rubrics else []

    def keep(self, folder: Path, name: str, data: bytes) -> Artifact:
        """One more file of an attempt."""
        return self._keep_bytes(str(folder), name, data)

    def _keep_all(self, folder: str, part: str, redactor: Redactor | None) -> list[Artifact]:
        if redactor:
            clean_folder(Path(folder, part), redactor)
        names = _plain_files(folder, part)
        if len(names) <= MOST_FILES:
            return self._keep_each(folder, names)
        names.sort(
            key=lambda name: (not name.rpartition("/")[2].startswith("reward."), name.count("/"), name)
        )
        for name in names[MOST_FILES:]:
            os.unlink(f"{folder}/{name}")  # noqa: PTH108 - a hundred thousand of them
        note = f"{len(names) - MOST_FILES} more files were left out; at most {MOST_FILES} are kept\n"
        rest = self._keep_bytes(folder, f"{part}.left-out.txt", note.encode())
        return [*self._keep_each(folder, names[:MOST_FILES]), rest]

    def _keep_each(self, folder: str, names: list[str]) -> list[Artifact]:
        return [self._keep(folder, name, _read_small(f"{folder}/{name}")) for name in names]

    def _keep(self, folder: str, name: str, data: bytes | None) -> Artifact:
        """A file that is there, and its content unless it is too large to be held."""
        if self.blobs.remote:
            return self._later(folder, name, data)
        if data is None:
            return self.blobs.put_file(Path(folder, name), name, _media_type(name))
        return self.blobs.put_bytes(data, name, _media_type(name))

    def _later(self, folder: str, name: str, data: bytes | None) -> Artifact:
        if data is None:
            with Path(folder, name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        else:
            digest, size = hashlib.sha256(data).hexdigest(), len(data)
        artifact = Artifact(name=name, digest=digest, size_bytes=size, media_type=_media_type(name))
        self._waiting.setdefault(folder, []).append((artifact, data))
        return artifact

    async def settle(self, folder: Path) -> None:
        """Put what an attempt has kept on another machine; its heartbeats go on while that takes its time."""
        waiting = self._waiting.pop(str(folder), [])
        for at in range(0, len(waiting), _PUT_AT_ONCE):
            some = waiting[at : at + _PUT_AT_ONCE]
            await asyncio.gather(*(in_own_thread(self._put, folder, *each) for each in some))

    def forget(self, folder: Path) -> None:
        """Put no more of an attempt that was given up."""
        self._waiting.pop(str(folder), None)

    def _put(self, folder: Path, artifact: Artifact, data: bytes | None) -> None:
        if data is not None:
            self.blobs.put_bytes(data, artifact.name, artifact.media_type)
        elif self.blobs.put_file(folder / artifact.name, artifact.name).digest != artifact.digest:
            raise StoreError(f"{folder / artifact.name}: it was changed while it was being stored")

    def _keep_bytes(self, folder: str, name: str, data: bytes) -> Artifact:
        place = f"{folder}/{name}"
        try:
            try:
                _write(place, data)
            except FileNotFoundError:
                make_folders(place.rpartition("/")[0])
                _write(place, data)
        except OSError as error:
            raise StoreError(f"{place}: cannot be written: {error.strerror or error}") from error
        return self._keep(folder, name, data)


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
        write_all(fd, data)
    finally:
        os.close(fd)


@cache
def _media_type(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _plain_files(folder: str, part: str) -> list[str]:
    """The plain files below a part of a folder, in order, as paths relative to the folder."""
    found: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(f"{folder}/{part}") as entries:
        for entry in list(entries):  # all at once: a changed name must not be found again
            name = f"{part}/{entry.name if entry.name.isascii() else _valid(f'{folder}/{part}', entry.name)}"
            if entry.is_dir(follow_symlinks=False):
                found += _plain_files(folder, name)
            elif entry.is_file(follow_symlinks=False):
                found.append(name)
    return sorted(found)


def _valid(folder: str, name: str) -> str:
    """A name that is UTF-8: another one is changed, so that records, archives and pages can hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        pass
    else:
        return name
    known = os.fsencode(name)
    readable = known.decode(errors="backslashreplace").encode()[:150].decode(errors="ignore")
    changed = f"{readable}-{hashlib.sha256(known).hexdigest()[:8]}"  # different names stay different
    os.rename(f"{folder}/{name}", f"{folder}/{changed}")  # noqa: PTH104 - the old one is bytes
    return changed


class LargeBaseError(Exception):
    """What was there before is too large to be compared at once."""


class BaseFiles:
    """A path's content before the agent started: added files, then the workspace, then the image's layers."""

    def __init__(self, root: Root, workspace: Workspace, workdir: str) -> None:
        self._prefix = workdir.strip("/") + "/"
        self._workspace = workspace
        self._layers = list(reversed(root.layers))

    def __call__(self, path: str) -> bytes | None:
        """The content; None where there was no file."""
        return self._read(path, _read_below)

    def small(self, path: str) -> bytes | None:
        """The same; LargeBaseError instead of a large file."""
        return self._read(path, _read_small_below)

    def _read(self, path: str, read: Read) -> bytes | None:
        if path.startswith(self._prefix):
            inner, workspace = path[len(self._prefix) :], self._workspace
            if (found := _last_added(inner, workspace.add, read)) is not None:
                return found
            if workspace.remove and is_removed(inner, workspace.remove):
                return None
            if workspace.source and (found := read(workspace.source, inner)) is not None:
                return found
            if workspace.replaces:
                return None
        for layer in self._layers:
            if (found := read(layer, path)) is not None:
                return found
        return None


def laid_above(workspace: Workspace, workdir: str) -> Base:
    """A path's content as the run laid it around the working folder; None where it laid none."""
    parent = posixpath.dirname(f"/{workdir.strip('/')}").strip("/")
    prefix = f"{parent}/" if parent else ""

    def content(path: str) -> bytes | None:
        inside = path.startswith(prefix)
        return _last_added(path[len(prefix) :], workspace.above, _read_below) if inside else None

    return content


def _last_added(path: str, added: Sequence[tuple[str, bytes | Path]], read: Read) -> bytes | None:
    contents = (_added(path, target, each, read) for target, each in reversed(added))
    return next((content for content in contents if content is not None), None)


def _added(path: str, target: str, content: bytes | Path, read: Read) -> bytes | None:
    """What an added file, or a file of an added folder, has at a path."""
    if isinstance(content, bytes):
        return content if path == target else None
    if path == target:
        return read(content.parent, content.name)
    below = f"{target}/" if target else ""
    return read(content, path[len(below) :]) if path.startswith(below) and content.is_dir() else None


def _read_small_below(folder: Path, relative: str) -> bytes | None:
    with suppress(OSError):
        if os.lstat(f"{folder}/{relative}").st_size > _LITTLE_BYTES:
            raise LargeBaseError
        return _read_below(folder, relative)
    return None


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
