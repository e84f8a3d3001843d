"""Gather a series from the store: its runs in order, and a line of values for everything measured in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from proctor.analysis.clock import HeadlineClock, clock_sentence, headline_clock
from proctor.errors import NotFoundError, UsageError
from proctor.model.trial import RunStatus
from proctor.verdicts.compare.facts import Facts, differences, run_facts
from proctor.verdicts.history.detect import detect
from proctor.verdicts.history.model import History, Line, Ran
from proctor.verdicts.history.reading import SHARES, Reading, read, together

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.store.store import Store

LAST_RUNS = 100
MOST_BROKEN = 0.2
"""A run with a larger share of infrastructure or provider errors is left out of the statistics."""


def collect(
    store: Store,
    series: str,
    *,
    metric: str = "",
    last: int = LAST_RUNS,
    only: str = "",
    project: str | None = None,
    among: Collection[str] | None = None,
) -> History:
    """The history of a series: a run's name, or any run of it. `only`: lines whose name has this text.

    `project`: only runs of it. `among`: of these runs alone, by id; some of the series must be among them.
    """
    briefs = [run for run in _runs(store, series, last, project) if among is None or run.id in among]
    newest = briefs[-1]
    if metric in SHARES and newest.kind != "task":
        raise UsageError(f"{newest.name} is a series of experiments: it has times and no rewards")
    wanted = metric or ("pass_rate" if newest.kind == "task" else "")
    runs: list[Ran] = []
    readings: list[Reading] = []
    before: tuple[Facts, frozenset[str]] | None = None
    for brief in briefs:
        info = store.run(brief.id)
        reading = read(store, info, wanted, only) if info.kind == newest.kind else Reading()
        left_out = _left_out(info, newest.kind, reading.broken)
        now = (run_facts(info), reading.subjects)
        runs.append(_ran(info, reading, left_out, _differs(before, now) if before and not left_out else ""))
        readings.append(Reading(metrics=reading.metrics) if left_out else reading)
        before = before if left_out else now
    clock = HeadlineClock(wanted)
    if not wanted:
        clock = headline_clock(point for reading in readings for point in reading.waiting)
        wanted = clock.metric
        readings = [reading.of(wanted) for reading in readings]
    lines = _lines(readings, wanted)
    _check(lines, readings, wanted, only)
    return History(
        name=newest.name,
        kind=newest.kind,
        metric=wanted,
        runs=tuple(runs),
        lines=_ordered([detect(line) for line in lines], wanted),
        notes=(*([clock_sentence(clock)] if clock.why else []), *_notes(readings, newest)),
        clock=clock.why,
    )


def _lines(readings: Sequence[Reading], metric: str) -> list[Line]:
    """A line for everything that some run has, in the order in which it was planned."""
    keys = dict.fromkeys(key for reading in reversed(readings) for key in reading.values)
    main = {key for reading in readings for key in reading.main}
    lines = []
    rolled_out = any(reading.subjects for reading in readings)
    if len(main) > 1 and not rolled_out and (values := together(readings)):
        name = f"all points together (geometric mean of {max(each.n for each in values if each)})"
        lines.append(Line(name=name, metric=metric, values=tuple(values), main=True))
        main = set()
    return lines + [
        Line(
            name=key[0],
            metric=key[1],
            values=tuple(reading.values.get(key) for reading in readings),
            main=key in main,
        )
        for key in keys
    ]


def _runs(store: Store, series: str, last: int, project: str | None) -> list[RunInfo]:
    """The newest runs of that name, oldest first."""
    found = _named(store, series, last, project)
    if not found:
        run = store.service.ownership.find(series, project) if project is not None else None
        if project is not None and run is None:
            raise NotFoundError(f"no runs named '{series}' in your project")
        found = _named(store, store.run(run or series).name, last, project)
    return found[::-1]


def _named(store: Store, name: str, last: int, project: str | None) -> list[RunInfo]:
    return [run for run in store.runs(name=name, limit=last, project=project) if run.name == name]


def _left_out(info: RunInfo, kind: str, broken: int) -> str:
    """Why a run is not in the statistics."""
    if info.kind != kind:
        return f"a run of {info.kind}s"
    if info.status in {RunStatus.PENDING, RunStatus.RUNNING}:
        return f"still {info.status.value}: {info.done} of {info.total} trials"
    if not info.done:
        return f"{info.status.value} without a result"
    if broken > MOST_BROKEN * info.done:
        return f"infrastructure or provider broke {broken} of {info.done} trials"
    if info.kind == "task" and info.done < info.total:
        return f"{info.status.value}: {info.done} of {info.total} trials"
    return ""


def _ran(info: RunInfo, reading: Reading, left_out: str, differs: str) -> Ran:
    vcs = info.vcs
    return Ran(
        id=info.id,
        at=info.started_at or info.created_at,
        status=info.status.value,
        commit=str(vcs.get("commit") or "")[:64],
        branch=str(vcs.get("branch") or "")[:200],
        dirty=bool(vcs.get("dirty")),
        trials=info.total,
        ended=info.done,
        broken=reading.broken,
        left_out=left_out,
        differs=differs,
        folder=info.folder,
    )


def _differs(before: tuple[Facts, frozenset[str]], after: tuple[Facts, frozenset[str]]) -> str:
    """What of machine, Python and tasks is not as before. Packages and settings change with the code."""
    groups = ("machine", "python")
    then, now = ({group: facts[group] for group in groups if group in facts} for facts, _ in (before, after))
    said = [each for each in differences(then, now) if " differs: " in each]
    gone, new = before[1] - after[1], after[1] - before[1]
    if gone or new:
        said.append(f"different tasks: {len(new)} new, {len(gone)} removed")
    return "; ".join(said)


def _notes(readings: Sequence[Reading], newest: RunInfo) -> tuple[str, ...]:
    passed_over = max((reading.passed_over for reading in readings), default=0)
    if not passed_over:
        return ()
    first = newest.total - passed_over
    said = f"only the first {first} of {newest.total} points are followed; --point TEXT selects others"
    return (said,)


def _ordered(lines: Sequence[Line], metric: str) -> tuple[Line, ...]:
    """The main lines, what they cost and took, then those that moved most, then as they were planned."""

    def size(line: Line) -> float:
        return max((abs(move.change) for move in line.moves), default=0.0)

    def rank(line: Line) -> tuple[int, float]:
        return (0, 0.0) if line.main else (1, 0.0) if line.metric != metric else (2, -size(line))

    return tuple(sorted(lines, key=rank))


def _check(lines: Sequence[Line], readings: Sequence[Reading], metric: str, only: str) -> None:
    """An empty result is an error when the metric or the name does not exist."""
    if lines:
        return
    from proctor.spec.node import nearest

    known = {name for reading in readings for name in reading.metrics}
    if known and metric not in known:
        raise UsageError(
            f"no run of this series has the metric '{metric}'{nearest(metric, sorted(known)[:40])}"
        )
    if only:
        raise UsageError(f"nothing measured in this series has '{only}' in its name")
