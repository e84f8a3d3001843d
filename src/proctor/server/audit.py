"""The audit log: who did what, in the project of what was touched, whoever did it from wherever."""

from __future__ import annotations

from typing import Any

from proctor.server.auth.caller import Caller
from proctor.store.store import Store


def audit_run(
    store: Store, caller: Caller, action: str, run_id: str, *, trial: int | None = None, **detail: Any
) -> None:
    """Note what was done to a run, or to one of its trials."""
    target = run_id if trial is None else f"{run_id}/{trial}"
    audit(store, caller, action, target, project=store.service.ownership.place(run_id).project, **detail)


def audit(
    store: Store, caller: Caller, action: str, target: str, *, project: str | None, **detail: Any
) -> None:
    """Note what was done to something of a project; None: it is of no project."""
    store.service.audit.add(caller.user, action, target, token=caller.token, project=project or "", **detail)
