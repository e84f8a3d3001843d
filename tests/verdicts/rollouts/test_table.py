from __future__ import annotations

from proctor.verdicts.rollouts.table import arrange


def test_trials_are_placed_by_task_agent_and_model(rolled):
    study = (
        rolled.study().cell("a", [1.0, 0.0], agent="x", model="m1").cell("a", [0.0], agent="x", model="m2")
    )
    table = arrange(study.cell("b", [1.0], agent="x", model="m1").data())
    assert [arm.label for arm in table.arms] == ["x · m1", "x · m2"]
    assert [row.label for row in table.rows] == ["b", "a"]
    assert [cell.row.label for cell in table.of(table.arms[1])] == ["a"]


def test_swept_variables_make_arms_and_fixed_ones_do_not(rolled):
    study = rolled.study()
    for seconds in ("10", "60"):
        changed = {"environment_variables": {"TIMEOUT_SEC": seconds, "LANG": "C"}}
        study.cell("a", [1.0], overrides=changed)
    table = arrange(study.data())
    assert [arm.label for arm in table.arms] == ["oracle · TIMEOUT_SEC=10", "oracle · TIMEOUT_SEC=60"]
    assert table.arms[1].variables == (("TIMEOUT_SEC", "60"),)
    assert len(table.rows) == 1


def test_one_agent_with_other_options_is_another_competitor(rolled):
    study = rolled.study()
    for body, options in enumerate(({"command": "fast"}, {"command": "slow"})):
        study.cell("a", [1.0], agent="command", body=body, overrides={"agent_options": options})
    assert [arm.label for arm in arrange(study.data()).arms] == [
        "command (command=fast)",
        "command (command=slow)",
    ]


def test_one_task_changed_in_two_ways_is_two_rows(rolled):
    study = rolled.study()
    for body, text in enumerate(("short", "long")):
        study.cell("a", [1.0], body=body, overrides={"overrides": {"lm_instructions": text}})
    table = arrange(study.data())
    assert [row.label for row in table.rows] == ["a (1)", "a (2)"]
    assert len(table.arms) == 1


def test_rollouts_stand_in_their_order_whatever_the_plan(rolled):
    pairs = []
    for index, rollout in enumerate((2, 0, 1)):
        trial = rolled.planned(index, "a", rollout=rollout)
        pairs.append((trial, [rolled.record(trial)]))
    (cell,) = arrange(rolled.of(pairs)).cells.values()
    assert [trial.planned.rollout for trial in cell.trials] == [0, 1, 2]


def test_errors_are_neither_scored_nor_missing_and_what_a_person_stopped_is_missing(rolled):
    ends = [1.0, "agent_timeout", "sandbox_error", "verifier_error", "invalid", "cancelled", "skipped", None]
    (cell,) = arrange(rolled.study().cell("a", ends).data()).cells.values()
    assert cell.rewards == (1.0, 0.0)
    assert (cell.passed, cell.errors, cell.missing) == (1, 3, 3)


def test_an_agent_that_timed_out_still_earns_what_the_tests_gave(rolled):
    trial = rolled.planned(0, "a")
    (cell,) = arrange(rolled.of([(trial, [rolled.record(trial, "agent_timeout", 1.0)])])).cells.values()
    assert cell.passed == 1
