from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from proctor.analysis.sequential import PRIOR, Decision, Tally, fewest_pairs, log_e_value, look


@pytest.mark.parametrize(("losses", "wins"), [(0, 0), (1, 0), (3, 2), (20, 4), (5, 30)])
def test_the_e_value_is_the_mixture_over_worse_chances(losses, wins):
    def likelihood(chance):
        return 2 ** (losses + wins) * chance**losses * (1 - chance) ** wins

    expected, _ = integrate.quad(
        lambda chance: likelihood(chance) * 2 * stats.beta.pdf(chance, PRIOR, PRIOR), 0.5, 1
    )
    assert math.exp(log_e_value(losses, wins)) == pytest.approx(expected, rel=1e-6)


def test_the_e_value_is_a_fair_bet_under_the_null():
    for losses, wins in [(0, 0), (4, 1), (9, 9)]:
        now = math.exp(log_e_value(losses, wins))
        later = 0.5 * (math.exp(log_e_value(losses + 1, wins)) + math.exp(log_e_value(losses, wins + 1)))
        assert later == pytest.approx(now)


def pairs(generator, chances, drop, rollouts):
    order = generator.permutation(np.repeat(np.arange(len(chances)), rollouts))
    for at in order:
        yield (
            bool(generator.random() < chances[at]),
            bool(generator.random() < max(0.0, chances[at] - drop)),
        )


def run_sequence(drawn, planned):
    tally, largest = Tally(), -math.inf
    state = look(tally, planned=planned)
    for baseline, candidate in drawn:
        if state.decision is not Decision.GO_ON:
            break
        tally = tally.add(baseline, candidate)
        largest = max(largest, log_e_value(tally.losses, tally.wins))
        state = look(tally, planned=planned, largest_log_e=largest)
    return state


def test_fewer_than_eight_pairs_prove_nothing_at_five_percent():
    assert fewest_pairs(0.05) == 8
    assert look(Tally(losses=7), planned=7).decision is Decision.NOT_WORSE
    assert look(Tally(losses=8), planned=8).decision is Decision.WORSE


def test_looking_after_every_pair_keeps_false_alarms_below_five_percent():
    generator = np.random.default_rng(1)
    chances = generator.beta(0.5, 0.5, 60)
    alarms = sum(
        run_sequence(pairs(generator, chances, 0.0, 5), planned=300).decision is Decision.WORSE
        for _ in range(120)
    )
    assert alarms / 120 <= 0.06


def test_a_large_loss_is_found_early():
    generator = np.random.default_rng(2)
    chances = generator.beta(2, 1, 60)
    looks = [run_sequence(pairs(generator, chances, 0.25, 5), planned=300) for _ in range(40)]
    assert all(each.decision is Decision.WORSE for each in looks)
    assert np.mean([each.saved for each in looks]) > 0.6


def test_when_no_loss_could_be_proved_any_more_the_test_stops():
    found = run_sequence([(True, True)] * 50, planned=50)
    assert found.decision is Decision.NOT_WORSE
    assert found.tally.pairs < 50
    assert found.saved > 0


def test_wins_are_no_evidence_of_a_loss():
    found = look(Tally(wins=400), planned=1000)
    assert found.e_value < 0.01
    assert found.p_value == 1
    assert log_e_value(0, 10_000) == pytest.approx(math.log(3 / 20_000), abs=0.01)


def test_the_p_value_remembers_the_strongest_moment():
    early = look(Tally(losses=9), planned=100)
    later = look(Tally(losses=9, wins=9), planned=100, largest_log_e=math.log(early.e_value))
    assert early.decision is Decision.WORSE
    assert later.decision is Decision.WORSE
    assert later.p_value == pytest.approx(early.p_value)


def test_a_tally_counts_disagreements_apart():
    tally = Tally().add(True, False).add(False, True).add(True, True).add(False, False)
    assert (tally.losses, tally.wins, tally.agreed, tally.pairs) == (1, 1, 2, 4)


def test_nothing_planned_decides_nothing():
    found = run_sequence([], planned=0)
    assert found.decision is Decision.NOT_WORSE
    assert found.saved == 0
