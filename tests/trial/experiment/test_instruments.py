"""Instruments around real points: who rides along, who gets a pass of its own, what each leaves and costs."""

from __future__ import annotations

import json

import pytest

from proctor.model.outcome import Outcome
from proctor.model.spec import InstrumentSpec, Iterations


def specs(*names: str, **options) -> tuple[InstrumentSpec, ...]:
    return tuple(InstrumentSpec(name=name, options=options.get(name, {})) for name in names)


def test_a_profile_comes_from_a_pass_of_its_own_with_its_cost(bench):
    record = bench.point("counting", instrumentation=specs("timing", "cprofile"))
    assert record.outcome is Outcome.PASSED
    said = record.ledger["instruments"]["cprofile"]
    assert said["rides_along"] is False
    assert said["iterations"] == 3
    assert said["cpu_ratio"] > 0
    assert said["artifacts"] == ["cprofile/profile.prof", "cprofile/top.json", "cprofile/top.txt"]
    top = json.loads(bench.read(record, "cprofile/top.json"))["functions"]
    assert "execute_once" in {each["function"] for each in top}
    assert not any("proctor/trial" in each["file"] for each in top)
    assert "instruments" in record.phases_s
    assert record.metrics["total"]["max"] == 4, "the timed pass made its own calls and no others"


def test_memory_instruments_add_metrics_under_their_own_names(bench):
    record = bench.point(
        "writing", instrumentation=specs("tracemalloc", tracemalloc={"iterations": 2, "top": 3})
    )
    assert record.metrics["tracemalloc.peak_bytes"]["count"] == 2
    assert "tracemalloc.peak_bytes" not in record.iterations[0]
    lines = json.loads(bench.read(record, "tracemalloc/top.json"))["lines"]
    assert len(lines) <= 3
    assert [each.name for each in record.artifacts] == ["notes.json", "tracemalloc/top.json"]


@pytest.mark.needs("memray", "pyinstrument")
def test_the_optional_profilers_leave_a_flame_graph(bench):
    record = bench.point(
        "spawning", instrumentation=specs("memray", "pyinstrument"), iterations=Iterations(measured=1)
    )
    names = {each.name for each in record.artifacts}
    assert {"memray/allocations.bin", "memray/flamegraph.html", "memray/top.json"} <= names
    assert {"pyinstrument/flame.html", "pyinstrument/tree.txt"} <= names
    assert record.metrics["memray.peak_bytes"]["min"] > 0
    assert record.ledger["instruments"]["pyinstrument"]["summary"]["samples"] > 0


def test_samplers_and_counters_ride_along(bench):
    record = bench.point(
        "spawning",
        instrumentation=specs("psutil", "counters", psutil={"interval_ms": 50}),
        iterations=Iterations(measured=3),
    )
    said = record.ledger["instruments"]
    assert said["psutil"]["rides_along"]
    assert said["psutil"]["summary"]["samples"] >= 1
    assert said["psutil"]["summary"]["rss_bytes_peak"] > 1_000_000
    assert said["psutil"]["cpu_ratio"] >= 1
    series = json.loads(bench.read(record, "psutil/series.json"))
    assert {"at_s", "cpu_percent", "rss_bytes", "read_bytes", "write_bytes"} <= series["samples"][0].keys()
    assert "counters.page_faults" in record.iterations[0]
    assert "counters.page_faults" in record.metrics
    assert "events" in said["counters"]["summary"]


def test_an_instrument_from_the_experiments_module_is_found_and_used(bench):
    record = bench.point("counting", instrumentation=specs("loud", loud={"volume": 11}))
    assert record.metrics["loud.volume"]["mean"] == 11
    assert record.ledger["instruments"]["loud"] == {"rides_along": True, "summary": {"closed": True}}


def test_a_broken_instrument_is_named_and_the_measurement_stands(bench):
    record = bench.point("counting", instrumentation=specs("broken", "loud"))
    assert record.outcome is Outcome.PASSED
    assert len(record.iterations) == 4
    assert "instrument 'broken' failed: OSError: the needle fell off" in record.notes
    assert record.metrics["loud.volume"]["count"] == 4


def test_no_profile_is_made_of_a_point_that_never_worked(bench):
    record = bench.point("subject", {"what": "raise_in_setup"}, instrumentation=specs("cprofile"))
    assert record.outcome is Outcome.FAILED
    assert record.ledger["instruments"] == {}


def test_a_pass_that_dies_is_a_note_and_no_outcome(bench):
    record = bench.point(
        "subject",
        {"what": "os_exit"},
        instrumentation=specs("cprofile", cprofile={"iterations": 5}),
        iterations=Iterations(measured=2),
    )
    assert record.outcome is Outcome.PASSED
    (note,) = [note for note in record.notes if "cprofile" in note]
    assert "exit code 7" in note


@pytest.mark.needs("valgrind")
def test_cachegrind_counts_the_instructions_of_a_call(bench):
    record = bench.point(
        "counting",
        instrumentation=specs("counters", counters={"cachegrind": True}),
        iterations=Iterations(measured=2),
        timeout_s=60.0,
    )
    said = record.ledger["instruments"]["cachegrind"]
    assert "error" not in said, said
    assert 100 < said["summary"]["instructions_per_call"] < 1_000_000


@pytest.mark.needs("valgrind")
def test_a_program_that_takes_too_long_is_ended(bench):
    record = bench.point(
        "counting",
        instrumentation=specs("cachegrind"),
        iterations=Iterations(measured=1),
        timeout_s=0.002,
        loops=1,
    )
    if record.outcome is Outcome.PASSED:
        assert "took more than 0.2 s" in record.ledger["instruments"]["cachegrind"]["error"]
