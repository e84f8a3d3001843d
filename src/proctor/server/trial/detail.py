"""A trial whole: every attempt, the sentence above it, its neighbours, what people said of it."""

from __future__ import annotations

from typing import Any

from proctor.model.record import AttemptRecord
from proctor.server.reading.trial_rows import trial_row, used
from proctor.server.state import State
from proctor.server.trial.attempt_files import files_of, find_trial
from proctor.server.trial.verifier import sentence, tests_of
from proctor.store.store import Store
from proctor.store.views.trials import Shown

_LONG = 20_000


def trial_detail(store: Store, shared: State, run: str, index: int) -> dict[str, Any]:
    """What the page of a trial shows first."""
    trial = find_trial(store, run, index)
    views = store.views.trials
    info = store.views.runs.listed(limit=1, id=run)[0]
    attempts = views.attempts(run, index, trial.planned.key)
    total = int(info.row[7])
    return {
        "trial": trial_row(trial),
        "attempts": [_attempt(record, counts=counts) for record, counts in attempts],
        "sentence": _sentence(store, shared, run, trial),
        "previous": index - 1 if index > 0 else None,
        "next": index + 1 if index + 1 < total else None,
        "next_failure": views.next_failure(run, index),
        "live": _live(store, run, trial),
        "run": {"id": run, "name": info.row[2], "status": info.status, "kind": info.row[3], "total": total},
        "labels": [each["label"] for each in views.labels(run, index)],
        "comments": [
            {"id": each["id"], "author": each["author"], "at": each["at"], "text": each["body"]}
            for each in views.comments(run, index)
        ],
    }


def _sentence(store: Store, shared: State, run: str, trial: Shown) -> str:
    if trial.record is None:
        return {"pending": "Waits for a worker.", "cancelled": "Cancelled before it began."}.get(
            trial.state, ""
        )
    if trial.planned.kind != "task" or trial.record.outcome.value == "passed":
        return sentence(trial.record, [])
    files = files_of(store, shared, run, trial.planned.index, trial.record.number)
    return sentence(trial.record, tests_of(files))


def _live(store: Store, run: str, trial: Shown) -> dict[str, Any] | None:
    if trial.state not in {"running", "leased"}:
        return None
    began = trial.started_at or 0.0
    found = store.views.trials.phase(run, trial.planned.index)
    since, phase = found if found and found[0] >= began else (began, "queue")
    return {"phase": phase, "since": since, "attempt": trial.attempts + 1, "worker": trial.worker}


def _attempt(record: AttemptRecord, *, counts: bool) -> dict[str, Any]:
    failure = record.failure
    return {
        "number": record.number,
        "outcome": record.outcome,
        "blame": record.outcome.blame,
        "counts": counts,
        "reward": record.reward,
        "failure": failure
        and {
            "phase": failure.phase,
            "type": failure.type,
            "message": failure.message[:_LONG],
            "traceback": failure.traceback[:_LONG],
            "in_words": failure.in_words[:1000],
        },
        "took_s": record.took_s,
        "phases_s": record.phases_s,
        "metrics": record.metrics,
        "iterations": len(record.iterations),
        "ledger": record.ledger,
        "usage": record.usage,
        **used(record),
        "notes": record.notes,
        "suspect": record.suspect,
        "system_changes": record.system_changes,
        "image": record.image,
        "artifacts": [
            {"name": each.name, "size_bytes": each.size_bytes, "media_type": each.media_type}
            for each in record.artifacts
        ],
        "worker": record.worker,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
    }
