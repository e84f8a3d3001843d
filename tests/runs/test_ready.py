"""What cannot run is refused before anything of it is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.errors import SandboxError, UsageError
from proctor.runs import executors
from proctor.runs.ready import engine_of
from proctor.settings import Settings

TASKS = Path(__file__).parents[2] / "tasks"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL", raising=False)
    return tmp_path


def spec(agent: str = "nop", **more: object) -> str:
    task = min(each for each in TASKS.iterdir() if (each / "task.toml").is_file())
    Path("s.json").write_text(json.dumps({"tasks": [{"path": str(task), "agent": agent, **more}]}))
    return "s.json"


def nothing_is_left(capsys: pytest.CaptureFixture[str]) -> bool:
    capsys.readouterr()
    assert main(["ls", "--json"]) == 0
    folders = [Path(os.environ[f"PROCTOR_{name}_DIR"]) for name in ("OUTPUT", "ROLLOUTS")]
    left = [each for folder in folders if folder.exists() for each in folder.rglob("*")]
    return json.loads(capsys.readouterr().out) == [] and left == []


def test_an_unknown_sandbox_is_refused(capsys):
    assert main(["run", spec(), "--set", "sandbox.backend=bubblewarp"]) == 2
    assert "'bubblewarp' is not a sandbox" in capsys.readouterr().err
    assert nothing_is_left(capsys)


def test_a_sandbox_that_does_not_work_here_is_refused(capsys, monkeypatch):
    from dataclasses import replace

    from proctor.sandbox import choose

    broken = replace(choose.BACKENDS["docker"], obstacle=lambda: "no engine answers")
    monkeypatch.setitem(choose.BACKENDS, "docker", broken)
    assert main(["run", spec(), "--set", "sandbox.backend=docker"]) == 4
    assert "the kind 'docker' do not work here: no engine answers" in capsys.readouterr().err
    assert nothing_is_left(capsys)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "agent 'terminal' needs a model"),
        ({"model": "local/large"}, "set PROCTOR_MODEL_BASE_URL"),
    ],
)
def test_an_agent_without_its_model_or_endpoint_is_refused(capsys, more, said):
    assert main(["run", spec("terminal", **more), "--set", "sandbox.backend=fake"]) == 2
    assert said in capsys.readouterr().err
    assert nothing_is_left(capsys)


def test_an_executor_that_cannot_open_takes_the_run_back(capsys, monkeypatch):
    def refuse(*_: object) -> None:
        message = "the lock of the sandboxes cannot be taken"
        raise SandboxError(message)

    monkeypatch.setattr(executors, "task_setting", refuse)
    assert main(["run", spec(), "--set", "sandbox.backend=fake"]) == 4
    assert nothing_is_left(capsys)


def test_a_store_that_cannot_be_written_leaves_no_folder(capsys, monkeypatch, project):
    (project / "store").mkdir()
    monkeypatch.setenv("PROCTOR_STORE", str(project / "store"))
    assert main(["run", spec(), "--set", "sandbox.backend=fake"]) == 5
    assert not any(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json"))


def test_the_engine_is_what_was_asked_for_else_by_the_broker():
    alone, cluster = Settings(), Settings(broker="redis://:sesame@localhost/0")
    assert [engine_of(each, alone) for each in ("auto", "local")] == ["local", "local"]
    assert [engine_of(each, cluster) for each in ("auto", "local", "celery")] == ["celery", "local", "celery"]
    with pytest.raises(
        UsageError, match=r"^a.yaml:3:1: the engine 'celery' needs a broker: set PROCTOR_BROKER"
    ):
        engine_of("celery", alone, place="a.yaml:3:1")
    with pytest.raises(UsageError, match="not the address of a message broker") as caught:
        engine_of("auto", Settings(broker="http://:sesame@localhost"))
    assert "sesame" not in str(caught.value)
