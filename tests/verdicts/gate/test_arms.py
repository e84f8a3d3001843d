"""A gate's score belongs to an arm: each must keep the limit, and each is compared by itself."""

from __future__ import annotations

import pytest
from tests.made_rollouts import Study

from proctor.errors import UsageError
from proctor.verdicts.gate.evaluate import evaluate
from proctor.verdicts.gate.inputs import input_of_run
from proctor.verdicts.gate.rules import read_rules
from proctor.verdicts.gate.verdict import GateVerdict


def judged(study: Study, rule: str, before: Study | None = None):
    rules = read_rules([rule])
    baseline = input_of_run(before.data(), ()) if before else None
    return evaluate(rules, input_of_run(study.data(), ()), baseline).results[0]


def two(strong, weak, tasks=2):
    study = Study()
    for at in range(tasks):
        study.cell(f"t{at}", strong, "strong", model="m").cell(f"t{at}", weak, "weak", model="m")
    return study


def test_one_run_of_two_arms_has_no_score_of_its_own():
    study = Study().cell("t1", [1.0], "x").cell("t2", [0.0], "x").cell("t1", [1.0], "y")
    study.cell("t2", ["sandbox_error"], "y")
    fields = input_of_run(study.data(), ()).fields
    assert fields["score"] is None
    assert {name: each["errors_excluded"] for name, each in fields["scores"].items()} == {"x": 0.5, "y": 1.0}


def test_the_worst_arm_decides_and_is_named():
    found = judged(two([1.0] * 4, [0.0] * 4), "score >= 0.5")
    assert found.verdict is GateVerdict.REGRESSION
    assert "weak/m, the worst of 2 arms" in found.sentence
    assert judged(two([1.0] * 4, [1.0] * 4), "score >= 0.5").verdict is GateVerdict.PASS


def test_a_rule_may_name_an_arm():
    study = two([1.0] * 4, [0.0] * 4)
    assert judged(study, "score of strong/m >= 0.5").verdict is GateVerdict.PASS
    assert judged(study, 'pass rate of "weak/m" >= 0.5').verdict is GateVerdict.REGRESSION
    with pytest.raises(UsageError, match="no arm 'wek/m'"):
        judged(study, "score of wek/m >= 0.5")
    with pytest.raises(UsageError, match="only a score or a pass rate belongs to an arm"):
        judged(study, "failure_count of weak/m == 0")


def test_a_sweep_is_several_arms():
    study = Study()
    for mode, end in (("fast", 1.0), ("slow", 0.0)):
        study.cell("t", [end] * 4, overrides={"environment_variables": {"MODE": mode}})
    found = judged(study, "score >= 0.5")
    assert found.verdict is GateVerdict.REGRESSION
    assert "oracle MODE=slow" in found.sentence


def test_a_loss_of_one_arm_is_not_hidden_by_the_gain_of_another():
    rule = "score not worse than baseline by more than 3pp"
    before, after = two([0.0] * 5, [1.0] * 5, tasks=8), two([1.0] * 5, [0.0] * 5, tasks=8)
    found = judged(after, rule, before)
    assert found.verdict is GateVerdict.REGRESSION
    assert "weak/m" in found.sentence
    assert judged(after, rule.replace("score", "score of strong/m"), before).verdict is GateVerdict.PASS


def test_an_authors_mistake_widens_the_bounds():
    found = judged(Study().cell("t", [1.0, 1.0, "invalid", "invalid"]), "score >= 0.9")
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "2 errors leave it open" in found.sentence


def test_successes_are_passes_among_the_scored():
    data = Study().cell("t", [1.0, 0.0, "sandbox_error", "provider_error"]).data()
    fields = input_of_run(data, ()).fields
    assert (fields["success_count"], fields["success_rate"]) == (1, 0.5)
