"""What was never there stops the run or the attempt, and is never the agent's zero."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider
from proctor.runfolder.read import RunData

TASKS = Path(__file__).parents[2] / "tasks"
needs_sandbox = pytest.mark.needs("bubblewrap")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROCTOR_MODEL_BASE_URL", raising=False)


def spec(*entries: dict[str, object], sandbox: str = "auto") -> str:
    whole = {"tasks": list(entries), "sandbox": {"host_root": True, "backend": sandbox}}
    Path("s.json").write_text(json.dumps(whole))
    return "s.json"


def by_command(command: str, path: Path = TASKS / "shell-quiz", **options: object) -> dict[str, object]:
    return {"path": str(path), "agent": "command", "agent_options": {"command": command, **options}}


def by_model(model: str) -> dict[str, object]:
    return {"path": str(TASKS / "shell-quiz"), "agent": "terminal", "model": model}


def folders() -> list[Path]:
    return list(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json"))


def results() -> list[tuple[str, float | None]]:
    data = RunData.from_folder(max(folders()).parent)
    return [(str(trial.outcome), trial.counted.reward if trial.counted else None) for trial in data.trials]


@contextmanager
def serving(**options: object) -> Iterator[FakeProvider]:
    """A provider in another thread: the command has an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    provider = FakeProvider(commands("true"), **options)  # type: ignore[arg-type]
    asyncio.run_coroutine_threadsafe(provider.__aenter__(), loop).result()
    try:
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(provider.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@needs_sandbox
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-agent --fast", "there is no program 'no-such-agent' in the sandbox"),
        ("/etc/hostname", "'/etc/hostname'"),
        ("bash nothing.sh", "there is no file 'nothing.sh'"),
    ],
)
def test_a_program_that_no_sandbox_has_stops_the_run_before_it_starts(capsys, command, said):
    assert main(["run", spec(by_command(command))]) == 2
    assert said in capsys.readouterr().err
    assert folders() == []
    assert main(["ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@needs_sandbox
def test_an_agent_that_works_and_then_ends_with_127_keeps_its_zero():
    assert main(["run", spec(by_command("sh -c 'rm -f /usr/bin/id; exit 127'"))]) == 0
    assert results() == [("failed", 0.0)]


@needs_sandbox
def test_a_program_that_one_task_lacks_makes_that_task_invalid_and_no_other(tmp_path):
    for name in ("has", "lacks"):
        folder = tmp_path / "suite" / name
        (folder / "tests").mkdir(parents=True)
        (folder / "environment").mkdir()
        (folder / "instruction.md").write_text("Do it.\n")
        (folder / "task.toml").write_text("[metadata]\n")
        (folder / "tests/test.sh").write_text("echo 0 > /logs/verifier/reward.txt\n")
        copy = "COPY agent.sh /app/agent.sh\nRUN chmod +x /app/agent.sh\n" if name == "has" else ""
        (folder / "environment/agent.sh").write_text("#!/bin/sh\nexit 127\n")
        (folder / "environment/Dockerfile").write_text(f"FROM debian:12\nWORKDIR /app\n{copy}")
    assert main(["run", spec(by_command("/app/agent.sh", tmp_path / "suite"))]) == 1
    assert sorted(results(), key=str) == [("failed", 0.0), ("invalid", None)]


@needs_sandbox
def test_an_install_step_that_brings_the_program_is_believed_after_it_ran():
    install = "printf '#!/bin/sh\\n' > /tmp/late; chmod +x /tmp/late"
    assert main(["run", spec(by_command("/tmp/late", install=install))]) == 0
    assert results() == [("failed", 0.0)]


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_model_that_the_service_does_not_know_is_refused(capsys, monkeypatch, command):
    with serving(models=["large"]) as provider:
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        assert main([command, spec(by_model("larg"), sandbox="fake")]) == 2
    assert "does not take the model 'larg'; did you mean 'large'?" in capsys.readouterr().err
    assert folders() == []


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_service_that_is_gone_is_refused(capsys, monkeypatch, command):
    with serving() as provider:
        address = provider.base_url
    monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", address)
    assert main([command, spec(by_model("any"), sandbox="fake")]) == 2
    assert f"{address} does not answer" in capsys.readouterr().err
    assert folders() == []


def test_plan_refuses_what_run_refuses_for_want_of_a_model(capsys):
    entry = by_model("any")
    del entry["model"]
    assert main(["plan", spec(entry, sandbox="fake")]) == 2
    assert "agent 'terminal' needs a model" in capsys.readouterr().err
    assert main(["plan", spec(by_model("any"), sandbox="fake")]) == 2
    assert "set PROCTOR_MODEL_BASE_URL" in capsys.readouterr().err


def test_a_task_without_its_recording_is_refused(capsys, tmp_path):
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings/other.json").write_text('{"steps": []}')
    options = {"trajectory": str(tmp_path / "recordings")}
    entry = {"path": str(TASKS / "shell-quiz"), "agent": "replay", "agent_options": options}
    assert main(["run", spec(entry, sandbox="fake")]) == 2
    assert "there is no recording of task 'proctor/shell-quiz'" in capsys.readouterr().err
    assert folders() == []


@needs_sandbox
def test_a_service_that_knows_the_model_is_used(monkeypatch):
    with serving(models=["large"]) as provider:
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        assert main(["run", spec(by_model("large"))]) == 0
        assert all(each["model"] == "large" for each in provider.requests)
    assert results() == [("failed", 0.0)]
