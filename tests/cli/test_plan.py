"""`proctor plan`: reads, prints, writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.taking import take

from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.settings import load_settings

SOURCE = """
from proctor import Experiment, register_experiment


@register_experiment("demo")
class Demo(Experiment):
    def __init__(self, n: int = 1, mode: str = "fast"):
        self.n = n

    def execute_once(self, context):
        return {"n": self.n}


@register_experiment("second")
class Second(Experiment):
    def execute_once(self, context):
        return {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "demo.py").write_text(SOURCE)
    (tmp_path / "s.yaml").write_text(
        "experiment: demo\nparams: {n: [1, 2, 3]}\niterations: {warmup: 1, measured: 4}\n"
    )
    return tmp_path


def test_it_prints_what_would_run_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "s.yaml", "--experiments", "mine"]) == 0
    out = capsys.readouterr().out
    assert "s: 3 trials, seed 0" in out
    assert "demo: 1 warm-up + 4 measured at each point, with timing" in out
    assert [line.split()[:2] for line in out.splitlines() if " n=" in line] == [
        ["1", "n=1"],
        ["2", "n=2"],
        ["3", "n=3"],
    ]
    assert "Estimate: none" in out
    assert sorted(path.name for path in folder.iterdir()) == ["mine", "s.yaml"]
    assert not load_settings().home.exists()


def test_overrides_change_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "plan",
        "s.yaml",
        "--experiments",
        "mine",
        "--set",
        "params.n=7",
        "--set",
        "iterations.measured=auto",
    ]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "s: 1 trial, seed 0" in out
    assert "auto measured at each point (at most 30 s)" in out


def test_a_long_plan_is_cut_unless_all_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "s.yaml", "--experiments", "mine", "--set", f"params.n={list(range(60))}"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "… and 20 more; --all lists them" in out
    assert " n=59 " not in out
    assert main([*arguments, "--all"]) == 0
    assert " n=59 " in capsys.readouterr().out


def test_json_has_the_whole_plan_and_the_resolved_spec(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "s.yaml", "--experiments", "mine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["kind"], found["count"]) == ("s", "experiment", 3)
    assert [trial["params"] for trial in found["trials"]] == [{"n": n, "mode": "fast"} for n in (1, 2, 3)]
    assert all(len(trial["key"]) == 64 for trial in found["trials"])
    assert found["resolved"]["experiments"][0]["iterations"]["measured"] == 4
    assert found["estimate"]["complete"] is False


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("iteratons.measured=3", "'iteratons' is not a key here; did you mean 'iterations'?"),
        ("params.m=3", "--set params.m=3: 'm' is not a parameter of 'demo'"),
        ("experiment=dem", "did you mean 'demo'?"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_two(
    folder: Path, capsys: pytest.CaptureFixture[str], override: str, message: str
) -> None:
    assert main(["plan", "s.yaml", "--experiments", "mine", "--set", override]) == 2
    assert message in capsys.readouterr().err


def test_a_task_spec_is_planned_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "task.toml": 'schema_version = "1.0"\n',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "true\n",
    }.items():
        path = folder / "hello" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "t.yaml").write_text(
        "tasks: [hello]\nagents: [oracle, nop]\nmodels: [m, null]\nrollouts: 2\nsweep: {LEVEL: [1, 2]}\n"
    )
    assert main(["plan", "t.yaml"]) == 0
    out = capsys.readouterr().out
    assert "t: 16 trials, seed 0" in out
    assert "hello: 2 rollouts by oracle, nop with m, no model" in out
    assert "hello × oracle/m #1  LEVEL=1" in out
    assert main(["plan", "t.yaml", "--set", "model=", "--set", "sweep="]) == 0
    assert "hello: 2 rollouts by oracle, nop\n" in capsys.readouterr().out


def test_a_note_about_the_plan_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "s.yaml", "--experiments", "mine", "--set", "params.n=[1, 1]"]) == 0
    assert "Note: demo: 'n' lists a value more than once; each is measured once." in capsys.readouterr().out


def remember(folder: Path, seconds: float) -> None:
    """Put one finished run of the spec into the store."""
    from proctor.runs.planning import plan_spec, with_sources
    from proctor.spec.load import load
    from proctor.store.open import open_store

    plan = plan_spec(with_sources(load(folder / "s.yaml"), ["mine"]), load_settings())
    info = RunInfo(
        id="r1", name="s", kind="experiment", status=RunStatus.RUNNING, created_at=1, seed=0, total=len(plan)
    )
    with open_store(load_settings().store_url) as store:
        store.create_run(info, plan)
        for lease in take(store, "r1", worker="w", lease_s=60, limit=9):
            record = AttemptRecord(
                key=lease.key,
                number=1,
                outcome=Outcome.PASSED,
                started_at=1,
                ended_at=1 + seconds,
                worker="w",
            )
            store.finish(lease, record, counts=True)


def test_the_estimate_comes_from_earlier_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember(folder, 5.0)
    assert main(["plan", "s.yaml", "--experiments", "mine"]) == 0
    assert "Estimate: about 15 s, based on earlier runs." in capsys.readouterr().out
    assert main(["plan", "s.yaml", "--experiments", "mine", "--set", "parallel=3"]) == 0
    assert "Estimate: about 5 s, 3 at a time, based on earlier runs." in capsys.readouterr().out


def test_what_never_ran_is_left_out_of_the_estimate_and_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(folder, 5.0)
    (folder / "both.yaml").write_text("experiments: [demo, {experiment: second, instrumentation: []}]\n")
    assert main(["plan", "both.yaml", "--experiments", "mine"]) == 0
    out = capsys.readouterr().out
    assert "Estimate: 5 s for 1 trial, plus 1 trial that never ran before: second." in out
    assert "second: 1 measured at each point, with no instrument" in out


def test_a_broken_store_costs_the_estimate_and_not_the_plan(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = load_settings().home
    home.mkdir(parents=True)
    Path(load_settings().store_url).write_bytes(b"this is no database" * 100)
    assert main(["plan", "s.yaml", "--experiments", "mine"]) == 0
    printed = capsys.readouterr()
    assert "3 trials" in printed.out
    assert "proctor: no estimate: " in printed.err
