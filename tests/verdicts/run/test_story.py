from __future__ import annotations

from dataclasses import replace

from tests import made_rollouts

from proctor.model.outcome import Outcome
from proctor.model.record import Failure
from proctor.model.trial import RunStatus
from proctor.render.document.markdown import markdown
from proctor.render.results import points
from proctor.verdicts.run.story import headline, warnings
from proctor.verdicts.run.summary import summary
from proctor.verdicts.run.survey import Group, short, survey


def groups(data) -> tuple[Group, ...]:
    return survey(data).groups


def sweep_summary(data) -> str:
    return markdown(points.sweep_summary(data))


def test_one_point_says_what_a_call_takes_and_how_sure_that_is(runs):
    text = headline(runs.single())
    assert text.startswith("sort_list takes 1.28 ms per call (median of 120), 95 % interval 1.27 – 1.28 ms.")


def test_one_iteration_claims_no_interval(runs):
    trial = runs.planned()
    assert (
        headline(runs.of([(trial, [runs.attempt(trial, [0.002])])]))
        == "sort_list takes 2.00 ms (one iteration)."
    )


def held_up(runs, trial, waited, more=0.0):
    """A point that computes 1 ms and waits for a CPU besides, for this share of its time."""
    cpu = [0.001 + more + 1e-6 * at for at in range(20)]
    walls = [value / (1 - waited) for value in cpu]
    noise = {"cpu_over_wall": 1 - waited, "waited_for_cpu": waited}
    return runs.attempt(trial, walls, metrics={"cpu_s": cpu}, ledger={"noise": noise})


def test_a_run_on_a_loaded_machine_is_told_by_its_cpu_time(runs):
    trial = runs.planned()
    data = runs.of([(trial, [held_up(runs, trial, 0.5)])])
    text = headline(data)
    assert text.startswith(
        "sort_list takes 1.01 ms of CPU time per call (median of 20), 95 % interval 1.005 –"
    )
    assert "Judged by CPU time (cpu_s): other programs had the CPU for up to 50% of the time" in text
    found = summary(data)
    assert found["metric"] == "cpu_s"
    assert found["clock"].startswith("other programs had the CPU for up to 50%")
    assert found["subjects"][0]["median_max"] < 0.0011


def test_one_clock_is_used_for_every_point_of_a_sweep(runs):
    one, two = runs.planned(0, {"a": 1}), runs.planned(1, {"a": 2})
    data = runs.of([(one, [held_up(runs, one, 0.0)]), (two, [held_up(runs, two, 0.6, 1e-6)])])
    assert "the median of CPU time ranges from 1.01 ms (a=1)" in headline(data)
    assert "their 95 % intervals overlap: not distinguishable" in headline(data)
    assert "| not distinguishable |" in sweep_summary(data)


def test_a_run_on_a_calm_machine_is_told_by_elapsed_time(runs):
    trial = runs.planned()
    data = runs.of([(trial, [held_up(runs, trial, 0.05)])])
    assert "CPU time" not in headline(data)
    assert (summary(data)["metric"], summary(data)["clock"]) == ("duration_s", "")


def test_a_sweep_names_its_ends_by_what_varies(runs):
    text = headline(runs.lines())
    assert "measured at 7 parameter points" in text
    assert "(size=100) to 5.38 ms (size=100000), 1\u202f300 times as long" in text
    assert "timsort" not in text


def test_a_ratio_is_withheld_where_intervals_overlap(runs):
    spread = [0.001, 0.0011, 0.0012, 0.0013, 0.0014, 0.0015, 0.0016, 0.0017]
    one, two = runs.planned(0, {"a": 1}), runs.planned(1, {"a": 2})
    data = runs.of(
        [(one, [runs.attempt(one, spread)]), (two, [runs.attempt(two, [1.1 * v for v in spread])])]
    )
    assert "their 95 % intervals overlap: not distinguishable" in headline(data)
    assert "times as long" not in headline(data)
    assert "| not distinguishable |" in sweep_summary(data)
    apart = runs.of([(one, [runs.attempt(one, spread)]), (two, [runs.attempt(two, [9 * v for v in spread])])])
    assert "9.0 times as long" in headline(apart)
    assert "| 9.00× |" in sweep_summary(apart)


def test_without_intervals_no_ratio_is_claimed(runs):
    one, two = runs.planned(0, {"a": 1}), runs.planned(1, {"a": 2})
    data = runs.of([(one, [runs.attempt(one, [0.001] * 3)]), (two, [runs.attempt(two, [0.009] * 3)])])
    assert "times as long" not in headline(data)
    assert "| no interval |" in sweep_summary(data)


def test_failures_and_missing_trials_are_in_the_headline(runs):
    text = headline(runs.failures())
    assert "1 failed" in text
    assert "The run is interrupted: 5 of 6 trials have a result." in text
    done = runs.renamed(runs.failures(), status=RunStatus.DONE)
    assert headline(done).endswith("1 of 6 trials have no result.")


def test_a_cancelled_trial_is_no_result(runs):
    study = made_rollouts.Study().cell("org/a", [1.0, 1.0], "oracle").data()
    trial = made_rollouts.planned(2, "org/a", "oracle", rollout=2)
    pairs = [(each.planned, list(each.attempts)) for each in study.trials]
    data = made_rollouts.run_of([*pairs, (trial, [made_rollouts.record(trial, "cancelled")])], name="cut")
    text = headline(runs.renamed(data, status=RunStatus.CANCELLED))
    assert text.endswith("The run is cancelled: 2 of 3 trials have a result.")


def test_a_run_without_any_result_or_timing_says_so(runs):
    trial = runs.planned()
    assert "no trial of 1 has a result" in headline(runs.of([(trial, [])]))
    failure = Failure(phase="setup", type="E", message="m")
    failed = runs.of([(trial, [runs.attempt(trial, [], outcome=Outcome.FAILED, failure=failure)])])
    assert headline(failed) == "sort_list has no timing: 1 failed."


def test_one_success_among_failures_is_told_in_full(runs):
    good, bad = runs.planned(0, {"a": 1}), runs.planned(1, {"a": 2})
    data = runs.of(
        [(good, [runs.attempt(good)]), (bad, [runs.attempt(bad, [], outcome=Outcome.AGENT_ERROR)])]
    )
    assert "the one that succeeded takes 1.10 ms per call (median of 3)" in headline(data)


def test_several_experiments_are_counted(runs):
    pairs = []
    for index, subject in enumerate(("one", "two", "three", "four")):
        trial = runs.planned(index, {}, subject=subject, body=index)
        pairs.append((trial, [runs.attempt(trial, [0.001 * (index + 1)] * 6)]))
    data = runs.of(pairs)
    assert headline(data).startswith("4 experiments (one, two, three…) were measured at 4 points")
    assert [group.subject for group in groups(data)] == ["one", "two", "three", "four"]


def test_rollouts_count_what_was_scored_and_name_the_rest(runs):
    text = headline(runs.rollouts())
    assert "0 of 2 scored rollouts." in text
    assert "Left out, because the agent did not cause it: 6 sandbox errors." in text
    score = summary(runs.rollouts())["score"]
    assert score == {
        "scored": 2,
        "errors": 6,
        "errors_excluded": 0.0,
        "errors_as_zero": 0.0,
        "best_case": 0.75,
    }


def test_only_parameters_that_differ_vary_even_when_types_do(runs):
    data = runs.of(
        [
            (t := runs.planned(i, p), [runs.attempt(t)])
            for i, p in enumerate(({"a": 1, "b": 2}, {"a": 1.0, "b": 2}))
        ]
    )
    (group,) = groups(data)
    assert group.varying == ("a",)
    assert group.fixed == {"b": 2}
    odd = runs.of(
        [(t := runs.planned(i, p), [runs.attempt(t)]) for i, p in enumerate(({"a": 1}, {"a": 1, "c": 3}))]
    )
    assert groups(odd)[0].varying == ("c",)


def test_warnings_are_gathered_counted_and_never_repeated(runs):
    data = replace(runs.two(), warnings=("planned warning",))
    data = runs.renamed(data, environment={"warnings": ["the machine is noisy"]})
    found = warnings(data)
    assert found[:2] == ["planned warning", "the machine is noisy"]
    assert "contended: 2 points ran at a time (4 of 16 trials)" in found
    assert any("needed more than one attempt" in each for each in warnings(runs.failures()))


def test_notes_that_differ_in_figures_only_are_told_once(runs):
    pairs = []
    for at, limit in enumerate(("20 %", "over 100 %", "over 100 %")):
        trial = runs.planned(at, {"a": at})
        pairs.append((trial, [runs.attempt(trial, [1.0] * 6, notes=(f"the smallest change is {limit}",))]))
    assert warnings(runs.of(pairs)) == [
        "the smallest change is over 100 % (3 of 3 trials, with different numbers)"
    ]


def test_noise_and_too_few_iterations_are_warned_of(runs):
    loud, lone = runs.planned(0, {"a": 1}), runs.planned(1, {"a": 2})
    data = runs.of(
        [(loud, [runs.attempt(loud, [1, 2, 3, 4, 5, 6, 7.0])]), (lone, [runs.attempt(lone, [1.0])])]
    )
    text = " | ".join(warnings(data))
    assert "noisy: at 1 of 2 points" in text
    assert "at 1 of 2 points there are fewer than 6 iterations" in text


def test_values_are_cut_for_labels():
    assert short(0.1 + 0.2) == "0.3"
    assert short([1, {"a": 2}]) == '[1,{"a":2}]'
    assert short("x" * 50).endswith("…")
    assert short(None) == "None"


def test_a_run_on_this_machine_s_own_system_says_that_first(runs):
    data = runs.renamed(runs.single(), kind="task", resolved={"sandbox": {"host_root": True}})
    said = "Host root: every sandbox used this machine's own system; results are not reproducible elsewhere. "
    assert headline(data).startswith(said)
    assert summary(data)["host_root"] is True
    assert summary(data)["headline"].startswith(said)
    assert not runs.single().info.host_root
    assert summary(runs.single())["host_root"] is False
