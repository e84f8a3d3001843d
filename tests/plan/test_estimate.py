"""Estimates from history: sums what is known, names what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.model.plan import Plan, PlannedTrial
from proctor.plan.estimate import estimate


def trial(index: int, subject: str = "demo", **values: object) -> PlannedTrial:
    return PlannedTrial(
        key=str(index), index=index, kind="experiment", subject=subject, subject_digest="d", body=0, **values
    )


def test_known_trials_are_summed_and_unknown_subjects_named() -> None:
    plan = Plan(trials=(trial(0), trial(1), trial(2, "new"), trial(3, "new")))
    found = estimate(plan, {"demo": 2.0})
    assert (found.trials, found.timed, found.work_s, found.wall_s) == (4, 2, 4.0, 4.0)
    assert found.untimed == ("new",)
    assert not found.complete
    assert found.cost_usd is None


def test_the_time_of_the_very_point_wins_over_that_of_the_subject() -> None:
    plan = Plan(trials=(trial(0, params={"n": 1}), trial(1, params={"n": 2})))
    found = estimate(plan, {"demo": 2.0, "demo(n=2)": 5.0}, costs={"demo": 0.25})
    assert found.work_s == 7.0
    assert found.complete
    assert found.cost_usd == 0.5
    assert found.to_mapping()["complete"] is True


def test_rollouts_of_one_agent_share_their_history() -> None:
    rollout = PlannedTrial(
        key="k",
        index=0,
        kind="task",
        subject="t",
        subject_digest="d",
        body=0,
        agent="a",
        model="m",
        rollout=3,
    )
    assert estimate(Plan(trials=(rollout,)), {"t × a/m": 9.0, "t": 1.0}).work_s == 9.0


def test_an_empty_plan_takes_no_time() -> None:
    found = estimate(Plan(trials=()), {})
    assert (found.work_s, found.wall_s, found.complete) == (0, 0, True)


def test_workers_share_the_work_in_plan_order() -> None:
    plan = Plan(trials=tuple(trial(at, f"s{at}") for at in range(3)))
    history = {"s0": 1.0, "s1": 1.0, "s2": 10.0}
    assert estimate(plan, history, parallel=2).wall_s == 11.0
    assert estimate(plan, history, parallel=3).wall_s == 10.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 50))
def test_the_wall_time_lies_between_the_work_shared_out_and_the_work(
    times: list[float], parallel: int
) -> None:
    plan = Plan(trials=tuple(trial(at, f"s{at}") for at in range(len(times))))
    found = estimate(plan, {f"s{at}": time for at, time in enumerate(times)}, parallel=parallel)
    assert found.work_s == pytest.approx(sum(times))
    low, high = max(*times, found.work_s / parallel), found.work_s
    assert low * (1 - 1e-9) <= found.wall_s <= high * (1 + 1e-9)
