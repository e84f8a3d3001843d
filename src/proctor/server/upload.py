"""Uploaded tasks: checked as an archive, read as a task, looked through file by file, kept as a blob."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import Task
from proctor.server.audit import audit
from proctor.server.auth.caller import Caller
from proctor.server.logs import escaped
from proctor.server.problem import Problem
from proctor.server.state import State
from proctor.server.submit import ceilings
from proctor.server.submit.making import project_for
from proctor.spec.grammar import safe_name
from proctor.store.service.uploads import Upload
from proctor.store.store import Store
from proctor.tasks.archive import ArchiveLimits, unpack
from proctor.tasks.lint.check import check_task
from proctor.tasks.read import read_runnable

MOST_BYTES = 100 * 1000 * 1000
MEDIA_TYPE = "application/zip"
_LIMITS = ArchiveLimits(total_bytes=1 << 30)
_OVERRIDES = "overrides.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploading:
    """What comes with the bytes of an upload."""

    filename: str
    name: str = ""
    description: str = ""
    agent: str = "terminus-2"
    model: str = ""
    num_runs: int = 10
    project: str | None = None


def keep(store: Store, state: State, caller: Caller, archive: Path, given: Uploading) -> tuple[Upload, bool]:
    """Check an archive and keep it; whether the project has the same task already.

    What is wrong with the archive or the task is a Problem with every finding, and nothing is kept.
    """
    home = project_for(store, caller, given.project)
    ceilings.check_uploads(store, state.settings, home, archive.stat().st_size)
    place = state.settings.home.absolute() / "uploads"
    place.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".check-", dir=place))
    try:
        stem = safe_name(Path(given.filename).stem or "task")
        named = scratch / f"{stem}.zip"
        shutil.move(archive, named)
        folder = unpack(named, scratch / "task" / stem, _LIMITS)
        findings = list(_findings(folder))
        task = _read(folder, findings)
        _refuse_fetching(folder, task)
        ceilings.check_task(task, state.settings)
        same = store.service.uploads.same(task.digest, home)
        blob = state.blobs.put_file(named, f"{stem}.zip", MEDIA_TYPE)
        upload = Upload(
            id=f"up_{secrets.token_hex(8)}",
            project=home,
            owner=caller.user,
            name=given.name or task.name.rpartition("/")[2],
            description=given.description or task.description[:2000],
            filename=escaped(Path(given.filename).name)[:255],
            size_bytes=blob.size_bytes,
            blob=blob.digest,
            digest=task.digest,
            subject=task.name,
            findings=findings,
            agent=given.agent,
            model=given.model,
            num_runs=given.num_runs,
        )
        store.service.uploads.add(upload)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    audit(store, caller, "task.upload", upload.id, project=home)
    found = store.service.uploads.find(upload.id, None)
    assert found is not None
    return found, same is not None


def _read(folder: Path, findings: list[dict[str, str]]) -> Task:
    try:
        return read_runnable(folder)
    except TaskError as error:
        said = _without(folder, str(error))
        errors = [{"where": each["where"], "message": each["message"]} for each in findings]
        raise Problem(
            "task_invalid", said, errors=errors or [{"where": folder.name, "message": said}]
        ) from error


def _findings(folder: Path) -> Iterator[dict[str, str]]:
    """What the checks of tasks find, by file."""
    for each in check_task(folder).findings:
        yield {
            "level": each.level,
            "where": _without(folder, each.place),
            "message": _without(folder, " ".join(filter(None, (each.message, each.detail)))),
            "hint": _without(folder, each.hint),
        }


def _without(folder: Path, text: str) -> str:
    """The text without the place at which the server has unpacked it."""
    return text.replace(f"{folder}/", "").replace(str(folder), folder.name)


def _refuse_fetching(folder: Path, task: Task) -> None:
    """Refuse a task that would make the server itself fetch a repository, with its network and its keys."""
    overridden = _json(folder / _OVERRIDES).get("repo")
    if (task.repository and task.repository.git_url) or (
        isinstance(overridden, Mapping) and overridden.get("git_url")
    ):
        raise Problem(
            "task_invalid", "The server would fetch 'git_url' itself; put the repository into the ZIP"
        )


def _json(file: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(read_small(file, 16 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, Mapping) else {}
