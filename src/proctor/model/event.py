"""Every state change is one event with an increasing id; readers resume from the last id they saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """One state change of a run or of one of its trials."""

    id: int
    run_id: str
    at: float
    kind: str
    """run.started, run.finished, trial.leased, trial.running, attempt.ended, trial.done …"""
    trial_key: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
