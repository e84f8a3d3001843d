"""Records of a run folder turned back into the model, with every field checked first."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any, NamedTuple

from proctor.errors import UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import Execution, RunInfo
from proctor.model.trial import RunStatus

_LARGEST = 2**63 - 1


class _Field(NamedTuple):
    kinds: tuple[type, ...]
    required: bool = False
    nullable: bool = False


_TEXT = _Field((str,), required=True)
_COUNT = _Field((int,), required=True)
_TIME = _Field((int, float), required=True)
_MAYBE_TEXT = _Field((str,), nullable=True)
_MAPPING = _Field((dict,))
_LIST = _Field((list,))

_TRIAL = {
    "key": _TEXT,
    "index": _COUNT,
    "kind": _TEXT,
    "subject": _TEXT,
    "subject_digest": _TEXT,
    "body": _COUNT,
    "params": _MAPPING,
    "seed": _Field((int,)),
    "agent": _MAYBE_TEXT,
    "agent_version": _MAYBE_TEXT,
    "model": _MAYBE_TEXT,
    "overrides": _MAPPING,
    "rollout": _Field((int,)),
    "path": _MAYBE_TEXT,
}
_ATTEMPT = {
    "key": _TEXT,
    "number": _COUNT,
    "outcome": _TEXT,
    "started_at": _TIME,
    "ended_at": _TIME,
    "reward": _Field((int, float), nullable=True),
    "failure": _Field((dict,), nullable=True),
    "phases_s": _MAPPING,
    "metrics": _MAPPING,
    "iterations": _LIST,
    "ledger": _MAPPING,
    "usage": _MAPPING,
    "artifacts": _LIST,
    "notes": _LIST,
    "worker": _Field((str,)),
    "image": _MAPPING,
    "system_changes": _MAPPING,
    "suspect": _Field((bool,)),
}
_FAILURE = {"phase": _TEXT, "type": _TEXT, "message": _TEXT, "traceback": _Field((str,))}
_ARTIFACT = {"name": _TEXT, "digest": _TEXT, "size_bytes": _COUNT, "media_type": _Field((str,))}
_RUN = {
    "id": _TEXT,
    "name": _TEXT,
    "kind": _TEXT,
    "status": _TEXT,
    "created_at": _TIME,
    "seed": _COUNT,
    "started_at": _Field((int, float), nullable=True),
    "finished_at": _Field((int, float), nullable=True),
    "total": _Field((int,)),
    "done": _Field((int,)),
    "tags": _LIST,
    "notes": _Field((str,)),
    "folder": _Field((str,)),
    "spec": _MAPPING,
    "resolved": _MAPPING,
    "environment": _MAPPING,
    "vcs": _MAPPING,
    "versions": _MAPPING,
    "plan_digest": _Field((str,)),
    "counts": _MAPPING,
    "execution": _Field((str,)),
}
_SIGNED = {"seed"}
_ABSENT = object()


def _take(data: Any, fields: Mapping[str, _Field], place: str) -> dict[str, Any]:
    """The known fields of a record; those of a later version are left out."""
    if not isinstance(data, dict):
        raise UsageError(f"{place}: a JSON object is expected here")
    taken: dict[str, Any] = {}
    for name, field in fields.items():
        value = data.get(name, _ABSENT)
        kind = type(value)
        if kind not in field.kinds:
            if value is _ABSENT and not field.required:
                continue
            if value is not None or not field.nullable:
                raise _wrong(value, field, place, name)
        elif kind is int and not (-_LARGEST if name in _SIGNED else 0) <= value <= _LARGEST:
            raise UsageError(f"{place}: '{name}' is out of range")
        taken[name] = value
    return taken


def _wrong(value: Any, field: _Field, place: str, name: str) -> UsageError:
    if value is _ABSENT:
        return UsageError(f"{place}: '{name}' is missing")
    if value is None:
        return UsageError(f"{place}: '{name}' must not be null")
    wanted = " or ".join(kind.__name__ for kind in field.kinds)
    return UsageError(f"{place}: '{name}' is {type(value).__name__}, must be {wanted}")


def trial_from(data: Any, place: str) -> PlannedTrial:
    """A planned trial."""
    taken = _take(data, _TRIAL, place)
    if taken["kind"] not in {"experiment", "task"}:
        raise UsageError(f"{place}: 'kind' is {taken['kind'][:40]!r}, must be experiment or task")
    for name in ("kind", "subject", "subject_digest"):
        taken[name] = intern(taken[name])  # alike in thousands of trials
    return PlannedTrial(**taken)


def attempt_from(data: Any, place: str) -> AttemptRecord:
    """One attempt, with its failure and artifacts."""
    taken = _take(data, _ATTEMPT, place)
    try:
        taken["outcome"] = Outcome(taken["outcome"])
    except ValueError:
        raise UsageError(f"{place}: the outcome {taken['outcome'][:40]!r} is not known here") from None
    if taken.get("failure"):
        taken["failure"] = Failure(**_take(taken["failure"], _FAILURE, f"{place}: failure"))
    if not all(isinstance(row, dict) for row in taken.get("iterations", ())):
        raise UsageError(f"{place}: 'iterations' must hold objects")
    if not all(isinstance(note, str) for note in taken.get("notes", ())):
        raise UsageError(f"{place}: 'notes' must hold text")
    taken["iterations"] = tuple(taken.get("iterations", ()))
    taken["notes"] = tuple(taken.get("notes", ()))
    taken["artifacts"] = tuple(
        Artifact(**_take(each, _ARTIFACT, f"{place}: artifact")) for each in taken.get("artifacts", ())
    )
    return AttemptRecord(**taken)


def run_from(data: Any, place: str) -> RunInfo:
    """A run without its trials."""
    taken = _take(data, _RUN, place)
    try:
        taken["status"] = RunStatus(taken["status"])
    except ValueError:
        raise UsageError(f"{place}: the status {taken['status'][:40]!r} is not known here") from None
    try:
        taken["execution"] = Execution(taken["execution"]) if "execution" in taken else None
    except ValueError:
        raise UsageError(f"{place}: the execution {taken['execution'][:40]!r} is not known here") from None
    if not all(isinstance(tag, str) for tag in taken.get("tags", ())):
        raise UsageError(f"{place}: 'tags' must hold text")
    taken["tags"] = tuple(taken.get("tags", ()))
    return RunInfo(**taken)
