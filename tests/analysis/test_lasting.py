"""What is no lasting change: dependent results, and a machine with two speeds."""

from __future__ import annotations

import numpy as np
import pytest

from proctor.analysis.change import change_points
from proctor.analysis.lasting import alternation, confirmed

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
