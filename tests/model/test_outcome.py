from __future__ import annotations

import pytest

from proctor.model.outcome import Blame, Outcome, from_reward, is_pass, reward_of


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


def test_an_authors_mistake_is_an_error_and_what_a_person_stopped_is_not():
    assert Outcome.INVALID.error
    assert not Outcome.INVALID.broken
    assert not any(each.error for each in (Outcome.CANCELLED, Outcome.SKIPPED, Outcome.FAILED))
    assert {outcome for outcome in Outcome if outcome.broken} == {
        outcome for outcome in Outcome if outcome.retryable
    }


@pytest.mark.parametrize(
    ("outcome", "reward", "worth", "passed"),
    [
        ("passed", None, 1.0, True),
        ("failed", None, 0.0, False),
        ("agent_timeout", 1.0, 1.0, True),
        ("agent_timeout", None, 0.0, False),
        ("partial", 0.5, 0.5, False),
        ("sandbox_error", 1.0, None, False),
        ("invalid", None, None, False),
    ],
)
def test_a_pass_is_scored_with_a_whole_reward(outcome, reward, worth, passed):
    assert reward_of(Outcome(outcome), reward) == worth
    assert is_pass(Outcome(outcome), reward) is passed
