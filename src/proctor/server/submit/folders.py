"""The folders of uploads and stored tasks on this machine, unpacked once from their blobs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from proctor.errors import TaskError
from proctor.server.problem import Problem
from proctor.spec.grammar import safe_name
from proctor.store.blobs import Blobs, local_file
from proctor.store.service.uploads import Upload
from proctor.store.store import Store
from proctor.store.trees import get_tree
from proctor.tasks.archive import unpack
from proctor.tasks.walk import is_task


def folder_of(named: Any, store: Store, blobs: Blobs, cache_dir: Path, project: str | None) -> Path:
    """The folder that `{upload: ID}` or `{task: NAME}` means; a Problem when a caller has no such thing."""
    if isinstance(named, Mapping) and len(named) == 1:
        (kind, value), *_ = named.items()
        if kind == "upload" and isinstance(value, str):
            upload = store.service.uploads.find(value, project)
            if upload is None:
                raise Problem("not_found", f"There is no upload '{value}', or not in your project")
            return upload_folder(upload, blobs, cache_dir)
        if kind == "task" and isinstance(value, str):
            return _stored(value, store, blobs, cache_dir, project)
    raise Problem("spec_forbidden", "A task is named as {upload: ID} or {task: NAME}")


def upload_folder(upload: Upload, blobs: Blobs, cache_dir: Path) -> Path:
    """The folder of an upload; its name is that of the archive, as that of its task may be."""
    place = cache_dir / "uploads" / upload.blob[:32]
    target = place / safe_name(Path(upload.filename).stem or "task")
    if not target.exists():
        archive = local_file(blobs, upload.blob, cache_dir / "archives")
        try:
            return unpack(archive, target)
        except (TaskError, OSError):
            if not target.exists():  # else another request was first
                raise
    return task_in(target)


@lru_cache(maxsize=1024)
def task_in(target: Path) -> Path:
    """The task in an unpacked archive: at the top or one folder down. A place has one content for ever."""
    return next((each for each in (target, *sorted(target.iterdir())) if is_task(each)), target)


def _stored(name: str, store: Store, blobs: Blobs, cache_dir: Path, project: str | None) -> Path:
    if upload := store.service.uploads.named(name, project):
        return upload_folder(upload, blobs, cache_dir)
    found = store.service.uploads.stored_tasks(project, name=name, limit=1)
    if not found:
        raise Problem("not_found", f"There is no stored task '{name}', or not in your project")
    target = cache_dir / "stored" / found[0].digest[:32] / safe_name(name.rpartition("/")[2])
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))
        shutil.copytree(get_tree(blobs, found[0].blob, cache_dir / "inputs"), beside, dirs_exist_ok=True)
        beside.chmod(0o755)
        try:
            beside.rename(target)
        except OSError:  # another request was first
            shutil.rmtree(beside, ignore_errors=True)
    return target
