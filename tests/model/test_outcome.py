from __future__ import annotations

import pytest

from proctor.model.outcome import Blame, Outcome, from_reward


def test_every_outcome_has_one_blame():
    assert all(isinstance(outcome.blame, Blame) for outcome in Outcome)


def test_only_the_agents_own_doing_is_scored():
    assert {outcome.value for outcome in Outcome if outcome.scored} == {
        "passed",
        "failed",
        "partial",
        "agent_timeout",
        "agent_error",
        "budget_exhausted",
    }


def test_only_machines_and_providers_are_tried_again():
    assert {outcome.value for outcome in Outcome if outcome.retryable} == {
        "sandbox_error",
        "image_error",
        "worker_lost",
        "starved",
        "provider_error",
    }


def test_nothing_is_both_scored_and_tried_again():
    assert not [outcome for outcome in Outcome if outcome.scored and outcome.retryable]


@pytest.mark.parametrize(
    ("reward", "outcome"),
    [(0, "failed"), (0.001, "partial"), (0.999, "partial"), (1, "passed"), (1.5, "passed")],
)
def test_a_reward_means_an_outcome(reward, outcome):
    assert from_reward(reward) is Outcome(outcome)
