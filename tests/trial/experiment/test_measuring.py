"""What a record says of a point that behaves: numbers, seeds, loops, phases, notes."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from proctor.model.outcome import Outcome
from proctor.model.spec import ExperimentBody, InstrumentSpec, Iterations


def test_every_number_returned_is_described_like_the_duration(bench):
    record = bench.point("counting", {"size": 3}, iterations=Iterations(measured=8, warmup=2))
    assert record.outcome is Outcome.PASSED
    assert set(record.metrics) == {"duration_s", "cpu_s", "draw", "seed", "size", "total", "gc_enabled"}
    assert record.metrics["duration_s"].keys() == record.metrics["size"].keys()
    assert {"mean", "p50", "p95", "p99", "p50_low", "p50_high"} <= record.metrics["duration_s"].keys()
    assert record.metrics["total"]["min"] == 3
    assert [row["iteration"] for row in record.iterations] == list(range(8))
    assert record.worker == "tester"


def test_the_same_seed_draws_the_same_and_every_point_is_fresh(bench):
    first, second = bench.points("counting", [{}, {}])
    assert first.iterations[0]["draw"] == second.iterations[0]["draw"]
    assert first.metrics["seed"]["min"] == first.metrics["seed"]["max"] == 7
    assert [record.metrics["total"]["max"] for record in (first, second)] == [4, 4]


def test_without_isolation_points_share_a_process(bench):
    first, second = bench.points("counting", [{}, {}], isolation="none")
    assert [record.metrics["total"]["max"] for record in (first, second)] == [4, 8]
    assert first.iterations[0]["draw"] == second.iterations[0]["draw"]


def test_many_points_at_once_keep_to_themselves(bench):
    records = bench.points("counting", [{"size": size} for size in range(1, 9)], together=True)
    assert [record.metrics["size"]["mean"] for record in records] == list(range(1, 9))
    assert {record.metrics["total"]["max"] for record in records} == {4}


def test_the_collector_is_off_in_slots_unless_asked_for(bench):
    off, on = (bench.point("counting", gc=policy) for policy in ("disabled", "enabled"))
    assert off.metrics["gc_enabled"]["max"] == 0
    assert on.metrics["gc_enabled"]["min"] == 1
    assert (off.ledger["gc"]["policy"], on.ledger["gc"]["policy"]) == ("disabled", "enabled")


def test_cyclic_garbage_is_collected_between_slots_and_counted_inside_them(bench):
    off, on = (
        bench.point("writing", gc=policy, iterations=Iterations(measured=6))
        for policy in ("disabled", "enabled")
    )
    assert off.ledger["gc"]["collections_in_slots"] == 0
    assert on.ledger["gc"]["collections_in_slots"] > 0
    assert on.iterations[0]["gc_collections"] > 0
    assert off.ledger["peak_rss_bytes"] < 200_000_000


def test_calibrated_loops_give_a_result_per_call(bench):
    record = bench.point("counting", loops="auto", iterations=Iterations(measured=3))
    loops = record.ledger["loops"]
    assert loops > 10
    assert record.metrics["duration_s"]["p50"] < 0.005
    steps = [row["total"] for row in record.iterations]
    assert [later - earlier for earlier, later in pairwise(steps)] == [loops, loops]


def test_fixed_loops_are_made_as_often_as_asked(bench):
    record = bench.point("counting", loops=5, iterations=Iterations(measured=2, warmup=1))
    assert [row["total"] for row in record.iterations] == [10, 15]


def test_warm_up_by_itself_says_how_much_it_dropped_and_why(bench):
    record = bench.point("counting", iterations=Iterations(measured=1, warmup="auto"), loops=100)
    assert record.ledger["warmup"]["dropped"] >= 10
    assert record.ledger["warmup"]["ended"] in {"settled", "count", "time"}


def test_measuring_by_itself_says_why_it_stopped(bench):
    record = bench.point(
        "counting",
        iterations=Iterations(measured="auto", target_width=50.0, min_measured=7, calm=False),
        loops=20,
    )
    assert record.ledger["stopped"] == "interval"
    assert len(record.iterations) == 7
    assert any(note.startswith("measured: auto stopped after 7 iterations") for note in record.notes)


def test_work_in_other_processes_is_in_the_cpu_time(bench):
    record = bench.point("spawning", iterations=Iterations(measured=2))
    assert record.metrics["cpu_s"]["min"] > 0.005
    assert record.ledger["children_cpu_s"] > 0.01


def test_phases_and_resources_are_recorded(bench):
    record = bench.point("counting", iterations=Iterations(measured=3, warmup=1))
    assert set(record.phases_s) == {"start", "setup", "warmup", "work", "teardown"}
    assert all(value >= 0 for value in record.phases_s.values())
    assert record.ledger["peak_rss_bytes"] >= record.ledger["start_rss_bytes"] > 1_000_000
    assert record.ledger["minor_faults"] > 0
    assert "cpu_over_wall" in record.ledger["noise"]


def test_files_become_artifacts_and_links_that_lead_out_do_not(bench):
    record = bench.point("writing")
    assert [each.name for each in record.artifacts] == ["notes.json"]
    assert record.artifacts[0].media_type == "application/json"
    assert bench.read(record, "notes.json") == b"{}"
    assert (bench.folder / "run/trials/writing/0/artifacts/notes.json").exists()
    assert record.iterations[0]["instruments"] == ["timing"]


def test_temporary_files_are_gone_after_the_point(bench):
    record = bench.point("writing")
    name = Path(record.iterations[0]["temporary"])
    assert not name.exists()
    assert not name.parent.parent.exists()


def test_a_point_that_leaves_nothing_leaves_no_folder(bench):
    bench.point("counting")
    assert list((bench.folder / "run").rglob("artifacts*")) == []


def test_a_second_attempt_has_a_folder_of_its_own(bench, run):
    executor = bench.executor(ExperimentBody(experiment="writing"))

    async def twice():
        try:
            trial = bench.trial(0, {}, slug="writing")
            return [await executor.execute(trial, bench.lease(0, attempt)) for attempt in (1, 2)]
        finally:
            await executor.close()

    first, second = run(twice)
    assert (first.number, second.number) == (1, 2)
    assert (bench.folder / "run/trials/writing/0/artifacts-2/notes.json").exists()


def test_parallel_points_say_that_their_timings_are_contended(bench, run):
    executor = bench.executor(ExperimentBody(experiment="counting"), contended=True)

    async def one():
        try:
            return await executor.execute(bench.trial(0, {}, slug="counting"), bench.lease(0))
        finally:
            await executor.close()

    assert any("contended" in note for note in run(one).notes)


def test_wrong_parameters_are_invalid_and_name_the_right_ones(bench):
    record = bench.point("counting", {"sise": 3})
    assert record.outcome is Outcome.INVALID
    assert record.failure.type == "ParamError"
    assert "size" in record.failure.message


def test_an_unknown_experiment_is_invalid_for_every_point_and_is_looked_for_once(bench):
    first, second = bench.points("countin", [{}, {}])
    assert [first.outcome, second.outcome] == [Outcome.INVALID, Outcome.INVALID]
    assert (first.failure.phase, first.failure.type) == ("import", "NotFoundError")
    assert "counting" in first.failure.message


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('at import')", "at import"),
        ("import os; os._exit(3)", "ended the process"),
        ("import ctypes; ctypes.string_at(0)", "ended the process"),
        ("import sys; sys.exit('leaving')", "leaving"),
    ],
)
def test_a_module_that_cannot_be_imported_is_invalid(bench, tmp_path, run, code, words):
    module = tmp_path / "unwell.py"
    module.write_text(code)
    executor = bench.executor(ExperimentBody(experiment="unwell"), sources=[str(module)])

    async def one():
        try:
            return await executor.execute(bench.trial(0, {}, slug="unwell"), bench.lease(0))
        finally:
            await executor.close()

    record = run(one)
    assert record.outcome is Outcome.INVALID
    assert record.failure.phase == "import"
    assert words in record.failure.message + record.failure.traceback


def test_several_experiments_share_an_executor_and_idle_servers_are_retired(bench, run, monkeypatch):
    monkeypatch.setattr("proctor.trial.experiment_trial.KEPT_SERVERS", 1)
    slugs = ("counting", "writing", "counting")
    executor = bench.executor(*(ExperimentBody(experiment=slug) for slug in slugs))

    async def all_of_them():
        try:
            return [
                await executor.execute(bench.trial(at, {}, slug=slug, body=at), bench.lease(at))
                for at, slug in enumerate(slugs)
            ], [slug for slug, _ in executor._servers]
        finally:
            await executor.close()

    records, left = run(all_of_them)
    assert [record.outcome for record in records] == [Outcome.PASSED] * 3
    assert left == ["counting"]


def test_an_executor_that_never_ran_closes(bench, run):
    run(bench.executor(ExperimentBody(experiment="counting")).close)


def test_an_unknown_instrument_is_refused_before_anything_runs(bench):
    from proctor.errors import UsageError

    with pytest.raises(UsageError, match="did you mean 'psutil'"):
        bench.executor(
            ExperimentBody(experiment="counting", instrumentation=(InstrumentSpec(name="psutils"),))
        )


def test_a_read_only_run_folder_is_the_infrastructures_fault(bench):
    (bench.folder / "run").write_text("a file where the folder should be")
    record = bench.point("writing")
    assert record.outcome is Outcome.SANDBOX_ERROR
    assert "refused" in record.failure.message
    assert os.path.basename(str(bench.folder)) in record.failure.message  # noqa: PTH119 - text in a message
