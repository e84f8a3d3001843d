from __future__ import annotations

import pytest

from proctor.errors import UsageError
from proctor.model.outcome import Blame
from proctor.verdicts.gate.inputs import input_of_document
from proctor.verdicts.gate.thresholds import known_fields
from proctor.verdicts.gate.verdict import GateVerdict

DOCUMENT = {
    "episodes": 24,
    "failure_count": 3,
    "success_count": 21,
    "max_wall_clock_s": 12.5,
    "run_artifacts": {"total_bytes": 1_500_000, "avg_bytes": 60_000.0},
    "summary": {"total": 24, "failed": 3},
    "failure_reasons": {"agent_timeout": 1, "sandbox_error: OSError": 2},
    "status": "done",
    "strict": True,
    "cost_usd": None,
    "odd.name": {"x.y": 7},
}


@pytest.fixture
def perf():
    return input_of_document(DOCUMENT, label="perf-summary", samples={"duration_s": [0.1] * 30 + [0.9]})


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("max_wall_clock_s <= 15", "pass"),
        ("max_wall_clock_s <= 12", "regression"),
        ("max_wall_clock_s < 12500ms", "regression"),
        ("max_wall_clock_s >= 12", "pass"),
        ("run_artifacts.total_bytes <= 2_000_000", "pass"),
        ("run_artifacts.avg_bytes <= 50kB", "regression"),
        ("episodes == 24", "pass"),
        ("episodes != 24", "regression"),
        ("status == done", "pass"),
        ("strict == true", "pass"),
        ("odd.name.x.y == 7", "pass"),
        ("cost_usd <= 5", "inconclusive"),
        ("failure_count == 0", "regression"),
        ("failure_count <= 1", "infrastructure"),
        ("success_count >= 23", "infrastructure"),
        ("summary.failed <= 1", "infrastructure"),
        ("failure_reasons in [agent_timeout]", "infrastructure"),
        ("failure_reasons in [sandbox_error]", "regression"),
        ("failure_reasons in [agent_timeout, 'sandbox_error: OSError']", "pass"),
        ("metrics.duration_s.max <= 0.5", "regression"),
        ("metrics.duration_s.p50 <= 0.5", "pass"),
        ("metrics.duration_s >= 50ms", "pass"),
    ],
)
def test_fields_of_a_summary_are_held_against_their_limits(one, perf, rule, verdict):
    assert one(rule, perf).verdict == verdict


def test_a_result_says_the_value_the_limit_and_the_distance(one, perf):
    found = one("max_wall_clock_s <= 15", perf)
    assert found.sentence == "max_wall_clock_s is 12.5 s, the rule requires <= 15.0 s."
    assert found.change == "2.50 s from the limit, 17 % of it"
    assert (found.n, found.margin, found.estimate.value) == ("24 trials", "<= 15.0 s", 12.5)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("max_wall_clok_s <= 15", "did you mean 'max_wall_clock_s'?"),
        ("failure_count.x <= 15", "is not a field of perf-summary"),
        ("zzz <= 15", "'proctor gate RUN --fields' lists all fields"),
        ("run_artifacts <= 15", "is not a single value; it has total_bytes, avg_bytes"),
        ("status <= 15", "is 'done', not a number"),
        ("metrics.duration <= 15", "did you mean 'duration_s'?"),
    ],
)
def test_an_unknown_field_is_the_rules_mistake(one, perf, rule, words):
    with pytest.raises(UsageError) as caught:
        one(rule, perf)
    assert words in str(caught.value)


def test_a_limit_may_follow_the_baseline(one, perf):
    before = input_of_document({**DOCUMENT, "failure_count": 1, "max_wall_clock_s": 12.0}, label="before")
    assert one("failure_count <= baseline + 2", perf, before).verdict is GateVerdict.PASS
    assert one("failure_count <= baseline - 1", perf, before).verdict is GateVerdict.REGRESSION
    found = one("max_wall_clock_s <= baseline + 10%", perf, before)
    assert found.verdict is GateVerdict.PASS
    assert "the rule requires <= 13.2 s (from the baseline)" in found.sentence
    assert one("cost_usd <= baseline", perf, before).verdict is GateVerdict.INCONCLUSIVE
    lacking = input_of_document({**DOCUMENT, "max_wall_clock_s": None}, label="before")
    assert "the baseline has no value" in one("max_wall_clock_s <= baseline", perf, lacking).sentence


def test_new_failure_reasons_are_those_that_the_baseline_lacks(one, perf):
    same = one("no new failure reasons", perf, perf)
    assert same.verdict is GateVerdict.PASS
    assert "agent_timeout" in same.sentence
    before = input_of_document({**DOCUMENT, "failure_reasons": {"sandbox_error: OSError": 1}}, label="b")
    found = one("no new failure reasons", perf, before)
    assert found.verdict is GateVerdict.REGRESSION
    assert found.sentence == "new: agent_timeout (1×)."


def test_very_many_reasons_are_summed_up(one):
    reasons = {f"failed: Error{at}": 1 for at in range(9)}
    found = one("failure_reasons in []", input_of_document({"failure_reasons": reasons}, label="x"))
    assert found.sentence.endswith("and 4 more.")


def stats(sides, values, **more):
    run = sides.times(points=len(values), **more)
    found = {f"sort(n={at})": {"duration_s": {"p95": value}} for at, value in enumerate(values)}
    return type(run)(results=run.results, stats=found, trials=run.trials)


def test_a_metric_keeps_its_limit_at_every_point(one, sides):
    run = stats(sides, [0.1, 0.3, 0.25])
    found = one("metrics.duration_s.p95 <= 0.2", run)
    assert found.verdict is GateVerdict.REGRESSION
    assert "is 300 ms at sort(n=1), the worst of 3 points" in found.sentence
    assert "2 points violate it" in found.sentence
    assert found.details == ("sort(n=1): 300 ms", "sort(n=2): 250 ms")
    assert one("metrics.duration_s.p95 >= 0.05", run).verdict is GateVerdict.PASS


def test_a_point_that_failed_leaves_the_limit_unproven(one, sides):
    run = stats(sides, [0.1, 0.1], failed={"sort(n=1)": ("failed", Blame.AGENT)})
    found = one("metrics.duration_s.p95 <= 0.2", run)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "1 points have no value" in found.sentence


def test_points_are_held_against_their_own_baselines(one, sides):
    before, after = stats(sides, [0.1, 1.0]), stats(sides, [0.15, 1.0])
    rule = "metrics.duration_s.p95 <= baseline + 20%"
    assert one(rule, after, before).verdict is GateVerdict.REGRESSION
    assert one(rule, before, before).verdict is GateVerdict.PASS
    assert one(rule, after, stats(sides, [0.2])).verdict is GateVerdict.INCONCLUSIVE
    assert one(rule, after, stats(sides, [])).verdict is GateVerdict.INCONCLUSIVE


def test_a_metric_without_values_is_open(one, sides):
    assert one("metrics.duration_s.p95 <= 1", sides.times()).verdict is GateVerdict.INCONCLUSIVE
    assert one("metrics.duration_s.p42 <= 1", stats(sides, [0.1])).verdict is GateVerdict.INCONCLUSIVE


def scored(sides, rewards, **more):
    from proctor.verdicts.gate.inputs import score_fields

    run = sides.suite(rewards, **more)
    fields = score_fields(run.results)
    return type(run)(results=run.results, fields=fields, trials=run.trials, broken=run.broken)


def test_a_score_is_read_three_ways_and_a_straddled_limit_decides_nothing(one, sides):
    rewards = {f"t{at}": [1.0] * 4 for at in range(10)}
    clean = one("score >= 90%", scored(sides, rewards))
    assert clean.verdict is GateVerdict.PASS
    assert clean.n == "10 tasks, 40 rollouts"
    assert clean.estimate.low < 1
    run = scored(sides, rewards, errors={"t0": 4, "t1": 4, "t2": 4})
    found = one("score >= 90%", run)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "12 errors leave it open: 85.0 % with errors as zero, 100.0 % at best" in found.sentence
    assert one("score >= 50%", run).verdict is GateVerdict.PASS
    assert one("score >= baseline", run, run).verdict is GateVerdict.INCONCLUSIVE


def test_a_single_task_gets_the_interval_of_these_tasks(one, sides):
    found = one("score >= 50%", scored(sides, {"t": [1.0] * 8}))
    assert found.estimate.claim == "these tasks"


def test_nothing_scored_is_blamed_on_what_broke_it(one, sides):
    found = one("score >= 50%", scored(sides, {"t": []}, errors={"t": 2}))
    assert found.verdict is GateVerdict.INFRASTRUCTURE
    assert one("score >= 50%", scored(sides, {"t": []})).verdict is GateVerdict.INCONCLUSIVE


def test_the_fields_that_a_rule_may_name_can_be_listed(perf):
    found = dict(known_fields(perf))
    assert found["run_artifacts.total_bytes"] == 1_500_000
    assert found["metrics.duration_s.p50"] == 0.1
