"""The rollouts of a run from columns of the store: the same table as a report's, without a record decoded.

Where a trial stands in the table follows from the plan, which never changes: a layout is made once, and how
the trials ended is filled in as often as somebody asks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from proctor.model.outcome import Outcome, reward_of
from proctor.model.plan import PlannedTrial
from proctor.model.run import RunInfo
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.rollouts.scores import Rollouts, scored
from proctor.verdicts.rollouts.table import Arm, Row, Table, Tally, arrange, by_success, cell_of, kind_of

if TYPE_CHECKING:
    from proctor.store.store import Store


class Ended(Struct, frozen=True, gc=False):
    """How a trial ended, by its index in the plan."""

    index: int
    outcome: Outcome
    reward: float | None
    work_s: float | None
    started_at: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every trial of a run stands."""

    rows: tuple[Row, ...]
    arms: tuple[Arm, ...]
    places: tuple[tuple[Row, Arm], ...]
    """Every field that has trials."""
    place_of: array[int]
    """Index of a trial → which of the places."""
    rollout_of: array[int]

    def at(self, index: int) -> tuple[Row, Arm]:
        """The task and the arm of a trial."""
        return self.places[self.place_of[index]]

    @property
    def trials(self) -> list[list[int]]:
        """The indices of the trials in each place, in order of rollout."""
        found: list[list[int]] = [[] for _ in self.places]
        for index, place in enumerate(self.place_of):
            found[place].append(index)
        for each in found:
            each.sort(key=self.rollout_of.__getitem__)
        return found


@dataclass(slots=True)
class Arranging:
    """A layout while the trials of a plan pass by: only the first of each kind is kept."""

    firsts: list[PlannedTrial] = field(default_factory=list)
    kind_of: array[int] = field(default_factory=lambda: array("L"))
    rollout_of: array[int] = field(default_factory=lambda: array("L"))
    _known: dict[object, int] = field(default_factory=dict)

    def knows(self, kind: object, rollout: int) -> bool:
        """Take the next trial; False when it is the first of its kind, and `add` must be told of it."""
        at = self._known.setdefault(kind, len(self._known))
        self.kind_of.append(at)
        self.rollout_of.append(rollout)
        return at < len(self.firsts)

    def add(self, trial: PlannedTrial) -> None:
        """The first trial of its kind."""
        self.firsts.append(trial)

    def layout(self, info: RunInfo) -> Layout:
        """Where all of them stand."""
        table = arrange(RunData(info, tuple(map(TrialResult, self.firsts))))
        places = tuple(table.cells)
        of_kind = {kind: at for at, key in enumerate(places) for kind in table.cells[key].trials.places}
        place_of = array("L", [of_kind[kind] for kind in self.kind_of])
        return Layout(table.rows, table.arms, places, place_of, self.rollout_of)


def layout_of_plan(info: RunInfo, trials: Iterable[PlannedTrial]) -> Layout:
    """Where every trial of a plan stands."""
    arranging = Arranging()
    for trial in trials:
        if not arranging.knows(kind_of(trial), trial.rollout):
            arranging.add(trial)
    return arranging.layout(info)


def layout_of(store: Store, info: RunInfo) -> Layout:
    """Where every trial of a stored run stands."""
    arranging = Arranging()
    for kind, rollout, trial in store.kinds(info.id):
        if not arranging.knows(kind, rollout):
            arranging.add(trial())
    return arranging.layout(info)


def rollouts_of(store: Store, info: RunInfo, layout: Layout | None = None) -> Rollouts:
    """The rollouts of a stored run as they are now."""
    found = store.views.trials.results(info.id)
    ended = (Ended(row[0], Outcome(row[1]), row[2], row[3], row[4]) for row in found)
    return filled_in(layout or layout_of(store, info), ended)


def filled_in(layout: Layout, ended: Iterable[Ended]) -> Rollouts:
    """The rollouts of a run, given how its trials ended."""
    by_index: list[Ended | None] = [None] * len(layout.place_of)
    for each in ended:
        by_index[each.index] = each
    cells = {
        key: cell_of(*key, _tally(indices, by_index, layout.rollout_of), ())
        for key, indices in zip(layout.places, layout.trials, strict=True)
    }
    return scored(Table(by_success(layout.rows, cells), layout.arms, cells))


def _tally(indices: Sequence[int], ended: Sequence[Ended | None], rollouts: Sequence[int]) -> Tally:
    tally = Tally()
    for index in indices:
        found = ended[index]
        tally.places.append(index)
        tally.order.append(rollouts[index])
        tally.outcomes.append(found.outcome if found else None)
        tally.rewards.append(reward_of(found.outcome, found.reward) if found else None)
        if found and found.work_s is not None:
            tally.took.append(found.work_s)
            if found.outcome.scored:
                tally.times.append((found.started_at, found.work_s))
    return tally
