"""A spec of this machine as one that a server takes: its tasks are uploaded, each at most once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proctor.client.client import Client
from proctor.errors import TaskError, UsageError
from proctor.model.spec import Spec, TaskEntry
from proctor.model.task import Task
from proctor.settings import Settings
from proctor.spec.command_line import short_mapping
from proctor.tasks.archive import pack
from proctor.tasks.dataset import find_tasks

Say = Callable[[str], None]


def submission(spec: Spec, client: Client, settings: Settings, say: Say) -> dict[str, Any]:
    """The body of a submission. What the spec names is uploaded, unless the server has the same task."""
    data = short_mapping(spec)
    data.pop("base_dir", None)
    if spec.tasks:
        known = {each["digest"]: each["id"] for each in client.uploads()}
        written = _entries(data.pop("tasks"), spec)
        data["tasks"] = [
            {**entry, "path": {"upload": _uploaded(task, client, known, say)}}
            for entry, task in _with_tasks(written, spec, settings)
        ]
    return {"spec": data}


def _entries(written: list[dict[str, Any]], spec: Spec) -> list[dict[str, Any]]:
    """The entries without where their tasks are, and with the content of overrides in place of a path."""
    found = []
    for keys, entry in zip(written, spec.tasks, strict=True):
        kept = {key: value for key, value in keys.items() if key not in {entry.source, "include", "exclude"}}
        found.append(kept | _overrides(entry, Path(spec.base_dir)))
    return found


def _overrides(entry: TaskEntry, base: Path) -> dict[str, Any]:
    if not isinstance(entry.overrides, str):
        return {}
    from proctor.trial.task.prepare import config_overrides

    content, _ = config_overrides(entry, base)
    return {"overrides": dict(content)}


def _with_tasks(
    written: list[dict[str, Any]], spec: Spec, settings: Settings
) -> list[tuple[Mapping[str, Any], Task]]:
    pairs: list[tuple[Mapping[str, Any], Task]] = []
    for keys, entry in zip(written, spec.tasks, strict=True):
        found = find_tasks(entry, Path(spec.base_dir), settings.cache_dir, settings.dataset_registries)
        if found.broken:
            first = found.broken[0]
            raise TaskError(f"{first.name}: {first.error}; a server takes no broken task")
        pairs += [(keys, task) for task in found.tasks]
    return pairs


def _uploaded(task: Task, client: Client, known: dict[str, str], say: Say) -> str:
    if task.digest in known:
        return known[task.digest]
    name = f"{task.path.name}.zip"
    with tempfile.TemporaryDirectory(prefix="proctor-upload-") as place:
        archive = Path(place, "task.zip")
        pack(task.path, archive)
        say(f"uploading {task.name} ({archive.stat().st_size / 1000:,.0f} kB)")
        kept = client.upload(archive, name.replace('"', "_"))
    if kept["digest"] != task.digest:
        raise UsageError(
            f"{task.name}: the server reads this task as another one (digest {kept['digest'][:12]}, here "
            f"{task.digest[:12]}); is its version of Proctor the same?"
        )
    known[task.digest] = kept["id"]
    return str(kept["id"])
