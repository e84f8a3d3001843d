"""False alarms of a suite: compare two halves, or two resamples, of identical agents.

Halves need no model of the agent: a task's own rollouts are divided into two sides at random. Larger sides
are drawn from an urn per task that holds its own rewards and one from the whole suite, with new weights
for every pair: what was seen only a few times is not taken as certain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from proctor.analysis.claim import Claim, chosen_claim
from proctor.analysis.compare import PairedScores, paired_scores
from proctor.analysis.estimate import TaskRewards
from proctor.analysis.interval import Interval, clopper_pearson
from proctor.analysis.naive import SCORE_RULES
from proctor.analysis.p_values import fisher
from proctor.analysis.resample import Array
from proctor.analysis.verdict import Verdict

GATE = "proctor gate"
ALIKE = 0.05
"""Error rates differ when the p-value is below this; the same value as in the gate."""
TOLERATED = 0.05
"""Maximum share of false alarms at a level of 95 %."""
SEARCHED = 0.84
"""The smallest loss that reaches 80 % in a simulation is too small by luck; this allows for it."""


class Call(StrEnum):
    """What the gate says of a pair of identical sides; only `regression` is a false alarm."""

    REGRESSION = "regression"
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    INCONCLUSIVE = "inconclusive"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides whose agents are the same."""

    before: tuple[TaskRewards, ...]
    after: tuple[TaskRewards, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRate:
    """How often a rule called a change where there is none."""

    rule: str
    alarms: int
    pairs: int
    interval: Interval
    """Of the share, over the pairs that were tried."""

    @property
    def share(self) -> float:
        """Alarms over pairs."""
        return self.alarms / self.pairs

    @property
    def excessive(self) -> bool:
        """Whether the pairs rule out that the promise is kept."""
        return self.interval.low > TOLERATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """One way of making identical pairs, and every rule's verdicts on them."""

    gate: AlarmRate
    calls: dict[str, int]
    """The gate's verdict → how many pairs."""
    naive: tuple[AlarmRate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """How much alike two rollouts of one task are, and what that does to a count of rollouts."""

    icc: float
    interval: Interval | None
    design_effect: float
    """Rollouts over the independent rollouts that they are worth."""
    effective_rollouts: float


def alarm_rate(rule: str, alarms: int, pairs: int) -> AlarmRate:
    """A count with its interval, which never covers less than it says."""
    return AlarmRate(rule=rule, alarms=alarms, pairs=pairs, interval=clopper_pearson(alarms, pairs))


def correlation(
    rewards: Sequence[Sequence[float]], *, seed: int = 0, draws: int = 2000
) -> Correlation | None:
    """Intra-task correlation by analysis of variance; None without repeats, or when no reward differs."""
    suite = [np.asarray(task, dtype=float) for task in rewards if len(task)]
    sizes = np.array([task.size for task in suite], dtype=float)
    means = np.array([task.mean() for task in suite])
    squares = np.array([((task - task.mean()) ** 2).sum() for task in suite])
    if len(suite) < 2 or sizes.sum() == len(suite):
        return None
    chosen = np.random.default_rng(seed).integers(0, len(suite), (draws, len(suite)))
    chosen[0] = np.arange(len(suite))
    icc, *drawn = _icc(sizes[chosen], means[chosen], squares[chosen]).tolist()
    if math.isnan(icc):
        return None
    known = [each for each in drawn if not math.isnan(each)]
    interval = None
    if len(known) > draws // 2:
        low, high = np.quantile(known, [0.025, 0.975])
        interval = Interval(float(low), float(high), 0.95, "bootstrap over tasks")
    total = float(sizes.sum())
    effect = 1 + (float((sizes**2).sum()) / total - 1) * icc
    return Correlation(icc=icc, interval=interval, design_effect=effect, effective_rollouts=total / effect)


def _icc(sizes: Array, means: Array, squares: Array) -> Array:
    """One suite per row; not a number where nothing differs or nothing was repeated."""
    tasks, total = sizes.shape[1], sizes.sum(axis=1)
    overall = (sizes * means).sum(axis=1) / total
    between = (sizes * (means - overall[:, None]) ** 2).sum(axis=1) / (tasks - 1)
    size = (total - (sizes**2).sum(axis=1) / total) / (tasks - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        within = squares.sum(axis=1) / (total - tasks)
        found = (between - within) / (between + (size - 1) * within)
    return np.asarray(np.where(np.isfinite(found), np.clip(found, 0.0, 1.0), np.nan))


def halve(tasks: Sequence[TaskRewards], generator: np.random.Generator) -> Pair:
    """Deal each task's rollouts, the broken ones among them, to two sides of equal size."""
    before: list[TaskRewards] = []
    after: list[TaskRewards] = []
    for task in tasks:
        total = len(task.scored) + task.errors
        order = generator.permutation(total)
        for side, chosen in ((before, order[: total // 2]), (after, order[total // 2 : total // 2 * 2])):
            scored = tuple(task.scored[at] for at in chosen if at < len(task.scored))
            side.append(TaskRewards(name=task.name, scored=scored, errors=len(chosen) - len(scored)))
    return Pair(tuple(before), tuple(after))


class Urns:
    """Where more rollouts come from than were made."""

    def __init__(self, tasks: Sequence[TaskRewards]) -> None:
        self.names = [task.name for task in tasks if task.scored]
        suite = [task.scored for task in tasks if task.scored]
        self.pool = np.array([reward for task in suite for reward in task], dtype=float)
        self.own = np.zeros((len(suite), max(map(len, suite), default=0)))
        self.there = np.zeros_like(self.own, dtype=bool)
        for at, task in enumerate(suite):
            self.own[at, : len(task)] = task
            self.there[at, : len(task)] = True
        errors = sum(task.errors for task in tasks)
        self.broken = errors / max(1, errors + self.pool.size)
        # Some tasks lose more attempts than others; one attempt of the suite is added to each task's own.
        self.lost = np.array(
            [
                (each.errors + self.broken) / (each.errors + len(each.scored) + 1)
                for each in tasks
                if each.scored
            ]
        )
        pooled = float(self.pool.mean()) if self.pool.size else 0.0
        self.means = (self.own.sum(axis=1) + pooled) / (self.there.sum(axis=1) + 1)

    @property
    def mean(self) -> float:
        """The suite's score."""
        return float((self.own.sum(axis=1) / self.there.sum(axis=1)).mean())

    def draw(
        self,
        rollouts: int,
        generator: np.random.Generator,
        *,
        kept: float = 1.0,
        concentrated: bool = False,
    ) -> Pair:
        """Two sides of the same agent; on the second only this share of what it earns is `kept`.

        The loss is spread evenly over what the tasks earn, or `concentrated` in a few that lose everything.
        """
        tasks = len(self.names)
        rewards = np.column_stack([self.own, generator.choice(self.pool, tasks)])
        weights = generator.exponential(size=rewards.shape)
        weights[:, :-1] *= self.there
        edges = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        # Rows are laid end to end, each one unit long, so that one search finds every draw.
        rows = np.arange(tasks)[:, None]
        chosen = np.searchsorted(
            (edges + rows).ravel(), generator.random((tasks, 2 * rollouts)) + rows, "right"
        )
        first, last = rows * rewards.shape[1], (rows + 1) * rewards.shape[1] - 1
        drawn = rewards.ravel()[np.clip(chosen, first, last)]
        # Drawn whether needed or not, so that pairs of one seed differ in the loss alone.
        order = generator.permutation(tasks)
        shares = self._kept(kept, order) if concentrated else np.full(tasks, kept)
        drawn[:, rollouts:] *= generator.random((tasks, rollouts)) < shares[:, None]
        lost = generator.random((tasks, 2 * rollouts)) < self.lost[:, None]
        return Pair(
            self._side(drawn[:, :rollouts], lost[:, :rollouts]),
            self._side(drawn[:, rollouts:], lost[:, rollouts:]),
        )

    def _kept(self, kept: float, order: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> Array:
        """Each task's share when tasks lose all they earn, in that order, until the whole loss is reached."""
        means = self.means[order]
        before = np.cumsum(means) - means
        gone = ((1 - kept) * means.sum() - before) / np.maximum(means, 1e-12)
        shares = np.empty(means.size)
        shares[order] = 1 - np.clip(gone, 0.0, 1.0)
        return shares

    def _side(
        self, rewards: Array, lost: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    ) -> tuple[TaskRewards, ...]:
        if not self.broken:
            rows = zip(self.names, rewards.tolist(), strict=True)
            return tuple(TaskRewards(name=name, scored=tuple(row)) for name, row in rows)
        return tuple(
            TaskRewards(name=name, scored=tuple(row[~gone].tolist()), errors=int(gone.sum()))
            for name, row, gone in zip(self.names, rewards, lost, strict=True)
        )


def judge_pair(pair: Pair, margin: float, *, these_tasks: bool | None = None) -> Call:
    """What the gate says of a pair, held to `score not worse than baseline by more than` the margin."""
    errors = [sum(task.errors for task in side) for side in (pair.before, pair.after)]
    if any(errors):
        trials = [sum(len(task.scored) for task in side) for side in (pair.before, pair.after)]
        counts = [lost + scored for lost, scored in zip(errors, trials, strict=True)]
        if errors[1] == counts[1]:
            return Call.INFRASTRUCTURE
        if fisher(errors[0], counts[0], errors[1], counts[1]) < ALIKE:
            worse = errors[1] * counts[0] > errors[0] * counts[1]
            return Call.INFRASTRUCTURE if worse else Call.INCONCLUSIVE
    fills = (None, 0.0, 1.0) if any(errors) else (None,)
    found = [_compared(pair, fill) for fill in fills]
    if found[0] is None or found[0].only_in_a:
        return Call.INCONCLUSIVE
    shared = {task.name for task in pair.before} & {task.name for task in pair.after}
    here = chosen_claim(these_tasks, len(shared)) is Claim.THESE_TASKS
    calls = {_call(each.judge(margin, these_tasks=here)) for each in found if each}
    return calls.pop() if len(calls) == 1 else Call.INCONCLUSIVE


def _compared(pair: Pair, fill: float | None) -> PairedScores | None:
    sides = [
        {task.name: task.scored + (() if fill is None else (fill,) * task.errors) for task in side}
        for side in (pair.before, pair.after)
    ]
    # With few tasks every sign pattern is tried, with many the t test decides: random flips are not needed.
    return paired_scores(*sides, flips=1)


def _call(verdict: Verdict) -> Call:
    if verdict is Verdict.WORSE:
        return Call.REGRESSION
    return Call.INCONCLUSIVE if verdict is Verdict.INCONCLUSIVE else Call.PASS


def alarms(pairs: Iterable[Pair], margin: float, *, these_tasks: bool | None = None) -> Alarms:
    """Judge every pair by the gate and by the usual alternatives."""
    calls: Counter[str] = Counter()
    naive: Counter[str] = Counter()
    count = 0
    for pair in pairs:
        count += 1
        calls[judge_pair(pair, margin, these_tasks=these_tasks)] += 1
        flat = [[reward for task in side for reward in task.scored] for side in (pair.before, pair.after)]
        for name, rule in SCORE_RULES.items():
            naive[name] += bool(all(flat)) and rule(*flat) < 0
    return Alarms(
        gate=alarm_rate(GATE, calls[Call.REGRESSION], count),
        calls={each.value: calls[each] for each in Call},
        naive=tuple(alarm_rate(name, naive[name], count) for name in SCORE_RULES),
    )


def detectable_loss(
    urns: Urns,
    rollouts: int,
    margin: float,
    *,
    these_tasks: bool | None = None,
    concentrated: bool = False,
    pairs: int = 200,
    seed: int = 0,
) -> float | None:
    """The loss that the gate itself detects with 80 % probability; None: not even a total loss."""

    def found(kept: float) -> float:
        hits = 0
        for number in range(pairs):
            generator = np.random.default_rng([seed, number])
            pair = urns.draw(rollouts, generator, kept=kept, concentrated=concentrated)
            hits += judge_pair(pair, margin, these_tasks=these_tasks) is Call.REGRESSION
        return hits / pairs

    return _smallest(found, urns.mean)


def _smallest(found: Callable[[float], float], mean: float, power: float = SEARCHED) -> float | None:
    if mean <= 0 or found(0.0) < power:
        return None
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        if found(1 - middle) >= power:
            high = middle
        else:
            low = middle
    return high * mean
