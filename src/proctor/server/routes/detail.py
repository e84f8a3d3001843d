"""One run, whole: what its page shows, and what the routes that change a run answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from msgspec import structs

from proctor.model.outcome import Outcome
from proctor.model.run import RunInfo
from proctor.model.trial import TrialState
from proctor.runs.running import ReadyRun
from proctor.server.problem import Problem
from proctor.server.reading.reading import Reading
from proctor.server.reading.run_rows import OVER
from proctor.spec.grammar import BUDGETS
from proctor.store.store import Store

_PLACES = ("base_dir", "output_dir")
_OF_ENTRIES = ("path", "prepared_dir", "zip", "dataset", "overrides")


def run_detail(
    store: Store, run_id: str, reading: Reading | None = None, *, code: bool = False
) -> dict[str, Any]:
    """A run with its spec, where it was made, what it may spend and what it has spent.

    Only who may run code on the server's machine (`code`) is shown paths of it.
    """
    rows = (reading or Reading()).rows
    listed_run = store.views.runs.listed(limit=1, id=run_id)
    if not listed_run:
        raise Problem("not_found", f"There is no run '{run_id}'")
    holder = store.coordination.holder(run_id)
    return _whole(
        rows.of(store, listed_run)[0].data,
        store.run(run_id),
        code=code,
        states=store.state_counts(run_id),
        artifact_bytes=store.blob_bytes(run_id),
        warnings=store.warnings(run_id),
        coordinator={"holder": holder.holder} if holder else None,
        last_event=listed_run[0].last_event,
    )


def new_run_detail(store: Store, run: ReadyRun, reading: Reading, *, code: bool = False) -> dict[str, Any]:
    """The same of a run that was just made: from what it was made of, unless somebody has begun it."""
    info = run.info
    listed_run = store.views.runs.listed(limit=1, id=info.id)
    if not listed_run or listed_run[0].status != info.status:
        return run_detail(store, info.id, reading, code=code)
    stored = {each.digest: each.size_bytes for each in run.inputs.stored.values()}
    return _whole(
        reading.rows.new(store, listed_run[0], info, run.plan).data,
        info,
        code=code,
        states={state.value: 0 for state in TrialState} | {TrialState.PENDING.value: info.total},
        artifact_bytes=sum(stored.values()),
        warnings=run.plan.warnings,
        coordinator=None,
        last_event=listed_run[0].last_event,
    )


def _whole(row: Mapping[str, Any], info: RunInfo, *, code: bool, **known: Any) -> dict[str, Any]:
    info = info if code else without_paths(info)
    return {
        **row,
        **known,
        "plan_digest": info.plan_digest,
        "spec": info.spec,
        "resolved": info.resolved,
        "environment": info.environment,
        "vcs": info.vcs,
        "versions": info.versions,
        "host_root": info.host_root,
        "budget": {name: info.resolved.get(name) for name in BUDGETS},
        "spent": {name: row[name] for name in ("cost_usd", "tokens", "requests", "unknown_cost")},
        "eta_s": _eta_s(info, row["running"], time.time()),
        "errors_to_retry": sum(n for each, n in info.counts.items() if Outcome(each).retryable),
    }


def _eta_s(info: RunInfo, running: int, now: float) -> float | None:
    """How long what is left takes at the pace of this run so far; None while too little has ended."""
    ended = sum(info.counts.values())
    if info.status in OVER or ended < 3 or not info.started_at or not running:
        return None
    return max(0.0, (now - info.started_at) * (info.total - ended) / ended)


def without_paths(info: RunInfo) -> RunInfo:
    """A run that names folders and files, and not where on the server's machine they are."""
    python = info.environment.get("python")
    about = {key: value for key, value in python.items() if key != "executable"} if python else python
    return structs.replace(
        info,
        spec=_placeless(info.spec),
        resolved=_placeless(info.resolved),
        environment={**info.environment, "python": about} if about else info.environment,
    )


def _placeless(spec: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: value for key, value in spec.items() if key not in _PLACES}
    for key in ("tape", "sources"):
        if key in shown:
            shown[key] = _named(shown[key])
    if isinstance(entries := spec.get("tasks"), Sequence):
        shown["tasks"] = [
            {key: _named(value) if key in _OF_ENTRIES else value for key, value in entry.items()}
            if isinstance(entry, Mapping)
            else entry
            for entry in entries
        ]
    return shown


def _named(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    return PurePath(value).name if isinstance(value, str) and value.startswith(("/", "~")) else value
