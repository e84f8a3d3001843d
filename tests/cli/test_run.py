from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from proctor.cli.live import Live, line_for
from proctor.cli.main import main
from proctor.cli.run import exit_code
from proctor.errors import Exit
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus
from proctor.runfolder.read import RunData, TrialResult
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
    assert "fixed: fail=False" in shown.out
    assert shown.out.count("adding") <= 3, "no long label in every row"
    assert str(run_folder() / "report.html") in shown.out
    assert "[2/2]" not in shown.err, "the table has every point"
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
    main(["ls", "--json"])
    listed = capsys.readouterr().out
    assert main(["resume"]) == 0
    assert "nothing is missing" in capsys.readouterr().out
    main(["ls", "--json"])
    assert capsys.readouterr().out == listed, "it ended when it ended"


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


def test_a_run_whose_code_has_changed_goes_on_with_the_code_that_was_planned(project, capsys, monkeypatch):
    execute = ExperimentExecutor.execute

    async def broken(self, trial, lease):
        record = await execute(self, trial, lease)
        return replace(record, outcome=Outcome.SANDBOX_ERROR) if trial.index == 0 else record

    with monkeypatch.context() as patched:
        patched.setattr(ExperimentExecutor, "execute", broken)
        assert main(["run", "adding.yaml", "--set", "retries=0"]) == 4
    (project / "adding.py").write_text("raise RuntimeError('this is not what was planned')")
    assert main(["resume", "--errors"]) == 0
    assert main(["ls", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out.rpartition("\n[")[2].join(["[", ""]))
    assert set(run["counts"]) == {"passed"}


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
    assert line_for("s", trial(), failed, counts=True, done=3, total=10).endswith(
        "s: failed, setup: ValueError: bad"
    )
    lost = line_for(
        "s", trial(kind="task", agent="a"), record(Outcome.SANDBOX_ERROR), counts=False, done=3, total=10
    )
    assert "sandbox_error" in lost
    assert lost.endswith("will be tried again")


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


@pytest.fixture
def task_spec(make_task, tmp_path, monkeypatch):
    make_task("one", network="public")
    (tmp_path / "tasks.yaml").write_text("tasks: [tasks/one]\nagent: nop\nsandbox: {backend: fake}\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("network", ["none", "public", "allowlist"])
def test_the_network_on_the_command_line_is_part_of_the_stored_spec(task_spec, network, capsys):
    assert main(["run", "tasks.yaml", "--network", network, "--json"]) != 2
    folder = max(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json"))
    assert f'"network": "{network}"' in folder.read_text()


def test_options_of_sandboxes_are_refused_for_experiments(project, capsys):
    assert main(["run", "adding.yaml", "--network", "none"]) == 2
    assert "--network is for tasks" in capsys.readouterr().err
    assert main(["run", "adding.yaml", "--host-root"]) == 2
    assert "--host-root is for tasks" in capsys.readouterr().err


def test_a_setting_that_opens_nothing_is_refused_before_anything_starts(task_spec, monkeypatch, capsys):
    monkeypatch.setenv("PROCTOR_NETWORK_ALLOW", "10.0.0.0/8,mirror:3128")
    assert main(["run", "tasks.yaml"]) == 2
    assert "setting 'network_allow': 'mirror:3128' is not an address" in capsys.readouterr().err
    assert not Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).exists()


CODES = [
    ("experiment", ["passed", "passed"], Exit.OK),
    ("experiment", ["passed", "failed"], Exit.WORSE),
    ("experiment", ["invalid"], Exit.WORSE),
    ("experiment", ["passed", "worker_lost"], Exit.INFRASTRUCTURE),
    ("experiment", ["failed", "worker_lost"], Exit.WORSE),
    ("task", ["passed", "failed", "partial", "agent_timeout", "agent_error"], Exit.OK),
    ("task", ["passed", "verifier_error"], Exit.WORSE),
    ("task", ["failed", "invalid"], Exit.WORSE),
    ("task", ["failed", "sandbox_error"], Exit.INFRASTRUCTURE),
    ("task", ["passed", "provider_error"], Exit.INFRASTRUCTURE),
    ("task", ["reward_invalid", "provider_error"], Exit.WORSE),
    ("task", ["passed", "skipped"], Exit.OK),
]


@pytest.mark.parametrize(("kind", "outcomes", "code"), CODES)
def test_the_exit_code_says_what_the_outcomes_mean(kind, outcomes, code):
    info = RunInfo(id="r", name="n", kind=kind, status=RunStatus.DONE, created_at=0.0, seed=0)
    results = [TrialResult(trial(kind=kind), (), record(Outcome(each))) for each in outcomes]
    assert exit_code(RunData(info, tuple(results))) is code


@pytest.mark.parametrize("command", ["run", "resume", "eval"])
def test_the_help_of_every_command_that_runs_has_the_exit_codes(command, capsys):
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for said in ("Exit code 0: every trial was judged", "1: a gate says", "3: a gate", "4: trials were lost"):
        assert said in text
    assert "otherwise 1 comes before 4" in text
