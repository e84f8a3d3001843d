"""Which queued runs begin next. Pure: what waits and what runs goes in, what begins comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from proctor.store.service.queue import Queued


def choose_all(waiting: Sequence[Queued], active: Collection[Queued]) -> list[Queued]:
    """The runs to begin where workers execute them: all that their projects' quotas allow, at once."""
    projects = Counter(each.project for each in active)
    known = {each.run_id for each in active}
    begun = []
    for each in waiting:
        if each.run_id not in known and _within_quota(each, projects):
            begun.append(each)
            projects[each.project] += 1
    return begun


def choose(waiting: Sequence[Queued], active: Collection[Queued], room: int) -> list[Queued]:
    """The runs to begin now, with at most `room` of them active.

    Fair by user: whoever has the fewest active runs is next. A run that must be alone waits until nothing
    runs, and nothing begins before it once it is the first.
    """
    if any(each.alone for each in active):
        return []
    begun: list[Queued] = []
    users = Counter(each.owner for each in active)
    projects = Counter(each.project for each in active)
    known = {each.run_id for each in active}
    left = [each for each in waiting if each.run_id not in known]
    while left and len(active) + len(begun) < room:
        allowed = [each for each in left if _within_quota(each, projects)]
        if not allowed:
            break
        first = min(allowed, key=lambda each: (-each.priority, 0 if each.alone else users[each.owner]))
        if first.alone:
            return begun or ([] if active else [first])
        begun.append(first)
        left.remove(first)
        users[first.owner] += 1
        projects[first.project] += 1
    return begun


def _within_quota(run: Queued, projects: Counter[str]) -> bool:
    return run.most_runs is None or projects[run.project] < run.most_runs
