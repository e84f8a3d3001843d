"""What the older API does with an uploaded task: execute it, try again, cancel, delete."""

from __future__ import annotations

from typing import Any

from proctor.errors import UsageError
from proctor.gateway.providers import Providers
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus, TrialState
from proctor.runs import actions
from proctor.runs.coordinator import unfinished
from proctor.server.audit import audit
from proctor.server.auth.caller import Caller
from proctor.server.problem import Problem
from proctor.server.state import State
from proctor.server.submit import making
from proctor.server.submit.reading import Submission
from proctor.store.service.uploads import Upload
from proctor.store.store import Store


def execute(
    store: Store,
    state: State,
    caller: Caller,
    upload: Upload,
    *,
    index: int | None = None,
    timeout_s: float | None = None,
    key: str | None = None,
) -> int:
    """Queue the runs of a task that have no result, or one of them; how many."""
    making.check_quota(store, upload.project)
    run = _open_run(store, upload)
    if run is None:
        run_id = _make(store, state, caller, upload, timeout_s)
    else:
        run_id = run.id
        if timeout_s is not None and run.resolved.get("timeout_s") != timeout_s:
            raise Problem("conflict", "The task is under way with another time limit; cancel it first")
    if key:
        _keep_key(store, state, caller, upload, run_id, key)
    if index is None:
        store.service.rollouts.let_go(run_id)
        number = unfinished(store, run_id)
    else:
        number = _only(store, run_id, index)
    if number:
        store.service.queue.want(run_id, wanted=True, owner=caller.user, event="run.queued")
    audit(store, caller, "task.execute", upload.id, project=upload.project, runs=number)
    return number


def _open_run(store: Store, upload: Upload) -> RunInfo | None:
    """The run of a task, unless it was cancelled: then another one is made."""
    run = store.run(upload.run_id) if upload.run_id else None
    return None if run is None or run.status is RunStatus.CANCELLED else run


def _make(store: Store, state: State, caller: Caller, upload: Upload, timeout_s: float | None) -> str:
    entry: dict[str, Any] = {
        "path": {"upload": upload.id},
        "agent": upload.agent,
        "rollouts": upload.num_runs,
    }
    if upload.model:
        entry["model"] = upload.model
    spec: dict[str, Any] = {"name": upload.name[:128], "tasks": [entry]}
    if timeout_s is not None:
        spec["timeout_s"] = timeout_s
    run_id = making.submit(
        store,
        state,
        caller,
        Submission(spec=spec, parallel=upload.num_runs),
        project=upload.project,
        start=False,
        source=f"upload:{upload.id}",
    ).info.id
    store.service.uploads.set_run(upload.id, run_id)
    return run_id


def _only(store: Store, run_id: str, index: int) -> int:
    """Let one rollout begin. While the whole task is under way it is in the queue already."""
    found = store.service.rollouts.of(run_id, index)
    if not found or found[0].state != TrialState.PENDING:
        return 0
    if store.service.ownership.place(run_id).wanted:
        store.service.rollouts.let_go(run_id, index)
    else:
        store.service.rollouts.hold_others(run_id, index)
    return 1


def _keep_key(store: Store, state: State, caller: Caller, upload: Upload, run_id: str, key: str) -> None:
    """A key that came with the request: encrypted, for this run alone, forgotten when it is over."""
    try:
        provider, _ = Providers.load(state.settings, {}).of(upload.model)
    except UsageError:
        raise Problem(
            "bad_request", "The task has no model of a known provider, so it needs no key"
        ) from None
    if not provider.key_env:
        raise Problem("bad_request", f"The provider '{provider.name}' takes no key")
    store.service.keys.put_for_run(
        upload.project, run_id, provider.key_env, state.vault.seal(key), by=caller.user
    )


def retry(store: Store, caller: Caller, upload: Upload) -> int:
    """Try again what was lost to infrastructure or a provider; how many runs are queued."""
    making.check_quota(store, upload.project)
    run = _open_run(store, upload)
    if run is None:
        raise Problem("conflict", "The task has no run to try again; execute it")
    if run.status is RunStatus.RUNNING:
        raise Problem("conflict", "The task is running; try again when it has ended")
    lost = store.reopen_lost(run.id)
    store.service.rollouts.let_go(run.id)
    number = unfinished(store, run.id)
    if number:
        if run.status is RunStatus.DONE:
            store.set_status(run.id, RunStatus.INTERRUPTED)
        store.service.queue.want(run.id, wanted=True, owner=caller.user, event="run.queued")
    audit(store, caller, "task.retry", upload.id, project=upload.project, lost=lost)
    return number


def cancel(store: Store, state: State, caller: Caller, upload: Upload) -> None:
    """Cancel the run of a task."""
    if upload.run_id is None:
        raise Problem("conflict", "The task was not executed; there is nothing to cancel")
    actions.cancel(store, state.blobs, upload.run_id)
    audit(store, caller, "task.cancel", upload.id, project=upload.project)


def delete(store: Store, state: State, caller: Caller, upload: Upload) -> None:
    """Remove a task, its run and the run of its check."""
    for run_id in filter(None, (upload.run_id, upload.check_id)):
        actions.delete(store, state.blobs, state.settings, run_id)
    store.service.uploads.delete(upload.id)
    audit(store, caller, "task.delete", upload.id, project=upload.project)
