"""Whatever measured code does, its attempt has an outcome, what was finished is kept, and the run goes on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.processes import all_processes, marked

WAYS = (
    "nothing",
    "raise_error",
    "raise_huge",
    "raise_unprintable",
    "raise_and_raise_in_teardown",
    "raise_in_constructor",
    "raise_in_setup",
    "raise_in_teardown",
    "sys_exit",
    "os_exit",
    "os_exit_quietly",
    "segfault",
    "kill_itself",
    "return_gigabyte",
    "return_bytes",
    "return_number",
    "return_cycle",
    "return_nan",
    "return_surrogate",
    "return_collision",
    "print_much",
    "close_everything",
    "take_our_descriptors",
    "leave_daemon",
    "kill_zygote",
    "kill_lane",
    "fork_and_return",
    "delete_folders",
    "write_garbage",
    "unblock_everything",
    "return_much",
)
HANGS = ("hang", "hang_in_c", "hang_with_children", "hang_in_setup")


@pytest.fixture(scope="module")
def records(shared_bench, tmp_path_factory) -> dict[str, AttemptRecord]:
    """One run over every way to misbehave: each record, and what each point wrote about its own life."""
    logs = tmp_path_factory.mktemp("logs")
    points = [{"what": way, "log": str(logs / way)} for way in WAYS]
    return dict(zip(WAYS, shared_bench.points("subject", points), strict=True)) | {"logs": logs}


def good(record: AttemptRecord) -> list[int]:
    return [row["iteration"] for row in record.iterations if "duration_s" in row]


def life(records, way: str) -> list[str]:
    return (records["logs"] / way).read_text().split("\n")[:-1]


def test_a_fine_point_passes_and_goes_through_its_whole_life_once(records):
    record = records["nothing"]
    assert (record.outcome, record.failure) == (Outcome.PASSED, None)
    assert good(record) == [0, 1, 2, 3]
    assert life(records, "nothing") == ["setup", *(f"execute {n}" for n in range(4)), "teardown"]


@pytest.mark.parametrize(
    ("way", "kind", "words"),
    [
        ("raise_error", "LookupError", "nothing there"),
        ("raise_huge", "ValueError", "characters left out"),
        ("raise_unprintable", "UnprintableError", "could not be created"),
        ("sys_exit", "SystemExit", "7"),
        ("return_gigabyte", "ResultRefused", "larger than 1048576 bytes"),
        ("return_bytes", "ResultRefused", "'deep.data' is of type bytes"),
        ("return_number", "ResultRefused", "must return a dict"),
        ("return_cycle", "ResultRefused", "contains itself"),
    ],
)
def test_a_failing_iteration_is_recorded_and_the_next_ones_run(records, way, kind, words):
    record = records[way]
    assert record.outcome is Outcome.FAILED
    assert (record.failure.phase, record.failure.type) == ("execute_once", kind)
    assert words in record.failure.message
    assert len(record.failure.message) < 4_000
    assert good(record) == [0, 1, 3]
    assert kind in record.iterations[2]["error"]
    assert life(records, way)[-1] == "teardown"
    assert record.metrics["duration_s"]["count"] == 3


def test_the_traceback_names_the_line_that_raised_and_no_line_of_the_harness(records):
    text = records["raise_error"].failure.traceback
    assert 'raise LookupError("nothing there")' in text
    assert "proctor/trial" not in text


@pytest.mark.parametrize(
    ("way", "outcome", "phase"),
    [
        ("raise_in_constructor", Outcome.INVALID, "construct"),
        ("raise_in_setup", Outcome.FAILED, "setup"),
        ("raise_in_teardown", Outcome.FAILED, "teardown"),
    ],
)
def test_the_phase_that_raised_is_named(records, way, outcome, phase):
    record = records[way]
    assert (record.outcome, record.failure.phase) == (outcome, phase)


def test_teardown_runs_after_a_failed_setup(records):
    assert life(records, "raise_in_setup") == ["setup", "teardown"]


def test_a_failed_teardown_keeps_the_measurements(records):
    assert good(records["raise_in_teardown"]) == [0, 1, 2, 3]


def test_a_teardown_that_fails_after_an_iteration_is_a_note_and_not_the_cause(records):
    record = records["raise_and_raise_in_teardown"]
    assert record.failure.type == "LookupError"
    assert any("teardown failed too: RuntimeError" in note for note in record.notes)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("os_exit", "exit code 7"),
        ("os_exit_quietly", "exit code 0"),
        ("segfault", "SIGSEGV"),
        ("kill_itself", "when memory runs out"),
    ],
)
def test_a_process_that_dies_keeps_the_iterations_before_it(records, way, words):
    record = records[way]
    assert record.outcome is Outcome.AGENT_ERROR
    assert record.failure.phase == "execute_once"
    assert words in record.failure.message
    assert "iteration 2" in record.failure.message
    assert good(record) == [0, 1]
    assert record.ledger["peak_rss_bytes"] > 0


def test_a_segfault_leaves_the_stack_of_the_code_that_caused_it(records):
    assert "segfault" in records["segfault"].failure.traceback


def test_nan_is_null_and_counted_but_no_failure(records):
    record = records["return_nan"]
    assert record.outcome is Outcome.PASSED
    assert record.iterations[2]["loss"] is None
    assert "loss" not in record.metrics
    assert any("'loss' was NaN or infinite 1 times" in note for note in record.notes)


def test_text_that_no_file_can_hold_is_mended(records):
    assert records["return_surrogate"].iterations[2]["text"] == "a?b"


def test_a_returned_name_of_ours_is_kept_beside_the_measurement(records):
    row = records["return_collision"].iterations[2]
    assert row["reported_duration_s"] == 99.0
    assert row["duration_s"] < 99
    assert records["return_collision"].metrics["nested.score"]["mean"] == 3


def test_of_much_output_the_beginning_and_the_end_are_kept(records, shared_bench):
    record = records["print_much"]
    text = shared_bench.read(record, "stdout.txt")
    assert record.ledger["output_bytes"] > 26_000_000
    assert len(text) < 400_000
    assert text.startswith(b"first words\n")
    assert text.endswith(b"\nlast words")
    assert b"bytes left out" in text
    assert shared_bench.read(record, "stderr.txt") == b"an error\n"


@pytest.mark.parametrize("way", ["close_everything", "take_our_descriptors"])
def test_closed_descriptors_lose_nothing_that_was_finished(records, way):
    record = records[way]
    assert record.outcome is Outcome.PASSED
    assert good(record) == [0, 1, 2, 3]
    assert any("closed file descriptors" in note for note in record.notes)


def test_daemons_are_found_in_their_own_session_and_ended(records):
    record = records["leave_daemon"]
    assert record.outcome is Outcome.PASSED
    assert any("were killed: 1" in note for note in record.notes)


@pytest.mark.parametrize("way", ["kill_zygote", "kill_lane"])
def test_a_lost_lane_is_the_infrastructures_fault_and_the_next_point_runs(records, way):
    assert records[way].outcome is Outcome.SANDBOX_ERROR
    assert records["fork_and_return"].outcome is Outcome.PASSED


def test_a_stopped_zygote_costs_one_point_at_its_time_limit_and_nothing_is_left(bench, monkeypatch):
    seconds = f"601.{os.getpid()}"
    monkeypatch.setenv("PROCTOR_TEST_MARK", f"stopped-{os.getpid()}")
    monkeypatch.setenv("PROCTOR_TEST_SLEEP", seconds)
    record, after = bench.points("subject", [{"what": "stop_zygote"}, {}], timeout_s=1.0)
    assert (record.outcome, after.outcome) == (Outcome.SANDBOX_ERROR, Outcome.PASSED)
    assert marked(f"PROCTOR_TEST_MARK=stopped-{os.getpid()}") == []
    assert _sleeping(seconds) == []


def test_a_pipe_that_one_point_told_not_to_wait_waits_for_the_next(records):
    assert records["unblock_everything"].outcome is Outcome.PASSED
    assert len(records["return_much"].iterations[2]["text"]) == 900_000


def test_parameters_larger_than_a_pipe_arrive_whole(bench):
    record = bench.point("subject", {"what": "x" * 300_000})
    assert record.outcome is Outcome.PASSED


def test_a_copy_that_returns_does_not_report_twice(records):
    assert good(records["fork_and_return"]) == [0, 1, 2, 3]
    assert life(records, "fork_and_return").count("teardown") == 1


def test_folders_may_vanish_under_a_point(records, shared_bench):
    record = records["delete_folders"]
    assert record.outcome is Outcome.PASSED
    assert shared_bench.read(record, "stdout.txt") == b"still here\n"


def test_garbage_on_our_socket_is_the_codes_own_error(records):
    record = records["write_garbage"]
    assert record.outcome in {Outcome.AGENT_ERROR, Outcome.SANDBOX_ERROR}
    assert record.failure is not None


@pytest.mark.parametrize("way", HANGS)
def test_a_hang_ends_with_its_whole_tree_at_the_time_limit(bench, way, monkeypatch):
    monkeypatch.setenv("PROCTOR_TEST_MARK", f"{way}-{os.getpid()}")
    began = time.monotonic()
    record, after = bench.points("subject", [{"what": way}, {}], timeout_s=1.0)
    assert time.monotonic() - began < 60
    assert record.outcome is Outcome.AGENT_TIMEOUT
    assert record.failure.phase == ("setup" if way == "hang_in_setup" else "execute_once")
    assert good(record) == ([] if way == "hang_in_setup" else [0, 1])
    assert after.outcome is Outcome.PASSED
    assert marked(f"PROCTOR_TEST_MARK={way}-{os.getpid()}") == []


def test_processes_that_hid_from_the_environment_are_ended_too(bench, monkeypatch):
    seconds = f"600.{os.getpid()}"
    monkeypatch.setenv("PROCTOR_TEST_SLEEP", seconds)
    record = bench.point("subject", {"what": "hang_with_children"}, timeout_s=1.0)
    assert record.failure.message.endswith("3 processes were killed")
    assert _sleeping(seconds) == []


def _sleeping(seconds: str) -> list[int]:
    return [each.pid for each in all_processes() if seconds in _command_line(each.pid)]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_without_isolation_a_crash_costs_one_point_and_a_new_process_takes_over(bench):
    points = [
        {},
        {"what": "os_exit"},
        {},
        {"what": "hang"},
        {"what": "raise_error"},
        {"what": "leave_daemon"},
    ]
    records = bench.points("subject", points, isolation="none", timeout_s=2.0)
    assert [record.outcome.value for record in records] == [
        "passed",
        "agent_error",
        "passed",
        "agent_timeout",
        "failed",
        "passed",
    ]
    assert all(any("points share one process" in note for note in record.notes) for record in records)
    assert any("were killed: 1" in note for note in records[-1].notes)
