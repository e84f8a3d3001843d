from __future__ import annotations

import pytest

from proctor.analysis.flaky import (
    Stability,
    suite_stability,
    task_stability,
)


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ([], Stability.UNKNOWN),
        ([True], Stability.UNKNOWN),
        ([True, True], Stability.ALWAYS_PASSES),
        ([False] * 3, Stability.ALWAYS_FAILS),
        ([True, False, True], Stability.FLAKY),
    ],
)
def test_a_task_is_judged_from_its_rollouts(passes, expected):
    assert task_stability("t", passes).stability is expected


def test_three_passes_of_three_are_not_certainty():
    found = task_stability("t", [True] * 3)
    assert found.interval.low < 0.3
    assert found.disagreement == 0
    assert task_stability("t", []).interval is None


def test_disagreement_is_the_chance_that_two_rollouts_differ():
    assert task_stability("t", [True, False]).disagreement == 1
    assert task_stability("t", [True, True, False, False]).disagreement == pytest.approx(2 / 3)


def test_a_suite_puts_the_least_stable_first():
    found = suite_stability({"calm": [1, 1, 1, 1], "wild": [1, 0, 1, 0], "odd": [1, 1, 1, 0], "new": [1]})
    assert [task.name for task in found.tasks][:2] == ["wild", "odd"]
    assert found.flaky_share == pytest.approx(2 / 3)
    assert suite_stability({"new": [1]}).flaky_share is None
