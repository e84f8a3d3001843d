"""Identical sides made of a run's own results, and what is said of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from proctor.analysis.aa import (
    Call,
    Pair,
    Urns,
    alarm_rate,
    alarms,
    correlation,
    detectable_loss,
    halve,
    judge_pair,
)
from proctor.analysis.estimate import TaskRewards


def suite(chances: list[float], rollouts: int, seed: int = 0, errors: int = 0) -> tuple[TaskRewards, ...]:
    generator = np.random.default_rng(seed)
    return tuple(
        TaskRewards(
            name=f"task-{at}",
            scored=tuple((generator.random(rollouts) < chance).astype(float).tolist()),
            errors=errors,
        )
        for at, chance in enumerate(chances)
    )


HALF = [0.5] * 20


def test_halves_hold_every_rollout_once_and_are_of_equal_size():
    tasks = (
        TaskRewards(name="a", scored=(0.1, 0.2, 0.3), errors=2),
        TaskRewards(name="b", scored=(1.0,) * 4),
    )
    pair = halve(tasks, np.random.default_rng(1))
    for task, before, after in zip(tasks, pair.before, pair.after, strict=True):
        total = len(task.scored) + task.errors
        sizes = [len(side.scored) + side.errors for side in (before, after)]
        assert sizes == [total // 2, total // 2]
        assert not set(before.scored) & set(after.scored) or task.name == "b"
        assert set(before.scored) | set(after.scored) <= set(task.scored)


def test_halves_differ_by_as_much_as_two_runs_of_that_size_do():
    tasks = suite([0.5], 40)
    generator = np.random.default_rng(3)
    found = []
    for _ in range(4000):
        pair = halve(tasks, generator)
        found.append(np.mean(pair.after[0].scored) - np.mean(pair.before[0].scored))
    expected = 2 * np.var(tasks[0].scored, ddof=1) / 20
    assert np.var(found) == pytest.approx(expected, rel=0.08)


def test_redrawn_sides_keep_the_chances_of_each_task_and_doubt_what_was_seen_seldom():
    sure, never = (TaskRewards(name=name, scored=(reward,) * 30) for name, reward in (("a", 1.0), ("b", 0.0)))
    urns = Urns((sure, never))
    assert urns.mean == 0.5
    generator = np.random.default_rng(5)
    pairs = [urns.draw(10, generator) for _ in range(300)]
    means = [np.mean([np.mean(pair.after[at].scored) for pair in pairs]) for at in (0, 1)]
    assert means[0] > 0.95
    assert means[1] < 0.05
    assert means[1] > 0


def test_a_loss_takes_away_its_share_of_the_second_side_alone():
    urns = Urns(suite([1.0] * 5, 10))
    pair = urns.draw(200, np.random.default_rng(2), kept=0.75)
    assert all(np.mean(task.scored) == 1 for task in pair.before)
    assert np.mean([np.mean(task.scored) for task in pair.after]) == pytest.approx(0.75, abs=0.05)


def test_errors_come_back_at_the_rate_that_was_seen():
    urns = Urns(suite(HALF, 9, errors=1))
    pair = urns.draw(50, np.random.default_rng(2))
    lost = sum(task.errors for task in (*pair.before, *pair.after))
    assert lost / (2 * 50 * 20) == pytest.approx(0.1, abs=0.02)


def test_identical_agents_are_seldom_called_worse_and_plain_losses_always():
    found = alarms((halve(suite(HALF, 10), np.random.default_rng(at)) for at in range(300)), 0.03)
    assert found.gate.alarms <= 15
    assert sum(found.calls.values()) == 300
    assert {rate.rule for rate in found.naive} == {"two intervals by eye", "pooled z", "McNemar on rollouts"}
    lost = Pair(suite([0.9] * 20, 10), suite([0.2] * 20, 10, seed=1))
    assert judge_pair(lost, 0.03) is Call.REGRESSION
    assert judge_pair(Pair(lost.after, lost.before), 0.03) is Call.PASS


def test_broken_sides_are_not_judged():
    scored, none = (
        suite(HALF, 5),
        tuple(TaskRewards(name=f"task-{at}", scored=(), errors=5) for at in range(20)),
    )
    some = suite(HALF, 2, errors=3)
    assert judge_pair(Pair(scored, none), 0.03) is Call.INFRASTRUCTURE
    assert judge_pair(Pair(scored, some), 0.03) is Call.INFRASTRUCTURE
    assert judge_pair(Pair(some, scored), 0.03) is Call.INCONCLUSIVE


def test_how_errors_are_read_must_not_decide():
    before = tuple(TaskRewards(name=f"t{at}", scored=(1.0,) * 8, errors=2) for at in range(20))
    after = tuple(TaskRewards(name=f"t{at}", scored=(1.0,) * 8, errors=2) for at in range(20))
    assert judge_pair(Pair(before, after), 0.03) is Call.INCONCLUSIVE


def test_sides_without_a_shared_task_settle_nothing():
    pair = Pair((TaskRewards(name="a", scored=(1.0,)),), (TaskRewards(name="b", scored=(1.0,)),))
    assert judge_pair(pair, 0.03) is Call.INCONCLUSIVE


def test_more_rollouts_find_smaller_losses_and_few_tasks_none():
    urns = Urns(suite([0.8] * 15, 20))
    few, many = (detectable_loss(urns, rollouts, 0.03, pairs=60) for rollouts in (2, 15))
    assert few is not None
    assert many is not None
    assert 0.03 < many < few <= urns.mean
    four = Urns(suite([0.8] * 4, 20))
    assert detectable_loss(four, 10, 0.03, pairs=30, these_tasks=False) is None
    assert 0.1 < detectable_loss(four, 10, 0.03, pairs=30) < 0.5
    assert detectable_loss(Urns(suite([0.8] * 4, 20)), 10, 0.03, pairs=30, these_tasks=True) is not None
    assert detectable_loss(Urns(suite([0.0] * 9, 20)), 10, 0.03, pairs=30) is None


def test_the_promised_loss_is_found_about_four_times_in_five():
    urns = Urns(suite([0.7] * 20, 20))
    loss = detectable_loss(urns, 8, 0.03, pairs=100, seed=1)
    assert loss is not None
    kept = 1 - loss / urns.mean
    hits = sum(
        judge_pair(urns.draw(8, np.random.default_rng([9, at]), kept=kept), 0.03) is Call.REGRESSION
        for at in range(300)
    )
    assert 0.68 <= hits / 300 <= 0.92


def truth(
    generator: np.random.Generator, chances: np.ndarray, broken: np.ndarray, rollouts: int
) -> tuple[TaskRewards, ...]:
    """A run of a suite whose chances, and whose chances to break, are known."""
    lost = np.minimum(generator.binomial(rollouts, broken), rollouts - 1).tolist()
    return tuple(
        TaskRewards(
            name=f"task-{at}",
            scored=tuple((generator.random(rollouts - gone) < chance).astype(float).tolist()),
            errors=gone,
        )
        for at, (chance, gone) in enumerate(zip(chances, lost, strict=True))
    )


@pytest.mark.parametrize("uneven_errors", [False, True])
def test_the_promised_loss_is_found_when_a_few_tasks_carry_all_of_it(uneven_errors: bool):
    """Claimed from a pilot and tried on the truth, with errors that some tasks have and others not."""
    hits = tried = 0
    for seed in range(3):
        generator = np.random.default_rng([seed, 3])
        chances = generator.beta(1.5, 1, 24)
        broken = np.where(np.arange(24) % 4 == 0, 0.3, 0.0) * uneven_errors
        urns = Urns(truth(generator, chances, broken, 6))
        even, claimed = (
            detectable_loss(urns, 6, 0.03, pairs=40, seed=seed, concentrated=few) for few in (False, True)
        )
        assert even is not None
        assert claimed is not None
        assert claimed > even, "the same loss is harder to see in few tasks"
        for number in range(30):
            again = np.random.default_rng([seed, number, 4])
            order = again.permutation(24)
            before = np.cumsum(chances[order]) - chances[order]
            gone = np.clip((24 * claimed - before) / chances[order], 0, 1)
            after = chances.copy()
            after[order] *= 1 - gone
            pair = Pair(truth(again, chances, broken, 6), truth(again, after, broken, 6))
            hits += judge_pair(pair, 0.03) is Call.REGRESSION
            tried += 1
    assert hits / tried >= 0.72


def test_errors_come_back_in_the_tasks_that_had_them():
    tasks = (
        *suite([0.5] * 10, 10),
        *(TaskRewards(name=f"x{at}", scored=(1.0,) * 5, errors=5) for at in range(10)),
    )
    pair = Urns(tasks).draw(100, np.random.default_rng(1))
    rates = [task.errors / 100 for task in pair.before]
    assert np.mean(rates[:10]) < 0.06
    assert np.mean(rates[10:]) == pytest.approx(0.48, abs=0.05)


def test_a_concentrated_loss_leaves_most_tasks_alone():
    urns = Urns(suite([1.0] * 10, 10))
    pair = urns.draw(50, np.random.default_rng(2), kept=0.7, concentrated=True)
    means = sorted(float(np.mean(task.scored)) for task in pair.after)
    assert means == [0.0] * 3 + [1.0] * 7


@pytest.mark.parametrize(("between", "low", "high"), [(0.0, 0.0, 0.1), (1.0, 0.99, 1.0)])
def test_the_correlation_is_none_where_tasks_are_alike_and_whole_where_rollouts_are(
    between: float, low: float, high: float
):
    chances = [0.5 + between * (0.5 if at % 2 else -0.5) for at in range(40)]
    found = correlation([task.scored for task in suite(chances, 20)])
    assert found is not None
    assert low <= found.icc <= high
    assert found.interval is not None
    assert found.interval.contains(found.icc)
    assert found.design_effect == pytest.approx(1 + 19 * found.icc)
    assert found.effective_rollouts == pytest.approx(800 / found.design_effect)


def test_the_correlation_agrees_with_the_variances_it_is_made_of():
    generator = np.random.default_rng(4)
    rewards = (generator.normal(0, 1, (400, 1)) + generator.normal(0, 1, (400, 5))).tolist()
    found = correlation(rewards)
    assert found is not None
    assert found.icc == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("rewards", [[[1.0, 0.0]], [[1.0], [0.0]], [[1.0, 1.0], [1.0, 1.0]], []])
def test_without_repeats_or_differences_there_is_no_correlation(rewards: list[list[float]]):
    assert correlation(rewards) is None


def test_a_rate_is_excessive_only_when_chance_does_not_explain_it():
    assert not alarm_rate("x", 60, 1000).excessive
    assert alarm_rate("x", 100, 1000).excessive
    assert not alarm_rate("x", 1, 2).excessive
    assert math.isclose(alarm_rate("x", 1, 4).share, 0.25)
