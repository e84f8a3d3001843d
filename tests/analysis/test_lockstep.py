from __future__ import annotations

import gzip
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from proctor.analysis.lockstep import (
    DIFFERENT,
    LOOKS,
    MOST_PAIRS,
    Rules,
    Verdict,
    centre,
    confirms,
    judge_values,
    log_ratio,
    looks_for,
    self_check,
    spent,
)
from proctor.model.lockstep import Pair, Schedule, Slot

DATA = Path(__file__).parent.parent / "data" / "lockstep"


def pair(
    change: float = 0.0,
    *,
    number: int = 0,
    aa: float | None = None,
    cpu_ns: int = 200_000,
    idle: float = 0.0,
    b_idle: float | None = None,
    waited: float = 0.0,
) -> Pair:
    """A pair whose B takes `change` more CPU time; idle and waiting times are shares of the CPU time."""

    def slots(factor: float, idle: float) -> tuple[Slot, ...]:
        busy = round(cpu_ns * factor)
        wall = round(busy + cpu_ns * (idle + waited))
        return (Slot(wall, busy, waited_ns=round(cpu_ns * waited)),) * 5

    return Pair(
        number=number,
        schedule=Schedule(loops=1, warmup=1, kept=4),
        a=slots(1, idle),
        b=slots(1 + change, idle if b_idle is None else b_idle),
        again=slots(1 + aa, idle) if aa is not None else (),
    )


def noisy(mean: float, spread: float, count: int, seed: int) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(mean, spread) for _ in range(count)]


def verdict_of(values: list[float], rules: Rules) -> tuple[Verdict, int]:
    for look in rules.looks:
        found = judge_values(values[:look], rules)
        if found.verdict:
            return found.verdict, look
    raise AssertionError("the last look must settle it one way or the other")


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=40))
def test_the_centre_and_its_error_are_yuens(values):
    found = centre(values)
    cut = int(0.2 * len(values))
    assert found.value == pytest.approx(stats.trim_mean(values, 0.2), abs=1e-12)
    winsorised = np.asarray(stats.mstats.winsorize(np.array(values), limits=(0.2, 0.2)))
    size = len(values) - 2 * cut
    error = winsorised.std(ddof=1) * math.sqrt((len(values) - 1) / (size * (size - 1)))
    assert found.error == pytest.approx(error, abs=1e-12)
    assert found.df == size - 1


def test_the_p_value_and_the_interval_agree_about_zero():
    found = centre(noisy(0.01, 0.01, 12, seed=1))
    half = found.half_width(found.p_value)
    assert half == pytest.approx(abs(found.value), rel=1e-6)


def test_values_without_any_spread_are_certain():
    assert centre([0.0] * 6).p_value == 1.0
    assert centre([0.1] * 6).p_value == 0.0
    assert centre([0.1] * 6).half_width(0.01) == 0.0


def test_the_looks_spend_the_whole_error_and_little_of_it_early():
    shares = spent(LOOKS)
    assert sum(shares) == pytest.approx(1)
    assert shares[0] < 0.2
    assert shares[-1] == max(shares)


def test_looks_without_an_end_never_spend_more_than_the_error():
    shares = spent(looks_for(MOST_PAIRS), open_ended=True)
    assert 0.8 < sum(shares) < 1
    assert list(shares) == sorted(shares, reverse=True)


def test_false_alarms_stay_below_what_was_asked_however_long_it_goes_on():
    generator = random.Random(12)
    rules = Rules(looks=looks_for(150), open_ended=True, margin=0.0005)
    found = [verdict_of([generator.gauss(0, 0.01) for _ in range(150)], rules)[0] for _ in range(300)]
    assert sum(each in DIFFERENT for each in found) / 300 <= rules.error + 0.005


@pytest.mark.parametrize(
    ("pairs", "looks"),
    [(20, LOOKS), (4, (4,)), (6, (6,)), (9, (6, 8, 9)), (40, (*LOOKS, 26, 34, 40)), (7, (6, 7))],
)
def test_looks_end_with_the_last_pair(pairs, looks):
    assert looks_for(pairs) == looks


def test_identical_code_is_the_same():
    assert verdict_of(noisy(0, 0.004, 20, seed=2), Rules())[0] is Verdict.SAME


def test_a_clear_slowdown_is_found_at_an_early_look():
    assert verdict_of(noisy(0.05, 0.008, 20, seed=3), Rules()) == (Verdict.SLOWER, 6)


def test_a_clear_gain_is_faster():
    assert verdict_of(noisy(-0.05, 0.008, 20, seed=4), Rules())[0] is Verdict.FASTER


def test_a_certain_change_inside_the_margin_is_small():
    assert verdict_of(noisy(0.0085, 0.0008, 20, seed=5), Rules())[0] is Verdict.SMALL


def test_a_certain_change_near_the_margin_is_decided_by_its_estimate_at_the_end():
    values = noisy(0.008, 0.002, 20, seed=6)
    found = judge_values(values, Rules())
    assert found.high > 0.01 or found.verdict is Verdict.SMALL
    assert found.verdict in {Verdict.SMALL, Verdict.SLOWER}
    assert (found.verdict is Verdict.SLOWER) == (found.change >= found.margin)


def test_noise_beyond_the_margin_is_inconclusive_and_says_what_would_settle_it():
    found = judge_values(noisy(0.001, 0.02, 20, seed=7), Rules())
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.pairs_needed is not None
    assert found.pairs_needed > 20
    assert found.detectable > found.margin


def test_pairs_that_would_settle_it_do():
    half = noisy(0.0, 0.022, 10, seed=8)
    first = judge_values([*half, *(-value for value in half)], Rules())
    assert first.verdict is Verdict.INCONCLUSIVE
    assert first.pairs_needed
    looks = looks_for(first.pairs_needed)
    settled = [
        verdict_of(noisy(0.0, 0.022, looks[-1], seed=seed), Rules(looks=looks))[0] for seed in range(40)
    ]
    assert settled.count(Verdict.SAME) >= 25


def test_hopeless_noise_has_no_price():
    values = [sign * 3.0 for sign in (1, -1)] * 10
    assert judge_values(values, Rules()).pairs_needed is None


def test_between_looks_the_answer_is_to_go_on():
    assert judge_values(noisy(0.5, 0.001, 7, seed=9), Rules()).verdict is None


def test_a_comparison_that_is_cut_short_is_judged_with_what_there_is():
    assert judge_values(noisy(0.5, 0.001, 7, seed=9), Rules(), final=True).verdict is Verdict.SLOWER
    assert judge_values(noisy(0.0, 0.1, 5, seed=9), Rules(), final=True).verdict is Verdict.INCONCLUSIVE


def test_more_points_need_more_certainty():
    values = noisy(0.02, 0.0115, 10, seed=10)
    alone, among_many = judge_values(values, Rules()), judge_values(values, Rules(points=50))
    assert among_many.high - among_many.low > alone.high - alone.low
    assert among_many.p_value == alone.p_value


@pytest.mark.parametrize("tail", ["normal", "outliers"])
def test_false_alarms_stay_below_what_was_asked(tail):
    generator = random.Random(11)
    rules, wrong, rounds = Rules(), 0, 400

    def draw() -> float:
        value = generator.gauss(0, 0.01)
        return value * 10 if tail == "outliers" and generator.random() < 0.04 else value

    for _ in range(rounds):
        wrong += verdict_of([draw() for _ in range(20)], rules)[0] in DIFFERENT
    assert wrong / rounds <= rules.error + 0.005


def test_two_per_cent_are_found_in_the_noise_of_a_loaded_machine():
    found = [verdict_of(noisy(0.02, 0.012, 20, seed=seed), Rules())[0] for seed in range(100)]
    assert found.count(Verdict.SLOWER) >= 95


def test_the_ratio_of_a_pair_is_its_median_and_ignores_warm_up():
    slow = replace(pair(0.05), a=(Slot(9, 9), *pair(0.05).a[1:]), b=(Slot(1, 1), *pair(0.05).b[1:]))
    assert log_ratio(slow, "cpu") == pytest.approx(math.log(1.05))


def test_one_disturbed_slot_does_not_move_the_ratio():
    clean = pair(0.02)
    disturbed = replace(clean, b=(*clean.b[:-1], Slot(10**9, 10**9)))
    assert log_ratio(disturbed, "cpu") == pytest.approx(log_ratio(clean, "cpu"))


def test_the_same_difference_in_fresh_pairs_confirms():
    assert confirms(0.05, [0.04] * 4)
    assert not confirms(0.05, [-0.04] * 4)
    assert not confirms(0.05, [0.1, -0.1, 0.1, -0.1])


def test_a_differing_from_itself_fails_the_check():
    values = noisy(0, 0.005, 12, seed=12)
    check = self_check(values, [0.04 + value for value in values], 0.01)
    assert not check.passed
    assert check.pairs == 12
    assert check.change == pytest.approx(0.04, abs=0.01)


def test_a_like_itself_passes_the_check_and_so_does_too_little_to_say():
    values = noisy(0, 0.01, 12, seed=13)
    assert self_check(values, [-value for value in values], 0.01).passed
    assert self_check([0.0] * 6, [0.5] * 3, 0.01).pairs == 3
    assert self_check([0.0] * 6, [], 0.01).passed
    assert self_check([0.0] * 2, [0.5] * 2, 0.01).passed


def test_without_spread_any_difference_of_a_from_itself_fails():
    assert not self_check([0.0] * 6, [0.5] * 6, 0.01).passed
    assert self_check([0.0] * 6, [0.0] * 6, 0.01).passed


def recorded(name: str) -> list[Pair]:
    data = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return [Pair.from_mapping(each) for each in data["points"][0]["pairs_data"]]


@pytest.mark.parametrize("name", ["identical-sort", "identical-json"])
def test_recorded_noise_drawn_again_and_again_gives_no_false_alarms(name):
    pairs = recorded(name)
    values = [log_ratio(each, "cpu") for each in pairs]
    middle = centre(values).value
    generator = random.Random(14)
    rounds = 200
    # Which side is called B is a coin toss for identical code.
    drawn = (
        [(generator.choice(values) - middle) * generator.choice((1, -1)) for _ in range(20)]
        for _ in range(rounds)
    )
    wrong = sum(verdict_of(each, Rules())[0] in DIFFERENT for each in drawn)
    assert wrong / rounds <= 0.03


@pytest.mark.parametrize("name", ["slower-5-sort", "slower-5-json"])
def test_recorded_slowdowns_are_found_in_any_order_of_the_pairs(name):
    pairs = [each for each in recorded(name) if not each.confirms]
    generator = random.Random(15)
    values = [log_ratio(each, "cpu") for each in pairs]
    for _ in range(50):
        generator.shuffle(values)
        assert verdict_of(values, Rules())[0] is Verdict.SLOWER


def test_a_pair_survives_being_written_and_read():
    first = recorded("identical-sort")[1]
    assert Pair.from_mapping(json.loads(json.dumps(first.to_mapping()))) == first
