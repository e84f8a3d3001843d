from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.model.canonical import canonical_json, derive_seed, digest
from proctor.model.describe import describe, percentile

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@given(VALUES)
def test_it_agrees_with_numpy(values):
    found = describe(values)
    assert found["count"] == len(values)
    assert found["mean"] == pytest.approx(np.mean(values), abs=1e-6)
    for percent in (5, 25, 50, 75, 90, 95, 99):
        assert found[f"p{percent}"] == pytest.approx(np.percentile(values, percent), abs=1e-6)
    if len(values) > 1:
        assert found["std"] == pytest.approx(np.std(values, ddof=1), abs=1e-4)


def test_nothing_has_a_count_and_no_more():
    assert describe([]) == {"count": 0}
    with pytest.raises(ValueError, match="empty"):
        percentile([], 50)


def test_the_same_value_has_the_same_digest_whatever_its_order():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 1.5})
    assert canonical_json({"b": "é", "a": None}) == '{"a":null,"b":"é"}'
    with pytest.raises(ValueError, match="Out of range"):
        digest(float("nan"))


def test_seeds_differ_by_purpose_and_fit_in_63_bits():
    seeds = {derive_seed(7, purpose) for purpose in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert derive_seed(7, "x") == derive_seed(7, "x")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_one_value_is_described_like_many(value: float):
    one = describe([value])
    assert list(one) == list(describe([1.0, 2.0]))
    assert one == dict.fromkeys(one, value) | {"count": 1, "std": 0.0, "mad": 0.0}
