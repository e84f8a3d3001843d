from __future__ import annotations

import numpy as np
import pytest

from proctor.analysis.change import MIN_SEGMENT, change_points, pelt


def best_cuts(values, penalty, shortest):
    """Every segmentation by plain dynamic programming, without pruning."""
    count = len(values)
    best, previous = [float("inf")] * (count + 1), [0] * (count + 1)
    best[0] = -penalty
    for end in range(shortest, count + 1):
        for start in range(end - shortest + 1):
            part = values[start:end]
            total = best[start] + float(((part - part.mean()) ** 2).sum()) + penalty
            if total < best[end] - 1e-12:
                best[end], previous[end] = total, start
    cuts, at = [], previous[count]
    while at > 0:
        cuts.append(at)
        at = previous[at]
    return cuts[::-1]


@pytest.mark.parametrize("seed", range(40))
def test_pruning_never_changes_the_answer(seed):
    generator = np.random.default_rng(seed)
    values = np.repeat(generator.normal(0, 1, 5), 8) + generator.normal(0, 0.5, 40)
    penalty = generator.uniform(0.1, 4)
    assert pelt(values, penalty, 4) == best_cuts(values, penalty, 4)


@pytest.mark.parametrize("kind", ["normal", "heavy", "spikes"])
def test_about_two_percent_of_unchanged_histories_show_a_change(kind):
    generator = np.random.default_rng(1)
    alarms = 0
    for at in range(400):
        count = (12, 30, 60)[at % 3]
        noise = {
            "normal": generator.normal(0, 0.02, count),
            "heavy": generator.standard_t(3, count) * 0.012,
            "spikes": generator.normal(0, 0.02, count)
            + (generator.random(count) < 0.08) * generator.exponential(0.2, count),
        }[kind]
        alarms += bool(change_points(np.exp(noise)).changes)
    assert alarms / 400 <= 0.05


def test_a_lasting_step_of_three_sigmas_is_found_where_it_happened():
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(100):
        logs = generator.normal(0, 0.02, 40)
        logs[25:] += 0.06
        found = change_points(np.exp(logs)).changes
        hits += len(found) == 1 and abs(found[0].index - 25) <= 2
    assert hits >= 90


def test_a_change_carries_its_levels_and_its_ratio():
    generator = np.random.default_rng(3)
    values = np.concatenate([np.full(10, 2.0), np.full(10, 3.0)]) * np.exp(generator.normal(0, 0.01, 20))
    report = change_points(values)
    (change,) = report.changes
    assert change.index == 10
    assert change.ratio == pytest.approx(1.5, rel=0.02)
    assert change.interval.contains(1.5)
    assert change.p_value < 1e-6
    assert report.levels[0] == change.before
    assert report.levels[-1] == change.after
    assert len(report.levels) == report.values == 20


def test_one_bad_run_is_no_change():
    values = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 3.0, 1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99]
    assert change_points(values).changes == ()


def test_two_changes_and_back_are_two():
    generator = np.random.default_rng(5)
    logs = generator.normal(0, 0.01, 60)
    logs[20:40] += 0.1
    assert [change.index for change in change_points(np.exp(logs)).changes] == [20, 40]


def test_a_certain_change_too_small_to_mention_is_merged():
    logs = np.array([0.0, 1e-6] * 10 + [0.005, 0.005001] * 10)
    assert change_points(np.exp(logs)).changes == ()
    assert len(change_points(np.exp(logs), min_change=0.001).changes) == 1


def test_an_exact_step_is_certain():
    (change,) = change_points([1.0] * 8 + [2.0] * 8).changes
    assert (change.index, change.ratio, change.p_value) == (8, 2.0, 0.0)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0] * (2 * MIN_SEGMENT - 1)])
def test_short_histories_show_no_change(values):
    report = change_points(values)
    assert report.changes == ()
    assert len(report.levels) == len(values)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_have_no_logarithm_are_refused(bad):
    with pytest.raises(ValueError, match="above zero"):
        change_points([1.0, bad, 1.0])
