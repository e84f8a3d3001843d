"""What is no lasting change: dependent results, and a machine with two speeds."""

from __future__ import annotations

import numpy as np
import pytest

from proctor.analysis.change import MIN_SEGMENT, alternation, change_points, confirmed, pelt


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


NOISE = 0.02


def autocorrelated(generator: np.random.Generator, count: int, rho: float) -> np.ndarray:
    fresh = generator.normal(0, NOISE, count)
    values = fresh.copy()
    for at in range(1, count):
        values[at] = rho * values[at - 1] + np.sqrt(1 - rho**2) * fresh[at]
    return values


def two_speeds(generator: np.random.Generator, count: int, gap: float, how: str) -> np.ndarray:
    if how == "at random":
        slow = generator.random(count) < 0.5
    elif how == "one in five":
        slow = generator.random(count) < 0.2
    elif how == "stays of about 4":
        slow = np.cumsum(generator.random(count) < 0.25) % 2
    else:
        days = int(how.removeprefix("blocks of "))
        slow = ((np.arange(count) + generator.integers(0, 2 * days)) // days) % 2
    return generator.normal(0, NOISE, count) + gap * slow


def share_with_a_change(make, draws: int = 250) -> float:
    generator = np.random.default_rng(7)
    return sum(bool(change_points(np.exp(make(generator))).changes) for _ in range(draws)) / draws


@pytest.mark.parametrize("count", [12, 30, 100])
@pytest.mark.parametrize("rho", [0.3, 0.5])
def test_autocorrelated_histories_seldom_show_a_change(count, rho):
    assert share_with_a_change(lambda generator: autocorrelated(generator, count, rho)) <= 0.05


@pytest.mark.parametrize("gap", [0.1, 0.5])
@pytest.mark.parametrize(
    "how",
    [
        "at random",
        "one in five",
        "blocks of 1",
        "blocks of 2",
        "blocks of 3",
        "blocks of 5",
        "blocks of 7",
        "stays of about 4",
    ],
)
def test_a_machine_with_two_speeds_seldom_shows_a_change(how, gap):
    assert share_with_a_change(lambda generator: two_speeds(generator, 30, gap, how)) <= 0.05


def test_a_step_of_six_percent_is_still_found_in_thirty_runs():
    generator = np.random.default_rng(8)
    hits = 0
    for _ in range(300):
        logs = generator.normal(0, NOISE, 30)
        logs[15:] += np.log1p(0.06)
        hits += any(abs(change.index - 15) <= 2 for change in change_points(np.exp(logs)).changes)
    assert hits / 300 >= 0.9


def test_a_large_step_with_single_stray_runs_is_found():
    generator = np.random.default_rng(9)
    logs = generator.normal(0, NOISE, 40)
    logs[20:] += 0.5
    logs[[5, 30]] += [1.2, 0.9]
    assert [change.index for change in change_points(np.exp(logs)).changes] == [20]


def test_an_alternation_names_its_levels_and_how_often_they_were_left():
    logs = np.tile([0.0, 0.01, 0.5, 0.51, 0.5, 0.0], 5)
    report = change_points(np.exp(logs))
    assert report.changes == ()
    assert report.alternation is not None
    assert report.alternation.low == pytest.approx(0.0, abs=0.02)
    assert report.alternation.high == pytest.approx(0.5, abs=0.02)
    assert report.alternation.switches == 10
    assert len(set(report.levels)) == 1


def test_levels_that_come_back_in_turn_are_an_alternation_and_new_levels_are_changes():
    generator = np.random.default_rng(3)
    noise = generator.normal(0, NOISE, 40)
    back_and_forth = noise + np.repeat([0.0, 0.07, 0.0, 0.07], 10)
    assert alternation(back_and_forth, [10, 20, 30]) is not None
    climbing = noise + np.repeat([0.0, 0.1, 0.2, 0.3], 10)
    assert alternation(climbing, [10, 20, 30]) is None
    assert len(change_points(np.exp(climbing)).changes) == 3


def test_a_level_that_came_back_after_few_runs_did_not_last():
    generator = np.random.default_rng(4)
    logs = generator.normal(0, NOISE, 30)
    logs[12:16] += 0.1
    assert change_points(np.exp(logs)).changes == ()
    logs[16:22] += 0.1
    assert [change.index for change in change_points(np.exp(logs)).changes] == [12, 22]


def test_a_cut_moves_to_its_best_place_when_its_neighbour_is_removed():
    values = np.concatenate([np.zeros(15), np.ones(15)]) + np.tile([0.1, -0.1], 15)
    assert confirmed(values, [11, 19], 4) == [15]


def test_nothing_to_confirm_is_nothing():
    assert confirmed(np.zeros(10), [], 4) == []
    assert alternation(np.zeros(3), []) is None
