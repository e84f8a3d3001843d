"""Pinned baselines in one file that can live in git: the numbers that a gate needs, and why they were pinned.

A fresh clone without any store can gate against it. Names are sorted and every point, task and update has its
own line, so that two branches that pin different baselines merge without a conflict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proctor.analysis.estimate import TaskRewards
from proctor.disk import read_small
from proctor.errors import NotFoundError, UsageError
from proctor.model.describe import describe
from proctor.model.outcome import Blame
from proctor.quantity import number
from proctor.runfolder.files import decode, encode, make_folder, write_atomic
from proctor.spec.node import nearest
from proctor.verdicts.compare.results import ArmRewards, ResultPoint, ResultSet
from proctor.verdicts.gate.inputs import GateInput

SCHEMA_VERSION = 1
MAX_BYTES = 64 << 20
VALUES_KEPT = 200_000
"""Values of one baseline in all; a point keeps from FEWEST_VALUES to MOST_VALUES of a metric."""
MOST_POINTS = 10_000
MOST_VALUES = 50
FEWEST_VALUES = 5
_FIELDS_DROPPED = ("schema_version", "run", "headline", "warnings", "subjects", "arms")
"""Parts of a summary that no rule compares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A pinned run."""

    name: str
    run: GateInput
    run_name: str
    at: float
    """When it was pinned, in seconds since 1970."""
    reason: str
    commit: str = ""
    history: tuple[Mapping[str, Any], ...] = ()
    """Every pin of this name, the first one first; the last one is this."""

    @property
    def run_id(self) -> str:
        """Which run it was."""
        return self.run.results.run_id


def pin(
    known: Mapping[str, Baseline],
    name: str,
    run: GateInput,
    *,
    run_name: str,
    reason: str,
    at: float,
    commit: str = "",
    update: bool = False,
) -> dict[str, Baseline]:
    """The baselines with one more, or with one moved to another run. A reason is not optional."""
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > 100:
        raise UsageError(f"{name!r:.60} is not a valid baseline name: use 1 to 100 printable characters")
    if not reason.strip():
        raise UsageError("give a reason with --reason: later readers need to know why the baseline changed")
    if name in known and not update:
        raise UsageError(
            f"the baseline '{name}' already exists; 'proctor baseline update {name} RUN' replaces it"
        )
    if update and name not in known:
        raise missing(name, known)
    if run.missing:
        raise UsageError(f"{run.label}: {run.missing} of {run.trials} trials have no result; finish it first")
    if len(run.results.points) > MOST_POINTS:
        raise UsageError(
            f"{run.label}: {len(run.results.points)} points are too many for a file in git; "
            f"gate against the run itself: --baseline {run.results.run_id}"
        )
    entry = {
        "at": round(at, 3),
        "run_id": run.results.run_id,
        "digest": run.digest,
        "commit": commit,
        "reason": reason.strip(),
    }
    before = known[name].history if name in known else ()
    made = Baseline(
        name=name,
        run=run,
        run_name=run_name,
        at=round(at, 3),
        reason=reason.strip(),
        commit=commit,
        history=(*before, entry),
    )
    return {**known, name: made}


def missing(name: str, known: Iterable[str]) -> NotFoundError:
    """The message that no baseline has this name."""
    names = sorted(known)
    hint = nearest(name, names) if names else "; none is pinned yet"
    return NotFoundError(f"no baseline named '{name[:100]}'{hint}")


def read_baselines(path: Path) -> dict[str, Baseline]:
    """All baselines of a file; none when it does not exist."""
    if not path.exists():
        return {}
    place = str(path)
    try:
        raw = read_small(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{place}: cannot be read: {error.strerror or error}") from error
    if b"<<<<<<<" in raw and b">>>>>>>" in raw:
        raise UsageError(f"{place}: git left conflict markers in it; keep one side and pin again if unsure")
    data = decode(raw, place)
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION or not isinstance(data.get("baselines"), dict):
        raise UsageError(
            f"{place}: not a file of baselines that this Proctor reads (version {version!r:.20})"
        )
    return {
        name: _read(name, each, f"{place}: baseline '{name}'") for name, each in data["baselines"].items()
    }


def write_baselines(path: Path, baselines: Mapping[str, Baseline]) -> None:
    """Write beside and rename; sorted, a line per point."""
    parts = [f"  {encode(name)}: {_written(each)}" for name, each in sorted(baselines.items())]
    body = ",\n".join(parts)
    inside = f"\n{body}\n " if body else ""
    make_folder(path.parent)
    write_atomic(path, f'{{\n "schema_version": {SCHEMA_VERSION},\n "baselines": {{{inside}}}\n}}\n')


def _written(baseline: Baseline) -> str:
    run = baseline.run
    budget = _budget(run.results.points)
    head = {
        "run_id": run.results.run_id,
        "run_name": baseline.run_name,
        "kind": run.results.kind,
        "digest": run.digest,
        "commit": baseline.commit,
        "at": baseline.at,
        "reason": baseline.reason,
        "label": run.label,
        "trials": run.trials,
        "broken": run.broken,
        "reasons": dict(sorted(run.reasons.items())),
        "noise": run.noise,
        "facts": run.results.facts,
        "fields": {name: value for name, value in run.fields.items() if name not in _FIELDS_DROPPED},
    }
    lines = [f"   {encode(name)}: {encode(value)}" for name, value in head.items()]
    for name, rows in (
        ("history", [encode(dict(each)) for each in baseline.history]),
        ("tasks", [encode(_task(arm, each)) for arm in run.results.arms for each in arm.tasks]),
        ("points", [encode(_point(each, run, budget)) for each in run.results.points]),
    ):
        inside = ",\n".join(f"    {row}" for row in rows)
        lines.append(f'   "{name}": [\n{inside}\n   ]' if rows else f'   "{name}": []')
    return "{\n" + ",\n".join(lines) + "\n  }"


def _budget(points: Sequence[ResultPoint]) -> int:
    series = sum(len(point.samples) for point in points)
    return min(MOST_VALUES, max(FEWEST_VALUES, VALUES_KEPT // max(1, series)))


def _task(arm: ArmRewards, task: TaskRewards) -> dict[str, Any]:
    return {"arm": arm.name, "name": task.name, "scored": list(task.scored), "errors": task.errors}


def _point(point: ResultPoint, run: GateInput, budget: int) -> dict[str, Any]:
    stats = run.stats.get(point.name, {})
    return {
        "name": point.name,
        "subject": point.subject,
        **({"arm": point.arm, "task": point.task} if point.task else {}),
        "params": dict(point.params),
        "failed": point.failed,
        "blame": point.blame.value if point.blame else None,
        "waited": point.waited,
        "own_wait": point.own_wait,
        "key": point.key,
        "content": point.content,
        "stats": {name: _numbers(stats[name]) for name in sorted(stats) if name in point.samples},
        "samples": {
            name: thinned(values, budget) for name, values in sorted(point.samples.items()) if values
        },
    }


def _numbers(stats: Any) -> Any:
    if not isinstance(stats, Mapping):
        return number(stats)
    return {name: value for name, each in stats.items() if (value := number(each)) is not None}


def thinned(values: Sequence[float], most: int) -> list[float]:
    """At most this many values with the same distribution: those at even ranks. Fewer values prove less."""
    if len(values) <= most:
        return list(values)
    ordered = sorted(values)
    return [ordered[math.floor((at + 0.5) * len(ordered) / most)] for at in range(most)]


def _read(name: str, data: Any, place: str) -> Baseline:
    """A baseline from a stranger's file; what is not as it should be is named."""
    try:
        points = tuple(_read_point(each, task=data["kind"] == "task") for each in data["points"])
        results = ResultSet(
            label=str(data.get("label", name)),
            source="baseline",
            kind="task" if data["kind"] == "task" else "experiment",
            points=points,
            arms=_read_arms(data["tasks"]),
            facts={str(group): dict(facts) for group, facts in data["facts"].items()},
            run_id=str(data["run_id"]),
            name=str(data["run_name"]),
            metrics=tuple({metric for point in points for metric in point.samples}),
        )
        run = GateInput(
            results=results,
            fields=dict(data["fields"]),
            stats={each["name"]: _read_stats(each) for each in data["points"]},
            reasons={str(each): int(count) for each, count in data["reasons"].items()},
            trials=int(data["trials"]),
            broken=int(data["broken"]),
            digest=str(data["digest"]),
            noise={str(metric): dict(each) for metric, each in data["noise"].items()},
        )
        history = tuple(dict(each) for each in data["history"])
        return Baseline(
            name=name,
            run=run,
            run_name=str(data["run_name"]),
            at=float(data["at"]),
            reason=str(data["reason"]),
            commit=str(data.get("commit", "")),
            history=history,
        )
    except KeyError as error:
        raise UsageError(f"{place}: {error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{place}: not as Proctor writes it: {error}") from error


def _read_arms(rows: Sequence[Mapping[str, Any]]) -> tuple[ArmRewards, ...]:
    arms: dict[str, list[TaskRewards]] = {}
    for row in rows:
        arm, task = _cell(row)
        arms.setdefault(arm, []).append(replace(_read_task(row), name=task))
    return tuple(ArmRewards(name=arm, tasks=tuple(tasks)) for arm, tasks in arms.items())


def _cell(data: Mapping[str, Any]) -> tuple[str, str]:
    """Arm and task; earlier versions wrote both into the name where there were several arms."""
    if "arm" in data:
        return str(data["arm"]), str(data.get("task", data["name"]))
    task, _, arm = str(data["name"]).rpartition(" × ")
    return (arm, task) if task else ("", arm)


def _read_point(data: Mapping[str, Any], *, task: bool) -> ResultPoint:
    arm, name = _cell(data) if task else ("", "")
    return ResultPoint(
        name=str(data["name"]),
        subject=str(data["subject"]),
        params=dict(data["params"]),
        samples={str(metric): _floats(values) for metric, values in data["samples"].items()},
        failed=str(data["failed"]),
        blame=Blame(data["blame"]) if data["blame"] else None,
        waited=float(data["waited"]),
        own_wait=number(data.get("own_wait")),
        key=str(data["key"]),
        content=str(data.get("content") or ""),
        arm=arm,
        task=name,
    )


def _read_stats(data: Mapping[str, Any]) -> dict[str, Any]:
    kept = {str(metric): each for metric, each in data["stats"].items()}
    return {str(metric): describe(_floats(values)) for metric, values in data["samples"].items()} | kept


def _read_task(data: Mapping[str, Any]) -> TaskRewards:
    return TaskRewards(name=str(data["name"]), scored=_floats(data["scored"]), errors=int(data["errors"]))


def _floats(values: Iterable[Any]) -> tuple[float, ...]:
    found = tuple(number(value) for value in values)
    if any(value is None for value in found):
        msg = "a value is not a number"
        raise ValueError(msg)
    return tuple(value for value in found if value is not None)
