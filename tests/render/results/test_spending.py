from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs
from tests.render.pages import render

from proctor.render.results import rollouts as results
from proctor.render.results import spending
from proctor.verdicts.rollouts.scores import rollouts


def with_cost(data, factor=1.0):
    trials = []
    for trial in data.trials:
        record = trial.counted
        paid = (
            structs.replace(record, usage={"cost_usd": factor * (1 + trial.planned.index % 3)})
            if record
            else None
        )
        trials.append(structs.replace(trial, attempts=(paid,) if paid else (), counted=paid))
    return replace(data, trials=tuple(trials))


def two_agents(study):
    for task in ("a", "b", "c"):
        study.cell(task, ["passed", "failed", "passed"], agent="x")
        study.cell(task, ["failed", "failed", "sandbox_error"], agent="y")
    return study.data()


@pytest.fixture
def study(rolled):
    return rolled.study()


def test_agents_are_drawn_by_what_a_rollout_costs_and_earns(study):
    page = render(with_cost(two_agents(study)))
    assert "Cost against score" in page
    assert "One mark per agent and model: mean cost" in page


def test_without_money_time_stands_in_and_a_single_agent_is_drawn_by_task(study):
    for task in ("a", "b", "c"):
        study.cell(task, ["passed", "failed"], agent="x")
    page = render(study.data())
    assert "Duration against score" in page
    assert "One mark per task" in page


def test_a_single_task_of_a_single_agent_has_nothing_to_draw(study):
    page = render(study.cell("a", ["passed", "failed"]).data())
    assert "against score" not in page
    assert "Times in order" not in page


def test_times_are_drawn_in_the_order_rollouts_started(study):
    for task in ("a", "b", "c", "d"):
        study.cell(task, ["passed"] * 3)
    page = render(study.data())
    assert "12 scored rollouts in the order they started" in page
    assert "Peak memory of a rollout" in page
    assert "CPU time of a rollout" in page


def test_times_are_held_against_the_same_task_and_agent(study):
    """Slow tasks that run first look like drift unless each is compared with itself."""
    for task, took in (("slow", 100.0), ("quick", 1.0)):
        for agent, factor in (("x", 1.0), ("y", 3.0)):
            study.cell(task, ["passed"] * 4, agent=agent)
            for at, (trial, (record,)) in enumerate(study.pairs[-4:], len(study.pairs) - 4):
                phases = {"image": 50.0, "agent": took * factor, "verify": took}
                study.pairs[at] = (trial, [structs.replace(record, phases_s=phases)])
    assert spending.in_order(rollouts(study.data())) == [1.0] * 16


def test_a_task_with_too_few_rollouts_is_held_against_nothing(study):
    study.cell("a", ["passed"] * 2).cell("b", ["passed"] * 3)
    assert len(spending.in_order(rollouts(study.data()))) == 3


def test_of_very_many_tasks_some_are_drawn_and_that_is_said(study, monkeypatch):
    monkeypatch.setattr(spending, "MOST_TASKS", 3)
    for at in range(9):
        study.cell(f"t{at}", ["passed", "failed"], agent="x")
    assert "3 of 9 tasks are drawn" in render(study.data())


def test_tasks_beyond_the_table_are_counted(study, monkeypatch):
    monkeypatch.setattr(results, "MOST_ROWS", 2)
    for at in range(5):
        study.cell(f"t{at}", ["passed", None])
    assert "And 3 more tasks" in render(study.data())
