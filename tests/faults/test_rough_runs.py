"""Whatever an experiment does, its trial has an outcome and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.runfolder.read import RunData

pytestmark = pytest.mark.fault
EXPERIMENT = """
import ctypes, os, time
from proctor import Experiment, register_experiment

@register_experiment("rough")
class Rough(Experiment):
    def __init__(self, how: str = "fine") -> None:
        self.how = how

    def setup(self, context):
        if self.how == "setup":
            raise RuntimeError("setup on purpose")

    def execute_once(self, context):
        match self.how:
            case "raise":
                raise RuntimeError("on purpose")
            case "raise_once" if context.iteration_index == 1:
                raise RuntimeError("once on purpose")
            case "exit":
                os._exit(7)
            case "segfault":
                ctypes.string_at(0)
            case "hang":
                time.sleep(3600)
            case "big":
                return {"big": "x" * (1 << 28)}
            case "not_json":
                return {"value": object()}
            case "not_dict":
                return 3
        return {"fine": 1}

    def teardown(self, context):
        (context.run_dir / f"torn-down-{self.how}").touch()
        if self.how == "teardown":
            raise RuntimeError("teardown on purpose")
"""
EXPECTED = {
    "fine": "passed",
    "setup": "failed",
    "raise": "failed",
    "raise_once": "failed",
    "teardown": "failed",
    "exit": "agent_error",
    "segfault": "agent_error",
    "hang": "agent_timeout",
    "big": "failed",
    "not_json": "failed",
    "not_dict": "failed",
}


def proctor(*arguments: str, cwd: Path, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def latest(home: Path) -> RunData:
    folder = max(Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("manifest.json")).parent
    return RunData.from_folder(folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "rough.py").write_text(EXPERIMENT)
    spec = {
        "experiment": "rough",
        "sources": ["rough.py"],
        "sweep": {"how": list(EXPECTED)},
        "iterations": {"measured": 3},
        "timeout_s": 8,
    }
    (tmp_path / "rough.json").write_text(json.dumps(spec))
    return tmp_path


def test_every_kind_of_failure_has_its_outcome_and_the_run_goes_on(project):
    process = proctor("run", "rough.json", cwd=project)
    output = process.communicate(timeout=200)[0]
    assert process.returncode == 1, output
    data = latest(project)
    assert {trial.planned.params["how"]: str(trial.outcome) for trial in data.trials} == EXPECTED
    by_how = {trial.planned.params["how"]: trial.counted for trial in data.trials}
    assert by_how["raise_once"].metrics["duration_s"]["count"] == 2, "the other iterations are kept"
    assert "on purpose" in by_how["raise"].failure.traceback
    assert by_how["setup"].failure.phase == "setup"
    assert by_how["teardown"].failure.phase == "teardown"


def test_ctrl_c_once_finishes_what_runs_and_saves(project):
    spec = json.loads((project / "rough.json").read_text())
    spec |= {"sweep": {"how": ["hang", "fine"]}, "timeout_s": 3}
    (project / "rough.json").write_text(json.dumps(spec))
    process = proctor("run", "rough.json", "-v", cwd=project, start_new_session=True)
    wait_for_run(process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    data = latest(project)
    assert [str(trial.outcome) if trial.outcome else None for trial in data.trials] == ["agent_timeout", None]
    assert "proctor resume" in output
    again = proctor("resume", cwd=project)
    assert again.communicate(timeout=60)[0]
    assert [str(trial.outcome) for trial in latest(project).trials] == ["agent_timeout", "passed"]


def test_ctrl_c_twice_stops_now_and_still_saves(project):
    spec = json.loads((project / "rough.json").read_text())
    spec |= {"sweep": {"how": ["fine", "hang"]}, "timeout_s": 3000}
    (project / "rough.json").write_text(json.dumps(spec))
    process = proctor("run", "rough.json", "-v", cwd=project, start_new_session=True)
    wait_for_run(process, ended=1)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("stopping after the running trials"):
            break
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    assert [str(trial.outcome) if trial.outcome else None for trial in latest(project).trials] == [
        "passed",
        None,
    ]


def wait_for_run(process: subprocess.Popen[str], ended: int = 0) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        files = list(Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("series.jsonl"))
        if files and len(files[0].read_bytes().splitlines()) >= ended:
            time.sleep(0.5 if not ended else 0.1)
            return
        time.sleep(0.01)
    pytest.fail(f"the run did not start: {process.communicate(timeout=10)[0]}")


def test_two_runs_of_one_second_and_one_seed_do_not_collide(project):
    spec = json.loads((project / "rough.json").read_text())
    (project / "rough.json").write_text(json.dumps(spec | {"sweep": {"how": ["fine"]}, "seed": 7}))
    both = [proctor("run", "rough.json", cwd=project) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    manifests = list(Path(os.environ["PROCTOR_OUTPUT_DIR"]).rglob("manifest.json"))
    assert len(manifests) == 2
    for manifest in manifests:
        assert [str(trial.outcome) for trial in RunData.from_folder(manifest.parent).trials] == ["passed"]
