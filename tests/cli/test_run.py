from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.cli.live import Live, line_for
from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.trial import Lease
from proctor.trial.experiment_trial import ExperimentExecutor

EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("adding")
class Adding(Experiment):
    def __init__(self, n: int = 1, fail: bool = False) -> None:
        self.n, self.fail = n, fail

    def execute_once(self, context):
        if self.fail:
            raise RuntimeError("on purpose")
        return {"sum": sum(range(self.n))}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "adding.py").write_text(EXPERIMENT)
    (tmp_path / "adding.yaml").write_text("experiment: adding\nsources: [adding.py]\nsweep: {n: [10, 20]}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_folder() -> Path:
    return max(Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("manifest.json")).parent


def test_a_run_ends_with_a_table_and_the_path_of_its_report(project, capsys):
    assert main(["run", "adding.yaml"]) == 0
    shown = capsys.readouterr()
    assert "adding(n=10, fail=False)" in shown.out
    assert str(run_folder() / "report.html") in shown.out
    assert "[2/2]" in shown.err
    assert (run_folder() / "report.html").is_file()


def test_json_is_all_that_a_machine_gets(project, capsys):
    assert main(["run", "adding.yaml", "--json", "--parallel", "2"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["run"]["status"] == "done"
    assert shown.err == ""


def test_overrides_reach_the_plan_and_failures_the_exit_code(project, capsys, tmp_path):
    arguments = ["--set", "params.fail=true", "--set", "sweep.n=[5]", "--output-dir", str(tmp_path / "out")]
    assert main(["run", "adding.yaml", *arguments]) == 1
    assert "on purpose" in capsys.readouterr().err
    assert list((tmp_path / "out").rglob("report.html"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "none.yaml"),
        (["run", "adding.yaml", "--set", "params.m=3"], "known: fail, n"),
        (["run", "adding.yaml", "--set", "experment=x"], "did you mean 'experiment'"),
        (["run", "adding.yaml", "--set", "instrumentation=[timng]"], "timing"),
        (["resume", "nothing"], "nothing"),
        (["repport"], "did you mean 'report'"),
        (["run", "adding.yaml", "--parallel", "0"], "0"),
    ],
)
def test_bad_input_is_said_in_a_sentence_with_exit_code_2(project, capsys, arguments, message):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert not Path(os.environ["PROCTOR_OUTPUT_DIR"]).exists()


def test_a_complete_run_has_nothing_to_resume(project, capsys):
    main(["run", "adding.yaml"])
    capsys.readouterr()
    assert main(["resume"]) == 0
    assert "nothing is missing" in capsys.readouterr().out


def test_what_the_infrastructure_lost_is_run_again_on_request(project, capsys, monkeypatch):
    execute = ExperimentExecutor.execute

    async def broken(self, trial, lease):
        record = await execute(self, trial, lease)
        return replace(record, outcome=Outcome.SANDBOX_ERROR) if trial.index == 0 else record

    with monkeypatch.context() as patched:
        patched.setattr(ExperimentExecutor, "execute", broken)
        assert main(["run", "adding.yaml", "--set", "retries=0"]) == 4
    capsys.readouterr()
    assert main(["resume"]) == 4, "nothing is missing, and it stays lost"
    assert "nothing is missing" in capsys.readouterr().out
    assert main(["resume", "--errors"]) == 0
    assert "1 lost trial is run again" in capsys.readouterr().out
    (series,) = Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("series.jsonl")
    rows = [json.loads(line) for line in series.read_text().splitlines()]
    told = [(row["outcome"], row["counts"]) for row in rows if row["index"] == 0]
    assert told == [("sandbox_error", False), ("passed", True)], "the lost attempt is kept"
    assert main(["ls", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert set(run["counts"]) == {"passed"}
    assert main(["resume", "--errors", "--json"]) == 0


def test_a_run_whose_code_has_changed_is_not_resumed(project, capsys):
    main(["run", "adding.yaml"])
    (project / "adding.py").write_text(EXPERIMENT.replace("range(self.n)", "range(self.n + 1)"))
    capsys.readouterr()
    assert main(["resume"]) == 2
    assert "has changed since it was planned" in capsys.readouterr().err


def test_a_read_only_results_folder_is_said_and_nothing_is_half_written(project, capsys):
    blocked = project / "blocked"
    blocked.write_text("a file where a folder should be")
    assert main(["run", "adding.yaml", "--output-dir", str(blocked / "results")]) in {2, 5}
    assert "blocked" in capsys.readouterr().err
    assert main(["ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def trial(**changes: object) -> PlannedTrial:
    values = {"key": "k", "index": 0, "kind": "experiment", "subject": "s", "subject_digest": "d", "body": 0}
    return PlannedTrial(**(values | changes))


def record(outcome: Outcome, **changes: object) -> AttemptRecord:
    return AttemptRecord(key="k", number=1, outcome=outcome, started_at=1.0, ended_at=2.0, **changes)


def test_a_line_says_what_happened_and_why():
    failed = record(Outcome.FAILED, failure=Failure(phase="setup", type="ValueError", message="bad\nmore"))
    assert line_for(trial(), failed, counts=True, done=3, total=10).endswith(
        "s: failed, setup: ValueError: bad"
    )
    lost = line_for(
        trial(kind="task", agent="a"), record(Outcome.SANDBOX_ERROR), counts=False, done=3, total=10
    )
    assert "sandbox_error" in lost
    assert lost.endswith("kept, not counted")


def test_a_long_run_reports_now_and_then_and_every_failure(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("proctor.cli.live.time.monotonic", lambda: clock[0])
    with Live(1000) as live:
        lease = Lease(run_id="r", key="k", index=0, worker="w", fence=1, attempt=1, expires_at=1.0)
        for number in range(30):
            clock[0] = number * 1.0
            live.started(trial(), lease)
            live.ended(trial(), record(Outcome.PASSED), counts=True)
        live.ended(trial(), record(Outcome.FAILED), counts=True)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 4
    assert "left" in lines[0]
    assert "failed" in lines[-1]
