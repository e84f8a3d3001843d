"""Rollouts that are suspect: a pass that rested on changed system files, or could not be confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.model.record import AttemptRecord
from proctor.quantity import number
from proctor.runfolder.read import RunData

HEADERS = ("rollout", "reward at first", "reward without the changes", "why")
MOST_FILES = 20


@dataclass(frozen=True, slots=True)
class Suspect:
    """One of them."""

    label: str
    first: float | None
    second: float | None
    reason: str


def suspects_of(data: RunData) -> list[Suspect]:
    """The suspect rollouts of a run, in plan order."""
    return [
        Suspect(trial.planned.label, *_rewards(trial.counted), _reason(trial.counted))
        for trial in data.trials
        if trial.counted and trial.counted.suspect
    ]


def changes_text(record: AttemptRecord) -> Iterable[str]:
    """What an attempt changed in its system, in lines for people."""
    changes = record.system_changes
    count, first = changes.get("count"), _texts(changes.get("first"))
    if not changes:
        return
    if count is None:
        yield "system files changed: more than can be listed"
    elif first:
        more = " …" if count > min(len(first), MOST_FILES) else ""
        yield f"system files changed: {count} ({', '.join(first[:MOST_FILES])}{more})"
    again = _again(record)
    if again:
        files = _texts(again.get("files"))
        result = "differs" if record.suspect else "is the same"
        more = " …" if (number(again.get("count")) or 0) > min(len(files), MOST_FILES) else ""
        yield f"judged again without these, and the reward {result}: {'; '.join(files[:MOST_FILES])}{more}"


def _rewards(record: AttemptRecord) -> tuple[float | None, float | None]:
    found = _again(record).get("rewards")
    first, second, *_ = [*found, None, None] if isinstance(found, list | tuple) else (None, None)
    return number(first), number(second)


def _reason(record: AttemptRecord) -> str:
    return str(_again(record).get("reason") or "")


def _again(record: AttemptRecord) -> Mapping[str, Any]:
    found = record.system_changes.get("judged_again")
    return found if isinstance(found, Mapping) else {}


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
