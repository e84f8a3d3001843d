"""The most that specs and tasks from the API may ask of a machine, and that a project may keep on it.

Settings say it. Of a spec, what they leave open is what this machine has, unless workers elsewhere execute; a
task says what it needs on any machine, and is held to the settings alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proctor.errors import TaskError
from proctor.model.task import Task
from proctor.sandbox.container import composition
from proctor.server.problem import Problem
from proctor.settings import Settings
from proctor.store.store import Store

_PID_MAX = Path("/proc/sys/kernel/pid_max")


class Asked(Protocol):
    """What a sandbox is asked to have: of a spec, or of a task's environment."""

    @property
    def cpus(self) -> float | None:
        """Processors."""

    @property
    def memory_bytes(self) -> int | None:
        """Memory."""

    @property
    def storage_bytes(self) -> int | None:
        """Disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The most that one sandbox may be asked to have; None: no limit."""

    cpus: float | None
    memory_bytes: float | None
    storage_bytes: float | None
    pids: float | None

    @classmethod
    def of(cls, settings: Settings) -> Ceilings:
        """Those of a server, for specs."""
        here = not settings.broker
        return cls(
            cpus=settings.serve_cpus or (os.cpu_count() if here else None),
            memory_bytes=settings.serve_memory_bytes or (_memory_bytes() if here else None),
            storage_bytes=settings.serve_storage_bytes or (_disk_bytes(settings.home) if here else None),
            pids=settings.serve_pids or (_pids() if here else None),
        )

    @classmethod
    def of_tasks(cls, settings: Settings) -> Ceilings:
        """Those of a server, for what tasks say of themselves."""
        return cls(
            cpus=settings.serve_cpus or None,
            memory_bytes=settings.serve_memory_bytes or None,
            storage_bytes=settings.serve_storage_bytes or None,
            pids=settings.serve_pids or None,
        )

    def exceeded(self, asked: Asked) -> Iterator[tuple[str, str]]:
        """What is asked for and cannot be had: its key, and why."""
        for key in ("cpus", "memory_bytes", "storage_bytes", "pids"):
            most, given = getattr(self, key), getattr(asked, key, None)
            if most is not None and given is not None and given > most:
                setting = f"PROCTOR_SERVE_{key.upper()}"
                yield key, f"'{key}' is {given:,}; a sandbox of this server has at most {most:,} ({setting})"


def check_task(task: Task, settings: Settings) -> None:
    """Refuse an uploaded task that asks for more than the server gives one."""
    for _, reason in Ceilings.of_tasks(settings).exceeded(task.environment):
        raise Problem("task_invalid", f"task.toml: environment: {reason}")
    if task.environment.compose is None:
        return
    try:
        beside = composition.companions(task.environment.compose)
    except TaskError as error:
        said = str(error).replace(f"{task.environment.compose.parent}/", "")
        raise Problem("task_invalid", said) from error
    if beside > settings.serve_companions:
        raise Problem(
            "task_invalid",
            f"{task.environment.compose.name}: {beside:,} services beside the agent's; this server starts at "
            f"most {settings.serve_companions} (PROCTOR_SERVE_COMPANIONS)",
        )


def check_uploads(store: Store, settings: Settings, project: str, size_bytes: int) -> None:
    """Refuse an upload of a project that keeps as many already as it may."""
    number, kept_bytes = store.service.uploads.kept(project)
    if number >= settings.serve_uploads:
        raise Problem("quota", f"The project '{project}' has {number:,} uploads; delete some first")
    if kept_bytes + size_bytes > settings.serve_upload_bytes:
        raise Problem(
            "quota",
            f"The project '{project}' keeps {kept_bytes / 1e9:,.1f} GB of uploads, of "
            f"{settings.serve_upload_bytes / 1e9:,.1f} GB; delete some first",
        )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk_bytes(home: Path) -> int | None:
    try:
        return shutil.disk_usage(home).total
    except OSError:
        return None


def _pids() -> int | None:
    try:
        return int(_PID_MAX.read_text())
    except (OSError, ValueError):
        return None
