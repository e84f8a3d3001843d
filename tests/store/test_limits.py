"""How a limit is divided, and what it learns."""

from __future__ import annotations

import pytest

from proctor.store.limits import Report, _Other, fair_shares, learned


def wants(holder: str, served_at: float = 0.0, **wanted: int) -> _Other:
    return _Other(holder, 0, wanted, served_at)


@pytest.mark.parametrize(
    ("takers", "size", "shares"),
    [
        ([wants("a", x=9), wants("b", x=9)], 10, {"a": 5, "b": 5}),
        ([wants("a", x=2), wants("b", x=9)], 10, {"a": 2, "b": 8}),
        ([wants("a", x=9), wants("b", x=9), wants("c", y=9)], 8, {"a": 2, "b": 2, "c": 4}),
        ([wants("a", 5.0, x=9), wants("b", 2.0, x=9), wants("c", 3.0, x=1)], 2, {"a": 0, "b": 1, "c": 1}),
        ([wants("a"), wants("b", x=1)], 0, {"a": 0, "b": 0}),
    ],
)
def test_a_limit_is_divided_between_runs_and_then_between_gateways(takers, size, shares):
    assert fair_shares(takers, size) == shares


def test_a_limit_grows_with_answers_and_is_halved_once_per_round_of_refusals():
    seen = {"provider": "p", "model": "m", "wanted": {}}
    assert learned(Report(**seen, most=64, answered=8), 8.0, slow_start=True, epoch=0) == (16.0, True, 0)
    assert learned(Report(**seen, most=64, refused=(3, 3)), 16.0, slow_start=True, epoch=3) == (8.0, False, 4)
    assert learned(Report(**seen, most=64, refused=(3,)), 8.0, slow_start=False, epoch=4) == (8.0, False, 4)
    assert learned(Report(**seen, most=4), 8.0, slow_start=False, epoch=4)[0] == 4.0
