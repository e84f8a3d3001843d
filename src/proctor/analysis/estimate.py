"""Scores and their uncertainty: scores over tasks and rollouts, with intervals for few tasks too.

A score is the mean over tasks of each task's mean reward, so a task with more rollouts does not weigh more.
Two claims are kept apart. *These tasks*: would the same tasks, rolled out again, score the same? Only the
luck inside each task counts. *Tasks like these*: would other tasks of the same kind? Then tasks are the
sample, and rollouts of one task are one cluster. docs/explanation/statistics.md has the simulations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from proctor.analysis.claim import Claim, widest_claim
from proctor.analysis.interval import Interval, beta_limits, rollouts_worth, student, wilson

PRIOR_CORRELATION = 0.5
"""Correlation of two rollouts of one task in agent benchmarks, before we have seen the suite."""
PRIOR_TASKS = 8
"""How many tasks that belief is worth. Chosen by simulation over suites of 5 to 89 tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A mean reward over tasks, with an interval for each of the two claims."""

    value: float
    tasks: int
    rollouts: int
    these_tasks: Interval
    tasks_like_these: Interval | None
    """None with a single task: one task gives no information about others."""
    notes: tuple[str, ...] = ()

    @property
    def claim(self) -> Claim:
        """The widest claim that this many tasks can judge."""
        return widest_claim(self.tasks)

    def interval(self, claim: Claim | None = None) -> Interval:
        """The interval of a claim, of the widest possible if none is named; one task has only its own."""
        claim = claim or self.claim
        return self.these_tasks if claim is Claim.THESE_TASKS else self.tasks_like_these or self.these_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRewards:
    """One task: rewards of its scored rollouts, and how many ended with an error that was not the agent's."""

    name: str
    scored: tuple[float, ...]
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """One suite under three readings of the rollouts that ended in an error which was not the agent's."""

    excluded: Score | None
    """The headline. None when nothing was scored."""
    as_zero: Score | None
    best_case: Score | None
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtK:
    """pass@k or pass^k over the tasks that have at least k scored rollouts."""

    k: int
    value: float
    interval: Interval | None
    """For tasks like these; it is cautious as a claim about these tasks."""
    tasks: int
    short_tasks: int
    """Tasks with fewer than k scored rollouts: not available, and left out."""


def score(rewards: Sequence[Sequence[float]], *, level: float = 0.95) -> Score | None:
    """Score a suite given each task's rewards. Tasks without any are left out; None when all are."""
    return _score([_task(task) for task in rewards if len(task)], level)


def _score(suite: Sequence[_Task], level: float) -> Score | None:
    if not suite:
        return None
    value = math.fsum([task.mean for task in suite]) / len(suite)
    notes = []
    if max(task.rollouts for task in suite) == 1:
        notes.append(
            "one rollout per task: variation within tasks cannot be told from differences between them, "
            "so the interval for these tasks is wider than needed"
        )
    if len(suite) == 1:
        notes.append("one task: no claim about tasks like these")
    bounded = all(task.bounded for task in suite)
    stratified = _these_tasks if bounded else _these_tasks_unbounded
    clustered = _tasks_like_these if bounded else _tasks_like_these_unbounded
    these = stratified(suite, value, level)
    like = clustered(suite, value, level) if len(suite) > 1 else None
    if like and any(task.rollouts > 1 for task in suite):
        # Luck inside tasks is part of the spread between them: the wider claim is never the more certain one.
        like = Interval(min(like.low, these.low), max(like.high, these.high), level, like.method)
    return Score(
        value=value,
        tasks=len(suite),
        rollouts=sum(task.rollouts for task in suite),
        these_tasks=these,
        tasks_like_these=like,
        notes=tuple(notes),
    )


def denominators(tasks: Sequence[TaskRewards], *, level: float = 0.95) -> Denominators:
    """Score a suite three times: errors left out, errors as zero, errors as full marks."""
    scored = [_task(task.scored) if task.scored else None for task in tasks]
    suites = [[task for task in scored if task]]
    for reward in (0.0, 1.0):
        # Most tasks have no errors, and are what they are in every reading.
        filled = (
            _task(task.scored + (reward,) * task.errors) if task.errors else known
            for task, known in zip(tasks, scored, strict=True)
        )
        suites.append([task for task in filled if task])
    excluded, as_zero, best_case = (_score(suite, level) for suite in suites)
    return Denominators(
        excluded=excluded,
        as_zero=as_zero,
        best_case=best_case,
        errors=sum(task.errors for task in tasks),
    )


def task_pass_at_k(rollouts: int, passed: int, k: int) -> float | None:
    """Chance that at least one of k rollouts passes: 1 - C(n-c, k) / C(n, k). None below k rollouts."""
    _check_counts(rollouts, passed, k)
    if rollouts < k:
        return None
    return 1 - math.comb(rollouts - passed, k) / math.comb(rollouts, k)


def task_pass_hat_k(rollouts: int, passed: int, k: int) -> float | None:
    """Chance that all of k rollouts pass: C(c, k) / C(n, k). None below k rollouts."""
    _check_counts(rollouts, passed, k)
    return math.comb(passed, k) / math.comb(rollouts, k) if rollouts >= k else None


def pass_at_k(counts: Sequence[tuple[int, int]], k: int, *, level: float = 0.95) -> AtK | None:
    """pass@k of a suite from each task's (scored rollouts, passed); None when no task has k rollouts."""
    return _over_tasks([task_pass_at_k(n, c, k) for n, c in counts], k, level)


def pass_hat_k(counts: Sequence[tuple[int, int]], k: int, *, level: float = 0.95) -> AtK | None:
    """pass^k of a suite: the reliability that pass@k hides."""
    return _over_tasks([task_pass_hat_k(n, c, k) for n, c in counts], k, level)


def _over_tasks(values: Sequence[float | None], k: int, level: float) -> AtK | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    return AtK(
        k=k,
        value=mean,
        interval=_tasks_like_these([_task((value,)) for value in known], mean, level)
        if len(known) > 1
        else None,
        tasks=len(known),
        short_tasks=len(values) - len(known),
    )


class _Task(NamedTuple):
    """What of a task's rewards the intervals are made of."""

    rollouts: int
    mean: float
    variance: float
    """0 with a single reward."""
    bounded: bool
    """No reward lies beyond 0 and 1."""
    binary: bool
    """Every reward is 0 or 1."""


def _task(rewards: Sequence[float]) -> _Task:
    found = tuple(map(float, rewards))
    ones = found.count(1.0)
    return _passes(len(found), ones) if ones + found.count(0.0) == len(found) else _moments(found)


@lru_cache(maxsize=4096)
def _passes(count: int, passed: int) -> _Task:
    """Of rewards that are 0 or 1 the counts tell all, and of many tasks many are alike."""
    return _moments((1.0,) * passed + (0.0,) * (count - passed))


def _moments(rewards: Sequence[float]) -> _Task:
    return _Task(
        rollouts=len(rewards),
        mean=math.fsum(rewards) / len(rewards),
        variance=variance(rewards) if len(rewards) > 1 else 0.0,
        bounded=all(0 <= reward <= 1 for reward in rewards),
        binary=all(reward in {0.0, 1.0} for reward in rewards),
    )


def _tasks_like_these(suite: Sequence[_Task], value: float, level: float) -> Interval:
    """Wilson, with the number of tasks inflated by how little the task means vary.

    If every rollout of a task gave the same reward, 0 or 1, the suite would be worth as many coin tosses as
    it has tasks. `share` is the variance of the task means over that extreme: 1 there, 1/k when tasks do not
    differ at all. Few tasks estimate it badly, so it is pulled towards what such suites usually show.
    """
    tasks = len(suite)
    fewest = math.fsum([1 / task.rollouts for task in suite]) / tasks
    prior = fewest + (1 - fewest) * PRIOR_CORRELATION
    extreme = value * (1 - value) * tasks / (tasks - 1)
    binary = all(task.binary for task in suite)
    share = variance([task.mean for task in suite]) / extreme if extreme > 0 else prior
    share = min(max(share, fewest if binary else 0.0), 1.0)
    share = ((tasks - 1) * share + PRIOR_TASKS * prior) / (tasks - 1 + PRIOR_TASKS)
    return wilson(value, tasks / share, level, "wilson, clustered by task")


def _these_tasks(suite: Sequence[_Task], value: float, level: float) -> Interval:
    """Beta limits, with the number of rollouts inflated by how much of the variance lies between tasks."""
    worth = rollouts_worth(value, [task.rollouts for task in suite], [task.variance for task in suite])
    low, high = beta_limits(value, worth, (1 - level) / 2)
    return Interval(low, high, level, "beta limits, stratified by task")


def _tasks_like_these_unbounded(suite: Sequence[_Task], value: float, level: float) -> Interval:
    error = math.sqrt(variance([task.mean for task in suite]) / len(suite))
    return student(value, error, len(suite) - 1, level, "t, clustered by task")


def _these_tasks_unbounded(suite: Sequence[_Task], value: float, level: float) -> Interval:
    parts = [(task.variance / task.rollouts, task.rollouts - 1) for task in suite if task.rollouts > 1]
    if len(parts) < len(suite):
        if len(suite) == 1:
            return Interval(-math.inf, math.inf, level, "none: one rollout of one task")
        return _tasks_like_these_unbounded(suite, value, level)
    total = math.fsum(part for part, _ in parts)
    weights = math.fsum(part * part / df for part, df in parts)
    df = total * total / weights if weights > 0 else sum(df for _, df in parts)
    return student(value, math.sqrt(total) / len(suite), df, level, "t, stratified by task")


def variance(values: Sequence[float]) -> float:
    """Of a sample of two or more."""
    mean = math.fsum(values) / len(values)
    return math.fsum([(value - mean) ** 2 for value in values]) / (len(values) - 1)


def _check_counts(rollouts: int, passed: int, k: int) -> None:
    if k < 1 or not 0 <= passed <= rollouts:
        msg = f"k={k} of {rollouts} rollouts with {passed} passed: needs k ≥ 1 and 0 ≤ passed ≤ rollouts"
        raise ValueError(msg)
