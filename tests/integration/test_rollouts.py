"""Agents on tasks in real sandboxes, from the spec to the folder."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.task import VerifierSpec
from proctor.runfolder.read import RunData
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.trial.progress import Logs
from proctor.trial.redact import Redactor
from proctor.trial.verify import VerifierInputs, verify

pytestmark = pytest.mark.needs("bubblewrap")
ROOT = Path(__file__).parent.parent.parent
TASKS = ROOT / "tasks"


FORGER = """
while :; do
  mkdir -p /logs/verifier
  echo 1 > /logs/verifier/reward.txt
  echo '{"reward": 1}' > /logs/verifier/reward.json
  echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh
  ln -sfn /etc /logs/verifier/x
done
"""


def latest() -> RunData:
    # Two runs of one second do not sort by their names.
    found = Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json")
    return RunData.from_folder(max(found, key=lambda each: each.stat().st_mtime_ns).parent)


def write_spec(folder: Path, **changes: object) -> Path:
    entry = {"dataset": str(TASKS), "agent": "oracle", "rollouts": 1, **changes.pop("entry", {})}
    file = folder / "rollouts.json"
    usual = {"name": "rollouts", "parallel": 2, "sandbox": {"host_root": True}}
    file.write_text(json.dumps({**usual, "tasks": [entry], **changes}))
    return file


def outcomes(data: RunData) -> dict[tuple[str, str], str]:
    return {
        (trial.planned.subject.removeprefix("proctor/"), str(trial.planned.agent)): str(trial.outcome)
        for trial in data.trials
    }


def test_every_sample_task_passes_with_its_oracle_and_fails_with_nop(tmp_path, capsys):
    measured = ["faster-windows", "leaner-totals"]  # in test_performance.py
    entry = {"agent": ["oracle", "nop"], "exclude": measured}
    assert main(["run", str(write_spec(tmp_path, entry=entry, parallel=4))]) == 0
    found = outcomes(latest())
    names = sorted({each.name for each in TASKS.iterdir()} - set(measured))
    assert len(names) >= 8
    assert {name: found[name, "oracle"] for name in names} == dict.fromkeys(names, "passed")
    assert {name: found[name, "nop"] for name in names} == dict.fromkeys(names, "failed")


def test_host_root_is_said_first_and_without_it_a_missing_image_is_no_agent_s_fault(tmp_path, capsys):
    make_task(tmp_path / "set/one", **{"environment/Dockerfile": "FROM no-such.invalid/image:1\n"})
    spec = write_spec(tmp_path, entry={"dataset": str(tmp_path / "set")}, sandbox="bubblewrap", retries=0)
    assert main(["run", str(spec)]) == 4
    assert outcomes(latest()) == {("one", "oracle"): "image_error"}
    assert "no-such.invalid/image:1" in latest().trials[0].counted.failure.message
    capsys.readouterr()
    assert main(["run", str(spec), "--host-root"]) == 0
    shown = capsys.readouterr()
    said = "host root: every sandbox used this machine's own system; results are not reproducible elsewhere"
    assert (shown.err or shown.out).startswith(said)
    assert f"{said.capitalize()}. " in shown.out
    folder = Path(latest().info.folder)
    for name in ("report.md", "report.html"):
        assert "Host root: every sandbox used this machine" in (folder / name).read_text()
    assert json.loads((folder / "summary.json").read_text())["host_root"] is True
    assert main(["show", "rollouts"]) == 0
    assert capsys.readouterr().out.startswith(said)
    assert main(["run", str(spec), "--host-root", "--set", "sandbox.backend=podman"]) == 2
    assert "host root works with bubblewrap only" in capsys.readouterr().err


def test_partial_work_earns_a_partial_reward(tmp_path):
    lines = ["mkdir -p filters", "printf '#!/bin/sh\\nuniq\\n' > filters/unique", "chmod +x filters/unique"]
    lines += ["printf '#!/bin/sh\\nhead -n 2 | tail -n 1\\n' > filters/longest", "chmod +x filters/longest"]
    lines += ["printf '#!/bin/sh\\nawk \"!seen[\\\\$0]++\"\\n' > filters/unique"]
    options = {"command": "\n".join(lines).replace("$", "$$")}
    entry = {"path": str(TASKS / "shell-quiz"), "agent": "command", "agent_options": options}
    entry["dataset"] = None
    tasks = [{key: value for key, value in entry.items() if value}]
    spec = {"name": "partial", "sandbox": {"host_root": True}, "tasks": tasks}
    (tmp_path / "s.json").write_text(json.dumps(spec))
    assert main(["run", str(tmp_path / "s.json")]) == 0
    (result,) = latest().trials
    assert (result.outcome, result.counted.reward) == (Outcome.PARTIAL, 0.4)


def make_task(folder: Path, **files: str) -> None:
    contents = {
        "task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": f"Do {folder.name}.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
        "solution/solve.sh": "touch /app/done\n",
        "tests/test.sh": "test -f /app/done; echo $((1 - $?)) > /logs/verifier/reward.txt\n",
        **files,
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("broken", "outcome"),
    [
        ({"environment/Dockerfile": "FROM debian:bookworm-slim\nRUN exit 7\n"}, "image_error"),
        ({"task.toml": '[environment]\nenv = { A = "${NOT_SET_ANYWHERE}" }\n'}, "invalid"),
        ({"tests/test.sh": None}, "invalid"),
        ({"task.toml": "[agent]\ntimeout_sec = 'soon'\n"}, "invalid"),
        ({"tests/test.sh": "exit 0\n"}, "verifier_error"),
    ],
    ids=["bad Dockerfile", "unset variable", "no tests", "wrong type", "no reward"],
)
def test_one_broken_task_in_fifteen_leaves_fourteen_complete(tmp_path, broken, outcome):
    for number in range(15):
        make_task(tmp_path / "set" / f"task{number:02d}")
    for name, text in broken.items():
        place = tmp_path / "set/task07" / name
        place.unlink() if text is None else place.write_text(text)
    spec = write_spec(tmp_path, entry={"dataset": str(tmp_path / "set")}, parallel=4, retries=0)
    assert main(["run", str(spec)]) in {1, 4}
    found = outcomes(latest())
    assert found.pop(("task07", "oracle")) == outcome
    assert list(found.values()) == ["passed"] * 14


def processes_marked(text: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


@pytest.mark.fault
def test_a_killed_run_leaves_nothing_after_the_next_start_and_resumes(tmp_path):
    mark = f"sleep 98{os.getpid()}"
    make_task(
        tmp_path / "set/slow", **{"solution/solve.sh": f"[ -f /app/quick ] || {mark}\ntouch /app/done\n"}
    )
    make_task(tmp_path / "set/fast")
    spec = write_spec(tmp_path, entry={"dataset": str(tmp_path / "set")}, timeout_s=3)
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", "run", str(spec)], start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not processes_marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_marked(mark)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    mounts = Path("/proc/self/mountinfo").read_text()
    assert main(["resume"]) == 0
    assert outcomes(latest()) == {("slow", "oracle"): "agent_timeout", ("fast", "oracle"): "passed"}
    assert processes_marked(mark) == []
    home = Path(os.environ["PROCTOR_HOME"]) / "sandboxes"
    assert str(home) not in Path("/proc/self/mountinfo").read_text() or str(home) not in mounts
    assert [each for each in home.rglob("upper") if each.is_dir() and any(each.iterdir())] == []


@pytest.mark.fault
@pytest.mark.anyio
async def test_a_background_process_never_forges_a_reward_in_a_thousand_tries(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test.sh").write_text("echo 0 > /logs/verifier/reward.txt\n")
    (tmp_path / "forge").mkdir()
    (tmp_path / "forge/forge.sh").write_text(FORGER)
    forger = "(setsid sh /forge/forge.sh > /dev/null 2>&1 &)"
    backend = Bubblewrap(tmp_path / "home")
    sandbox = backend.sandbox(SandboxRequest(name="forge", root=Root(host=True), limits=Limits()))
    await sandbox.start()
    await sandbox.upload(tmp_path / "forge", "/forge")
    tries = 1000
    forged = 0
    try:
        logs = Logs(tmp_path / "logs", Redactor({}))
        for number in range(tries):
            if number % 10 == 0:
                await sandbox.exec(["/bin/sh", "-c", forger], cwd="/")
            else:
                await sandbox.exec(["/bin/sh", "-c", f"{forger}; sleep 0.00{number % 10}"], cwd="/")
            given = VerifierInputs(spec=VerifierSpec(), env={}, cwd="/", logs=logs)
            verdict = await verify(sandbox, given, (tmp_path / "tests",), tmp_path / "keep")
            forged += verdict.outcome is not Outcome.FAILED
            shutil.rmtree(tmp_path / "keep")
            await asyncio.sleep(0)
    finally:
        await sandbox.stop()
        await backend.close()
    assert forged == 0
