"""Records from passes that no well-behaved process would send."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import StoreError
from proctor.instruments.base import Resolved
from proctor.model.outcome import Outcome
from proctor.model.spec import ExperimentBody
from proctor.model.trial import Lease
from proctor.store.blobs import open_blobs
from proctor.trial import experiment_files
from proctor.trial.experiment_files import keep_files
from proctor.trial.experiment_record import Passes, build_record, judge_pass
from proctor.trial.forkserver.lane_client import Pass
from proctor.trial.point.calibrate import aggregate

FINE = {"timed_out": False, "status": 0, "phase": "end", "iteration": 0, "killed": 0, "unkillable": 0}


def record(passes: Passes):
    return build_record(
        passes,
        lease=Lease("run", "key", 0, "w", 1, 1, 0.0),
        body=ExperimentBody(experiment="x"),
        began_ns=0,
        started_at=1.0,
        ended_at=2.0,
        contended=False,
        worker="w",
    )


def passes(timed: Pass) -> Passes:
    return Passes(folder=Path("x"), resolved=Resolved((), ()), timed=timed)


def test_a_stream_that_broke_is_the_codes_own_error_and_keeps_its_rows():
    row = {"iteration": 0, "duration_s": 1.0, "cpu_s": 1.0, "involuntary_switches": 0}
    made = record(passes(Pass(rows={0: row}, broken="a frame that is not JSON")))
    assert made.outcome is Outcome.AGENT_ERROR
    assert "not JSON" in made.failure.message
    assert made.metrics["duration_s"]["count"] == 1
    assert made.ledger["ended_processes"] == 0


def test_an_error_of_the_harness_is_not_blamed_on_the_code():
    outcome, failure = judge_pass(
        Pass(exit={**FINE, "phase": "harness", "status": 70 << 8, "last_words": "Traceback …"})
    )
    assert outcome is Outcome.SANDBOX_ERROR
    assert failure.traceback == "Traceback …"


def test_a_link_that_was_closed_and_overflowed_says_what_happened():
    outcome, failure = judge_pass(Pass(exit={**FINE, "phase": "link closed", "status": 70 << 8}))
    assert outcome is Outcome.AGENT_ERROR
    assert "closed the harness's socket" in failure.message


def test_what_could_not_be_ended_is_a_note():
    made = record(passes(Pass(exit={**FINE, "unkillable": 2})))
    assert "processes that could not be killed: 2" in made.notes


def test_warm_up_that_never_settled_is_a_note():
    report = {"failures": [], "phases_s": {}, "warmup": {"ended": "time"}, "used": [[0] * 16] * 4}
    made = record(passes(Pass(report=report, exit=FINE)))
    assert any("still falling" in note for note in made.notes)


def test_a_row_that_comes_twice_is_one_row():
    done = Pass()
    for _ in range(2):
        done.take({"row": {"iteration": 3, "duration_s": 1.0}})
    done.take({"row": "nonsense"})
    done.take({"else": 1})
    assert list(done.rows) == [3]


def test_bookkeeping_is_not_a_metric():
    rows = [{"iteration": n, "page_faults": 1, "value": n, "deep": {"er": n}, "list": [1]} for n in range(6)]
    found = aggregate(rows)
    assert set(found) == {"value", "deep.er"}
    assert (found["value"]["p50_low"], found["value"]["p50_high"]) == (0, 5)
    assert "p50_low" not in aggregate(rows[:5])["value"]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "files"
    (made / "deep").mkdir(parents=True)
    (made / "a.txt").write_text("aaaa")
    (made / "deep/b.html").write_text("bbbb")
    (made / "c.svg").write_text("cccc")
    return made


def test_files_are_kept_with_their_kinds(folder, tmp_path):
    kept, notes = keep_files(folder, open_blobs(tmp_path / "blobs"))
    assert [(each.name, each.media_type) for each in kept] == [
        ("a.txt", "text/plain"),
        ("c.svg", "image/svg+xml"),
        ("deep/b.html", "text/html"),
    ]
    assert notes == []


@pytest.mark.parametrize(("limit", "value"), [("MAX_ARTIFACTS", 2), ("MAX_ARTIFACT_BYTES", 10)])
def test_files_over_a_limit_are_named_and_left(folder, tmp_path, monkeypatch, limit, value):
    monkeypatch.setattr(experiment_files, limit, value)
    kept, notes = keep_files(folder, open_blobs(tmp_path / "blobs"))
    assert len(kept) == 2
    assert "starting with 'deep/b.html'" in notes[0]


def test_a_file_that_the_store_refuses_is_a_note(folder):
    class Full:
        def put_file(self, path, name, media_type):
            raise StoreError("no space left")

    kept, notes = keep_files(folder, Full())
    assert kept == []
    assert notes[0] == "'a.txt' could not be saved: no space left"


def test_a_file_that_vanishes_is_no_error(folder, tmp_path, monkeypatch):
    def vanish(_):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "lstat", vanish)
    assert keep_files(folder, open_blobs(tmp_path / "blobs")) == ([], [])


def timed(durations, *, aside=(), **pace) -> Pass:
    rows = {
        index: {"iteration": index, "duration_s": each, "cpu_s": each, "involuntary_switches": 0}
        for index, each in enumerate(durations)
    }
    told = {
        "best_ns": 100,
        "quickest_ns": 100,
        "waited_s": 0.5,
        "short": True,
        "calm": True,
        "since": 0,
    } | pace
    used = [[0.0] * 16] * 4
    report = {"failures": [], "loops": 1, "phases_s": {}, "used": used, "pace": told}
    return Pass(rows=rows, aside=set(aside), report=report, exit=dict(FINE))


def test_disturbed_iterations_do_not_count_and_are_counted():
    made = record(passes(timed([1.0, 2.0, 1.0, 2.0, 1.0], aside=(1, 3))))
    assert [row["iteration"] for row in made.iterations] == [0, 2, 4]
    assert made.metrics["duration_s"]["max"] == 1.0
    assert any("do not count: see ledger.pace" in note for note in made.notes)
    assert made.ledger["pace"] == {
        "calm": True,
        "best_ns": 100,
        "waited_s": 0.5,
        "set_aside": 2,
        "times_slower": 2.0,
    }


def test_what_came_before_a_faster_pace_was_known_does_not_count():
    made = record(passes(timed([2.0, 2.0, 1.0, 1.0], since=2)))
    assert made.metrics["duration_s"]["max"] == 1.0
    assert made.ledger["pace"]["set_aside"] == 2


def test_without_calm_everything_counts_and_a_note_says_so():
    made = record(passes(timed([2.0, 2.0, 1.0], aside=(0, 1, 2), calm=False)))
    assert made.metrics["duration_s"]["count"] == 3
    assert any("never reached its full speed" in note for note in made.notes)


def test_failed_iterations_are_kept_whatever_the_machine_did():
    made_from = timed([1.0, 1.0, 2.0], aside=(2,))
    made_from.rows[2] = {"iteration": 2, "error": "ValueError: x"}
    assert [row["iteration"] for row in record(passes(made_from)).iterations] == [0, 1, 2]


def test_long_slots_leave_no_word_about_pace():
    made = record(passes(timed([1.0, 2.0], aside=(1,), short=False, calm=False)))
    assert len(made.iterations) == 2
    assert "pace" not in made.ledger
