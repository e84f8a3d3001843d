from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from msgspec import structs

from proctor.analysis.times import Noise, PointComparison
from proctor.analysis.verdict import Verdict
from proctor.errors import Exit, UsageError
from proctor.model.direction import Direction, direction_of
from proctor.model.outcome import Outcome
from proctor.render.document.html import html
from proctor.render.results.compare import comparison
from proctor.runfolder.read import TrialResult
from proctor.verdicts.compare.judge import compare, is_time
from proctor.verdicts.compare.results import from_run
from proctor.verdicts.compare.sentence import caution, detectable_sentence, percent, sentence, ways_out

QUIET = {"duration_s": Noise(sigma=0.01, source="test")}
STEADY = [1.0, 1.01, 0.99, 1.005, 0.995, 1.0, 1.002]
SLOW = [value * 1.3 for value in STEADY]


def sides(run, a, b, **more):
    return from_run(run(a), ()), from_run(run(b, run_id="run-b", **more), ())


def test_a_slower_run_is_worse_and_says_where(run):
    found = compare(
        *sides(run, [({"n": 1}, STEADY), ({"n": 2}, STEADY)], [({"n": 1}, STEADY), ({"n": 2}, SLOW)]),
        noise=QUIET,
    )
    assert found.verdict is Verdict.WORSE
    assert found.exit_code is Exit.WORSE
    assert sentence(found).startswith("Worse: 1 of 2 points")
    assert "sort(n=2)" in sentence(found)
    assert found.warnings == ()


def test_an_equal_run_is_no_worse(run):
    found = compare(*sides(run, [({}, STEADY)], [({}, STEADY)]), noise=QUIET)
    assert found.exit_code is Exit.OK
    assert sentence(found).startswith("No worse: a loss of more than")


def test_a_faster_run_is_better(run):
    found = compare(*sides(run, [({}, SLOW)], [({}, STEADY)]), noise=QUIET)
    assert found.verdict is Verdict.BETTER
    assert sentence(found).startswith("Better, and nothing is worse: sort changed")


def test_a_small_certain_change_is_named(run):
    slower = [value * 1.04 for value in STEADY]
    found = compare(
        *sides(run, [({}, STEADY)], [({}, slower)]),
        noise={"duration_s": Noise(sigma=0.001, source="test")},
        margin=0.1,
    )
    assert found.verdict is Verdict.SMALL
    assert "smaller than that" in sentence(found)


def test_without_history_a_narrow_margin_is_inconclusive_and_the_caution_says_why(run):
    found = compare(*sides(run, [({}, STEADY)], [({}, STEADY)]), margin=0.02)
    assert found.exit_code is Exit.INCONCLUSIVE
    assert sentence(found) == "Inconclusive: sort could be worse by more than 2.0 % in duration_s."
    assert "rarely prove changes below 29 %" in caution(found.metrics[0])
    assert "proctor ab" in caution(found.metrics[0])


def test_differences_of_machine_python_packages_and_spec_are_warned_of(run):
    found = compare(
        *sides(
            run,
            [({}, STEADY)],
            [({}, STEADY)],
            parallel=4,
            environment={
                "hostname": "bench-2",
                "python": {"version": "3.12.1"},
                "packages": {"numpy": "2.2.0"},
            },
        )
    )
    assert [warning.split()[0] for warning in found.warnings] == ["machine", "python", "packages", "spec"]


def test_a_point_that_fails_now_is_worse_and_is_listed(run):
    found = compare(
        *sides(
            run, [({"n": 1}, STEADY), ({"n": 2}, STEADY)], [({"n": 1}, STEADY), ({"n": 2}, Outcome.FAILED)]
        )
    )
    assert found.verdict is Verdict.WORSE
    assert found.failures[0].new
    assert found.failures[0].b == "failed: ValueError in execute_once"
    assert sentence(found) == "Worse: sort(n=2) had a result in A and fails in B."


@pytest.mark.parametrize("lost", [Outcome.SANDBOX_ERROR, None])
def test_a_point_lost_to_the_machine_leaves_the_question_open(run, lost):
    found = compare(
        *sides(run, [({"n": 1}, STEADY), ({"n": 2}, STEADY)], [({"n": 1}, STEADY), ({"n": 2}, lost)]),
        margin=0.5,
    )
    assert found.verdict is Verdict.INCONCLUSIVE
    assert not found.failures[0].new
    assert "none in B" in sentence(found)


def test_a_point_that_failed_before_is_listed_and_blames_nobody(run):
    found = compare(
        *sides(
            run, [({"n": 1}, STEADY), ({"n": 2}, Outcome.FAILED)], [({"n": 1}, STEADY), ({"n": 2}, STEADY)]
        ),
        margin=0.5,
    )
    assert found.exit_code is Exit.OK
    assert [failure.name for failure in found.failures] == ["sort(n=2)"]


def test_when_every_point_failed_on_both_sides_nothing_is_said(run):
    found = compare(*sides(run, [({}, Outcome.FAILED)], [({}, Outcome.FAILED)]))
    assert found.exit_code is Exit.INCONCLUSIVE
    assert sentence(found) == "Inconclusive: no point has a result on both sides."


def test_unmatched_points_are_listed(run):
    found = compare(
        *sides(run, [({"n": 1}, STEADY), ({"n": 2}, STEADY)], [({"n": 1}, STEADY), ({"n": 3}, STEADY)])
    )
    assert (found.only_a, found.only_b) == (("sort(n=2)",), ("sort(n=3)",))


def test_several_metrics_are_one_family(run):
    a, b = (from_run(run([({}, values)]), ("duration_s", "ops_per_s")) for values in (STEADY, SLOW))
    found = compare(a, b, metrics=("duration_s", "ops_per_s"), noise=QUIET)
    assert [each.times.verdict for each in found.metrics] == [Verdict.WORSE, Verdict.WORSE]
    assert [each.times.higher_is_better for each in found.metrics] == [False, True]


def test_a_metric_that_only_the_attempt_reports_is_one_value(run):
    a, b = (from_run(run([({}, STEADY)]), ("bytes",)) for _ in range(2))
    found = compare(a, b, metrics=("bytes",))
    assert found.metrics[0].times.points[0].count_a == 1
    assert found.exit_code is Exit.OK
    assert caution(found.metrics[0]) == ""


def test_a_metric_that_nobody_has_names_the_nearest(run):
    a, b = (from_run(run([({}, STEADY)]), ("duration",)) for _ in range(2))
    with pytest.raises(UsageError, match="did you mean 'duration_s'"):
        compare(a, b, metrics=("duration",))
    with pytest.raises(UsageError, match="there are: bytes, duration_s"):
        compare(a, b, metrics=("zzz",))


def test_runs_without_a_common_point_are_refused(run):
    a, b = sides(run, [({"n": 1}, STEADY), ({"n": 2}, STEADY)], [({"m": 3}, STEADY), ({"m": 4}, STEADY)])
    with pytest.raises(UsageError, match="have no point in common"):
        compare(a, b)
    with pytest.raises(UsageError, match="has no points"):
        compare(a, from_run(run([]), ()))


def test_an_experiment_and_a_task_run_are_refused(run, task_run):
    with pytest.raises(UsageError, match="cannot compare"):
        compare(from_run(run([({}, STEADY)]), ()), from_run(task_run({"t": [1]}), ()))


def test_trials_without_a_result_are_noted(run):
    a, b = sides(run, [({"n": 1}, STEADY), ({"n": 2}, None)], [({"n": 1}, STEADY), ({"n": 2}, STEADY)])
    assert "A: 1 of 2 trials have no result" in compare(a, b).warnings


def test_task_runs_are_compared_by_paired_task_means(task_run):
    good = {f"t{at}": [1, 1, 0, 1] for at in range(30)}
    bad = {f"t{at}": [0, 0, 0, 1] for at in range(30)}
    found = compare(from_run(task_run(good), ()), from_run(task_run(bad, run_id="b"), ()))
    assert found.verdict is Verdict.WORSE
    assert sentence(found).startswith("Worse: B -50.0 pp over 30 tasks")
    back = compare(from_run(task_run(bad), ()), from_run(task_run(good), ()))
    assert sentence(back).startswith("Better: B +50.0 pp")
    same = compare(from_run(task_run(good), ()), from_run(task_run(good), ()), margin=0.2)
    assert sentence(same).startswith("Not worse by more than 20.0 pp")


def test_errors_that_straddle_the_decision_make_it_inconclusive(task_run):
    good = {f"t{at}": [1, 1, 1, 1] for at in range(40)}
    lossy = {f"t{at}": [1, 1, Outcome.SANDBOX_ERROR, Outcome.PROVIDER_ERROR] for at in range(40)}
    found = compare(from_run(task_run(good), ()), from_run(task_run(lossy), ()), margin=0.1)
    assert found.exit_code is Exit.INCONCLUSIVE
    assert "depends on how errors are counted" in sentence(found)
    assert found.score.b.errors == 80


def test_several_agents_in_a_run_are_kept_apart(task_run):
    side = from_run(task_run({"t": [1, 0]}, agents=("x", "y")), ())
    assert [task.name for task in side.tasks] == ["t × x", "t × y"]


def test_costs_of_task_runs_are_compared_too(task_run):
    a, b = (from_run(task_run({"t": [1, 0], "u": [1, 1]}), ("cost_usd",)) for _ in range(2))
    found = compare(a, b, metrics=("cost_usd",))
    assert found.score is None
    assert found.exit_code is Exit.OK


def test_no_common_scored_task_says_so(task_run):
    a = from_run(task_run({"t": [Outcome.SANDBOX_ERROR]}), ())
    found = compare(a, from_run(task_run({"t": [1]}), ()))
    assert sentence(found) == "Inconclusive: no task was scored on both sides."


def test_the_document_is_plain_json(run, task_run):
    for found in (
        compare(*sides(run, [({}, [1.0]), ({"n": 2}, [0.0])], [({}, [2.0]), ({"n": 2}, [1.0])])),
        compare(from_run(task_run({"t": [1]}), ()), from_run(task_run({"t": [1]}), ())),
    ):
        document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        names = {each.name for each in fields(PointComparison)}
        assert all(set(point) == names for each in document["metrics"] for point in each["points"])
        assert document["exit_code"] in {0, 1, 3}
        assert document["sentence"]


@pytest.mark.parametrize(
    ("metric", "higher", "ticks"),
    [
        ("duration_s", False, True),
        ("ops_per_s", True, True),
        ("throughput", True, True),
        ("peak_bytes", False, False),
        ("cache_hit_rate", True, False),
        ("reward", True, False),
        ("latency_ms", False, True),
        ("stops", False, False),
    ],
)
def test_the_name_of_a_metric_says_its_direction_and_whether_it_ticks(metric, higher, ticks):
    assert (direction_of(metric) is Direction.HIGHER) is higher
    assert is_time(metric) is ticks


def test_an_endless_percentage_is_any():
    assert percent(float("inf")) == "any"


def with_ledger(data, **noise):
    trials = tuple(
        structs.replace(trial, counted=structs.replace(trial.counted, ledger={"noise": noise}), attempts=())
        for trial in data.trials
    )
    trials = tuple(structs.replace(trial, attempts=(trial.counted,)) for trial in trials)
    return replace(data, trials=trials)


def test_waiting_for_a_cpu_widens_wall_times_and_is_said(run):
    a = from_run(run([({}, STEADY)]), ())
    b = from_run(with_ledger(run([({}, SLOW)]), cpu_over_wall=0.4, cpu_pressure=0.9), ())
    found = compare(a, b, noise=QUIET)
    assert b.points[0].waited == pytest.approx(0.54)
    assert found.verdict is not Verdict.WORSE
    assert found.warnings[-1] == "B: the code waited for a CPU up to 54% of the time"


def on_both_clocks(data, cpu, **noise):
    """The same durations, with CPU times beside them."""
    (trial,) = data.trials
    record = trial.counted
    rows = tuple({**row, "cpu_s": cpu * row["duration_s"]} for row in record.iterations)
    metrics = {**record.metrics, "cpu_s": {"p50": 1.0}}
    ledger = {"noise": {"cpu_over_wall": cpu, **noise}}
    record = structs.replace(record, iterations=rows, metrics=metrics, ledger=ledger)
    return replace(data, trials=(TrialResult(trial.planned, (record,), record),))


def test_both_sides_are_judged_by_the_cpu_clock_where_one_was_held_up(run):
    calm = on_both_clocks(run([({}, STEADY)]), 1.0, waited_for_cpu=0.0)
    loaded = on_both_clocks(run([({}, [2 * value for value in STEADY])]), 0.5, waited_for_cpu=0.5)
    found = compare(from_run(calm, ()), from_run(loaded, ()), noise=QUIET)
    assert [each.metric for each in found.metrics] == ["cpu_s"]
    assert found.metrics[0].times.points[0].ratio == pytest.approx(1.0)
    assert found.warnings[-1].startswith(
        "Judged by CPU time (cpu_s): other programs had the CPU for up to 50%"
    )
    assert found.to_dict()["clock"]["metric"] == "cpu_s"
    asked = compare(from_run(calm, ()), from_run(loaded, ()), metrics=("duration_s",), noise=QUIET)
    assert [each.metric for each in asked.metrics] == ["duration_s"]
    assert asked.to_dict()["clock"] is None


def test_code_that_waits_of_itself_is_judged_by_elapsed_time_under_load_too(run):
    calm = on_both_clocks(run([({}, STEADY)]), 0.5, waited_for_cpu=0.0)
    loaded = on_both_clocks(run([({}, STEADY)]), 0.4, waited_for_cpu=0.2)
    found = compare(from_run(calm, ()), from_run(loaded, ()))
    assert [each.metric for each in found.metrics] == ["duration_s"]
    assert any("the code also waits by itself (up to 50% of the time)" in each for each in found.warnings)


@pytest.mark.parametrize("noise", [{}, {"cpu_over_wall": None, "cpu_pressure": 1.0}, {"cpu_over_wall": "x"}])
def test_waiting_that_was_not_recorded_is_none(run, noise):
    assert from_run(with_ledger(run([({}, STEADY)]), **noise), ()).points[0].waited == 0


def test_idle_code_on_a_calm_machine_did_not_wait(run):
    side = from_run(with_ledger(run([({}, STEADY)]), cpu_over_wall=0.1, cpu_pressure=0.0), ())
    assert side.points[0].waited == 0


def test_times_that_tell_nothing_are_called_that(run):
    found = compare(
        *sides(run, [({}, STEADY)], [({}, STEADY)]), noise={"duration_s": Noise(sigma=0.5, source="x")}
    )
    assert "cannot prove even a doubling" in caution(found.metrics[0])
    assert found.exit_code is Exit.INCONCLUSIVE


def test_a_total_loss_on_five_tasks_is_worse_for_these_tasks_and_says_why_not_more(task_run):
    a = from_run(task_run({f"t{at}": [1.0] * 5 for at in range(5)}), ())
    b = from_run(task_run({f"t{at}": [0.0] * 5 for at in range(5)}, run_id="run-b"), ())
    found = compare(a, b)
    assert found.verdict is Verdict.WORSE
    assert found.claim == "these tasks"
    assert found.interval[0] == -1
    assert found.to_dict()["score"]["claim"] == "these tasks"
    assert str(found).endswith("for these tasks).")
    assert "at least 6 tasks are needed" in found.score.narrowed


def test_a_claim_that_five_tasks_cannot_judge_names_the_ways_out(task_run):
    a = from_run(task_run({f"t{at}": [1.0] * 5 for at in range(5)}), ())
    b = from_run(task_run({f"t{at}": [0.0] * 5 for at in range(5)}, run_id="run-b"), ())
    found = compare(a, b, these_tasks=False)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.claim == "tasks like these"
    (way,) = ways_out(found.score)
    assert "at least 6 tasks are needed, or judge these tasks only: --these-tasks" in way
    assert detectable_sentence(found.score) == ""


def test_more_rollouts_are_named_where_these_tasks_are_open(task_run):
    both = [from_run(task_run({"t": [1.0, 0.0] * 2}, run_id=name), ()) for name in ("run-a", "run-b")]
    found = compare(*both)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "rollouts per task and side would detect 5 pp" in ways_out(found.score)[1]
    assert "for these tasks; the margin is 5.00 pp" in detectable_sentence(found.score)


def test_a_claim_for_times_is_refused(run):
    side = from_run(run([({"n": 1}, [1.0, 1.1])]), ())
    with pytest.raises(UsageError, match="only scores of tasks have a claim"):
        compare(side, side, these_tasks=True)


def test_a_change_that_nobody_called_better_or_worse_is_a_change(run):
    before, after = sides(run, [({"n": 1}, STEADY)], [({"n": 1}, [2 * value for value in STEADY])])

    def as_depth(point):
        return replace(point, samples={"depth": point.samples["duration_s"]})

    renamed = [replace(side, points=tuple(map(as_depth, side.points))) for side in (before, after)]
    found = compare(*renamed, metrics=("depth",))
    assert (found.verdict, found.exit_code) == (Verdict.CHANGED, Exit.INCONCLUSIVE)
    assert "nobody has said whether more of it is better: --higher-is-better" in sentence(found)
    assert found.to_dict()["metrics"][0]["higher_is_better"] is None
    declared = [replace(side, better={"depth": Direction.HIGHER}) for side in renamed]
    assert compare(*declared, metrics=("depth",)).verdict is Verdict.BETTER
    assert compare(*renamed, metrics=("depth",), higher_is_better=False).verdict is Verdict.WORSE


GOOD, BAD = [1.0] * 5, [0.0] * 5


def test_tasks_whose_content_changed_are_named_and_left_out_of_the_verdict(task_run):
    names = [f"t{at}" for at in range(8)]
    a = from_run(task_run(dict.fromkeys(names, GOOD)), ("reward", "cost_usd"))
    harder = {**dict.fromkeys(names, GOOD), "t0": BAD, "t1": BAD}
    b = from_run(
        task_run(harder, run_id="run-b", contents={"t0": "new", "t1": "new"}), ("reward", "cost_usd")
    )
    found = compare(a, b, metrics=("reward", "cost_usd"))
    assert found.verdict is not Verdict.WORSE
    assert found.score.bounds.excluded.tasks == 6
    assert [point.name for point in found.metrics[0].times.points] == names[2:]
    assert "2 tasks have other content in B than in A, left out of the verdict: t0, t1" in found.warnings
    assert found.to_dict()["changed"] == ["t0", "t1"]
    page = html(comparison(found, a, b))
    assert "other content in B than in A (2)" in page
    asked = compare(a, b, changed_tasks=True)
    assert asked.score.bounds.excluded.tasks == 8
    assert "2 tasks have other content in B than in A, compared all the same: t0, t1" in asked.warnings


def test_runs_in_which_every_task_changed_are_compared_only_when_asked(task_run):
    a = from_run(task_run({"t": GOOD}), ())
    b = from_run(task_run({"t": BAD}, run_id="run-b", contents={"t": "new"}), ())
    with pytest.raises(UsageError, match=r"1 task has other content in B.*--changed-tasks compares"):
        compare(a, b)
    assert compare(a, b, changed_tasks=True).verdict is Verdict.WORSE


def test_sides_that_do_not_know_the_content_of_their_tasks_are_compared_as_they_are(task_run):
    a = from_run(task_run({"t": GOOD}), ())
    b = from_run(task_run({"t": BAD}, run_id="run-b", contents={"t": ""}), ())
    found = compare(a, b)
    assert (found.changed, found.verdict) == ((), Verdict.WORSE)


def test_the_code_of_an_experiment_may_change_as_that_is_the_question(run):
    found = compare(*sides(run, [({}, STEADY)], [({}, SLOW)], code="v2"), noise=QUIET)
    assert found.changed == ()
