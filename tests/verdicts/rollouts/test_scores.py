from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.render.pages import render

from proctor.render.document.markdown import markdown
from proctor.render.results import folder
from proctor.render.results.cells import glyph
from proctor.render.results.rollouts import denominators_text, use_text
from proctor.verdicts.rollouts.document import overview, task_results, trial_row
from proctor.verdicts.rollouts.scores import described, phases, rollouts, wanted_k
from proctor.verdicts.rollouts.words import headline, rate
from proctor.verdicts.run.story import headline as story
from proctor.verdicts.run.summary import summary


def test_the_three_readings_of_errors(rolled):
    data = rolled.study().cell("a", [1.0, 1.0, "sandbox_error", "sandbox_error"]).cell("b", [0.0, 1.0]).data()
    (arm,) = rollouts(data).arms
    assert arm.passes.excluded.value == pytest.approx((1.0 + 0.5) / 2)
    assert arm.passes.as_zero.value == pytest.approx((0.5 + 0.5) / 2)
    assert arm.passes.best_case.value == pytest.approx((1.0 + 0.5) / 2)
    assert (arm.scored, arm.passed, arm.errors, arm.missing) == (4, 3, 2, 0)
    assert denominators_text(arm) == "50–75 %"


def test_a_task_with_more_rollouts_weighs_no_more(rolled):
    data = rolled.study().cell("a", [1.0] * 9).cell("b", [0.0]).data()
    assert rollouts(data).arms[0].passes.excluded.value == 0.5
    assert overview(rollouts(data))["score"]["errors_excluded"] == 0.5


def test_pass_at_k_and_pass_hat_k_over_the_same_tasks(rolled):
    data = rolled.study().cell("a", [1.0, 0.0, 0.0]).cell("b", [1.0, 1.0, "image_error"]).data()
    (arm,) = rollouts(data).arms
    assert arm.common_k == 2
    assert [at.k for at, _ in arm.curve] == [1, 2]
    assert arm.at(2) == (pytest.approx((2 / 3 + 1) / 2), pytest.approx(0.5))
    assert arm.at(3) == (None, None)
    assert [each.k for each in arm.at_k] == [1, 2, 3]


def test_the_shared_k_is_one_that_every_arm_has(rolled):
    study = rolled.study().cell("a", [1.0] * 14, agent="x").cell("a", [1.0] * 12 + ["starved"] * 2, agent="y")
    run = rollouts(study.data())
    assert all(None not in arm.at(run.shared_k) for arm in run.arms)


def test_nothing_scored_is_said_and_does_not_raise(rolled):
    data = rolled.study().cell("a", ["sandbox_error", None]).data()
    run = rollouts(data)
    assert run.arms[0].passes.excluded is None
    assert run.shared_k == 0
    assert "no scored rollout on 1 task" in headline(run)
    assert denominators_text(run.arms[0]) == "0–100 %"


def test_flaky_tasks_and_partial_rewards_are_seen(rolled):
    data = rolled.study().cell("a", [1.0, 0.0]).cell("b", [1.0, 1.0]).cell("c", [0.5, 0.5]).data()
    (arm,) = rollouts(data).arms
    assert arm.flaky == 1
    assert arm.partial
    assert arm.rewards.excluded.value == pytest.approx(2 / 3)


@pytest.mark.parametrize(("most", "wanted"), [(0, []), (3, [1, 2, 3]), (20, [*range(1, 11), 15, 20])])
def test_every_k_while_there_are_few(most, wanted):
    assert wanted_k(most) == wanted


def test_use_is_added_over_every_attempt_and_the_ledger_takes_what_counts(rolled):
    trial = rolled.planned(0, "a", "terminal", model="m")
    lost = rolled.record(trial, "provider_error", usage={"prompt_tokens": 100, "cost_usd": 0.5})
    good = rolled.record(trial, "passed", number=2, usage={"prompt_tokens": 50, "cost_usd": 0.25, "odd": "x"})
    data = rolled.of([(trial, [lost, good])])
    use = rollouts(data).arms[0].use
    assert use.usage == {"prompt_tokens": 150.0, "cost_usd": 0.75}
    assert described(use.ledger)["peak_memory_bytes"]["count"] == 1
    assert use.enforced["disk"].startswith("not enforced")
    assert list(phases(use))[:2] == ["agent", "verify"]


def test_what_was_not_measured_is_called_unknown_with_its_reason(rolled):
    trial = rolled.planned(0, "a", "terminal", model="m")
    record = rolled.record(trial, "passed")
    ledger = {**record.ledger, "cpu_s": None, "unknown": {"cpu_s": "nothing counts it", "x": "y"}}
    data = rolled.of([(trial, [replace(record, ledger=ledger)])])
    use = rollouts(data).arms[0].use
    assert "cpu_s" not in use.ledger
    assert use.unknown == {"cpu_s": "nothing counts it"}
    assert summary(data)["arms"][0]["ledger_unknown"] == {"cpu_s": "nothing counts it"}
    assert "unknown" in markdown(folder.summary(data))
    assert "unknown where nothing counts it" in render(data)


def test_the_headline_names_everyone_and_what_was_left_out(rolled):
    text = story(rolled.comparison())
    assert text.startswith("Pass rates over 9 tasks (95 % intervals for tasks like these): oracle 100 %")
    assert "nop 0 %" in text
    assert "Left out, because the agent did not cause it: 3 provider errors." in text
    one = rolled.study().cell("a", [1.0, 0.0, "invalid"]).data()
    assert story(one).startswith("oracle passes 50 % on 1 task (95 % interval ")
    assert "1 invalid." in story(one)


def test_many_competitors_are_cut_to_the_ends(rolled):
    study = rolled.study()
    for number in range(6):
        study.cell("a", [1.0] * number + [0.0] * (5 - number), agent=f"agent{number}")
    text = headline(rollouts(study.data()))
    assert "agent5 100 %" in text
    assert ", …, agent0 0 %" in text
    assert "agent2" not in text


def test_neither_end_is_claimed_unless_it_is_exact():
    assert [rate(value) for value in (0.0, 0.001, 0.5, 0.999, 1.0, None)] == [
        "0 %", "< 1 %", "50 %", "> 99 %", "100 %", "–",
    ]  # fmt: skip
    assert glyph(None) == "·"
    assert use_text("prompt_tokens", 12345.0) == "12\u202f345"
    assert use_text("cost_usd", 0.5) == "$0.500"
    assert use_text("steps", None) == "–"


def test_a_trial_row_has_the_promised_fields(rolled):
    data = (
        rolled.study()
        .cell("org/a", [1.0, "provider_error", None, "invalid", "verifier_error", "cancelled"])
        .data()
    )
    rows = [trial_row(trial, data.info.id) for trial in data.trials]
    assert [row["launch_rc"] for row in rows] == [0, 4, None, 2, 1, 130]
    assert [row["status"] for row in rows][:3] == ["passed", "provider_error", "pending"]
    assert rows[0]["run_dir"] == "trials/org__a/0"
    assert rows[0]["task_dir"] == "tasks/org/a"
    assert len({row["run_id"] for row in rows}) == 6
    ((_, document),) = task_results(data)
    assert document["arms"][0]["results"] == rows
