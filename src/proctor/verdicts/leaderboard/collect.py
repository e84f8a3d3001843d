"""The competitors of stored runs: every agent and model of each, on tasks that are the same in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from proctor.errors import UsageError
from proctor.verdicts.leaderboard.rank import Entrant
from proctor.verdicts.rollouts.columns import Layout, layout_of, rollouts_of
from proctor.verdicts.rollouts.scores import ArmScore
from proctor.verdicts.rollouts.table import Arm, Row

if TYPE_CHECKING:
    from proctor.store.store import Store

MOST_ENTRANTS = 60
"""Every two are compared: 60 competitors are 1,770 pairs."""
MOST_RUNS = 50


def collect(store: Store, run_ids: Sequence[str]) -> tuple[list[Entrant], list[str]]:
    """Everybody who took part in these runs, and what to know of them."""
    if len(run_ids) > MOST_RUNS:
        raise UsageError(f"{len(run_ids)} runs; a leaderboard is made of at most {MOST_RUNS}")
    found: list[Entrant] = []
    digests: dict[str, set[str]] = {}
    for run_id in dict.fromkeys(run_ids):
        info = store.run(run_id)
        if info.kind != "task":
            raise UsageError(f"run {info.id} ({info.name}) measured experiments; a leaderboard is of agents")
        layout = layout_of(store, info)
        cost = _costs(store, info.id, layout)
        for row in layout.rows:
            digests.setdefault(row.task, set()).add(row.digest)
        found += [_entrant(info.id, info.name, arm, cost) for arm in rollouts_of(store, info, layout).arms]
    if len(found) > MOST_ENTRANTS:
        raise UsageError(f"{len(found)} agents and models; a leaderboard compares at most {MOST_ENTRANTS}")
    changed = sorted(task for task, known in digests.items() if len(known) > 1)
    warnings = []
    if changed:
        some = ", ".join(changed[:5]) + (" …" if len(changed) > 5 else "")
        warnings.append(f"not the same in all runs, so compared only where it is: {some}")
    return _named(found), warnings


def _entrant(run_id: str, name: str, arm: ArmScore, costs: Mapping[Arm, tuple[float, int]]) -> Entrant:
    known = costs.get(arm.arm)
    listed = Counter((cell.row.task, cell.row.digest) for cell in arm.cells)
    rewards = {
        _task_key(cell.row, alone=listed[cell.row.task, cell.row.digest] == 1): tuple(
            float(reward >= 1) for reward in cell.rewards
        )
        for cell in arm.cells
        if cell.rewards
    }
    return Entrant(
        label=arm.arm.label,
        run_id=run_id,
        run_name=name,
        agent=arm.arm.agent,
        model=arm.arm.model,
        rewards=rewards,
        passes=arm.passes,
        score=arm.rewards,
        scored=arm.scored,
        passed=arm.passed,
        errors=arm.errors,
        median_s=arm.median_s,
        cost_usd=known[0] if known else None,
        unknown_cost=known[1] if known else 0,
    )


def _task_key(row: Row, *, alone: bool) -> str:
    """What names a task in every run; one that a run lists twice, by what the spec changes about it."""
    return f"{row.task}@{row.digest}" + ("" if alone else f"@{row.overrides}")


def _costs(store: Store, run_id: str, layout: Layout) -> dict[Arm, tuple[float, int]]:
    """What each competitor's calls cost, and for how many of them that is not known."""
    found: dict[Arm, tuple[float, int]] = {}
    for each in store.spending.by(run_id, "idx"):
        arm = layout.places[layout.place_of[int(each["idx"])]][1]
        usd, unknown = found.get(arm, (0.0, 0))
        found[arm] = usd + int(each["nano_usd"]) / 1e9, unknown + int(each["unknown_cost"])
    return found


def _named(entrants: Sequence[Entrant]) -> list[Entrant]:
    """With the run's name where a label occurs twice, and its id where that does too."""
    labels = Counter(each.label for each in entrants)
    named = [
        replace(each, label=f"{each.label} ({each.run_name})") if labels[each.label] > 1 else each
        for each in entrants
    ]
    again = Counter(each.label for each in named)
    return [
        replace(each, label=f"{each.label[:-1]}, {each.run_id})") if again[each.label] > 1 else each
        for each in named
    ]
