from __future__ import annotations

from dataclasses import replace

import pytest

from proctor.errors import Exit
from proctor.verdicts.gate.inputs import input_of_document
from proctor.verdicts.gate.verdict import PRECEDENCE, GateVerdict, overall

DOCUMENT = {"failure_count": 0, "x": 1.0, "failure_reasons": {}}


def test_the_precedence_is_regression_infrastructure_inconclusive_pass():
    assert [each.value for each in PRECEDENCE] == ["regression", "infrastructure", "inconclusive", "pass"]
    assert overall(GateVerdict) is GateVerdict.REGRESSION
    assert (
        overall([GateVerdict.PASS, GateVerdict.INCONCLUSIVE, GateVerdict.INFRASTRUCTURE]) == "infrastructure"
    )
    assert overall([GateVerdict.PASS, GateVerdict.INCONCLUSIVE]) is GateVerdict.INCONCLUSIVE
    assert overall([GateVerdict.PASS]) is GateVerdict.PASS
    assert overall([]) is GateVerdict.INCONCLUSIVE


def test_every_verdict_has_its_exit_code(gate):
    run = input_of_document({**DOCUMENT, "failure_count": 1, "cost_usd": None}, label="x")
    for rules, code in (
        (["x == 1"], Exit.OK),
        (["x == 1", "x == 2"], Exit.WORSE),
        (["x == 1", "cost_usd <= 1"], Exit.INCONCLUSIVE),
        (["failure_count == 0", "cost_usd <= 1"], Exit.INFRASTRUCTURE),
    ):
        assert gate(rules, replace(run, broken=1)).exit_code is code, rules


def test_the_sentence_names_the_verdict_and_the_rule_that_made_it(gate):
    run = input_of_document(DOCUMENT, label="x")
    assert gate(["x == 1"], run).sentence == "Pass: the rule holds."
    assert gate(["x == 1", "failure_count == 0"], run).sentence == "Pass: all 2 rules hold."
    found = gate(["x == 1", "failure_count == 1"], run)
    assert found.sentence == "Regression (1 of 2 rules): failure_count is 0, the rule requires == 1."


def test_a_rule_without_its_baseline_is_open_and_says_what_to_do(one, sides):
    for rule in ("no new failure reasons", "latency not slower than 5%", "x <= baseline"):
        found = one(rule, sides.times())
        assert found.verdict is GateVerdict.INCONCLUSIVE
        assert "proctor baseline pin" in found.change


def test_a_run_that_did_not_end_does_not_pass(gate):
    run = replace(input_of_document(DOCUMENT, label="x"), trials=10, missing=4)
    found = gate("x == 1", run)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert found.results[-1].sentence == "4 of 10 trials have no result."


@pytest.mark.parametrize(
    ("reasons", "verdict"),
    [({"failed: ValueError": 2}, "regression"), ({"worker_lost": 1}, "infrastructure"), ({}, "pass")],
)
def test_failures_that_no_rule_speaks_of_are_not_let_through(gate, sides, reasons, verdict):
    run = replace(sides.times(), fields={"x": 1.0}, reasons=reasons)
    found = gate("x == 1", run)
    assert found.verdict == verdict
    allowed = gate(["x == 1", "failure_reasons in ['failed', worker_lost]"], run)
    assert allowed.verdict is GateVerdict.PASS


def test_failures_that_the_baseline_has_too_are_no_news(gate, sides):
    run = replace(sides.times(seed=1), fields={"x": 1.0}, reasons={"failed: ValueError": 2})
    assert gate("x <= baseline", run, run).verdict is GateVerdict.PASS


def test_an_agent_may_fail_its_tasks_and_a_verifier_may_not(gate, sides):
    for reasons, verdict in (
        ({"failed": 9, "agent_timeout": 1}, "pass"),
        ({"verifier_error": 1}, "regression"),
    ):
        run = replace(sides.suite({"t": [0.0]}), fields={"x": 1.0}, reasons=reasons)
        assert gate("x == 1", run).verdict == verdict


def test_differences_between_the_machines_are_warned_of(gate, sides):
    before = sides.times(facts={"machine": {"host": "a"}})
    after = sides.times(facts={"machine": {"host": "b"}})
    found = gate("latency not slower than 50%", after, before, held_against="baseline main")
    assert found.warnings == ("machine differs: host a → b",)
    assert found.baseline == "baseline main"


def test_the_same_question_gets_the_same_answer(gate, sides):
    before, after = sides.rolled(0.7, seed=1), sides.rolled(0.6, seed=2)
    rules = ["score not worse than 3pp", "pass rate not worse than 3pp"]
    assert gate(rules, after, before, seed=4) == gate(rules, after, before, seed=4)
