from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.taking import take

from proctor.cli.main import main
from proctor.cli.show import size_text
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store


@pytest.fixture
def run_of_30() -> None:
    trials = tuple(
        PlannedTrial(
            key=f"k{index}",
            index=index,
            kind="experiment",
            subject="sort",
            subject_digest="d",
            body=0,
            params={"n": index},
        )
        for index in range(30)
    )
    info = RunInfo(
        id="run-1",
        name="bench",
        kind="experiment",
        status=RunStatus.PENDING,
        created_at=1000.0,
        seed=42,
        tags=("nightly",),
        notes="after the rewrite",
        folder="/data/run-1",
        environment={
            "cpu_model": "Example 9000",
            "memory_bytes": 16_000_000_000,
            "load": [0.5, 1.25],
            "governor": None,
            "container": {"kind": "podman"},
            "packages": {f"p{number}": "1" for number in range(9)},
        },
        vcs={"commit": "0123456789abcdef", "branch": "main", "dirty": True},
        versions={"proctor": "0.1.0"},
    )
    with open_store(load_settings().store_url) as store:
        store.create_run(info, Plan(trials=trials, warnings=("the machine is busy",)))
        leases = take(store, "run-1", worker="w", lease_s=30, limit=25)
        for lease in leases[:24]:
            store.finish(lease, _record(lease), counts=True)


def _record(lease: Lease) -> AttemptRecord:
    failed = lease.index == 1
    return AttemptRecord(
        key=lease.key,
        number=lease.attempt,
        outcome=Outcome.FAILED if failed else Outcome.PASSED,
        started_at=1.0,
        ended_at=2.0,
        reward=0.5 if lease.index == 2 else None,
        metrics={
            "duration_s": {"p50": 0.0042, "mean": 0.005},
            "ops": {"p50": 1234.5},
            "hits": 7,
            "text": "no",
        },
        failure=Failure(phase="setup", type="ValueError", message="bad\nsecond line") if failed else None,
        artifacts=(Artifact(name="a", digest="a" * 64, size_bytes=2048),),
        notes=("contended",),
    )


@pytest.mark.usefixtures("run_of_30")
class TestShow:
    def test_everything_a_reader_needs_is_there(self, capsys):
        assert main(["show", "latest"]) == 0
        out = capsys.readouterr().out
        for expected in (
            "bench  run-1",
            "trials     24 of 30 done; 5 pending, 1 running",
            "outcomes   23 passed, 1 failed",
            "seed       42",
            "tags       nightly",
            "notes      after the rewrite",
            "folder     /data/run-1",
            "artifacts  2.05 kB",
            "vcs        0123456789ab on main, with uncommitted changes",
            "cpu_model     Example 9000",
            "memory_bytes  16 GB",
            "load          0.5, 1.25",
            "container     kind podman",
            "packages      9 entries",
            "! the machine is busy",
            "note: contended",
        ):
            assert expected in out
        assert "governor" not in out

    def test_each_trial_has_its_median_metrics_and_failure(self, capsys):
        main(["show", "bench"])
        lines = capsys.readouterr().out.splitlines()
        first, second, third = (line for line in lines if line.lstrip().startswith(("0 ", "1 ", "2 ")))
        assert first.split() == ["0", "passed", "4.20", "ms", "n=0", "ops=1234", "hits=7"]
        assert "setup: ValueError: bad" in second
        assert "second line" not in second
        assert "reward=0.5" in third

    def test_only_the_first_trials_are_shown_unless_all_are_asked_for(self, capsys):
        main(["show", "run-1"])
        out = capsys.readouterr().out
        assert " n=19 " in out
        assert " n=20 " not in out
        assert "and 4 more; 'proctor show run-1 --trials' lists all" in out
        main(["show", "run-1", "--trials"])
        out = capsys.readouterr().out
        assert " n=23 " in out
        assert "more;" not in out

    def test_json_has_the_run_and_its_trials(self, capsys):
        main(["show", "run-1", "--json", "--trials"])
        shown = json.loads(capsys.readouterr().out)
        assert shown["status"] == "pending"
        assert shown["counts"] == {"failed": 1, "passed": 23}
        assert shown["states"]["running"] == 1
        assert shown["environment"]["cpu_model"] == "Example 9000"
        assert shown["warnings"] == ["the machine is busy"]
        assert shown["artifact_bytes"] == 2048
        assert len(shown["trials"]) == 24
        assert shown["trials"][1]["blame"] == "agent"
        assert shown["trials"][1]["label"] == "sort(n=1)"

    def test_an_unknown_run_is_exit_2_with_a_hint(self, capsys):
        assert main(["show", "bensh"]) == 2
        assert "did you mean 'bench'?" in capsys.readouterr().err


def test_a_run_that_has_not_begun_has_an_empty_list_of_trials(capsys):
    info = RunInfo(id="run-0", name="n", kind="task", status=RunStatus.PENDING, created_at=1.0, seed=0)
    with open_store(load_settings().store_url) as store:
        store.create_run(info, Plan(trials=()))
    assert main(["show", "run-0"]) == 0
    assert "outcomes   –" in capsys.readouterr().out
    assert main(["show", "run-0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == []


def test_showing_from_no_store_says_there_are_no_runs(capsys):
    assert main(["show", "latest"]) == 2
    assert "there are no runs yet" in capsys.readouterr().err
    assert not Path(load_settings().store_url).exists()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (10**15, "1e+03 TB")]
)
def test_sizes_are_in_the_unit_a_person_would_choose(size: int, text: str):
    assert size_text(size) == text


def test_hostile_text_cannot_steer_the_terminal(capsys):
    hostile = "\x1b[2Jgone\x07\n\udcff"
    info = RunInfo(
        id="run-0",
        name=hostile,
        kind="task",
        status=RunStatus.PENDING,
        created_at=1.0,
        seed=0,
        notes=hostile,
        environment={hostile: hostile},
    )
    with open_store(load_settings().store_url) as store:
        store.create_run(info, Plan(trials=(), warnings=(hostile,)))
    for arguments in (["show", "run-0"], ["ls"]):
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "�[2Jgone" in out
