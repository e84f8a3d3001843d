from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from tests.taking import take

from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store
from proctor.store.store import Store

HEAVY = {"sqlalchemy", "alembic", "numpy", "asyncio", "rich", "psutil", "yaml", "statistics", "tempfile"}


@pytest.fixture
def store():
    with open_store(load_settings().store_url) as opened:
        yield opened


def add_run(
    store: Store, run_id: str, *, name: str = "bench", created_at: float = 1000.0, size: int = 2
) -> None:
    trials = tuple(
        PlannedTrial(key=f"k{index}", index=index, kind="experiment", subject="s", subject_digest="d", body=0)
        for index in range(size)
    )
    info = RunInfo(
        id=run_id, name=name, kind="experiment", status=RunStatus.PENDING, created_at=created_at, seed=1
    )
    store.create_run(info, Plan(trials=trials))


def set_status_at(moment: float, run_id: str, *statuses: RunStatus) -> None:
    """As if the database's clock had stood at that moment."""
    with open_store(load_settings().store_url, clock=lambda: moment) as then:
        for status in statuses:
            then.set_status(run_id, status)


def finish_one(store: Store, run_id: str, outcome: Outcome = Outcome.PASSED) -> None:
    (lease,) = take(store, run_id, worker="w", lease_s=30)
    record = AttemptRecord(key=lease.key, number=1, outcome=outcome, started_at=1.0, ended_at=2.0)
    store.finish(lease, record, counts=True)


def test_an_empty_store_lists_nothing_and_is_not_made(capsys):
    assert main(["ls"]) == 0
    assert "No runs yet. Start one with 'proctor run SPEC'." in capsys.readouterr().out
    assert main(["ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert not Path(load_settings().store_url).exists()


def test_runs_are_listed_newest_first_with_outcomes(store: Store, capsys):
    add_run(store, "run-1", name="old", created_at=1000.0)
    add_run(store, "run-2", name="new", created_at=2000.0)
    finish_one(store, "run-2", Outcome.FAILED)
    set_status_at(2000.0, "run-2", RunStatus.RUNNING)
    set_status_at(2090.0, "run-2", RunStatus.DONE)
    assert main(["ls"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "name", "status", "trials", "outcomes", "started", "took"]
    assert first.startswith("run-2  new   done")
    assert "1/2  1 failed" in first
    assert first.endswith("90 s")
    assert second.startswith("run-1  old   pending")


def test_the_list_is_filtered_and_cut(store: Store, capsys):
    for number in range(4):
        add_run(store, f"run-{number}", name=f"n{number % 2}", created_at=float(number))
    main(["ls", "--json", "--limit", "1", "--name", "n0"])
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["id"], only["status"], only["counts"], only["total"]) == ("run-2", "pending", {}, 2)
    main(["ls", "--status", "done"])
    assert capsys.readouterr().out == "No run matches.\n"
    assert main(["ls", "--limit", "0"]) == 2
    assert main(["ls", "--status", "odd"]) == 2


def test_a_run_whose_process_died_is_shown_as_stalled(store: Store, capsys):
    add_run(store, "dead")
    add_run(store, "live", created_at=2000.0)
    set_status_at(1000.0, "dead", RunStatus.RUNNING)
    store.set_status("live", RunStatus.RUNNING)
    main(["ls"])
    _, live, dead = capsys.readouterr().out.splitlines()
    assert "running (stalled)" in dead
    assert "stalled" not in live


def test_it_is_told_when_no_worker_can_execute_a_run(store: Store, capsys):
    add_run(store, "far")
    info = store.run("far")
    store.set_resolved(structs.replace(info, resolved={"engine": "celery"}))
    store.set_status("far", RunStatus.RUNNING)
    said = "2 trials wait for a worker that is not there"
    main(["ls", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["waiting"].startswith(said)
    main(["show", "far", "--json"])
    assert json.loads(capsys.readouterr().out)["waiting"].startswith(said)
    main(["show", "far"])
    assert said in capsys.readouterr().out
    store.set_status("far", RunStatus.INTERRUPTED)
    main(["ls", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["waiting"] == ""


def test_a_store_that_cannot_be_read_is_exit_5(capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "bad.db").write_text("not a database, whatever its name says\n" * 99)
    monkeypatch.setenv("PROCTOR_STORE", str(tmp_path / "bad.db"))
    assert main(["ls"]) == 5
    assert "not a SQLite database" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["ls"], ["ls", "--json"], ["show", "run-1"], ["show", "run-1", "--json"], ["rm", "run-1", "--yes"]],
)
def test_reading_commands_load_nothing_heavy(store: Store, arguments: list[str]):
    add_run(store, "run-1")
    finish_one(store, "run-1")
    program = (
        "import sys; from proctor.cli.main import main; code = main(sys.argv[1:]); "
        f"print('HEAVY', sorted({HEAVY!r} & set(sys.modules)), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert done.stdout.splitlines()[-1] == "HEAVY [] 0", done.stderr
