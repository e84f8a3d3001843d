"""Records of a run folder turned back into the model, with every field checked first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from proctor.errors import UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
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
}
_SIGNED = {"seed"}


def _take(data: Any, fields: Mapping[str, _Field], place: str) -> dict[str, Any]:
    """The known fields of a record; those of a later version are left out."""
    if not isinstance(data, dict):
        raise UsageError(f"{place}: a JSON object is expected here")
    taken: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in data:
            if field.required:
                raise UsageError(f"{place}: '{name}' is missing")
            continue
        value = data[name]
        if value is None:
            if not field.nullable:
                raise UsageError(f"{place}: '{name}' must not be null")
        elif not isinstance(value, field.kinds) or isinstance(value, bool):
            wanted = " or ".join(kind.__name__ for kind in field.kinds)
            raise UsageError(f"{place}: '{name}' is {type(value).__name__}, must be {wanted}")
        elif isinstance(value, int) and not (-_LARGEST if name in _SIGNED else 0) <= value <= _LARGEST:
            raise UsageError(f"{place}: '{name}' is out of range")
        taken[name] = value
    return taken


def trial_from(data: Any, place: str) -> PlannedTrial:
    """A planned trial."""
    taken = _take(data, _TRIAL, place)
    if taken["kind"] not in {"experiment", "task"}:
        raise UsageError(f"{place}: 'kind' is {taken['kind'][:40]!r}, must be experiment or task")
    taken["kind"] = cast("Literal['experiment', 'task']", taken["kind"])
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
    if not all(isinstance(tag, str) for tag in taken.get("tags", ())):
        raise UsageError(f"{place}: 'tags' must hold text")
    taken["tags"] = tuple(taken.get("tags", ()))
    return RunInfo(**taken)
