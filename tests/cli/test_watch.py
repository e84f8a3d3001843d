from __future__ import annotations

import json
import threading

from tests.taking import take

from proctor.cli import watch
from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store


def make_run() -> None:
    trials = tuple(
        PlannedTrial(
            key=f"k{at}", index=at, kind="task", subject="t\x1b[2J", subject_digest="d", body=0, agent="nop"
        )
        for at in range(2)
    )
    info = RunInfo(
        id="run-1", name="study", kind="task", status=RunStatus.PENDING, created_at=1000.0, seed=1, total=2
    )
    with open_store(load_settings().store_url) as store:
        store.create_run(info, Plan(trials=trials))
        store.set_status("run-1", RunStatus.RUNNING)


def work() -> None:
    with open_store(load_settings().store_url) as store:
        for lease in take(store, "run-1", worker="w", lease_s=30, limit=2):
            store.finish(lease, _record(lease), counts=True)
        store.set_status("run-1", RunStatus.DONE)


def _record(lease: Lease) -> AttemptRecord:
    return AttemptRecord(
        key=lease.key, number=1, outcome=Outcome.FAILED, started_at=1003.0, ended_at=1004.0, reward=0.0
    )


def test_events_are_lines_until_the_run_is_over(capsys):
    make_run()
    work()
    assert main(["watch", "study"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "run.created" in lines[0]
    assert "run.finished" in lines[-1]
    assert any("attempt.ended" in line and "failed  1 s" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_one_goes_on_after_the_last_number_and_misses_nothing(capsys):
    make_run()
    assert main(["watch", "run-1", "--json", "--no-follow"]) == 0
    first = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    work()
    assert main(["watch", "run-1", "--json", "--after", str(first[-1]["id"])]) == 0
    rest = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with open_store(load_settings().store_url) as store:
        known = [event.id for event in store.events(run_id="run-1")]
    assert [each["id"] for each in first + rest] == known
    assert rest[-1]["kind"] == "run.finished"
    assert {each["label"] for each in rest if each["trial_key"]} == {"t\x1b[2J × nop #1"}


def test_it_follows_a_run_that_goes_on(capsys):
    make_run()
    seen = threading.Event()

    def later() -> None:
        seen.wait(10)
        work()

    worker = threading.Thread(target=later)
    worker.start()
    seen.set()
    assert main(["watch", "run-1", "--interval", "0.05"]) == 0
    worker.join()
    assert "run.finished" in capsys.readouterr().out


def test_a_run_that_is_not_over_says_how_to_go_on(capsys):
    make_run()
    assert main(["watch", "run-1", "--no-follow"]) == 0
    assert "continue with: proctor watch run-1 --after " in capsys.readouterr().err


def test_ctrl_c_says_where_to_go_on(capsys, monkeypatch):
    make_run()

    def stopped(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", stopped)
    assert main(["watch", "run-1"]) == 130
    with open_store(load_settings().store_url) as store:
        last = store.events(run_id="run-1")[-1].id
    assert f"--after {last}" in capsys.readouterr().err
