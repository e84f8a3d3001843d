"""Pair the points of two sides: by name, or by the parameters that vary when a fixed one was changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proctor.model.canonical import canonical_json
from proctor.quantity import plural, some
from proctor.verdicts.compare.results import ArmRewards, ResultPoint, ResultSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Points that belong together, and those that have no partner."""

    pairs: tuple[tuple[ResultPoint, ResultPoint], ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    warning: str = ""


def without_changed(a: ResultSet, b: ResultSet) -> tuple[ResultSet, ResultSet, tuple[str, ...]]:
    """Both sides without the tasks whose content is not the same on both, and the names of those.

    The same name does not make it the same task: another score may be the task's doing. Where a side does not
    know its tasks' content nothing is left out.
    """
    changed = [
        (one, two)
        for one, two in pair_sides(a, b).pairs
        if one.content and two.content and one.content != two.content
    ]
    if not changed:
        return a, b, ()
    names = tuple(one.name for one, _ in changed)
    return _without(a, [one for one, _ in changed]), _without(b, [two for _, two in changed]), names


def _without(side: ResultSet, points: Sequence[ResultPoint]) -> ResultSet:
    gone = {(point.arm, point.task) for point in points}
    return replace(
        side,
        points=tuple(point for point in side.points if (point.arm, point.task) not in gone),
        arms=tuple(
            replace(arm, tasks=tuple(task for task in arm.tasks if (arm.name, task.name) not in gone))
            for arm in side.arms
        ),
    )


def pair(a: Sequence[ResultPoint], b: Sequence[ResultPoint]) -> Pairing:
    """Partners by name. When no name is shared, by the parameters that vary on either side."""
    by_name = {point.name: point for point in b}
    shared = [(point, by_name[point.name]) for point in a if point.name in by_name]
    if shared or not a or not b:
        names = {point.name for point, _ in shared}
        return Pairing(
            pairs=tuple(shared),
            only_a=tuple(point.name for point in a if point.name not in names),
            only_b=tuple(point.name for point in b if point.name not in names),
        )
    return _by_varying(a, b)


def pair_arms(a: ResultSet, b: ResultSet) -> list[tuple[ArmRewards, ArmRewards]]:
    """Arms that belong together: those of one name; one arm on each side is a pair whatever its name."""
    if len(a.arms) == len(b.arms) == 1:
        return [(a.arms[0], b.arms[0])]
    known = {arm.name: arm for arm in b.arms}
    return [(arm, known[arm.name]) for arm in a.arms if arm.name in known]


def pair_sides(a: ResultSet, b: ResultSet) -> Pairing:
    """The points of two sides: parameters by parameters, rollouts by arm and task."""
    if a.kind != "task" or b.kind != "task":
        return pair(a.points, b.points)
    partner = {one.name: two.name for one, two in pair_arms(a, b)}
    known = {(point.arm, point.task): point for point in b.points}
    pairs = [
        (point, other)
        for point in a.points
        if point.arm in partner and (other := known.get((partner[point.arm], point.task)))
    ]
    paired = {(side, point.name) for pair in pairs for side, point in enumerate(pair)}
    return Pairing(
        pairs=tuple(pairs),
        only_a=tuple(point.name for point in a.points if (0, point.name) not in paired),
        only_b=tuple(point.name for point in b.points if (1, point.name) not in paired),
    )


def _by_varying(a: Sequence[ResultPoint], b: Sequence[ResultPoint]) -> Pairing:
    varying = _varying(a) | _varying(b)
    before, after = _index(a, varying), _index(b, varying)
    unique = len(before) == len(a) and len(after) == len(b)
    shared = [key for key in before if key in after] if unique else []
    if not shared:
        return Pairing(
            pairs=(), only_a=tuple(point.name for point in a), only_b=tuple(point.name for point in b)
        )
    return Pairing(
        pairs=tuple((replace(before[key], name=_title(before[key], varying)), after[key]) for key in shared),
        only_a=tuple(point.name for key, point in before.items() if key not in after),
        only_b=tuple(point.name for key, point in after.items() if key not in before),
        warning=_changed(before[shared[0]], after[shared[0]], varying),
    )


def _varying(points: Iterable[ResultPoint]) -> set[str]:
    seen: dict[str, set[str]] = {}
    for point in points:
        for name, value in point.params.items():
            seen.setdefault(name, set()).add(_text(value))
    return {name for name, values in seen.items() if len(values) > 1}


def _index(points: Iterable[ResultPoint], varying: set[str]) -> dict[str, ResultPoint]:
    return {
        canonical_json({name: _text(point.params.get(name)) for name in varying}): point for point in points
    }


def _title(point: ResultPoint, varying: set[str]) -> str:
    inside = ", ".join(f"{name}={value}" for name, value in point.params.items() if name in varying)
    return f"{point.subject}({inside})" if inside else point.subject or point.name


def _changed(a: ResultPoint, b: ResultPoint, varying: set[str]) -> str:
    names = sorted((a.params.keys() | b.params.keys()) - varying)
    parts = [
        f"{name} {a.params.get(name, 'absent')} → {b.params.get(name, 'absent')}"
        for name in names
        if _text(a.params.get(name)) != _text(b.params.get(name))
    ]
    if a.subject != b.subject:
        parts.insert(0, f"{a.subject} → {b.subject}")
    return f"params differ: {'; '.join(parts)}"


def _text(value: object) -> str:
    return repr(value)


def changed_sentence(changed: Sequence[str], *, compared: bool = False) -> str:
    """That tasks are not the same on both sides, by name, and what became of them."""
    have = "has" if len(changed) == 1 else "have"
    told = "compared all the same" if compared else "left out of the verdict"
    return f"{plural(len(changed), 'task')} {have} other content in B than in A, {told}: {some(changed, 5)}"


def all_changed(changed: Sequence[str]) -> str:
    """Why nothing is left to compare."""
    return (
        f"{changed_sentence(changed)}; no other task is in both: --changed-tasks compares them all the same"
    )
