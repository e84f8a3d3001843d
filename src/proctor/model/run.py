"""One execution of one plan, as the store and the run folder know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.model.trial import RunStatus

HOST_ROOT = "host root: every sandbox used this machine's own system; results are not reproducible elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run without its trials."""

    id: str
    name: str
    kind: str
    """experiment or task"""
    status: RunStatus
    created_at: float
    seed: int
    started_at: float | None = None
    finished_at: float | None = None
    total: int = 0
    done: int = 0
    tags: tuple[str, ...] = ()
    notes: str = ""
    folder: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """As the person wrote it."""
    resolved: Mapping[str, Any] = field(default_factory=dict)
    """With all defaults; `spec.load.from_mapping` reads it back."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    vcs: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    plan_digest: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many trials ended with each outcome."""

    @property
    def host_root(self) -> bool:
        """Whether its sandboxes had the system of the machine as root, in place of the tasks' images."""
        sandbox = self.resolved.get("sandbox")
        return self.kind == "task" and isinstance(sandbox, Mapping) and sandbox.get("host_root") is True
