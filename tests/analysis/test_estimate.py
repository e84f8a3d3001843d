from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from proctor.analysis.estimate import (
    TaskRewards,
    denominators,
    pass_at_k,
    pass_hat_k,
    score,
    task_pass_at_k,
    task_pass_hat_k,
)

SUITES = [(5, 1), (5, 3), (20, 3), (89, 5)]


def simulated(generator, tasks, rollouts):
    """A suite from a population of its own: mean difficulty and spread are drawn first."""
    mean, weight = generator.uniform(0.05, 0.95), math.exp(generator.uniform(math.log(0.4), math.log(10)))
    chances = generator.beta(mean * weight, (1 - mean) * weight, tasks)
    return mean, chances, (generator.random((tasks, rollouts)) < chances[:, None]).astype(float)


@pytest.mark.parametrize(("tasks", "rollouts"), SUITES)
def test_95_percent_intervals_cover_between_93_and_97_percent_of_simulated_suites(tasks, rollouts):
    generator = np.random.default_rng(20_000 + tasks)
    suites, like_these, these = 2000, 0, 0
    for _ in range(suites):
        mean, chances, rewards = simulated(generator, tasks, rollouts)
        found = score(rewards.tolist())
        like_these += found.tasks_like_these.contains(mean)
        these += found.these_tasks.contains(chances.mean())
    assert 0.93 <= like_these / suites <= 0.97
    # One rollout per task cannot show how much of the spread is luck; then the interval is cautious.
    assert 0.93 <= these / suites <= (0.985 if rollouts > 1 else 1.0)


def test_a_task_with_more_rollouts_does_not_weigh_more():
    found = score([[1, 1, 1, 1, 1, 1], [0]])
    assert found.value == 0.5
    assert (found.tasks, found.rollouts) == (2, 7)


def test_more_alike_rollouts_of_a_task_are_worth_less_for_tasks_like_these():
    same = [[1, 1, 1]] * 10 + [[0, 0, 0]] * 10
    mixed = [[1, 0, 1], [0, 1, 0]] * 10
    assert score(same).value == score(mixed).value == 0.5
    assert score(same).tasks_like_these.width > 1.2 * score(mixed).tasks_like_these.width
    assert score(same).these_tasks.width < 0.5 * score(mixed).these_tasks.width


def test_all_passed_does_not_read_as_certainty():
    found = score([[1.0]] * 5)
    assert found.value == 1
    assert found.tasks_like_these.low < 0.7
    assert found.tasks_like_these.high == 1


def test_one_rollout_per_task_and_one_task_are_noted():
    assert "one rollout per task" in score([[1], [0]]).notes[0]
    alone = score([[1, 0, 1]])
    assert alone.tasks_like_these is None
    assert "one task" in alone.notes[0]


def test_partial_rewards_narrow_the_interval():
    fractions = score([[0.5, 0.6], [0.4, 0.5], [0.55, 0.5], [0.45, 0.5]])
    coins = score([[1, 0], [0, 1], [1, 0], [0, 1]])
    assert fractions.these_tasks.width < coins.these_tasks.width
    assert fractions.tasks_like_these.width < coins.tasks_like_these.width


def test_rewards_beyond_zero_and_one_get_a_t_interval():
    found = score([[10, 12], [20, 22], [14, 18]])
    assert found.value == pytest.approx(16)
    assert found.tasks_like_these.method.startswith("t,")
    assert found.tasks_like_these.contains(16)
    assert found.these_tasks.width < found.tasks_like_these.width


def test_unbounded_rewards_with_single_rollouts_fall_back_to_the_clustered_interval():
    found = score([[10], [20], [14]])
    assert (found.these_tasks.low, found.these_tasks.high) == (
        found.tasks_like_these.low,
        found.tasks_like_these.high,
    )
    assert math.isinf(score([[7]]).these_tasks.high)


def test_equal_unbounded_rewards_have_no_width():
    assert score([[5, 5], [5, 5]]).these_tasks.width == 0


def test_nothing_scored_is_none_and_not_zero():
    assert score([]) is None
    assert score([[], []]) is None


def test_the_three_denominators_enclose_each_other():
    found = denominators(
        [
            TaskRewards(name="a", scored=(1.0, 0.0), errors=1),
            TaskRewards(name="b", scored=(1.0, 1.0)),
            TaskRewards(name="c", scored=(), errors=2),
        ]
    )
    assert found.as_zero.value < found.excluded.value < found.best_case.value
    assert found.excluded.value == pytest.approx(0.75)
    assert found.as_zero.value == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert found.best_case.value == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert found.errors == 3


@pytest.mark.parametrize(("rollouts", "passed", "k"), [(5, 2, 1), (5, 2, 3), (6, 0, 2), (6, 6, 4), (7, 3, 7)])
def test_pass_at_k_and_pass_hat_k_count_every_choice_of_k_rollouts(rollouts, passed, k):
    results = [1] * passed + [0] * (rollouts - passed)
    choices = list(itertools.combinations(results, k))
    assert task_pass_at_k(rollouts, passed, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert task_pass_hat_k(rollouts, passed, k) == pytest.approx(sum(map(all, choices)) / len(choices))


def test_fewer_than_k_rollouts_are_not_available_and_never_one():
    assert task_pass_at_k(2, 2, 3) is None
    assert task_pass_hat_k(2, 2, 3) is None
    assert pass_at_k([(2, 2), (1, 1)], 3) is None
    found = pass_at_k([(4, 1), (2, 2), (4, 0)], 3)
    assert (found.tasks, found.short_tasks) == (2, 1)
    assert found.value == pytest.approx(0.75 / 2)


def test_pass_hat_k_falls_with_k_and_pass_at_k_rises():
    counts = [(4, 3), (4, 1), (4, 4)]
    at = [pass_at_k(counts, k).value for k in (1, 2, 3, 4)]
    hat = [pass_hat_k(counts, k).value for k in (1, 2, 3, 4)]
    assert at == sorted(at)
    assert hat == sorted(hat, reverse=True)
    assert at[0] == pytest.approx(hat[0])


def test_pass_at_k_of_one_task_has_no_interval_over_tasks():
    assert pass_at_k([(5, 2)], 2).interval is None
    assert pass_at_k([(5, 2), (5, 5)], 2).interval.contains(0.8)


@pytest.mark.parametrize(("rollouts", "passed", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_counts_are_refused(rollouts, passed, k):
    with pytest.raises(ValueError, match="k ≥ 1"):
        task_pass_at_k(rollouts, passed, k)


def test_the_wider_claim_is_never_the_more_certain_one():
    regular = score([[1, 1, 0]] * 20)
    assert regular.tasks_like_these.width >= regular.these_tasks.width
