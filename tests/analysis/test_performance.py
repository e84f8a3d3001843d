from __future__ import annotations

import math
import random

import pytest

from proctor.analysis.performance import Rating, Rules, Settled, is_look, over_tasks, rate, reward_at

RULES = Rules(rounds=15, target=3.0, precision=0.1)


def measured(rng: random.Random, ratio: float, noise: float, *, own: float = 0.0) -> Rating:
    """Rounds of a program this many times better, on a host this noisy that sometimes stands still."""

    def host() -> float:
        return abs(rng.gauss(0, noise)) * rng.choice([1, 1, 1, 4])

    reference: list[float] = []
    program: list[float] = []
    while True:
        reference.append(math.exp(host()))
        program.append(math.exp(host() + rng.gauss(0, own)) / ratio)
        if not is_look(len(program), RULES):
            continue
        found = rate(reference, program, RULES)
        if found.settled is Settled.YES or len(program) == RULES.rounds:
            return found


@pytest.mark.parametrize(
    ("ratio", "reward"), [(0.5, 0.0), (1.0, 0.0), (3**0.5, 0.5), (3.0, 1.0), (30.0, 1.0)]
)
def test_the_reward_goes_evenly_in_factors_from_the_reference_to_the_target(ratio, reward):
    assert reward_at(ratio, 3.0) == pytest.approx(reward)


@pytest.mark.parametrize("noise", [0.02, 0.2, 0.5])
def test_a_noisy_host_makes_no_false_number(noise):
    rng = random.Random(7)
    for ratio, reward in ((0.5, 0.0), (1.0, 0.0), (2.0, 0.631), (10.0, 1.0)):
        found = [measured(rng, ratio, noise) for _ in range(40)]
        wrong = sum(not each.low <= ratio <= each.high for each in found)
        assert wrong <= 4
        numbers = [each.reward for each in found if each.settled is Settled.YES]
        assert sum(abs(each - reward) > RULES.precision for each in numbers) <= 2


def test_a_large_gain_is_settled_in_any_noise_and_a_small_one_stays_open():
    rng = random.Random(7)
    assert {measured(rng, 20.0, 0.3).settled for _ in range(20)} == {Settled.YES}
    assert {measured(rng, 2.0, 0.5).reward for _ in range(20)} == {None}


def test_doing_nothing_earns_nothing():
    rng = random.Random(7)
    rewards = [measured(rng, 1.0, 0.02).reward for _ in range(100)]
    assert sum(each == 0 for each in rewards) >= 95
    assert max(rewards) < 0.05


def test_a_program_that_varies_on_a_quiet_host_gets_the_lower_end():
    rng = random.Random(7)
    found = [measured(rng, 2.0, 0.005, own=0.3) for _ in range(20)]
    assert {each.settled for each in found} == {Settled.ERRATIC}
    assert all(each.reward == each.reward_low < 0.631 for each in found)


def test_equal_values_need_no_spread():
    found = rate([4.0] * 6, [2.0] * 6, Rules(rounds=6, target=4.0, precision=0.1))
    assert (found.settled, found.reward, found.low, found.high) == (Settled.YES, 0.5, 2.0, 2.0)


def test_more_is_better_where_that_is_asked():
    found = rate([1.0] * 6, [2.0] * 6, Rules(rounds=6, target=4.0, precision=0.1, higher=True))
    assert found.ratio == pytest.approx(2.0)


def test_tasks_count_alike_and_the_interval_holds_measurement_and_luck():
    assert over_tasks([]) is None
    assert over_tasks([[], []]) is None
    one = over_tasks([[(math.log(2), 0.1)]])
    assert one is not None
    assert one.ratio == pytest.approx(2.0)
    assert math.log(one.high / one.low) == pytest.approx(0.2, rel=0.01)
    both = over_tasks([[(math.log(2), 0.1), (math.log(8), 0.1)], [(0.0, 0.1)]])
    assert both is not None
    assert both.ratio == pytest.approx(2.0)
    assert both.programs == 3
    assert both.high / both.low > one.high / one.low
