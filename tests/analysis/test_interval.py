from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import beta, binom

from proctor.analysis.claim import Claim, chosen_claim, tasks_needed, too_few, widest_claim
from proctor.analysis.compare import paired_scores
from proctor.analysis.estimate import score
from proctor.analysis.interval import (
    CAUTION,
    Interval,
    beta_limits,
    clopper_pearson,
    difference_interval,
    p_of_no_difference,
    rollouts_worth,
    student,
    wilson,
)
from proctor.analysis.verdict import Verdict


@pytest.mark.parametrize(("passed", "count"), [(0, 5), (1, 5), (3, 5), (5, 5), (40, 89)])
def test_wilson_and_clopper_pearson_agree_with_scipy(passed, count):
    result = stats.binomtest(passed, count)
    for ours, method in (
        (wilson(passed / count, count), "wilson"),
        (clopper_pearson(passed, count), "exact"),
    ):
        theirs = result.proportion_ci(0.95, method=method)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_wilson_reaches_the_ends_exactly():
    assert wilson(0, 7.5).low == 0
    assert wilson(1, 7.5).high == 1


def test_student_is_mean_plus_minus_t_errors():
    interval = student(10, 2, 4)
    assert interval.high == pytest.approx(10 + 2 * stats.t.ppf(0.975, 4))
    assert interval.width == pytest.approx(2 * (interval.high - 10))


def test_an_interval_contains_its_ends():
    interval = Interval(1, 2)
    assert interval.contains(1)
    assert interval.contains(2)
    assert not interval.contains(2.001)


def rewards(passed, count):
    return [1.0] * passed + [0.0] * (count - passed)


counts = st.integers(1, 60).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count)))
suites = st.lists(st.tuples(counts, counts), min_size=1, max_size=8)


@given(suite=suites, level=st.sampled_from([0.5001, 0.8, 0.95, 0.99]))
@settings(max_examples=400, deadline=None)
def test_the_estimate_lies_inside_every_interval_whatever_the_counts(suite, level):
    a = {str(at): rewards(*before) for at, (before, _) in enumerate(suite)}
    b = {str(at): rewards(*after) for at, (_, after) in enumerate(suite)}
    found = paired_scores(a, b, level=level, flips=1)
    for interval in (found.these_tasks, found.tasks_like_these):
        assert -1 <= interval.low <= found.difference <= interval.high <= 1
    assert found.tasks_like_these.low <= found.these_tasks.low
    assert found.tasks_like_these.high >= found.these_tasks.high
    alone = score(list(a.values()), level=level)
    assert 0 <= alone.these_tasks.low <= alone.value <= alone.these_tasks.high <= 1
    assert alone.tasks_like_these is None or alone.tasks_like_these.contains(alone.value)


fractions = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(sides=st.lists(st.tuples(fractions, fractions), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_it_lies_inside_for_rewards_between_zero_and_one_too(sides):
    a = {str(at): before for at, (before, _) in enumerate(sides)}
    b = {str(at): after for at, (_, after) in enumerate(sides)}
    found = paired_scores(a, b, flips=1)
    assert found.these_tasks.contains(found.difference)
    assert found.tasks_like_these.contains(found.difference)


def test_a_total_loss_on_one_task_is_not_half_denied():
    found = paired_scores({"t": rewards(20, 20)}, {"t": rewards(0, 20)})
    assert found.difference == found.these_tasks.low == -1
    assert found.these_tasks.high < -0.75
    assert found.judge(0.05) is Verdict.WORSE


@pytest.mark.parametrize("rollouts", [5, 10, 20])
@pytest.mark.parametrize(("before", "after"), [(0.9, 0.4), (0.5, 0.5), (0.1, 0.2), (1.0, 0.95), (0.0, 0.5)])
def test_coverage_on_one_task_is_at_least_93_percent_by_enumeration(rollouts, before, after):
    covered = 0.0
    for one, two in itertools.product(range(rollouts + 1), repeat=2):
        found = paired_scores({"t": rewards(one, rollouts)}, {"t": rewards(two, rollouts)}, flips=1)
        chance = binom.pmf(one, rollouts, before) * binom.pmf(two, rollouts, after)
        inside = found.these_tasks.low - 1e-9 <= after - before <= found.these_tasks.high + 1e-9
        covered += float(chance) * inside
    assert covered >= 0.93


def test_coverage_on_two_unequal_tasks_is_at_least_93_percent_by_enumeration():
    sizes, truth_a, truth_b = (5, 3), (0.9, 0.2), (0.4, 0.2)
    outcomes = list(itertools.product(range(sizes[0] + 1), range(sizes[1] + 1)))
    covered = 0.0
    for one, two in itertools.product(outcomes, repeat=2):
        chance = 1.0
        for at in (0, 1):
            chance *= binom.pmf(one[at], sizes[at], truth_a[at]) * binom.pmf(two[at], sizes[at], truth_b[at])
        sides = [{str(at): rewards(each[at], sizes[at]) for at in (0, 1)} for each in (one, two)]
        found = paired_scores(sides[0], sides[1], flips=1)
        covered += float(chance) * found.these_tasks.contains(-0.25)
    assert covered >= 0.93


def test_the_limits_lie_between_clopper_pearson_and_jeffreys():
    low, high = beta_limits(0.3, 10, 0.025)
    assert low == pytest.approx(beta.ppf(0.025, 3 + CAUTION, 8 - CAUTION))
    assert beta.ppf(0.025, 3, 8) < low < beta.ppf(0.025, 3.5, 7.5)
    assert beta.ppf(0.975, 3.5, 7.5) < high < beta.ppf(0.975, 4, 7)
    assert beta_limits(0.0, 10, 0.025)[0] == 0
    assert beta_limits(1.0, 10, 0.025)[1] == 1


def test_the_p_value_and_the_interval_agree_about_zero():
    for before, after in itertools.product((0.0, 0.2, 0.5, 0.8, 1.0), repeat=2):
        a, b = (before, 12.0), (after, 15.0)
        low, high = difference_interval(a, b)
        assert (p_of_no_difference(a, b) < 0.05) == (not low <= 0 <= high)


def test_tasks_that_always_do_the_same_are_worth_more_than_their_rollouts():
    alike = rollouts_worth(0.5, [10, 10], [0.25 * 10 / 9] * 2)
    apart = rollouts_worth(0.5, [10, 10], [0.0, 0.0])
    assert alike == pytest.approx(20)
    assert apart > 50
    assert rollouts_worth(0.5, [1, 1], [0.0, 0.0]) == pytest.approx(2)
    assert rollouts_worth(1.0, [7, 3], [0.0, 0.0]) == pytest.approx(4 / (1 / 7 + 1 / 3))


def test_a_lost_rollout_of_one_task_does_not_widen_the_claim_to_other_tasks():
    a = {f"t{at}": rewards(5 * (at % 2), 5) for at in range(8)}
    whole, lost = paired_scores(a, a), paired_scores(a, {**a, "t1": [1.0]})
    assert lost.these_tasks.method == whole.these_tasks.method
    assert lost.worth[0] == whole.worth[0]


def test_rewards_beyond_one_are_judged_by_their_spread_inside_tasks():
    a, b = {"x": [10.0, 12.0, 11.0]}, {"x": [20.0, 22.0, 21.0]}
    found = paired_scores(a, b)
    assert found.these_tasks.method == "t, stratified by task"
    assert 7 < found.these_tasks.low < 10 < found.these_tasks.high < 13


def test_the_widest_claim_is_chosen_by_the_number_of_tasks():
    assert [tasks_needed(level) for level in (0.9, 0.95, 0.99, 0.999)] == [5, 6, 8, 10]
    assert widest_claim(5) is Claim.THESE_TASKS
    assert widest_claim(6) is Claim.TASKS_LIKE_THESE
    assert widest_claim(6, 0.99) is Claim.THESE_TASKS
    assert chosen_claim(True, 100) is Claim.THESE_TASKS
    assert chosen_claim(False, 1) is Claim.TASKS_LIKE_THESE
    assert too_few(6) == ""
    assert too_few(1).startswith("1 task cannot prove")


def test_no_result_of_fewer_tasks_than_needed_can_be_certain_for_tasks_like_these():
    below = tasks_needed() - 1
    a = {f"t{at}": [1.0] * 9 for at in range(below)}
    b = {f"t{at}": [0.0] * 9 for at in range(below)}
    assert paired_scores(a, b).judge(0.05, these_tasks=False) is Verdict.INCONCLUSIVE
    a["more"], b["more"] = [1.0] * 9, [0.0] * 9
    assert paired_scores(a, b).judge(0.05, these_tasks=False) is Verdict.WORSE
