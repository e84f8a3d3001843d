from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from proctor.analysis.compare import paired_scores
from proctor.analysis.power import Spread, detectable, plan_table, rollouts_needed, spread_of

HARD = Spread(within=0.12, tasks=89)


def test_more_rollouts_and_more_tasks_find_less():
    reach = [detectable(HARD, k) for k in (1, 5, 10)]
    assert reach == sorted(reach, reverse=True)
    assert reach[0] == pytest.approx(0.147, abs=0.005)
    assert reach[1] == pytest.approx(reach[0] / 5**0.5)
    assert detectable(replace(HARD, tasks=400), 1) < reach[0] / 2


def test_differing_effects_cannot_be_averaged_away_by_rollouts():
    spread = Spread(within=0.12, effect=0.02, tasks=89)
    rows = plan_table(spread)
    assert [row.rollouts for row in rows] == list(range(1, 21))
    assert rows[-1].tasks_like_these > 1.5 * rows[-1].these_tasks
    assert rollouts_needed(spread, 0.02) is None


def test_the_table_counts_time_and_cost_of_both_sides():
    row = plan_table(HARD, seconds_per_rollout=360, cost_per_rollout_usd=0.5, parallel=10)[4]
    assert row.total_rollouts == 890
    assert row.hours == pytest.approx(8.9)
    assert row.cost_usd == pytest.approx(445)
    assert plan_table(replace(HARD, tasks=10))[0].hours is None


def test_the_needed_rollouts_are_the_fewest_that_suffice():
    needed = rollouts_needed(HARD, 0.05)
    assert detectable(HARD, needed) <= 0.05 < detectable(HARD, needed - 1)


def test_the_promised_power_is_reached_in_simulated_studies():
    generator = np.random.default_rng(2)
    chances = generator.beta(2, 2, 60) * 0.7
    spread = Spread(within=float(np.mean(chances * (1 - chances))), tasks=60)
    gain = detectable(spread, 4)
    found = 0
    for _ in range(300):
        a, b = (
            {
                str(at): (generator.random(4) < min(1, chance + extra)).astype(float)
                for at, chance in enumerate(chances)
            }
            for extra in (0.0, gain)
        )
        found += paired_scores(a, b).p_t <= 0.05
    assert 0.72 <= found / 300 <= 0.9


def test_a_pilot_gives_the_spread():
    generator = np.random.default_rng(3)
    chances = generator.beta(1, 1, 300)
    pilot = [(generator.random(4) < chance).astype(float).tolist() for chance in chances]
    assert spread_of(pilot).within == pytest.approx(1 / 6, abs=0.015)


def test_a_pilot_of_single_rollouts_assumes_the_worst():
    assert spread_of([[1], [0], [1], [0]]).within == 0.25
    assert spread_of([[1, 1], [0, 0]]).within > 0
    assert spread_of([[10.0, 12.0], [3.0, 5.0]]).within == pytest.approx(2 * 2 / 3)


def test_an_empty_pilot_is_refused():
    with pytest.raises(ValueError, match="pilot"):
        spread_of([[]])
