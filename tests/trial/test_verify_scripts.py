"""A rubric's script without a first line that says so runs by its extension."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.task import Rubric, TestScript, VerifierSpec
from proctor.runfolder.read import RunData
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.trial.progress import Logs
from proctor.trial.redact import Redactor
from proctor.trial.verify import VerifierInputs, interpreter_of, verify_rubrics


@pytest.mark.parametrize(
    ("name", "text", "runs_it"),
    [
        ("a.py", "print(1)\n", "python3"),
        ("a.py", "#!/usr/bin/env python3\n", ""),
        ("a.sh", "true\n", "/bin/sh"),
        ("a.JS", "1\n", "node"),
        ("a", "true\n", ""),
        ("a.py", "\x7fELF", ""),
    ],
)
def test_the_extension_decides_where_the_file_does_not(tmp_path: Path, name, text, runs_it):
    (tmp_path / name).write_text(text)
    assert interpreter_of(tmp_path / name) == runs_it


@pytest.mark.needs("bubblewrap")
def test_a_python_script_without_a_first_line_judges(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, script in (("good", "import sys\nsys.exit(0)\n"), ("bad", "import sys\nsys.exit(1)\n")):
        folder = tmp_path / "suite" / name
        (folder / "repo").mkdir(parents=True)
        (folder / "tests").mkdir()
        (folder / "tests/judge.py").write_text(script)
        meta = {
            "instructions": "x",
            "repo": {"path": "repo", "end_commit_sha": "abc"},
            "test_scripts": ["judge.py"],
        }
        (folder / "tb_meta.json").write_text(json.dumps(meta))
    spec = {"tasks": [{"path": "suite", "agent": "nop"}], "sandbox": {"host_root": True}}
    Path("s.json").write_text(json.dumps(spec))
    assert main(["run", "s.json"]) == 0
    folder = max(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json")).parent
    data = RunData.from_folder(folder)
    assert {t.planned.subject: str(t.outcome) for t in data.trials} == {"good": "passed", "bad": "failed"}
    info = next(folder.rglob("repo_info.json")).read_text()
    assert json.loads(info)["end_commit_sha"] == "abc"


SCRIPTS = (
    TestScript("tests/test_a.py", "def test_a(): pass\n"),
    TestScript("check.sh", "exit 0\n"),
    TestScript("run.py", "import sys\n"),
    TestScript("own", "#!/bin/sh\n"),
)


async def scored(tmp_path: Path, handle) -> tuple:
    sandbox = Fake(handler=handle).sandbox(SandboxRequest(name="x", root=Root(host=True)))
    await sandbox.start()
    logs = Logs(tmp_path / "logs", Redactor({}), [])
    given = VerifierInputs(spec=VerifierSpec(), env={}, cwd="/app/repo", logs=logs)
    return await verify_rubrics(sandbox, given, tmp_path / "none", [Rubric(id="w", scripts=SCRIPTS)])


@pytest.mark.anyio
async def test_scripts_of_the_working_folder_run_there_and_each_is_a_share_of_the_score(tmp_path):
    ran: list[tuple[list[str], str]] = []
    files: dict[str, bytes] = {}

    def handle(command: FakeCommand) -> FakeResult:
        files.update(command.files)
        if command.argv[0] == "/bin/sh":
            ran.append((list(command.argv[-2:]), command.cwd))
        return FakeResult(exit_code=1 if command.argv[-1] == "./own" else 0)

    verdict, rows = await scored(tmp_path, handle)
    assert ran == [
        (["pytest", "tests/test_a.py"], "/app/repo"),
        (["/bin/sh", "./check.sh"], "/app/repo"),
        (["python3", "./run.py"], "/app/repo"),
        (["", "./own"], "/app/repo"),
    ]
    assert files["/app/repo/tests/test_a.py"] == b"def test_a(): pass\n"
    assert (verdict.reward, rows[0]["unit_score"]) == (0.75, 0.75)


@pytest.mark.anyio
async def test_an_image_without_pytest_is_the_tasks_fault_and_not_the_agents_zero(tmp_path):
    verdict, _ = await scored(tmp_path, lambda command: FakeResult(exit_code="import" in command.argv[-1]))
    assert (verdict.outcome, verdict.reward) == (Outcome.VERIFIER_ERROR, None)
    assert "the image has no pytest" in verdict.failure.message


@pytest.mark.needs("bubblewrap")
def test_a_prepared_task_of_the_other_dialect_runs_with_its_overlays(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "task"
    for name in ("overlay_files", "overlay_repo_files", "repo/junk"):
        (folder / name).mkdir(parents=True)
    (folder / "repo/junk/a.log").touch()
    (folder / "repo/b.log").touch()
    (folder / "overlay_files/around.txt").write_text("around")
    (folder / "overlay_files/tb_meta.json").write_text("the tests")
    (folder / "overlay_repo_files/inside.txt").write_text("inside")
    (folder / "Dockerfile").write_text("FROM debian:12\nWORKDIR /app\nCOPY overlay_files/ /app/\n")
    there, gone = ("../around.txt", "inside.txt", "made.txt"), ("b.log", "junk/a.log", "../tb_meta.json")
    check = " && ".join([*(f"test -f {each}" for each in there), *(f"! test -e {each}" for each in gone)])
    meta = {
        "task_id": "t",
        "metadata": {"title": "T"},
        "repo": {"branch": "main", "start_commit_sha": "HEAD"},
        "lm": {"instructions": "Make made.txt."},
        "evaluation": {
            "rubrics": [{"id": "a", "criterion": "A.", "weight": 0.4}, {"id": "b", "criterion": "B."}],
            "test_scripts": [{"path": "tests/check.sh", "rubric_id": "a", "content": f"{check}\n"}],
        },
    }
    (folder / "tb_meta.json").write_text(json.dumps(meta))
    (folder / "overrides.json").write_text(
        json.dumps(
            {"remove_repo_paths": ["*.log", "**/*.log"], "inject_files": [{"path": "c", "content": "c"}]}
        )
    )
    entry = {"path": "task", "agent": "command", "agent_options": {"command": "echo hi > made.txt"}}
    Path("s.json").write_text(json.dumps({"tasks": [entry], "sandbox": {"host_root": True}}))
    assert main(["run", "s.json"]) == 0
    trial = next(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("evaluation_results.json"))
    found = json.loads(trial.read_text())
    assert (found["total_score"], found["max_score"]) == (1.0, 1.0)
    assert [(each["unit_score"], each["status"]) for each in found["rubrics"]] == [
        (1.0, "tested"),
        (None, "untested"),
    ]
    patch = (trial.parent / "artifacts/diff.patch").read_text()
    assert re.findall(r"^diff --git a/(\S+)", patch, re.MULTILINE) == ["made.txt"]
