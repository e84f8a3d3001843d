from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from proctor.analysis.claim import Claim
from proctor.analysis.compare import missing_bounds, paired_ratio, paired_scores
from proctor.analysis.estimate import TaskRewards
from proctor.analysis.verdict import Verdict


def suite(generator, chances, rollouts):
    return {
        f"task-{at}": (generator.random(rollouts) < chance).astype(float).tolist()
        for at, chance in enumerate(chances)
    }


def test_the_difference_is_between_task_means_and_the_t_test_is_the_paired_one():
    a = {"x": [1, 0], "y": [0, 0], "z": [1, 1]}
    b = {"x": [1, 1], "y": [1, 0], "z": [1, 1], "w": [1]}
    found = paired_scores(a, b)
    assert found.difference == pytest.approx(1 / 3)
    assert found.p_t == pytest.approx(stats.ttest_rel([1, 0.5, 1], [0.5, 0, 1]).pvalue)
    assert (found.tasks, found.rollouts_a, found.rollouts_b) == (3, 6, 6)


def test_the_order_of_rollouts_does_not_matter():
    a = {"x": [1, 0, 0], "y": [0, 1, 1]}
    b = {"x": [0, 0, 1], "y": [1, 0, 1]}
    shuffled = {"x": [1, 0, 0], "y": [1, 1, 0]}
    assert paired_scores(a, b) == paired_scores(a, shuffled)


@pytest.mark.parametrize(("tasks", "rollouts"), [(20, 1), (20, 3), (89, 5)])
def test_equal_sides_are_called_different_in_about_five_percent(tasks, rollouts):
    generator = np.random.default_rng(tasks + rollouts)
    studies, alarms, covered = 300, 0, 0
    for _ in range(studies):
        chances = generator.beta(0.45, 0.55, tasks)
        found = paired_scores(
            suite(generator, chances, rollouts), suite(generator, chances, rollouts), seed=1
        )
        alarms += found.p_value <= 0.05
        covered += found.tasks_like_these.contains(0)
    assert alarms / studies <= 0.075
    assert 0.92 <= covered / studies <= 0.99


def test_few_tasks_that_all_agree_claim_no_certainty():
    same = {f"t{at}": [1.0] for at in range(5)}
    found = paired_scores(same, same)
    assert found.difference == 0
    assert found.tasks_like_these.width > 0.5
    assert found.p_t == 1
    up = paired_scores({f"t{at}": [0.0] for at in range(5)}, same)
    assert up.p_value == up.p_sign_flip == 2 / 32
    assert up.p_t == 0
    assert up.judge(0.05, these_tasks=False) is Verdict.NO_WORSE


def test_repeats_narrow_the_claim_about_these_tasks_when_effects_differ():
    a = {f"t{at}": [at % 2] * 6 for at in range(12)}
    b = {f"t{at}": [(at // 2) % 2] * 6 for at in range(12)}
    found = paired_scores(a, b)
    assert found.these_tasks.width < found.tasks_like_these.width
    assert found.interval(Claim.THESE_TASKS) is found.these_tasks
    assert found.judge(0.1, these_tasks=True) is Verdict.SAME
    assert found.judge(0.1) is Verdict.INCONCLUSIVE


def test_single_rollouts_use_the_wider_interval_for_both_claims():
    found = paired_scores({"a": [1], "b": [0]}, {"a": [1], "b": [1]})
    assert found.these_tasks == found.tasks_like_these


def test_a_real_loss_is_worse_and_a_real_gain_is_better():
    low = {f"t{at}": [0, 0, 0, 1] for at in range(30)}
    high = {f"t{at}": [1, 1, 0, 1] for at in range(30)}
    assert paired_scores(high, low).judge(0.05) is Verdict.WORSE
    assert paired_scores(low, high).judge(0.05) is Verdict.BETTER


def test_rewards_beyond_one_get_a_t_interval():
    found = paired_scores({"a": [10.0], "b": [20.0], "c": [31.0]}, {"a": [11.0], "b": [22.0], "c": [30.0]})
    assert found.tasks_like_these.method.startswith("t ")
    assert found.these_tasks == found.tasks_like_these
    assert math.isinf(paired_scores({"a": [10.0]}, {"a": [12.0]}).tasks_like_these.high)


def test_one_task_is_never_significant():
    found = paired_scores({"a": [1, 1]}, {"a": [0, 0]})
    assert found.p_t == 1
    assert found.judge(0.05) is Verdict.INCONCLUSIVE


def test_nothing_in_common_is_none():
    assert paired_scores({"a": [1]}, {"b": [1]}) is None
    assert paired_scores({"a": []}, {"a": [1]}) is None
    assert paired_ratio({"a": [1]}, {"a": [1]}) is None


def test_the_detectable_difference_is_found_four_times_in_five():
    generator = np.random.default_rng(11)
    chances = generator.uniform(0.3, 0.6, 60)
    reach = paired_scores(suite(generator, chances, 4), suite(generator, chances, 4)).detectable
    found = sum(
        paired_scores(suite(generator, chances, 4), suite(generator, chances + reach, 4)).p_value <= 0.05
        for _ in range(200)
    )
    assert 0.7 <= found / 200 <= 0.92


def test_missing_rollouts_bound_the_difference():
    a = [TaskRewards(name=f"t{at}", scored=(1.0, 1.0)) for at in range(12)]
    b = [TaskRewards(name=f"t{at}", scored=(1.0,), errors=1) for at in range(12)]
    found = missing_bounds(a, b)
    assert found.excluded.difference == 0
    assert found.as_zero.difference == pytest.approx(-0.5)
    assert found.best_case.difference == 0
    assert found.worst_for_b.difference == pytest.approx(-0.5)
    assert found.best_for_b.difference == 0
    assert (found.errors_a, found.errors_b) == (0, 12)
    assert found.judge(0.1) is Verdict.INCONCLUSIVE


def test_without_errors_the_headline_decides():
    a = [TaskRewards(name=f"t{at}", scored=(1.0,) * 4) for at in range(40)]
    assert missing_bounds(a, a).judge(0.1) is Verdict.SAME
    assert missing_bounds(a, []).judge(0.1) is Verdict.INCONCLUSIVE


def test_a_ratio_of_costs_covers_the_truth():
    generator = np.random.default_rng(5)
    hits = 0
    for at in range(200):
        base = generator.lognormal(0, 1, 25)
        a = {str(i): [cost * generator.lognormal(0, 0.2)] for i, cost in enumerate(base)}
        b = {str(i): [1.3 * cost * generator.lognormal(0, 0.2)] for i, cost in enumerate(base)}
        hits += paired_ratio(a, b, seed=at, draws=500).interval.contains(1.3)
    assert 0.9 <= hits / 200 <= 0.995


def test_a_ratio_refuses_values_at_zero():
    with pytest.raises(ValueError, match="above zero"):
        paired_ratio({"a": [0.0], "b": [1.0]}, {"a": [1.0], "b": [1.0]})


def test_the_wider_claim_is_never_the_more_certain_one():
    found = paired_scores(
        {f"t{at}": [1, 1, 0] for at in range(20)}, {f"t{at}": [0, 0, 1] for at in range(20)}
    )
    assert found.tasks_like_these.width >= found.these_tasks.width
