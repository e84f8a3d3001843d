from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from proctor.analysis.times import Noise
from proctor.errors import UsageError
from proctor.model.outcome import Blame
from proctor.verdicts.gate.verdict import GateVerdict

SCORE = "score not worse than baseline by more than 3pp at 95%"
TIMES = "duration_s not slower than baseline by more than 5%"
QUIET = {"duration_s": Noise(sigma=0.002, source="told by the test")}


def test_a_clear_loss_is_a_regression_with_everything_a_reader_needs(one, sides):
    found = one(SCORE, sides.rolled(0.5, seed=1), sides.rolled(0.9, seed=2))
    assert found.verdict is GateVerdict.REGRESSION
    assert "pp against the baseline (95 % -" in found.sentence
    assert "for tasks like these); 3 pp less is tolerated." in found.sentence
    assert found.n == "60 tasks, 300 rollouts against 300"
    assert found.margin == "3 pp"
    assert found.p_value < 0.001
    assert "would be detected with 80 % probability" in found.change
    assert found.estimate.high < -0.2


def test_a_score_that_cannot_have_fallen_by_the_margin_passes(one, sides):
    found = one("score not worse than 20pp", sides.rolled(0.7, seed=1), sides.rolled(0.7, seed=2))
    assert found.verdict is GateVerdict.PASS
    assert "would fail if a loss beyond the margin could not be excluded" in found.change


def test_doubt_says_how_many_rollouts_would_settle_it(one, sides):
    found = one(SCORE, sides.rolled(0.7, tasks=89, seed=1), sides.rolled(0.7, tasks=89, seed=2))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "rollouts per task and side would detect 3 pp with 80 % probability (now 5.0)" in found.change


def test_when_the_change_differs_between_tasks_more_tasks_are_needed(one, sides):
    before = {f"t{at}": [at % 2] * 20 for at in range(20)}
    after = {f"t{at}": [(at + (at % 5 == 0)) % 2] * 20 for at in range(20)}
    found = one(SCORE, sides.suite(after), sides.suite(before))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert (
        "tasks would detect 3 pp with 80 % probability (now 20); more rollouts of these would not"
    ) in found.change


FEW = "5 tasks cannot prove any difference for tasks like these at 95 %; at least 6 tasks are needed"


def test_five_tasks_are_judged_for_these_tasks_and_it_is_said(one, sides):
    before = {f"t{at}": [1.0] * 5 for at in range(5)}
    after = {f"t{at}": [0.0] * 5 for at in range(5)}
    found = one(SCORE, sides.suite(after), sides.suite(before))
    assert found.verdict is GateVerdict.REGRESSION
    assert found.estimate.claim == "these tasks"
    assert ", for these tasks); 3 pp less is tolerated." in found.sentence
    assert FEW in found.change


def test_a_claim_that_cannot_be_judged_names_both_ways_out(one, sides):
    before = {f"t{at}": [1.0] * 5 for at in range(5)}
    after = {f"t{at}": [0.0] * 5 for at in range(5)}
    found = one(f"{SCORE} for tasks like these", sides.suite(after), sides.suite(before))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert FEW in found.change
    assert "or judge these tasks only" in found.change
    assert "'for these tasks'" in found.change


def test_the_claim_depends_on_the_number_of_tasks_and_never_on_their_scores(one, sides):
    for before, after in (((1, 1, 1), (1, 1, 1)), ((0, 1, 0), (1, 0, 1)), ((1, 1, 1), (0, 0, 0))):
        for tasks, claim in ((1, "these tasks"), (5, "these tasks"), (6, "tasks like these")):
            found = one(
                SCORE,
                sides.suite({f"t{at}": list(map(float, after)) for at in range(tasks)}),
                sides.suite({f"t{at}": list(map(float, before)) for at in range(tasks)}),
            )
            assert found.estimate.claim == claim


def test_doubt_about_one_task_says_how_many_rollouts_would_settle_it(one, sides):
    found = one(SCORE, sides.suite({"t": [1.0, 0.0] * 5}), sides.suite({"t": [1.0, 0.0] * 5}))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "rollouts per task and side would detect 3 pp with 80 % probability (now 10)" in found.change


def test_these_tasks_is_the_narrower_claim(one, sides):
    rng = np.random.default_rng(5)
    before = {f"t{at}": [float(at % 2)] * 20 for at in range(40)}
    after = {name: [min(1.0, each[0] * float(rng.random() < 0.9))] * 20 for name, each in before.items()}
    wide = one("score not worse than 3pp", sides.suite(after), sides.suite(before))
    narrow = one("score not worse than 3pp for these tasks", sides.suite(after), sides.suite(before))
    assert narrow.estimate.high - narrow.estimate.low < wide.estimate.high - wide.estimate.low
    assert narrow.estimate.claim == "these tasks"
    assert narrow.verdict is GateVerdict.REGRESSION


def test_the_pass_rate_takes_partial_rewards_for_failures(one, sides):
    before = {f"t{at}": [1.0] * 5 for at in range(30)}
    after = {f"t{at}": [0.9] * 5 for at in range(30)}
    assert one("score not worse than 20pp", sides.suite(after), sides.suite(before)).verdict == "pass"
    found = one("pass rate not worse than 20pp", sides.suite(after), sides.suite(before))
    assert found.verdict is GateVerdict.REGRESSION
    assert found.sentence.startswith("pass rate -100.0 pp")


def test_more_broken_trials_than_in_the_baseline_are_the_infrastructures_verdict(one, sides):
    rewards = {f"t{at}": [1.0] * 3 for at in range(20)}
    broken = sides.suite(rewards, errors={f"t{at}": 2 for at in range(10)})
    found = one(SCORE, broken, sides.suite(rewards))
    assert found.verdict is GateVerdict.INFRASTRUCTURE
    assert "broke 20 of 80 trials against 0 of 60 in the baseline" in found.sentence


def test_a_broken_baseline_leaves_the_question_open(one, sides):
    rewards = {f"t{at}": [1.0] * 3 for at in range(20)}
    broken = sides.suite(rewards, errors={f"t{at}": 2 for at in range(10)})
    found = one(SCORE, sides.suite(rewards), broken)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "the errors are in the baseline; pin a new one" in found.sentence


def test_when_nothing_but_errors_came_back_it_is_infrastructure(one, sides):
    errors = {f"t{at}": 1 for at in range(3)}
    found = one(SCORE, sides.suite(dict.fromkeys(errors, ()), errors=errors), sides.rolled(0.5))
    assert found.verdict is GateVerdict.INFRASTRUCTURE
    assert "all 3 trials were broken" in found.sentence


def test_errors_that_straddle_the_decision_make_it_inconclusive(one, sides):
    before = {f"t{at}": [1.0] * 6 for at in range(40)}
    # Verifier errors, not infrastructure: alike or not, they may hide failures.
    after = sides.suite(before, errors={f"t{at}": 3 for at in range(40)}, broken=0)
    found = one("score not worse than 5pp", after, sides.suite(before))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "errors left out: pass, errors as zero: regression, errors as passes: pass" in found.sentence


def test_a_task_that_is_gone_cannot_pass(one, sides):
    before, after = sides.rolled(0.7, tasks=61, seed=1), sides.rolled(0.7, tasks=60, seed=2)
    found = one("score not worse than 20pp", after, before)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "1 task of the baseline missing in this run: t60" in found.sentence
    assert found.details == ("inconclusive: 1 task of the baseline missing in this run: t60",)


def test_nothing_shared_is_no_answer(one, sides):
    found = one(SCORE, sides.suite({"a": [1.0]}), sides.suite({"b": [1.0]}))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "no task was scored on both sides" in found.sentence


def test_experiments_have_no_scores(one, sides):
    with pytest.raises(UsageError, match="it has times and no scores"):
        one(SCORE, sides.times(), sides.times())


def test_a_slower_point_is_named_and_the_others_do_not_hide_it(one, sides):
    before, after = sides.times(seed=1), sides.times(seed=2)
    slow = sides.times(2.0, seed=3).results.points[1]
    points = (after.results.points[0], slow, after.results.points[2])
    after = replace(after, results=replace(after.results, points=points))
    found = one(TIMES, after, before, noise=QUIET)
    assert found.verdict is GateVerdict.REGRESSION
    assert "duration_s at 1 of 3 points, worst at sort(n=1): 2.0" in found.sentence
    assert len(found.details) == 1


def test_equal_times_pass_when_the_noise_is_known_to_be_small(one, sides):
    found = one(TIMES, sides.times(seed=1), sides.times(seed=2), noise=QUIET)
    assert found.verdict is GateVerdict.PASS
    assert "at each of 3 points, nearest to the margin" in found.sentence
    assert found.n == "3 points, 90 values against 90"


def test_without_a_history_five_percent_cannot_be_settled_and_it_says_how(one, sides):
    found = one(TIMES, sides.times(seed=1), sides.times(seed=2))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "4 runs of unchanged code in the store replace the default; proctor ab" in found.change


def test_the_noise_that_was_pinned_with_the_baseline_is_used(one, sides):
    stored = {"duration_s": {"sigma": 0.002, "df": 30, "source": "from 9 earlier runs"}}
    before = sides.times(seed=2, noise=stored)
    assert one(TIMES, sides.times(seed=1), before).verdict is GateVerdict.PASS
    odd = sides.times(seed=2, noise={"duration_s": {"sigma": "x"}})
    assert one(TIMES, sides.times(seed=1), odd).verdict is GateVerdict.INCONCLUSIVE


def test_a_rate_is_worse_when_it_falls(one, sides):
    noise = {"ops_per_s": Noise(sigma=0.002, source="x")}
    before, after = (sides.times(scale, metric="ops_per_s", seed=3) for scale in (100.0, 50.0))
    rule = "ops_per_s not slower than 5%"
    assert one(rule, after, before, noise=noise).verdict is GateVerdict.REGRESSION
    assert one(rule, before, after, noise=noise).verdict is GateVerdict.PASS


def test_memory_has_a_small_noise_of_its_own(one, sides):
    rule = "peak_memory_bytes not larger than baseline by more than 10%"
    before = sides.times(1e6, count=1, metric="peak_memory_bytes", seed=1)
    for scale, verdict in ((1e6, "pass"), (1.3e6, "regression"), (1.06e6, "inconclusive")):
        after = sides.times(scale, count=1, metric="peak_memory_bytes", seed=1)
        assert one(rule, after, before).verdict == verdict, scale


def test_a_percentile_needs_values_beyond_it(one, sides):
    few = one("p95 latency not slower than 50%", sides.times(count=9), sides.times(count=9))
    assert few.verdict is GateVerdict.INCONCLUSIVE
    assert "p95 needs 20 values on each side" in few.sentence
    many = one("p95 latency not slower than 50%", sides.times(2.5, seed=1), sides.times(seed=2))
    assert many.verdict is GateVerdict.REGRESSION
    assert many.sentence.startswith("p95 duration_s at 3 of 3 points")


@pytest.mark.parametrize(
    ("why", "blame", "verdict"),
    [
        ("failed: ValueError in setup", Blame.AGENT, "regression"),
        ("sandbox_error", Blame.INFRASTRUCTURE, "infrastructure"),
        ("not run", None, "inconclusive"),
    ],
)
def test_a_point_that_lost_its_result_is_judged_by_blame(one, sides, why, blame, verdict):
    after = sides.times(seed=1, failed={"sort(n=1)": (why, blame)})
    found = one(TIMES, after, sides.times(seed=2), noise=QUIET)
    assert found.verdict == verdict
    assert f"sort(n=1) had a result in the baseline and now: {why}" in found.sentence


def test_a_point_that_failed_before_too_is_no_news(one, sides):
    failed = {"sort(n=1)": ("failed", Blame.AGENT)}
    found = one(TIMES, sides.times(failed=failed), sides.times(failed=failed, seed=1), noise=QUIET)
    assert found.verdict is GateVerdict.PASS


def test_nothing_measured_on_both_sides_is_inconclusive(one, sides):
    failed = {"sort(n=0)": ("failed", Blame.AGENT)}
    found = one(TIMES, sides.times(points=1), sides.times(points=1, failed=failed))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "no point has a result on both sides" in found.sentence


def test_an_unknown_metric_is_the_rules_mistake(one, sides):
    with pytest.raises(UsageError, match=r"'duration_sec' was not measured.*did you mean 'duration_s'"):
        one("duration_sec not slower than 5%", sides.times(), sides.times())


def test_times_from_another_processor_are_not_compared_but_host_names_may_differ(one, sides):
    fact = {"machine": {"cpu": "A", "host": "one"}}
    other = {"machine": {"cpu": "B", "host": "one"}}
    moved = {"machine": {"cpu": "A", "host": "two"}}
    before = sides.times(seed=1, facts=fact)
    found = one(TIMES, sides.times(seed=2, facts=other), before, noise=QUIET)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "measured on another machine (cpu A → B)" in found.sentence
    assert one(TIMES, sides.times(seed=2, facts=moved), before, noise=QUIET).verdict is GateVerdict.PASS


def test_different_kinds_of_runs_are_not_compared(one, sides):
    with pytest.raises(UsageError, match="different kinds"):
        one(TIMES, sides.times(), sides.rolled(0.5))


def agents(
    sides, scale: float, *, metric: str = "cost_usd", tasks: int = 20, rollouts: int = 4, seed: int = 0
):
    rng = np.random.default_rng(seed)
    samples = {
        f"t{at}": {metric: (scale * (1 + at) * np.exp(rng.normal(0, 0.1, rollouts))).tolist()}
        for at in range(tasks)
    }
    return sides.suite({name: [1.0] * rollouts for name in samples}, samples=samples)


def test_costs_of_agents_are_compared_over_the_suite(one, sides):
    rule = "cost_usd not larger than baseline by more than 10%"
    before = agents(sides, 1.0, seed=1)
    dear = one(rule, agents(sides, 1.5, seed=2), before)
    assert dear.verdict is GateVerdict.REGRESSION
    assert dear.n == "20 tasks, 80 values against 80"
    assert one(rule, agents(sides, 1.0, seed=2), before).verdict is GateVerdict.PASS


def test_latency_of_agents_has_the_noise_of_the_machine(one, sides):
    rule = "mean latency not slower than 5%"
    before, after = (agents(sides, 1.0, metric="duration_s", seed=seed) for seed in (1, 2))
    assert one(rule, after, before).verdict is GateVerdict.INCONCLUSIVE
    slow = agents(sides, 2.0, metric="duration_s", seed=3)
    assert one(rule, slow, before).verdict is GateVerdict.REGRESSION
    assert one("p95 latency not slower than 5%", slow, before).verdict is GateVerdict.REGRESSION


def test_a_single_task_is_judged_by_its_rollouts(one, sides):
    before, after = (
        agents(sides, scale, metric="duration_s", tasks=1, rollouts=40, seed=seed)
        for scale, seed in ((1.0, 1), (2.0, 2))
    )
    found = one("p95 latency not slower than 5%", after, before)
    assert found.verdict is GateVerdict.REGRESSION
    assert found.n == "1 task, 40 values against 40"


def test_zeros_have_no_ratio_and_equal_zeros_pass(one, sides):
    rule = "cost_usd not larger than 10%"
    free = sides.suite({"a": [1.0], "b": [1.0]}, samples={"a": {"cost_usd": [0.0]}, "b": {"cost_usd": [0.0]}})
    paid = sides.suite({"a": [1.0], "b": [1.0]}, samples={"a": {"cost_usd": [0.0]}, "b": {"cost_usd": [1.0]}})
    assert one(rule, free, free).verdict is GateVerdict.PASS
    found = one(rule, paid, free)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "no ratio to the baseline (no ratio: a value is not above zero)" in found.sentence


def test_holm_is_over_every_comparison_of_the_gate(gate, sides):
    before, after = sides.rolled(0.7, seed=1), sides.rolled(0.57, seed=3)
    alone = gate("score not worse than 1pp", after, before)
    rules = ["score not worse than 1pp", "pass rate not worse than 1pp", "score not worse than 2pp"]
    many = gate(rules, after, before)
    assert alone.comparisons == 1
    assert many.comparisons == 3
    assert many.results[0].p_value == pytest.approx(min(1.0, 3 * alone.results[0].p_value))


def test_identical_suites_raise_false_alarms_in_at_most_five_percent(one, sides):
    alarms = sum(
        one(SCORE, sides.rolled(0.6, tasks=30, rollouts=3, seed=2 * at),
            sides.rolled(0.6, tasks=30, rollouts=3, seed=2 * at + 1)).verdict is GateVerdict.REGRESSION
        for at in range(100)
    )  # fmt: skip
    assert alarms <= 5


def test_a_real_loss_is_found_most_of_the_time(one, sides):
    found = sum(
        one(SCORE, sides.rolled(0.35, tasks=30, rollouts=3, seed=2 * at),
            sides.rolled(0.65, tasks=30, rollouts=3, seed=2 * at + 1)).verdict is GateVerdict.REGRESSION
        for at in range(40)
    )  # fmt: skip
    assert found >= 30


def test_identical_times_with_drifting_machines_raise_few_alarms(one, sides):
    rng = np.random.default_rng(9)
    alarms = 0
    for at in range(100):
        scale = float(np.exp(rng.normal(0, 0.05 * np.sqrt(2))))
        after = sides.times(scale, points=5, count=9, seed=2 * at)
        alarms += one(TIMES, after, sides.times(points=5, count=9, seed=2 * at + 1)).verdict == "regression"
    assert alarms <= 5


def on_both_clocks(sides, cpu: float, waited: float, seed: int):
    """A run that computes for `cpu` and waits for a CPU besides, for this share of its elapsed time."""
    run = sides.times(cpu, metric="cpu_s", seed=seed)
    points = tuple(
        replace(
            point,
            samples={
                "cpu_s": point.samples["cpu_s"],
                "duration_s": tuple(value / (1 - waited) for value in point.samples["cpu_s"]),
            },
            waited=waited,
            own_wait=0.0,
        )
        for point in run.results.points
    )
    return replace(run, results=replace(run.results, points=points))


def test_time_is_judged_by_the_clock_that_leads_for_run_and_baseline(gate, sides):
    noise = {name: Noise(sigma=0.002, source="told by the test") for name in ("duration_s", "cpu_s")}
    run, baseline = on_both_clocks(sides, 1.0, 0.02, 1), on_both_clocks(sides, 1.0, 0.0, 2)
    found = gate("time not slower than baseline by more than 5%", run, baseline, noise=noise)
    assert found.results[0].sentence.startswith("duration_s at ")
    assert found.warnings == ()
    loaded = on_both_clocks(sides, 1.2, 0.5, 1)
    found = gate("time not slower than baseline by more than 50%", loaded, baseline, noise=noise)
    assert found.results[0].sentence.startswith("cpu_s at ")
    assert found.results[0].estimate.value == pytest.approx(1.2, abs=0.05)
    why = "other programs had the CPU for up to 50% of the time, which is not in it"
    assert found.warnings[0].startswith(f"Judged by CPU time (cpu_s): {why}")


def test_a_rule_that_names_a_clock_is_judged_by_it_and_told_which_would_lead(gate, sides):
    loaded, baseline = on_both_clocks(sides, 1.0, 0.5, 1), on_both_clocks(sides, 1.0, 0.0, 2)
    found = gate(TIMES, loaded, baseline, noise=QUIET)
    assert found.results[0].estimate.value == pytest.approx(2.0, abs=0.1)
    assert found.warnings[0].startswith("a rule names duration_s; 'time' would be judged by cpu_s: other ")


def test_time_has_no_limit_of_its_own_because_a_limit_needs_one_clock(one, sides):
    with pytest.raises(UsageError, match="a limit needs one clock: 'duration' or 'cpu time'"):
        one("time <= 5 ms", sides.times())


def test_a_pinned_baseline_remembers_what_decides_on_the_clock(sides, tmp_path):
    from proctor.verdicts.gate.baselines import pin, read_baselines, write_baselines

    run = on_both_clocks(sides, 1.0, 0.5, 1)
    path = tmp_path / "baselines.json"
    write_baselines(path, pin({}, "main", run, run_name="s", reason="r", at=1.0))
    point = read_baselines(path)["main"].run.results.points[0]
    assert (point.waited, point.own_wait) == (0.5, 0.0)


def test_a_gate_leaves_out_tasks_whose_content_is_not_the_baselines(gate, sides, tmp_path):
    from proctor.verdicts.compare.results import ResultPoint
    from proctor.verdicts.gate.baselines import pin, read_baselines, write_baselines

    def suite(rewards, contents):
        run = sides.suite(rewards)
        points = tuple(
            ResultPoint(name=name, task=name, arm=run.results.arms[0].name, content=contents.get(name, "old"))
            for name in rewards
        )
        return replace(run, results=replace(run.results, points=points))

    names = [f"t{at}" for at in range(10)]
    path = tmp_path / "baselines.json"
    pinned = suite(dict.fromkeys(names, [1.0] * 4), {})
    write_baselines(path, pin({}, "main", pinned, run_name="s", reason="r", at=1.0))
    baseline = read_baselines(path)["main"].run
    harder = {**dict.fromkeys(names, [1.0] * 4), "t0": [0.0] * 4, "t1": [0.0] * 4}
    found = gate("score not worse than 10pp", suite(harder, {"t0": "new", "t1": "new"}), baseline)
    assert found.results[0].estimate.value == 0
    assert found.results[0].n == "8 tasks, 32 rollouts against 32"
    assert found.warnings[0].startswith("2 tasks have other content than in the baseline, left out of ")
    assert found.warnings[0].endswith("pinned: t0, t1")
    limit = gate("score >= baseline - 0.1", suite(harder, {"t0": "new", "t1": "new"}), baseline)
    assert limit.results[0].estimate.value == 1.0
    same = gate("score not worse than 10pp", suite(harder, {}), baseline)
    assert same.results[0].n.startswith("10 tasks")
