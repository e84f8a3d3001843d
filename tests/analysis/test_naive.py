"""The usual alternatives, whose faults are the reason that the gate exists."""

from __future__ import annotations

import numpy as np
import pytest

from proctor.analysis.naive import (
    SCORE_RULES,
    TIME_RULES,
    by_eye,
    mcnemar,
    pooled_z,
    slower_by_eye,
    slower_by_welch,
)

ALL, NONE = [1.0] * 40, [0.0] * 40


@pytest.mark.parametrize("name", list(SCORE_RULES))
def test_every_rule_tells_which_way_a_plain_difference_goes(name: str):
    rule = SCORE_RULES[name]
    assert rule(ALL, NONE) == -1
    assert rule(NONE, ALL) == 1
    assert rule(ALL, ALL) == 0
    assert rule(NONE, NONE) == 0


def test_intervals_by_eye_need_a_larger_difference_than_the_pooled_test():
    before, after = [1.0] * 60 + [0.0] * 40, [1.0] * 45 + [0.0] * 55
    assert pooled_z(before, after) == -1
    assert by_eye(before, after) == 0


def test_unequal_sides_are_weighted_by_their_size():
    before, after = [1.0, 0.0] * 500, [1.0, 0.0, 0.0]
    assert pooled_z(before, after) == 0


def test_mcnemar_pairs_what_has_nothing_in_common_and_leaves_the_rest_out():
    assert mcnemar([1.0] * 10, [0.0] * 10) == -1
    assert mcnemar([1.0] * 10 + [1.0] * 90, [0.0] * 3) == 0
    assert mcnemar([1.0, 0.0], [0.0, 1.0]) == 0


def test_medians_by_eye_call_any_point_beyond_the_margin():
    assert slower_by_eye({"a": [1.0], "b": [1.0]}, {"a": [1.0], "b": [1.06]})
    assert not slower_by_eye({"a": [1.0]}, {"a": [1.06]}, 0.1)


def test_welch_calls_a_certain_slowdown_and_no_single_value():
    generator = np.random.default_rng(1)
    before = {"a": np.exp(generator.normal(0, 0.01, 20)).tolist()}
    after = {"a": [1.2 * value for value in before["a"]]}
    assert slower_by_welch(before, after)
    assert not slower_by_welch(before, before)
    assert not slower_by_welch({"a": [1.0]}, {"a": [2.0]})
    assert set(TIME_RULES) == {"medians by eye", "Welch per point"}
